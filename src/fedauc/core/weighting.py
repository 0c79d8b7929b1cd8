"""What a client counts for.

The federation's objective has two class expectations, E⁺ = Σᵢ C⁺ᵢ E⁺ᵢ and E⁻ = Σᵢ C⁻ᵢ E⁻ᵢ, each over the
clients that *have* that class: rare positives make clients without any the normal case, and if they
counted in E⁺ the majority would push every score down. With nᵢ examples of a class,

    Cᵢ ∝ nᵢ^τ over the clients that have the class,      Σᵢ Cᵢ = 1

τ = 0 is `uniform` over clients as in the papers, τ = 1 is `examples`, which targets the pooled AUC.

How Cᵢ is carried out is a second choice. `aggregate` splits it into an aggregation weight and a bounded
local part,

    ωᵢ = (C⁺ᵢ + C⁻ᵢ)/2,      c±ᵢ = C±ᵢ / ωᵢ ∈ [0, 2],

so that a client which holds a large share of the positives moves the *average* more but does not take
steps that are many times longer than the others' (local drift grows with the square of the step). `local`
puts everything into the client's own objective (ωᵢ = 1/N, c±ᵢ = N·C±ᵢ). To first order in η both are the
same update.

Participation makes it unbiased: a client that takes part πᵢ times per cycle of K rounds in expectation
enters a round's sum with ŵᵢ = K ωᵢ / πᵢ (1/M for the papers' uniform case with equal groups). The
weights of a round need not sum to 1: the group that holds most of the positives moves the server further
than the others do. Normalising them round by round would look tidy and is wrong: it tilts the balance of E⁺
and E⁻, and the scores drift along the mean example (digits, 22 positives of which one client holds 19:
AUC 0.79 instead of 0.96).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedauc.core.method import Cohort
from fedauc.participation.base import Roster, Situation

ClientWeight = Literal["uniform", "sqrt", "examples"]
Balance = Literal["aggregate", "local"]
Times = Callable[[NDArray[np.int64]], NDArray[np.float64]]
TAU: dict[str, float] = {"uniform": 0.0, "sqrt": 0.5, "examples": 1.0}


@dataclass(frozen=True)
class Weighting:
    """ω [N], c [N, 2] and C [N, 2], columns negatives and positives."""

    omega: NDArray[np.float64]
    local: NDArray[np.float64]
    share: NDArray[np.float64]

    def cohort(self, roster: Roster, round: int, times: Times) -> Cohort:
        """The cohort of a round, with everybody's weights."""
        clients, expected = roster.select(round, Situation(self.omega, times))
        correction = roster.cycle_length / expected
        omega, share = self.omega[clients], self.share[clients] * correction[:, None]
        return Cohort(clients, omega * correction, omega, self.local[clients], share)


def by_class(
    counts: NDArray[np.int64], client_weight: ClientWeight = "uniform", balance: Balance = "aggregate"
) -> Weighting:
    """Weights for objectives of two class expectations; counts [N, 2] are negatives and positives."""
    powered = np.where(counts > 0, counts.astype(np.float64) ** TAU[client_weight], 0.0)
    total = powered.sum(axis=0)
    share = powered / np.where(total > 0, total, 1.0)
    if balance == "aggregate":
        omega = share.sum(axis=1) / np.count_nonzero(total)
    else:
        omega = np.full(len(counts), 1.0 / len(counts))
    local = np.divide(share, omega[:, None], out=np.zeros_like(share), where=omega[:, None] > 0)
    return Weighting(omega, local, share)


def by_client(counts: NDArray[np.int64], client_weight: ClientWeight = "uniform") -> Weighting:
    """Weights for objectives of one expectation (cross-entropy): C⁺ = C⁻ = ω over clients that have rows."""
    rows = counts.sum(axis=1)
    powered = np.where(rows > 0, rows.astype(np.float64) ** TAU[client_weight], 0.0)
    omega = powered / powered.sum()
    both = np.stack([omega, omega], axis=1)
    return Weighting(omega, np.ones_like(both), both)


def by_importance(counts: NDArray[np.int64], weight: NDArray[np.float64]) -> Weighting:
    """Weights that a method decides (λ): a client's objective is its own, over the classes that it has."""
    return Weighting(weight, (counts > 0).astype(np.float64), np.stack([weight, weight], axis=1))
