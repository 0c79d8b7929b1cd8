"""Uniform random participation: M of all N clients, without replacement (RS-Minimax, FedXL)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedauc.core import rng
from fedauc.errors import InputError
from fedauc.participation.base import Situation
from fedauc.participation.cyclic import default_groups


@dataclass(frozen=True)
class Uniform:
    """M clients per round, drawn from all."""

    per_round: int | None = None
    """M; where not said, as many as a group of the default cyclic participation has."""

    def bind(self, clients: int, seed: int) -> UniformRoster:
        m = self.per_round if self.per_round is not None else max(1, round(clients / default_groups(clients)))
        if not 1 <= m <= clients:
            raise InputError(f"per_round={m} needs between 1 and {clients} for {clients} clients.")
        return UniformRoster(clients, m, seed)


@dataclass(frozen=True)
class UniformRoster:
    clients: int
    per_round: int
    seed: int

    @property
    def cycle_length(self) -> int:
        """⌈N/M⌉ rounds, so that a cycle costs what a cycle of the cyclic schedule costs."""
        return math.ceil(self.clients / self.per_round)

    @property
    def active(self) -> float:
        return float(self.per_round)

    @property
    def groups(self) -> list[NDArray[np.int64]]:
        return [np.arange(self.clients)]

    def select(
        self, round: int, now: Situation | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        key = rng.fold(self.seed, rng.COHORT, round)
        picked = rng.permuted(key, np.array([self.clients]), np.arange(self.per_round))
        expected = self.cycle_length * self.per_round / self.clients
        return np.sort(picked), np.full(self.per_round, expected)
