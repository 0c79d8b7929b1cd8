"""Everybody, every round (CODA+, and the classical analyses)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedauc.participation.base import Situation


@dataclass(frozen=True)
class Full:
    """All N clients take part in every round; a cycle is one round."""

    def bind(self, clients: int, seed: int) -> FullRoster:
        return FullRoster(clients)


@dataclass(frozen=True)
class FullRoster:
    clients: int
    cycle_length: int = 1

    @property
    def active(self) -> float:
        return float(self.clients)

    @property
    def groups(self) -> list[NDArray[np.int64]]:
        return [np.arange(self.clients)]

    def select(
        self, round: int, now: Situation | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        return np.arange(self.clients), np.ones(self.clients)
