"""Which combinations of a grid are tried where not all of them are: by chance, all values as often.

    rows ← a walk through the grid on which all values of a setting occur as often, and no combination twice
    for every setting, for every row:
        give the row's value to another row and take that one's, if then no row is there twice
    give the values of every setting other names

Every value is there ⌊N/L⌋ or ⌈N/L⌉ times in N of them, where its setting has L.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Place = tuple[int, ...]
"""A combination: which of its values each setting has."""
SWEEPS = 4
"""One is a shuffle of every setting, if no exchange is refused."""


def drawn(lengths: Sequence[int], most: int, drawing: np.random.Generator) -> list[Place]:
    """So many combinations of settings with so many values each, in their order; no grid is too large."""
    rows = [_walked(lengths, step) for step in range(most)]
    for _ in range(SWEEPS):
        for setting in range(len(lengths)):
            _exchange(rows, setting, drawing)
    names = [drawing.permutation(length) for length in lengths]
    return sorted(tuple(int(name[i]) for name, i in zip(names, row, strict=True)) for row in rows)


def _walked(lengths: Sequence[int], step: int) -> Place:
    """Where a walk is that goes on by one value in all settings at once, and after the last begins again.

    It is back after the least common multiple of the lengths, and has then been at all values of a setting as
    often. Where some combinations are left it goes round again, some settings that many values ahead.
    """
    round, step = divmod(step, math.lcm(*lengths))
    place, period = [], 1
    for length in lengths:
        round, ahead = divmod(round, math.gcd(period, length))
        place.append((step + ahead) % length)
        period = math.lcm(period, length)
    return tuple(place)


def _exchange(rows: list[Place], setting: int, drawing: np.random.Generator) -> None:
    """Shuffle a setting's values among the rows, as far as they stay different."""
    there = set(rows)
    for i, j in enumerate(drawing.integers(np.arange(len(rows)), len(rows)).tolist()):
        new = {i: _with(rows[i], setting, rows[j][setting]), j: _with(rows[j], setting, rows[i][setting])}
        if there.isdisjoint(new.values()):
            there -= {rows[i], rows[j]}
            there |= set(new.values())
            rows[i], rows[j] = new[i], new[j]


def _with(row: Place, setting: int, value: int) -> Place:
    return (*row[:setting], value, *row[setting + 1 :])
