"""Which combinations are tried of a grid: all values as often, none twice, and otherwise by chance."""

from __future__ import annotations

import itertools
import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fedauc.core import rng
from fedauc.experiments.tune_draw import drawn

LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=5)


def draw(lengths, most, seed=0):
    return drawn(lengths, most, rng.generator(seed, rng.TRIALS))


def is_even(places, lengths):
    """Whether every value of every setting is there as often as any other, give or take one."""
    for column, length in zip(zip(*places, strict=True), lengths, strict=True):
        times = Counter(column)
        counts = [times.pop(i, 0) for i in range(length)]
        if times or max(counts) - min(counts) > 1:
            return False
    return True


@given(LENGTHS, st.data())
def test_no_combination_twice_and_all_values_as_often(lengths, data):
    """Also where nearly all of a grid are drawn: both hold at once for every number of trials."""
    most = data.draw(st.integers(1, min(math.prod(lengths), 400)))
    places = draw(lengths, most, data.draw(st.integers(0, 2**32)))
    assert len(places) == len(set(places)) == most
    assert places == sorted(places)
    assert is_even(places, lengths)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=8), st.integers(1, 60), st.integers(0, 2**32))
def test_grids_of_any_size(lengths, most, seed):
    most = min(most, math.prod(lengths))
    places = draw(lengths, most, seed)
    assert len(set(places)) == most
    assert is_even(places, lengths)


def test_all_of_them_are_the_grid():
    assert draw([2, 3, 4], 24) == list(itertools.product(range(2), range(3), range(4)))


def test_a_seed_draws_the_same_again_and_another_one_others():
    lengths = [3, 4, 3, 3, 3]
    assert draw(lengths, 6, 5) == draw(lengths, 6, 5)
    assert len({tuple(draw(lengths, 6, seed)) for seed in range(20)}) == 20


def test_every_even_choice_is_as_likely():
    lengths, most, each = [3, 2, 2], 5, 20
    places = itertools.product(*map(range, lengths))
    even = [chosen for chosen in itertools.combinations(places, most) if is_even(chosen, lengths)]
    times = Counter(tuple(draw(lengths, most, seed)) for seed in range(each * len(even)))
    assert set(times) == set(even)
    assert sum((times[chosen] - each) ** 2 / each for chosen in even) < 290  # (χ² with 215 degrees)


def test_settings_are_drawn_independently_of_each_other():
    """As many trials as a setting has values pair the values of two settings in any way."""
    pairings = Counter(tuple(draw([3, 3, 50], 3, seed)) for seed in range(600))
    pairs = Counter(tuple((a, b) for a, b, _ in places) for places in pairings)
    assert len(pairs) == 6
    assert min(pairs.values()) > 60
