"""Training, validation and test rows: stratified by client and class, or in the order of a column."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedauc.errors import InputError

PARTS = ("train", "valid", "test")
Fractions = Sequence[float] | Mapping[str, float]
_DUST = 1e-6  # what a count may be off by rounding and still be whole


def stratified_split(
    y: np.ndarray, client: np.ndarray, fractions: Fractions, rng: np.random.Generator | int
) -> tuple[np.ndarray, ...]:
    """Sorted row indices of each part, by default (train, valid, test).

    Of each client's positives and of its negatives every part gets its share, rounded up or down; of all
    positives and of all negatives as well. Which client's share is rounded up is random, with
    the probabilities that make the expected number exact: a client's only positive goes to the test part
    with the probability of that part. A class with at least as many rows as there are parts is present in
    each part. It may happen that a client with very few rows has none in the training part.
    """
    shares = _shares(fractions)
    rng = np.random.default_rng(rng)
    part = np.empty(len(y), dtype=np.int8)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        rows = rows[np.lexsort((rng.random(len(rows)), client[rows]))]
        _, sizes = np.unique(client[rows], return_counts=True)
        counts = _round_shares(sizes, _at_least_one(shares, len(rows)), rng)
        part[rows] = np.repeat(np.tile(np.arange(len(shares)), len(sizes)), counts.ravel())
    return tuple(np.flatnonzero(part == j) for j in range(len(shares)))


class Share(NamedTuple):
    """A client's part of a `stratified_split` that nobody carries out as a whole, for one class."""

    state: int
    increment: int
    """Of the generator (PCG64) whose next numbers say in which order the client's rows are dealt."""
    counts: list[int]
    """How many go to each part."""


def shared_split(sizes: np.ndarray, fractions: Fractions, rng: np.random.Generator) -> list[list[Share]]:
    """What each client needs to know to do its part of a `stratified_split`: for each client and class.

    `sizes` [client, class] are their rows. The result is that of `stratified_split` of all rows together,
    client after client in this order, with the same generator.
    """
    shares = _shares(fractions)
    plan: list[list[Share]] = [[] for _ in sizes]
    for own in sizes.T:
        before = np.cumsum(own) - own
        words = [_advanced(rng, int(offset)) for offset in before]
        total = int(own.sum())
        rng.random(total)
        counts = np.zeros((len(own), len(shares)), dtype=np.int64)
        if total:
            counts[own > 0] = _round_shares(own[own > 0], _at_least_one(shares, total), rng)
        for client, (word, count) in enumerate(zip(words, counts.tolist(), strict=True)):
            plan[client].append(Share(*word, count))
    return plan


def own_split(y: np.ndarray, plan: Sequence[Share]) -> tuple[np.ndarray, ...]:
    """A client's rows of each part, sorted; class 0 first in the plan."""
    part = np.empty(len(y), dtype=np.int8)
    for label, (state, increment, counts) in enumerate(plan):
        rows = np.flatnonzero(y == label)
        bits = np.random.PCG64()
        bits.state = bits.state | {"state": {"state": state, "inc": increment}}
        order = np.argsort(np.random.Generator(bits).random(len(rows)), kind="stable")
        part[rows[order]] = np.repeat(np.arange(len(counts)), counts)
    return tuple(np.flatnonzero(part == j) for j in range(len(plan[0].counts)))


def _advanced(rng: np.random.Generator, draws: int) -> tuple[int, int]:
    """The generator's state after so many draws."""
    bits = copy.deepcopy(rng.bit_generator)
    assert isinstance(bits, np.random.PCG64)
    state = bits.advance(draws).state["state"]
    return state["state"], state["inc"]


def ordered_split(
    order: pd.Series | np.ndarray, y: np.ndarray, fractions: Fractions
) -> tuple[np.ndarray, ...]:
    """Sorted row indices of each part: the lowest (oldest) values to train, the highest (newest) to test.

    Rows with equal values stay together, so the shares are met as nearly as the values allow.
    """
    shares = _shares(fractions)
    name = getattr(order, "name", None)
    column = "the split-by column" if name is None else f"the column {name!r}"
    if pd.isna(order).any():
        raise InputError(f"The rows cannot be put in order: {column} has missing values.")
    used = np.flatnonzero(shares > 0)
    codes, values = pd.factorize(np.asarray(order), sort=True)
    if len(values) < len(used):
        raise InputError(
            f"The rows cannot be split in {len(used)} parts: {column} has {len(values)} distinct values."
        )
    ends = np.cumsum(np.bincount(codes))  # rows up to and with each distinct value
    cuts = [0]
    for k, target in enumerate(np.cumsum(shares[used])[:-1] * len(y)):
        low, high = cuts[-1], len(values) - (len(used) - 1 - k)  # leave a value for each later part
        cuts.append(low + 1 + int(np.argmin(np.abs(ends[low:high] - target))))
    cuts.append(len(values))
    parts = [np.empty(0, dtype=np.int64) for _ in shares]
    for j, start, end in zip(used, cuts[:-1], cuts[1:], strict=True):
        parts[j] = np.flatnonzero((codes >= start) & (codes < end))
        if len(np.unique(y[parts[j]])) < 2:
            part = PARTS[j] if len(shares) == len(PARTS) else f"number {j + 1}"
            span = f"{values[start]} to {values[end - 1]}"
            raise InputError(
                f"The {part} part ({len(parts[j])} rows with {column} from {span}) "
                "has only one class; change the fractions or split at random."
            )
    return tuple(parts)


