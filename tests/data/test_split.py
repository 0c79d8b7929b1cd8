"""Splits: shares per client and class, presence of both classes, and order."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedauc.data.split import ordered_split, stratified_split
from fedauc.errors import InputError

SHARES = st.sampled_from(
    [(0.6, 0.2, 0.2), (0.75, 0.0, 0.25), (0.5, 0.21, 0.29), (0.98, 0.01, 0.01), (0.3, 0.7)]
)


@st.composite
def rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(1, 120))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    y = (rng.random(n) < draw(st.sampled_from([0.05, 0.3, 0.9]))).astype(np.int8)
    return y, rng.integers(0, draw(st.sampled_from([1, 5, 100])), n)


@settings(deadline=None, max_examples=200)
@given(rows(), SHARES, st.integers(0, 1000))
def test_every_stratum_gets_its_share(
    table: tuple[np.ndarray, np.ndarray], shares: tuple[float, ...], seed: int
) -> None:
    y, client = table
    parts = stratified_split(y, client, shares, seed)
    assert len(parts) == len(shares)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))
    for part, again in zip(parts, stratified_split(y, client, shares, seed), strict=True):
        assert np.array_equal(part, again)
        assert (np.diff(part) > 0).all()
    used = sum(share > 0 for share in shares)
    for label in (0, 1):
        total = int((y == label).sum())
        for part, share in zip(parts, shares, strict=True):
            here = client[part][y[part] == label]
            if share == 0:
                assert len(part) == 0
            elif total >= used:
                assert len(here) >= 1
            if all(total * s >= 1 or s == 0 for s in shares):  # else a part is given more than its share
                assert abs(len(here) - total * share) < 1
                expected = share * np.bincount(client[y == label], minlength=100)
                assert (np.abs(np.bincount(here, minlength=100) - expected) < 1).all()


def test_a_lone_positive_goes_everywhere_with_the_right_probability() -> None:
    """Client 0 has one positive; the others' shares are whole, so nothing else makes room for it."""
    y = np.array([1] * 11 + [0] * 20)
    client = np.array([0] + [1] * 5 + [2] * 5 + [3] * 20)
    drawn = np.zeros(3)
    for seed in range(1500):
        for j, part in enumerate(stratified_split(y, client, (0.6, 0.2, 0.2), seed)):
            drawn[j] += 0 in part
    assert np.abs(drawn / 1500 - [0.6, 0.2, 0.2]).max() < 0.05


def test_many_clients_with_one_row_each() -> None:
    y = np.r_[np.ones(30, np.int8), np.zeros(970, np.int8)]
    parts = stratified_split(y, np.arange(1000), {"train": 0.6, "valid": 0.2, "test": 0.2}, 0)
    assert [int(y[part].sum()) for part in parts] == [18, 6, 6]
    assert [len(part) for part in parts] == [600, 200, 200]


@pytest.mark.parametrize("bad", [(0.5, 0.2, 0.2), (1.2, -0.2, 0.0), (float("nan"), 0.5, 0.5), {"trein": 1.0}])
def test_fractions_that_are_refused(bad: object) -> None:
    with pytest.raises(InputError):
        stratified_split(np.array([0, 1]), np.array([0, 0]), bad, 0)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 30), min_size=3, max_size=80), SHARES, st.integers(0, 9))
def test_order_is_kept_and_equal_values_stay_together(
    values: list[int], shares: tuple[float, ...], seed: int
) -> None:
    order = np.array(values)
    y = np.random.default_rng(seed).integers(0, 2, len(order))
    try:
        parts = ordered_split(pd.Series(order, name="day"), y, shares)
    except InputError as error:
        assert "day" in str(error)  # noqa: PT017
        return
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(order)))
    used = [part for part, share in zip(parts, shares, strict=True) if share > 0]
    for part in used:
        assert set(y[part]) == {0, 1}
    for earlier, later in itertools.pairwise(used):
        assert order[earlier].max() < order[later].min()


def test_ordered_shares_and_errors() -> None:
    order = pd.Series(np.arange(100)[::-1], name="day")
    y = np.arange(100) % 2
    train, valid, test = ordered_split(order, y, (0.6, 0.2, 0.2))
    assert (len(train), len(valid), len(test)) == (60, 20, 20)
    assert train.min() == 40  # the lowest days stand at the end
    assert test.tolist() == list(range(20))
    heavy = pd.Series(np.repeat([0, 1, 2], [90, 5, 5]))
    assert [len(part) for part in ordered_split(heavy, y, (0.6, 0.2, 0.2))] == [90, 5, 5]
    with pytest.raises(
        InputError, match=r"test part \(20 rows with the column 'day' from 80 to 99\) has only"
    ):
        ordered_split(order, np.where(np.arange(100) < 20, 0, y), (0.6, 0.2, 0.2))
    with pytest.raises(InputError, match="2 distinct values"):
        ordered_split(np.repeat([0, 1], 50), y, (0.6, 0.2, 0.2))
    with pytest.raises(InputError, match="missing"):
        ordered_split(np.r_[np.nan, np.arange(99)], y, (0.6, 0.2, 0.2))
