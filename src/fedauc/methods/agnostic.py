"""Agnostic federated learning: the worst mixture of clients (CE-Minimax, Minimax-Uniform, -Weighted, -All).

    min over w, max over λ in the simplex of  Σ_n λ_n f_n(w) - ϱ N Σ_n (λ_n - 1/N)²

    server, round t                                       client n
      phase 1: clients S by the participation (q)           gradient of f_n on a batch (or I local steps)
        w ← w - η Σ_{n∈S} λ_n/q_n ∇f_n(w)
      phase 2: m clients U, uniformly                       its loss at w⁽ᵗ⁾ on another batch: one number
        λ ← Π(λ + η_λ [N/m · loss_n]_{n∈U} - η_λ ϱ 2N (λ - 1/N))

Mohri, Sivek & Suresh, "Agnostic federated learning", ICML 2019; "Client sampling for communication-efficient
distributed minimax optimization" (CE-Minimax: Alg. 1, eq. 4-7; q from its problem P1 is the participation
`optimal`, ∝ λ is `weighted`). Any rule can be inside, so f_n may be cross-entropy or an AUC loss.

Where this departs from the papers, and why: phase 2 is carried out before phase 1 and takes effect after it;
both see w⁽ᵗ⁾ and λ⁽ᵗ⁾, so the order is only a matter of what the server has to keep. λ is kept inside a box
[low, high] as well where the user gives one. With an AUC loss a client of one class has no ranking that could
be good or bad: it keeps λ = 0 (with a weight of its own it pushed all scores one way: AUC 0.47).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core.method import Aggregate, Batch, Cohort, Gathered, Knobs, Method, Phase, Upload, moved
from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.methods.base import Wrapper
from fedauc.participation.uniform import Uniform


class Server(NamedTuple):
    inner: Any
    lam: Tensor
    """λ⁽ᵗ⁾ [N], in force now."""
    following: Tensor
    """λ⁽ᵗ⁺¹⁾, in force after this round."""
    able: Tensor
    """[N] which clients have a loss of their own; the others keep λ = 0."""

    @property
    def z(self) -> Tree:
        return self.inner.z


@dataclass(frozen=True)
class Agnostic(Wrapper):
    """Clients with a large loss count for more: the mixture of clients that is worst for the model."""

    inner: Method
    eta_lambda: float = 0.01
    """η_λ, the step size of the clients' weights."""
    chi2: float = 1e-5
    """ϱ, the strength of the χ² pull towards equal weights."""
    report: int | None = None
    """m of phase 2, clients that report their loss; as many as of the default random participation."""
    low: float = 0.0
    """Lower bound of a client's weight."""
    high: float = 1.0
    """Upper bound of a client's weight."""

    def __post_init__(self) -> None:
        if self.eta_lambda < 0 or self.chi2 < 0:
            raise InputError("eta_lambda and chi2 must not be negative.")
        if not 0 <= self.low < self.high <= 1:
            raise InputError(f"the weights' box needs 0 ≤ low < high ≤ 1, not [{self.low}, {self.high}].")
        if getattr(self.inner, "reweighs", False):
            raise InputError("the inner method decides already what clients count for; choose one.")
        if self.keeps_shares:
            raise InputError(
                "control variates are a weighted mean of the clients' gradients, which the server cannot"
                " re-weigh, but agnostic weights change every round, so they would not cancel; choose one."
            )

    def phases(self, new_stage: bool) -> tuple[Phase, ...]:
        return Phase(Report(self.inner, self), Uniform(self.report)), *super().phases(new_stage)

    def server_init(self, params: Tree, counts: NDArray[np.int64]) -> Server:
        able = torch.from_numpy(counts.all(axis=1) if self.ranks else counts.any(axis=1))
        n = int(able.sum())
        if n == 0:
            raise InputError("no client has rows of both classes, so none has an AUC of its own to improve.")
        if not self.low <= 1 / n <= self.high:
            raise InputError(f"no weights of {n} clients in [{self.low}, {self.high}] sum to one.")
        inner = self.inner.server_init(params, counts)
        able = able.to(next(iter(inner.z.values())).device)
        lam = able.double() / n
        return Server(inner, lam, lam, able)

    @property
    def reweighs(self) -> bool:
        return True

    def importance(self, s: Server) -> Tensor:
        return s.lam

    def server_update(self, s: Server, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Server:
        inner = self.inner.server_update(s.inner, aggregate, cohort, knobs)
        return s._replace(inner=inner, lam=s.following)

    def ascended(self, lam: Tensor, losses: Tensor, clients: Tensor, able: Tensor) -> Tensor:
        """λ⁽ᵗ⁺¹⁾ from the losses of the clients that reported."""
        n = int(able.sum())
        gradient = -2 * self.chi2 * n * (lam - 1 / n)
        gradient[clients] += len(lam) / len(clients) * losses
        new = torch.zeros_like(lam)
        new[able] = on_simplex((lam + self.eta_lambda * gradient)[able], self.low, self.high)
        return new


@dataclass(frozen=True)
class Report(Wrapper):
    """Phase 2: clients say how large their loss is; nobody trains."""

    inner: Method
    agnostic: Agnostic

    def client_step(self, l: Any, batch: Batch, eta: Tensor) -> tuple[Any, Tree]:
        """The loss where the round starts: a step of size zero, because a momentum moves before it looks."""
        after, outs = self.inner.client_step(l, batch, torch.zeros_like(eta))
        return moved(after, l.z), {"loss": outs["loss"]}

    def client_finish(self, d: Any, l: Any, c: Tree, outs: Tree, knobs: Knobs) -> tuple[Upload, Tree]:
        loss = outs["loss"].mean()[None]
        return Upload(mean={}, gather={"loss": Gathered(loss, torch.ones_like(loss, dtype=torch.bool))}), {}

    def server_update(self, s: Server, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Server:
        pool = aggregate.gather["loss"]
        losses = pool.values.to(s.lam).nan_to_num(0.0)  # there is none while pools of scores are being filled
        clients = torch.from_numpy(cohort.clients)[pool.owner.cpu()].to(s.lam.device)
        return s._replace(following=self.agnostic.ascended(s.lam, losses, clients, s.able))


def on_simplex(v: Tensor, low: float, high: float) -> Tensor:
    """The nearest point with low ≤ λ ≤ high and Σλ = 1: clip(v - θ).

    As θ grows each λ falls from high to low between v - high and v - low, so that Σλ is linear between these
    ends, with as many free weights as its slope; θ is where it is 1.
    """
    ends, order = torch.cat((v - high, v - low)).sort()
    free = torch.where(order < len(v), 1.0, -1.0).to(v).cumsum(0)[:-1]
    fallen = (free * ends.diff()).cumsum(0)
    too_much = len(v) * high - 1  # of Σλ, where all are high
    last = torch.searchsorted(fallen, too_much).clamp(max=len(free) - 1)
    theta = ends[last + 1] - (fallen[last] - too_much) / free[last].clamp(min=1)
    lam = (v - theta).clamp(low, high)
    inside = (lam > low) & (lam < high)  # what rounding leaves over
    return torch.where(inside, lam + (1 - lam.sum()) / inside.sum().clamp(min=1), lam).clamp(low, high)
