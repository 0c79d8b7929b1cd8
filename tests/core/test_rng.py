"""Draws are functions of their coordinates, permutations are permutations, and both are uniform."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedauc.core import rng

SURE = 1e-6  # below this a fixed draw is no accident


def test_a_draw_is_a_function_of_its_coordinates():
    assert rng.fold(1, 2, 3) == rng.fold(1, 2, 3)
    seen = {int(rng.fold(*key)[0]) for key in [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (0, 0, 0)]}
    assert len(seen) == 8  # the number and the order of coordinates count


def test_neighbouring_coordinates_do_not_collide():
    """200,000 keys of 64 bits: the chance of any collision is 4·10¹⁰/2⁶⁵ < 10⁻⁸."""
    seed, round, client = np.ogrid[:10, :20, :1000]
    assert len(np.unique(rng.fold(seed, round, client))) == 200_000


def test_an_array_of_coordinates_gives_the_draw_of_each():
    clients, rounds = np.arange(5)[:, None], np.arange(3)[None, :]
    grid = rng.fold(7, rounds, clients)
    assert grid.shape == (5, 3)
    for i in range(5):
        for r in range(3):
            assert grid[i, r] == rng.fold(7, r, i)[0]


def test_uniform_draws_are_uniform_on_the_unit_interval():
    u = rng.uniform(3, np.arange(200_000))
    assert u.min() >= 0
    assert u.max() < 1
    assert chisquare(np.bincount((u * 50).astype(int), minlength=50)).pvalue > SURE
    # independent of the neighbour: (u₁, u₂) in a 10 × 10 grid
    cells = (u[:-1:2] * 10).astype(int) * 10 + (u[1::2] * 10).astype(int)
    assert chisquare(np.bincount(cells, minlength=100)).pvalue > SURE


@pytest.mark.parametrize("n", [*range(1, 40), 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 1000, 4097])
def test_every_pass_is_a_permutation(n):
    three_passes = rng.permuted(rng.fold(n), np.array([n]), np.arange(3 * n)).reshape(3, n)
    np.testing.assert_array_equal(np.sort(three_passes, axis=1), np.broadcast_to(np.arange(n), (3, n)))


def test_passes_and_keys_give_different_permutations():
    passes = rng.permuted(rng.fold(0), np.array([50]), np.arange(500)).reshape(10, 50)
    keys = rng.permuted(rng.fold(0, np.arange(10))[:, None], np.array([[50]]), np.arange(50)[None, :])
    assert len(np.unique(np.concatenate([passes, keys[1:]]), axis=0)) == 19


def test_keys_sizes_and_positions_broadcast():
    keys, sizes, positions = (
        rng.fold(np.arange(4))[:, None],
        np.array([[3], [1], [8], [20]]),
        np.arange(25)[None, :],
    )
    together = rng.permuted(keys, sizes, positions)
    assert together.shape == (4, 25)
    for i in range(4):
        for j in range(25):
            alone = rng.permuted(rng.fold(i), sizes[i], positions[0, j : j + 1])
            assert together[i, j] == alone[0]


@given(
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=5),
    most=st.sampled_from([3, 300, 6000]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None)
def test_a_few_positions_are_those_of_all(sizes, most, seed):
    """Whole permutations are made in another way than single elements of them."""
    keys, n = rng.fold(seed, np.arange(len(sizes)))[:, None], np.array(sizes)[:, None]
    together = rng.permuted(keys, n, np.arange(most)[None, :])
    same = rng.permuted(keys[0], n, np.arange(most)[None, :])  # one key, several sizes
    np.testing.assert_array_equal(same[0], together[0])
    few = np.random.default_rng(seed).integers(0, most, 4)
    np.testing.assert_array_equal(rng.permuted(keys, n, few[None, :]), together[:, few])
    np.testing.assert_array_equal(rng.permuted(keys[0], n, few[None, :]), same[:, few])


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 9, 10, 17, 33])
def test_every_element_is_equally_likely_at_every_position(n):
    """M of a group without replacement are the first M positions: unbiased only if these are uniform."""
    keys = rng.fold(7, np.arange(30_000))[:, None]
    drawn = rng.permuted(keys, np.array([[n]]), np.arange(n)[None, :])
    for position in range(n):
        assert chisquare(np.bincount(drawn[:, position], minlength=n)).pvalue > SURE, position


@pytest.mark.parametrize("n", [3, 4, 5, 6, 8, 10, 16])
def test_every_ordered_pair_is_equally_likely(n):
    keys = rng.fold(7, np.arange(30_000))[:, None]
    drawn = rng.permuted(keys, np.array([[n]]), np.arange(2)[None, :])
    pairs = np.bincount(drawn[:, 0] * n + drawn[:, 1], minlength=n * n).reshape(n, n)
    assert not pairs.diagonal().any()
    assert chisquare(pairs[~np.eye(n, dtype=bool)]).pvalue > SURE


def test_generators_of_the_same_coordinates_agree():
    a, b = rng.generator(1, rng.GROUPS), rng.generator(1, rng.GROUPS)
    np.testing.assert_array_equal(a.permutation(20), b.permutation(20))
    assert not np.array_equal(rng.generator(1, rng.GROUPS).random(4), rng.generator(1, rng.SPLIT).random(4))