def _shares(fractions: Fractions) -> np.ndarray:
    if isinstance(fractions, Mapping):
        unknown = set(fractions) - set(PARTS)
        if unknown:
            raise InputError(
                f"The split has the unknown part {sorted(unknown)[0]!r}; known: {', '.join(PARTS)}."
            )
        fractions = [fractions.get(part, 0.0) for part in PARTS]
    shares = np.asarray(fractions, dtype=np.float64)
    if (
        shares.ndim != 1
        or not np.isfinite(shares).all()
        or (shares < 0).any()
        or abs(shares.sum() - 1) > 1e-6
    ):
        raise InputError(
            f"The fractions of the split must not be negative and must add up to 1, not {fractions}."
        )
    return shares / shares.sum()


def _at_least_one(shares: np.ndarray, rows: int) -> np.ndarray:
    """Shares raised to one row where a class has so few rows that a part could be left without it."""
    used = shares > 0
    if rows < used.sum():
        return shares
    result, raised = shares, np.zeros_like(used)
    while (low := used & ~raised & (result * rows < 1 - _DUST)).any():
        raised |= low
        rest = used & ~raised
        result = np.where(raised, 1 / rows, 0.0)
        result[rest] = shares[rest] / shares[rest].sum() * (1 - raised.sum() / rows)
    return result


def _round_shares(sizes: np.ndarray, shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts [client, part] with row sums `sizes`, each entry and each column sum rounded up or down.

    The cube method of Deville and Tillé: a row is added at a time, in random order, and what is still
    fractional is moved along a cycle that changes no row or column sum, one way or the other with the
    probabilities that keep the expectation, until an entry is whole. A last row makes the column sums
    whole. Never more rows than there are parts are open, so each step is tiny.
    """
    exact = sizes[:, None] * shares
    exact = np.vstack([exact, np.ceil(exact.sum(0) - _DUST) - exact.sum(0)])
    floor = np.floor(exact + _DUST)
    exact = np.where(np.abs(exact - floor) < _DUST, floor, exact)
    order = np.append(rng.permutation(len(sizes)), len(sizes))
    open_rows: list[list[float]] = []  # plain lists: a million clients are a million tiny tables
    opened: list[int] = []
    for number in order[(exact % 1 != 0).any(axis=1)[order]].tolist():
        opened.append(number)
        open_rows.append(exact[number].tolist())
        while cycle := _cycle(tuple([tuple([value % 1 > 0 for value in row]) for row in open_rows])):
            part = [(open_rows[i][j] % 1, sign) for i, j, sign in cycle]
            up = min(1 - share if sign > 0 else share for share, sign in part)
            down = min(share if sign > 0 else 1 - share for share, sign in part)
            step = up if rng.random() * (up + down) < down else -down
            for i, j, sign in cycle:
                value = open_rows[i][j] + step * sign
                open_rows[i][j] = round(value) if abs(value - round(value)) < _DUST else value
            for i in reversed(range(len(opened))):
                if not any(value % 1 for value in open_rows[i]):
                    exact[opened.pop(i)] = open_rows.pop(i)
    for number, row in zip(opened, open_rows, strict=True):
        exact[number] = row
    return np.rint(exact[:-1]).astype(np.int64)


@lru_cache(4096)  # few patterns come again and again
def _cycle(pattern: tuple[tuple[bool, ...], ...]) -> list[tuple[int, int, int]]:
    """A change by +1 and -1 within these cells that keeps every row and column sum, if there is one."""
    cells = [list(row) for row in pattern]
    columns = range(len(cells[0]) if cells else 0)
    while True:  # a cell alone in its row or column cannot change
        by_column = [sum(row[j] for row in cells) for j in columns]
        by_row = [sum(row) for row in cells]
        alone = [
            (i, j)
            for i, row in enumerate(cells)
            for j in columns
            if row[j] and min(by_row[i], by_column[j]) < 2
        ]
        if not alone:
            break
        for i, j in alone:
            cells[i][j] = False
    row, column = next((i for i, n in enumerate(by_row) if n), -1), -1
    if row < 0:
        return []
    steps: list[tuple[int, int, int]] = []
    entered: dict[int, int] = {}
    while row not in entered:  # along a row, then along a column, until a row comes back
        entered[row] = len(steps)
        column = next(j for j in columns if cells[row][j] and j != column)
        steps.append((row, column, 1))
        row = next(i for i, other in enumerate(cells) if other[column] and i != row)
        steps.append((row, column, -1))
    move: dict[tuple[int, int], int] = {}  # where a column comes back as well, its cell does not change
    for i, j, sign in steps[entered[row] :]:
        move[i, j] = move.get((i, j), 0) + sign
    return [(i, j, sign) for (i, j), sign in move.items() if sign]
