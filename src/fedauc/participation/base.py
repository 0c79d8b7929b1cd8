"""Who takes part in a round.

A participation is a frozen dataclass of settings; bound to a number of clients and a seed it becomes a
`Roster`, which answers for any round. Rosters that do not look at the clients' situation answer in time that
does not grow with the number of absent clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Situation(NamedTuple):
    """What a roster may look at when it picks the clients of a round."""

    weight: NDArray[np.float64]
    """[N] what each client counts for: ω, or the λ of an agnostic method."""
    times: Callable[[NDArray[np.int64]], NDArray[np.float64]]
    """Seconds that these clients would need to send a model in this round."""


class Roster(Protocol):
    """The participation of N given clients."""

    @property
    def cycle_length(self) -> int:
        """K: rounds until everybody had the chance to take part once (in expectation)."""

    @property
    def active(self) -> float:
        """M: clients of a round, on average."""

    @property
    def groups(self) -> list[NDArray[np.int64]]:
        """The groups, for reports; one group of everybody where there are none."""

    def select(self, round: int, now: Situation) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The clients of a round and how often each is expected to take part per cycle (π)."""


class Participation(Protocol):
    """Settings that can be bound to clients."""

    def bind(self, clients: int, seed: int) -> Roster:
        """The roster of `clients` clients."""
