"""A seeded stand-in for the Medicare Part B fraud data: millions of providers, 50 states, 0.07 % positives.

36 features (six billing quantities, six statistics each, standardised over the country and partly
heavy-tailed), states of very different size whose features are shifted and scaled against each other,
the years 2017 to 2022 with a mild drift, and a linear signal: a pooled linear classifier trained on
millions of rows reaches a test AUC of about 0.78.

Rows are made in blocks of fixed size, each with its own seed, so that a row depends only on its
position and the seed, never on how many rows are made or how they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedauc.data.rows import Bundle, Rows
from fedauc.errors import InputError

BLOCK = 65_536  # rows that share a seed
YEARS = (2017, 2018, 2019, 2020, 2021, 2022)  # row i is of year i mod 6
VALID_YEAR, TEST_YEAR = 2021, 2022
RATE = 0.0007  # share of positives
SIGNAL = 1.33  # distance between the classes in standard deviations
COMMON = 0.6  # what the six statistics of one quantity have in common

_QUANTITIES = ("beneficiaries", "services", "service_days", "submitted_charge", "allowed_amount", "payment")
_STATISTICS = ("mean", "median", "std", "min", "max", "sum")
FEATURES = tuple(f"{quantity}_{statistic}" for quantity in _QUANTITIES for statistic in _STATISTICS)
_HEAVY = np.array([name.endswith(("_max", "_sum")) for name in FEATURES])  # these have long tails

# Millions of inhabitants, 2020 census.
_POPULATION = {
    "AL": 5.02, "AK": 0.73, "AZ": 7.15, "AR": 3.01, "CA": 39.54, "CO": 5.77, "CT": 3.61, "DE": 0.99,
    "FL": 21.54, "GA": 10.71, "HI": 1.46, "ID": 1.84, "IL": 12.81, "IN": 6.79, "IA": 3.19, "KS": 2.94,
    "KY": 4.51, "LA": 4.66, "ME": 1.36, "MD": 6.18, "MA": 7.03, "MI": 10.08, "MN": 5.71, "MS": 2.96,
    "MO": 6.15, "MT": 1.08, "NE": 1.96, "NV": 3.10, "NH": 1.38, "NJ": 9.29, "NM": 2.12, "NY": 20.20,
    "NC": 10.44, "ND": 0.78, "OH": 11.80, "OK": 3.96, "OR": 4.24, "PA": 13.00, "RI": 1.10, "SC": 5.12,
    "SD": 0.89, "TN": 6.91, "TX": 29.15, "UT": 3.27, "VT": 0.64, "VA": 8.63, "WA": 7.71, "WV": 1.79,
    "WI": 5.89, "WY": 0.58,
}  # fmt: skip
STATES = tuple(sorted(_POPULATION))


class Block(NamedTuple):
    """Consecutive rows."""

    x: np.ndarray  # [n, 36] float32
    y: np.ndarray  # [n] int8
    state: np.ndarray  # [n] int64 codes into STATES
    year: np.ndarray  # [n] int64


@dataclass(frozen=True, eq=False)
class _World:
    """What all rows of one seed have in common."""

    shares: np.ndarray  # [50] cumulated share of the rows
    risk: np.ndarray  # [50] share of positives
    mean: np.ndarray  # [50, 36]
    scale: np.ndarray  # [50, 36]
    drift: np.ndarray  # [6, 36] what a year adds
    signal: np.ndarray  # [6, 36] what a positive's features are off by


def _world(seed: int, positive_rate: float, shift: float) -> _World:
    rng = np.random.default_rng([seed, 0])
    states, features = len(STATES), len(FEATURES)
    share = np.array([_POPULATION[s] for s in STATES])
    share /= share.sum()
    risk = np.exp(0.5 * rng.standard_normal(states))
    risk *= positive_rate / (share @ risk)
    same = np.equal.outer(np.arange(features) // len(_STATISTICS), np.arange(features) // len(_STATISTICS))
    covariance = COMMON**2 * same + (1 - COMMON**2) * np.eye(features)
    weights = rng.standard_normal(features)
    other = rng.standard_normal(features)
    years = np.arange(len(YEARS))[:, None]
    signal = (weights + 0.05 * years * other) @ covariance
    signal *= SIGNAL / np.sqrt(weights @ covariance @ weights)
    return _World(
        shares=np.cumsum(share),
        risk=np.minimum(risk, 1.0),
        mean=(shift * 0.3 * rng.standard_normal((states, features))).astype(np.float32),
        scale=np.exp(shift * 0.15 * rng.standard_normal((states, features))).astype(np.float32),
        drift=(0.03 * years * rng.standard_normal(features)).astype(np.float32),
        signal=signal.astype(np.float32),
    )


def _block(world: _World, seed: int, index: int) -> Block:
    """The rows from `index * BLOCK` on."""
    rng = np.random.default_rng([seed, 1, index])
    which = (index * BLOCK + np.arange(BLOCK)) % len(YEARS)
    state = np.searchsorted(world.shares, rng.random(BLOCK) * world.shares[-1], side="right")
    y = rng.random(BLOCK) < world.risk[state]
    x = rng.standard_normal((BLOCK, len(FEATURES)), dtype=np.float32)
    common = rng.standard_normal((BLOCK, len(_QUANTITIES)), dtype=np.float32)
    x *= np.float32(np.sqrt(1 - COMMON**2))
    x += np.repeat(np.float32(COMMON) * common, len(_STATISTICS), axis=1)
    x[:, _HEAVY] = np.sinh(x[:, _HEAVY]) / np.float32(np.sqrt(np.expm1(2.0) / 2))  # variance 1
    severity = rng.gamma(2.0, 0.5, size=int(y.sum())).astype(np.float32)
    x[y] += severity[:, None] * world.signal[which[y]]
    x *= world.scale[state]
    x += world.mean[state]
    x += world.drift[which]
    return Block(x, y.astype(np.int8), state.astype(np.int64), which + YEARS[0])


def _check(rows: int, seed: int, positive_rate: float, shift: float) -> None:
    if not isinstance(rows, (int, np.integer)) or not isinstance(seed, (int, np.integer)):
        raise InputError(f"rows and seed must be whole numbers, not {rows!r} and {seed!r}.")
    if rows < len(YEARS):
        raise InputError(f"'medicare-like' needs at least {len(YEARS)} rows, one per year, not {rows}.")
    if seed < 0:
        raise InputError(f"The seed must not be negative, but is {seed}.")
    if not 0.0 < positive_rate <= 0.5:
        raise InputError(f"positive_rate must be more than 0 and at most 0.5, not {positive_rate}.")
    if not 0.0 <= shift <= 10.0:
        raise InputError(f"shift must be between 0 (states alike) and 10, not {shift}.")


def stream(
    rows: int, seed: int = 0, *, chunk: int = BLOCK, positive_rate: float = RATE, shift: float = 1.0
) -> Iterator[Block]:
    """The first `rows` rows, `chunk` at a time (the last may be fewer); no row depends on `chunk`.

    `shift` scales how far the states' feature means and scales lie apart (0: all states alike).
    """
    _check(rows, seed, positive_rate, shift)
    if chunk < 1:
        raise InputError(f"chunk must be at least 1 row, not {chunk}.")
    return _stream(rows, seed, chunk, _world(seed, positive_rate, shift))


def _stream(rows: int, seed: int, chunk: int, world: _World) -> Iterator[Block]:
    made, made_index = Block(*[np.empty(0)] * 4), -1
    for start in range(0, rows, chunk):
        stop, parts = min(start + chunk, rows), []
        for index in range(start // BLOCK, (stop - 1) // BLOCK + 1):
            first = index * BLOCK
            if index != made_index:
                made, made_index = _block(world, seed, index), index
            parts.append(Block(*(a[max(start - first, 0) : stop - first] for a in made)))
        yield parts[0] if len(parts) == 1 else Block(*(np.concatenate(a) for a in zip(*parts, strict=True)))


def medicare_like(
    rows: int = 200_000, seed: int = 0, *, positive_rate: float = RATE, shift: float = 1.0
) -> Bundle:
    """All rows in memory, split by year: 2017 to 2020 for training, 2021 for validation, 2022 for testing."""
    _check(rows, seed, positive_rate, shift)
    is_part = [
        np.array([year < VALID_YEAR for year in YEARS]),
        np.array([year == VALID_YEAR for year in YEARS]),
        np.array([year == TEST_YEAR for year in YEARS]),
    ]
    whole, rest = divmod(rows, len(YEARS))
    sizes = [whole * int(years.sum()) + int(years[:rest].sum()) for years in is_part]
    parts = [
        (np.empty((n, len(FEATURES)), np.float32), np.empty(n, np.int8), np.empty(n, np.int64)) for n in sizes
    ]
    filled = [0, 0, 0]
    for block in stream(rows, seed, positive_rate=positive_rate, shift=shift):
        for i, years in enumerate(is_part):
            mine = np.flatnonzero(years[block.year - YEARS[0]])
            to = slice(filled[i], filled[i] + len(mine))
            x, y, state = parts[i]
            x[to], y[to], state[to] = block.x[mine], block.y[mine], block.state[mine]
            filled[i] = to.stop
    train, valid, test = (Rows(x, y, y.astype(np.int64), state) for x, y, state in parts)
    if not train.y.any():
        raise InputError(
            f"'medicare-like' has no positive among its {len(train)} training rows at "
            f"positive_rate={positive_rate:g}; ask for more rows or a higher rate."
        )
    return Bundle("medicare-like", train, valid, test, STATES, FEATURES)
