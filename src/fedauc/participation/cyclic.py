"""Cyclic participation: K groups in a fixed order, M clients of the active group per round.

Cho et al., "On the convergence of federated averaging with cyclic client participation", ICML 2023;
the setting of "Communication-Efficient Federated AUC Maximization with Cyclic Client Participation".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedauc.core import rng
from fedauc.errors import InputError
from fedauc.participation.base import Situation


def default_groups(clients: int) -> int:
    """K where the user names none: √N, at most 10 (100 clients: 10 groups of 10)."""
    return max(1, min(10, round(math.sqrt(clients))))


@dataclass(frozen=True)
class Cyclic:
    """Groups in a fixed order; of the active group `per_round` clients (M), all of them where not said."""

    groups: int | None = None
    """K, the number of groups; √N and at most 10 where not said."""
    per_round: int | None = None
    """M, clients of the active group that take part in a round; all where not said."""
    assign: Literal["random", "order"] = "random"
    """Deal clients to groups at random (by the seed) or in the order of their names."""
    group_of: tuple[int, ...] | None = None
    """The group of each client, from 0 on, in the order of their names: groups that are given, not dealt."""

    def bind(self, clients: int, seed: int) -> CyclicRoster:
        if self.per_round is not None and self.per_round < 1:
            raise InputError(f"per_round={self.per_round} must be at least 1.")
        if self.group_of is not None:
            return self._given(clients, seed)
        count = self.groups if self.groups is not None else default_groups(clients)
        if not 1 <= count <= clients:
            raise InputError(f"groups={count} needs between 1 and {clients} groups for {clients} clients.")
        order = np.arange(clients)
        if self.assign == "random":
            order = rng.generator(seed, rng.GROUPS).permutation(clients)
        bounds = np.linspace(0, clients, count + 1).round().astype(np.int64)
        return CyclicRoster(order, bounds, self.per_round, seed)

    def _given(self, clients: int, seed: int) -> CyclicRoster:
        given = np.array(self.group_of, dtype=np.int64)
        if len(given) != clients:
            raise InputError(f"group_of names the groups of {len(given)} clients, and there are {clients}.")
        sizes = np.bincount(given) if len(given) and given.min() >= 0 else np.zeros(1, dtype=np.int64)
        if not sizes.all() or self.groups not in (None, len(sizes)):
            raise InputError(
                f"group_of={given.tolist()} must name every group from 0 on, as many as groups=."
            )
        bounds = np.concatenate(([0], np.cumsum(sizes)))
        return CyclicRoster(np.argsort(given, kind="stable"), bounds, self.per_round, seed)


@dataclass(frozen=True)
class CyclicRoster:
    order: NDArray[np.int64]
    bounds: NDArray[np.int64]
    per_round: int | None
    seed: int

    @property
    def cycle_length(self) -> int:
        return len(self.bounds) - 1

    @property
    def active(self) -> float:
        return float(np.minimum(np.diff(self.bounds), self.per_round or len(self.order)).mean())

    @property
    def groups(self) -> list[NDArray[np.int64]]:
        return [np.sort(self.order[a:b]) for a, b in zip(self.bounds[:-1], self.bounds[1:], strict=True)]

    def select(
        self, round: int, now: Situation | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        k = round % self.cycle_length
        start, size = self.bounds[k], int(self.bounds[k + 1] - self.bounds[k])
        m = size if self.per_round is None else min(self.per_round, size)
        picked = np.arange(m)
        if m < size:  # without replacement, in O(M)
            picked = rng.permuted(rng.fold(self.seed, rng.COHORT, round), np.array([size]), np.arange(m))
        return np.sort(self.order[start + picked]), np.full(m, m / size)
