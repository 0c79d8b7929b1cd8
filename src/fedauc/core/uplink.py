"""How long clients need to send a model up.

Xu et al., "Client sampling for communication-efficient distributed minimax optimization", measure a method
by the time its uplinks take: T_n seconds for client n to send one model (the downlink is a broadcast and
costs the same for everybody). With time division (TDMA) the clients S of a round send one after another and
their times add up, Σ_{n∈S} T_n (eq. 3); with an uplink of their own each, the slowest decides, max_{n∈S} T_n.
`combine` is that choice. Problem P1 (`participation.optimal`) is stated for the sum.

An uplink is a frozen dataclass of settings; the times are a pure function of (seed, round, client), so a
resumed run sees the same channel and nobody computes the times of clients that do not send.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedauc.core import rng
from fedauc.errors import InputError

Combine = Literal["sum", "max"]


class Uplink(Protocol):
    """Settings that say how long uploads take."""

    @property
    def combine(self) -> Combine:
        """Uploads of a round one after another (`sum`) or at the same time (`max`)."""

    def times(self, clients: NDArray[np.int64], total: int, round: int, seed: int) -> NDArray[np.float64]:
        """Seconds that each of these clients (of `total`) needs to send one model in this round."""


@dataclass(frozen=True)
class Fixed:
    """Known times that stay as they are."""

    seconds: tuple[float, ...] = (0.01, 0.001)
    """One time per client, or fewer: then the clients are split into as many equal, consecutive blocks
    (0.01, 0.001 is the paper's 10 ms for the first half of the clients and 1 ms for the second)."""
    combine: Combine = "sum"
    """Uploads of a round one after another (`sum`, TDMA) or at the same time (`max`)."""

    def __post_init__(self) -> None:
        if not self.seconds or not all(0 <= value < math.inf for value in self.seconds):
            raise InputError(f"seconds={self.seconds} must be one or more times, none of them negative.")

    def times(self, clients: NDArray[np.int64], total: int, round: int, seed: int) -> NDArray[np.float64]:
        blocks = len(self.seconds)
        if blocks > max(total, len(Fixed.seconds)):
            raise InputError(f"seconds names {blocks} uplink times, but there are only {total} clients.")
        blocks = min(blocks, total)  # one client, and the two times of the default: the first
        return np.asarray(self.seconds, dtype=np.float64)[np.asarray(clients) * blocks // total]


@dataclass(frozen=True)
class Drawn:
    """Log-normal times: slow and fast clients, or a channel that changes from round to round."""

    median: float = 0.01
    """Seconds; half of the draws are below."""
    spread: float = 1.0
    """Standard deviation of the time's natural logarithm; 1: two thirds within a factor of 2.7."""
    per: Literal["client", "round"] = "client"
    """Drawn once for every client, or anew for every client in every round."""
    combine: Combine = "sum"
    """Uploads of a round one after another (`sum`, TDMA) or at the same time (`max`)."""

    def __post_init__(self) -> None:
        if not 0 < self.median < math.inf:
            raise InputError(f"median={self.median} must be positive.")
        if not 0 <= self.spread < math.inf:
            raise InputError(f"spread={self.spread} must not be negative.")

    def times(self, clients: NDArray[np.int64], total: int, round: int, seed: int) -> NDArray[np.float64]:
        when = 0 if self.per == "client" else 1 + round
        chance = rng.uniform(seed, rng.UPLINK, when, np.asarray(clients))
        normal = ndtri(chance + 2.0**-54)  # half a step up: a draw of 0 would be minus infinity
        return np.asarray(self.median * np.exp(self.spread * normal), dtype=np.float64)


@dataclass(frozen=True)
class Unknown:
    """Times are not known: only bytes are counted."""


UPLINKS: dict[str, type] = {"none": Unknown, "fixed": Fixed, "drawn": Drawn}
