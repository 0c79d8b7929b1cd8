"""Who takes part in a round.

A participation is a frozen dataclass of settings; bound to a number of clients and a seed it becomes a
`Roster`, which answers for any round in time that does not grow with the number of absent clients.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Roster(Protocol):
    """The participation of N given clients."""

    @property
    def cycle_length(self) -> int:
        """K: rounds until everybody had the chance to take part once (in expectation)."""

    @property
    def groups(self) -> list[NDArray[np.int64]]:
        """The groups, for reports; one group of everybody where there are none."""

    def select(self, round: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The clients of a round and how often each is expected to take part per cycle (π)."""


class Participation(Protocol):
    """Settings that can be bound to clients."""

    def bind(self, clients: int, seed: int) -> Roster:
        """The roster of `clients` clients."""
