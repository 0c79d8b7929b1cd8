"""Rows of many clients behind offsets.

A client's rows are kept together and sorted by class (like a CSR matrix: one permutation of the rows and
two offsets per client), so that stratified draws for any number of clients are one indexed gather and a
million clients cost no Python objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core import rng
from fedauc.core.method import Batch, Cohort, Draw
from fedauc.errors import InputError

AT_ONCE = 2**24
"""Bytes up to which a round's rows are gathered at once."""


@dataclass(frozen=True)
class FederatedData:
    """Training rows of N clients."""

    x: Tensor
    y: Tensor
    order: NDArray[np.int64]
    """Row numbers sorted by client, negatives before positives."""
    start: NDArray[np.int64]
    """[N + 1]: client i's rows are order[start[i]:start[i + 1]]."""
    counts: NDArray[np.int64]
    """[N, 2]: negatives and positives of each client."""
    names: Sequence[str]

    @classmethod
    def build(
        cls, x: Tensor, y: Tensor, client: NDArray[np.int64], names: Sequence[str], device: str = "cpu"
    ) -> FederatedData:
        """Group rows by client; `client` holds codes into `names`, y is 0 or 1."""
        label = y.numpy(force=True).astype(np.int64)
        code = np.asarray(client, dtype=np.int64) * 2 + label
        counts = np.bincount(code, minlength=2 * len(names)).reshape(-1, 2)
        if not counts.sum(axis=0).all():
            missing = "positive" if counts[:, 1].sum() == 0 else "negative"
            raise InputError(f"the training rows have no {missing} example, so there is nothing to rank.")
        start = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
        order = np.argsort(code, kind="stable")
        return cls(x.to(device), y.to(device=device, dtype=x.dtype), order, start, counts, names)

    @property
    def clients(self) -> int:
        return len(self.counts)

    def gather(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Features and labels of rows, in the shape of `rows`."""
        index = torch.from_numpy(rows).to(self.x.device)
        return self.x[index], self.y[index]


class Draws:
    """The examples and weights of all local steps of a round: rows [M, I, B] and weight [M, I, B].

    A client walks through a fresh permutation of its rows (of each class, when stratified) every round:
    without replacement within a round for as long as there are rows.
    """

    def __init__(
        self, data: FederatedData, cohort: Cohort, draw: Draw, steps: int, batch: int, seed: int, round: int
    ) -> None:
        self.data, self.steps = data, steps
        counts = data.counts[cohort.clients]
        if not counts.sum(axis=1).all():
            empty = cohort.clients[counts.sum(axis=1) == 0][0]
            raise InputError(f"client {data.names[empty]!r} has no training rows, so it cannot take part.")
        key = rng.fold(seed, rng.BATCH, round, cohort.clients)[:, None]
        positions, weight = (_stratified if draw == "stratified" else _natural)(
            counts, cohort.local, key, steps, batch
        )
        rows = data.order[data.start[cohort.clients][:, None] + positions]
        self.rows = rows.reshape(len(cohort.clients), steps, batch)
        within = np.where(positions < counts[:, :1], positions, positions - counts[:, :1])
        self.row = torch.from_numpy(within.reshape(self.rows.shape)).to(data.x.device)
        self.weight = torch.as_tensor(weight, dtype=data.x.dtype, device=data.x.device)
        self.whole = self._gathered()

    def step(self, t: int, clients: slice = slice(None)) -> Batch:
        """The batches of local step t, with a leading client axis."""
        if self.whole is None:
            x, y = self.data.gather(self.rows[clients, t])
        else:
            x, y = (part[t, clients] for part in self.whole)
        return Batch(x, y, self.weight[clients], self.row[clients, t])

    def _gathered(self) -> tuple[Tensor, Tensor] | None:
        """All steps' rows in one gather [I, M, B, …], where they are small."""
        size = self.rows.size * self.data.x[0].numel() * self.data.x.element_size()
        return self.data.gather(self.rows.transpose(1, 0, 2)) if size <= AT_ONCE else None


def _stratified(
    counts: NDArray[np.int64], local: NDArray[np.float64], key: rng.U64, steps: int, batch: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Half of the slots for each class; a client that lacks a class fills all slots with the other."""
    half = batch // 2
    negatives, positives = counts[:, 0], counts[:, 1]
    slots = np.where(negatives == 0, batch, np.where(positives == 0, 0, half))[:, None]  # positive slots
    slot = np.arange(batch)[None, :]
    is_positive = slot < slots
    per_step = np.where(is_positive, slots, batch - slots)
    within = np.where(is_positive, slot, slot - slots)
    position = np.arange(steps)[:, None] * per_step[:, None, :] + within[:, None, :]  # [M, I, B]
    wide = np.broadcast_to(is_positive[:, None, :], position.shape).reshape(len(counts), -1)
    n = np.where(wide, positives[:, None], negatives[:, None])
    keys = np.where(wide, rng.fold(key, 1), rng.fold(key, 0))
    index = rng.permuted(keys, np.maximum(n, 1), position.reshape(len(counts), -1))
    weight = np.where(is_positive, local[:, 1:], local[:, :1]) / np.maximum(per_step, 1)
    return index + np.where(wide, negatives[:, None], 0), weight


def _natural(
    counts: NDArray[np.int64], local: NDArray[np.float64], key: rng.U64, steps: int, batch: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows as they come, each with weight 1/B."""
    n = counts.sum(axis=1)[:, None]
    index = rng.permuted(rng.fold(key, 2), n, np.arange(steps * batch)[None, :])
    return index, np.full((len(counts), batch), 1.0 / batch)
