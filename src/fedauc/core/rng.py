"""Draws that are a pure function of (seed, round, client, step).

A counter-based generator instead of a stateful one: whoever needs a draw computes it from its
coordinates, so a looped, a vectorised, a remote and a resumed run see the same examples, and the draws
of thousands of clients are one array operation. The hash is the finaliser of SplitMix64 (Steele, Lea &
Flood 2014); the permutation is a twelve-round Feistel network with cycle walking (Black & Rogaway 2002).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
TURNS = 12  # fewer are visibly uneven on domains of a few elements

# What a draw is for; part of its coordinates, so that two purposes never share a stream.
COHORT, GROUPS, BATCH, PASSIVE, INIT, SPLIT, PARTITION, IMBALANCE = range(1, 9)
PHASE, UPLINK, STATISTICS, TRIALS, VIEW = range(9, 14)


def _mix(z: U64) -> U64:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def fold(*coordinates: Any) -> U64:
    """Hash coordinates (non-negative integers or arrays of them, broadcast) to 64 bits."""
    with np.errstate(over="ignore"):
        state = np.zeros(1, dtype=np.uint64)
        for coordinate in coordinates:
            state = _mix(state + _GOLDEN + np.asarray(coordinate).astype(np.uint64))
            state = state * np.uint64(0xD1342543DE82EF95) + np.uint64(1)
        return _mix(state)


def derived(*coordinates: int) -> int:
    """Another seed, for what must draw independently of the first (phases of a round)."""
    return int(fold(*coordinates)[0] >> np.uint64(1))


def uniform(*coordinates: Any) -> NDArray[np.float64]:
    """Uniform draws in [0, 1)."""
    return (fold(*coordinates) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permuted(key: U64, n: NDArray[np.int64], position: NDArray[np.int64]) -> NDArray[np.int64]:
    """The `position`-th element of a random permutation of range(n); key, n and position broadcast.

    Positions beyond n go on with the next pass over a fresh permutation, so walking through positions is
    sampling without replacement for as long as there is something left. n must be positive.
    """
    n, position = np.asarray(n, dtype=np.int64), np.asarray(position, dtype=np.int64)
    shape = np.broadcast_shapes(np.shape(key), n.shape, position.shape)
    once = position.size > 0 and position.max() < n.min()
    passes, at = (np.zeros(1, dtype=np.int64), position) if once else np.divmod(position, n)
    with np.errstate(over="ignore"):
        keys: U64 = _mix((key + passes.astype(np.uint64) * _GOLDEN).astype(np.uint64))
    several = np.broadcast_shapes(keys.shape, n.shape)
    own, first, which = np.unique(np.broadcast_to(keys, several), return_index=True, return_inverse=True)
    sizes, which = np.broadcast_to(n, several).reshape(-1)[first], which.reshape(several)
    much = (4 ** halves(sizes)).sum() <= 2 * np.prod(shape)  # at least half of what there is is asked for
    if much and (sizes[which] == n).all():
        whole, begin = _whole(own, sizes)
        return whole.take(begin[which] + at)
    words = (keys, halves(n).astype(np.uint64), n.astype(np.uint64), at.astype(np.uint64))
    keys, half, size, value = (np.broadcast_to(each, shape) for each in words)
    value = _feistel(keys, half, value)
    todo = np.nonzero(value >= size)
    while len(todo[0]):  # outside of range(n): walk on along the cycle
        again = value[todo] = _feistel(keys[todo], half[todo], value[todo])
        outside = again >= size[todo]
        todo = tuple(axis[outside] for axis in todo)
    return value.astype(np.int64)


def _whole(key: U64, n: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The permutations of these keys, one behind the other, and where each begins."""
    begin, half = np.empty_like(n), halves(n)
    found: list[NDArray[np.int64]] = []
    length = 0
    for bits in np.unique(half):
        (members,) = np.nonzero(half == bits)
        found.append(_tabulated(key[members], int(bits), n[members]).reshape(-1))
        begin[members] = length + np.arange(len(members)) * 4**bits
        length += len(found[-1])
    return found[0] if len(found) == 1 else np.concatenate(found), begin


def _tabulated(key: U64, half: int, n: NDArray[np.int64]) -> NDArray[np.int64]:
    """[K, 4^half]: the n elements of each key's permutation, and anything behind them.

    The same as `_feistel` and walking, with what a turn adds to each right half looked up in a table, and
    all walks made at once, in strides that double. A key's number stands before the bits of its halves and
    values, so that they say where to look.
    """
    number, side = np.arange(len(key))[:, None, None], np.arange(1 << half)
    mask, turn = (1 << half) - 1, np.arange(1, TURNS + 1, dtype=np.uint64)[:, None, None]
    with np.errstate(over="ignore"):
        words = _mix(key[:, None] + side.astype(np.uint64) * _GOLDEN + turn)
    added = (words.view(np.int64) & mask).reshape(TURNS, -1)
    shape = len(key), 1 << half, 1 << half
    left, right = (np.broadcast_to(each | number << half, shape) for each in (side[:, None], side))
    for table in added:
        left, right = right, left ^ table.take(right)
    value = (left * (1 << half) + (right & mask)).reshape(len(key), -1)  # (shifting is slow)

    first = number[:, 0] << 2 * half
    end, place = first + n[:, None], np.arange(value.size).reshape(value.shape)
    inside = place < end
    further = value.copy()
    np.copyto(further, place, where=inside)
    np.copyto(value, first, where=~inside)  # a walk that begins outside may never end
    while (value >= end).any():
        value, further = further.take(value), further.take(further)
    return value - first


def halves(n: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bits of half a word of the Feistel network for range(n)."""
    return (np.ceil(np.log2(np.maximum(n, 2))).astype(np.int64) + 1) // 2


def _feistel(key: U64, half: U64, value: U64) -> U64:
    """A permutation of range(4^half)."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = value >> half, value & mask
    with np.errstate(over="ignore"):
        for turn in range(1, TURNS + 1):
            word: U64 = (key + right * _GOLDEN + np.uint64(turn)).astype(np.uint64, copy=False)
            left, right = right, left ^ (_mix(word) & mask)
    return (left << half) | right


def generator(*coordinates: int) -> np.random.Generator:
    """An ordinary NumPy generator for one-off work (splits, partitions), from the same coordinates."""
    return np.random.default_rng([int(word) for word in fold(*coordinates)])
