"""Rows of many clients behind offsets.

A client's rows are kept together and sorted by class (like a CSR matrix: one permutation of the rows and
two offsets per client), so that stratified draws for any number of clients are one indexed gather and a
million clients cost no Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core import rng
from fedauc.core.method import Batch, Cohort, Draw
from fedauc.core.tree import placed
from fedauc.data.augment import VIEWS, Augment, taken
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
    first: int = 0
    """Number of the first of these clients: a site has the rows of one client of many."""
    augment: Augment | None = None
    """Images are seen in random views."""

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

    @cached_property
    def rows_in_order(self) -> Tensor:
        """`order`, beside the rows."""
        return placed(self.order, self.x)

    def gather(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Features and labels of examples, in the shape of `numbers`."""
        x, y = taken(self.x, self.y, numbers.flatten(), self.augment)
        return x.unflatten(0, numbers.shape), y.view(numbers.shape)


class Draws:
    """The examples and weights of all local steps of a round: rows [M, I, B] and weight [M, B].

    A client walks through a fresh permutation of its rows (of each class, when stratified) every round:
    without replacement within a round for as long as there are rows. Nothing is drawn before it is asked
    for: the draws of some of the clients are those of `part`.
    """

    def __init__(
        self, data: FederatedData, cohort: Cohort, draw: Draw, steps: int, batch: int, seed: int, round: int
    ) -> None:
        self.data, self.cohort, self.draw = data, cohort, draw
        self.steps, self.batch, self.seed, self.round = steps, batch, seed, round
        self.members = cohort.clients - data.first
        self.counts = data.counts[self.members]
        if not self.counts.sum(axis=1).all():
            empty = self.members[self.counts.sum(axis=1) == 0][0]
            raise InputError(f"client {data.names[empty]!r} has no training rows, so it cannot take part.")

    @property
    def clients(self) -> int:
        return len(self.cohort.clients)

    def part(self, clients: slice) -> Draws:
        """The draws of some of the clients."""
        cohort = self.cohort.part(clients)
        return Draws(self.data, cohort, self.draw, self.steps, self.batch, self.seed, self.round)

    def step(self, t: int) -> Batch:
        """The batches of local step t, with a leading client axis."""
        if self._gathered is None:
            x, y = self.data.gather(self.index[t])
        else:
            x, y = self._gathered[t]
        return Batch(x, y, self.weight, self._rows[t])

    @property
    def rows(self) -> NDArray[np.int64]:
        """[M, I, B]: row numbers."""
        return self.index.transpose(0, 1).numpy(force=True) % len(self.data.x)

    @cached_property
    def index(self) -> Tensor:
        """[I, M, B]: row numbers, with their views where images are augmented, on the data's device."""
        first = placed(self.data.start[self.members][:, None], self.data.x)
        where = self._positions + first
        rows = self.data.rows_in_order.index_select(0, where.flatten()).view(where.shape)
        if self.data.augment is None:
            return rows
        step, slot = np.arange(self.steps)[:, None, None], np.arange(self.batch)
        word = rng.fold(self.seed, rng.VIEW, self.round, self.cohort.clients[:, None], step, slot)
        return rows + len(self.data.x) * placed((word % np.uint64(VIEWS)).astype(np.int64), self.data.x)

    @cached_property
    def row(self) -> Tensor:
        """[I, M, B]: which of its client's rows of its class an example is."""
        negatives = placed(self.counts[:, :1], self.data.x)
        return torch.where(self._positions < negatives, self._positions, self._positions - negatives)

    @cached_property
    def weight(self) -> Tensor:
        """[M, B]: what the slots of a batch count for."""
        return placed(self._slots.weight, self.data.x, self.data.x.dtype)

    @cached_property
    def _positions(self) -> Tensor:
        """[I, M, B]: where among its client's rows an example is."""
        slots, steps = self._slots, np.arange(self.steps)[:, None, None]
        on_device = _permuted_on_device() if self.data.x.is_cuda else None
        if on_device is None:
            position = steps * slots.per_step + slots.within
            return placed(rng.permuted(slots.key, slots.n, position) + slots.first, self.data.x)
        words = (slots.key.view(np.int64), rng.halves(slots.n), slots.n, steps, slots.per_step, slots.within)
        key, half, n, step, per_step, within = (placed(word, self.data.x) for word in words)
        return on_device(key, half, n, step * per_step + within) + placed(slots.first, self.data.x)

    @cached_property
    def _slots(self) -> Slots:
        key = rng.fold(self.seed, rng.BATCH, self.round, self.cohort.clients)[:, None]
        slots = _stratified if self.draw == "stratified" else _natural
        return slots(self.counts, self.cohort.local, key, self.batch)

    @cached_property
    def _gathered(self) -> list[tuple[Tensor, Tensor]] | None:
        """Each step's features and labels, of all steps in one gather where they are small."""
        size = self.index.numel() * self.data.x[0].numel() * self.data.x.element_size()
        if size > AT_ONCE:
            return None
        x, y = self.data.gather(self.index)
        return list(zip(x.unbind(), y.unbind(), strict=True))

    @cached_property
    def _rows(self) -> tuple[Tensor, ...]:
        return self.row.unbind()


def _permuted_on_device() -> Callable[..., Tensor] | None:
    try:
        from fedauc.core.rng_cuda import permuted
    except ImportError:  # a CUDA build without Triton
        return None
    return permuted


class Slots(NamedTuple):
    """What the B places of a client's batches are filled with; everything is [M, B] or broadcasts to it."""

    key: rng.U64
    """Of the permutation that a slot walks through."""
    n: NDArray[np.int64]
    """Rows that it permutes."""
    first: NDArray[np.int64]
    """Where these begin among the client's rows."""
    per_step: NDArray[np.int64]
    """Slots of a batch that walk through the same permutation."""
    within: NDArray[np.int64]
    """Which of them this one is."""
    weight: NDArray[np.float64]


def _stratified(counts: NDArray[np.int64], local: NDArray[np.float64], key: rng.U64, batch: int) -> Slots:
    """Half of the slots for each class; a client that lacks a class fills all slots with the other."""
    half = batch // 2
    negatives, positives = counts[:, :1], counts[:, 1:]
    slots = np.where(negatives == 0, batch, np.where(positives == 0, 0, half))  # positive slots
    slot = np.arange(batch)[None, :]
    is_positive = slot < slots
    per_step = np.where(is_positive, slots, batch - slots)
    return Slots(
        key=np.where(is_positive, rng.fold(key, 1), rng.fold(key, 0)),
        n=np.maximum(np.where(is_positive, positives, negatives), 1),
        first=np.where(is_positive, negatives, 0),
        per_step=per_step,
        within=np.where(is_positive, slot, slot - slots),
        weight=np.where(is_positive, local[:, 1:], local[:, :1]) / np.maximum(per_step, 1),
    )


def _natural(counts: NDArray[np.int64], local: NDArray[np.float64], key: rng.U64, batch: int) -> Slots:
    """Rows as they come, each with weight 1/B."""
    return Slots(
        key=rng.fold(key, 2),
        n=counts.sum(axis=1)[:, None],
        first=np.zeros((1, 1), dtype=np.int64),
        per_step=np.full((1, 1), batch),
        within=np.arange(batch)[None, :],
        weight=np.full((len(counts), batch), 1.0 / batch),
    )
