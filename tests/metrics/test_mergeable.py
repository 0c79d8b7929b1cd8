"""Pooled AUC from histograms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedauc.metrics import ScoreHistogram, UndefinedAUC, auc, merge_exact

score = st.one_of(st.integers(0, 8).map(lambda k: k / 8), st.floats(-0.5, 1.5), st.sampled_from([0.0, 1.0]))
part = st.lists(st.tuples(score, st.booleans()), max_size=20)
Rows = list[tuple[float, bool]]


def arrays(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    return np.array([s for s, _ in rows]), np.array([y for _, y in rows], dtype=bool)


@settings(deadline=None)
@given(part, st.integers(1, 40), st.sampled_from([np.float32, np.float64]))
def test_bounds_hold_the_exact_auc(rows: Rows, bins: int, dtype: Any) -> None:
    scores, labels = arrays([*rows, (0.5, True), (0.4, False)])
    scores = scores.astype(dtype)
    histogram = ScoreHistogram.from_scores(scores, labels, bins)
    low, high = histogram.bounds()
    assert 0 <= low <= histogram.auc() <= high <= 1
    assert low <= auc(np.clip(scores, 0, 1), labels) <= high
    assert low <= auc(scores, labels) <= high
    assert histogram.positives.sum() == labels.sum()
    assert histogram.negatives.sum() == (~labels).sum()


@settings(deadline=None)
@given(part, st.floats(-3, 3), st.floats(1e-9, 5), st.integers(1, 2000))
def test_bounds_hold_for_any_range(rows: Rows, low: float, width: float, bins: int) -> None:
    scores, labels = arrays([*rows, (0.5, True), (0.4, False)])
    least, most = ScoreHistogram.from_scores(scores, labels, bins, low, low + width).bounds()
    assert least <= auc(np.clip(scores, low, low + width), labels) <= most


@settings(deadline=None)
@given(part, part, part)
def test_merging_is_pooling_in_any_order(one: Rows, two: Rows, three: Rows) -> None:
    a, b, c = (ScoreHistogram.from_scores(*arrays(rows), bins=16) for rows in (one, two, three))
    assert a + b == b + a == a.merge(b)
    assert (a + b) + c == a + (b + c)
    pooled = merge_exact(arrays(rows) for rows in (one, two, three))
    assert a + b + c == ScoreHistogram.from_scores(*pooled, bins=16)
    assert a + ScoreHistogram.from_scores([], [], bins=16) == a


def test_a_bin_per_value_is_exact() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 64, 5000) / 64, rng.random(5000) < 0.05
    assert ScoreHistogram.from_scores(scores, labels, bins=64).auc() == auc(scores, labels)


def test_default_bins_are_tight() -> None:
    rng = np.random.default_rng(0)
    labels = rng.random(100_000) < 0.01
    scores = 1 / (1 + np.exp(-(rng.standard_normal(100_000) + 1.5 * labels)))
    histogram = ScoreHistogram.from_scores(scores, labels)
    low, high = histogram.bounds()
    assert high - low < 0.005
    assert histogram.auc() == pytest.approx(auc(scores, labels), abs=1e-4)


def test_huge_counts_do_not_overflow() -> None:
    counts = np.array([2**61, 2**61])
    histogram = ScoreHistogram(0.0, 1.0, counts, counts)
    assert histogram.auc() == 0.5
    assert histogram.bounds() == (0.25, 0.75)


def test_infinite_scores_are_clipped() -> None:
    assert ScoreHistogram.from_scores([np.inf, -np.inf], [1, 0], bins=4).auc() == 1.0


def test_merge_exact_gives_the_pooled_auc() -> None:
    scores, labels = merge_exact([(np.float32([0.1, 0.4]), [0, 0]), ([0.35, 0.8], [True, True]), ([], [])])
    assert labels.dtype == bool
    assert auc(scores, labels) == 0.75
    with pytest.raises(ValueError, match="no parts"):
        merge_exact([])


def test_it_cannot_be_changed_or_misused() -> None:
    histogram = ScoreHistogram.from_scores([0.1, 0.9], [0, 1], bins=4)
    assert histogram.positives.dtype == histogram.negatives.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        histogram.positives[0] = 1
    assert histogram != ScoreHistogram.from_scores([0.1, 0.9], [1, 0], bins=4)
    assert histogram != "a histogram"
    with pytest.raises(TypeError):
        histogram + 1  # type: ignore[operator]
    with pytest.raises(ValueError, match="cannot merge"):
        histogram + ScoreHistogram.from_scores([0.1], [0], bins=5)
    with pytest.raises(UndefinedAUC, match="only one class"):
        ScoreHistogram.from_scores([0.1], [0]).auc()
    with pytest.raises(ValueError, match="NaN"):
        ScoreHistogram.from_scores([np.nan], [0])
    for arguments, message in (
        ((1.0, 0.0, [1], [1]), "low < high"),
        ((0.0, np.inf, [1], [1]), "low < high"),
        ((0.0, 1.0, [-1], [1]), "non-negative"),
        ((0.0, 1.0, [0.5], [1]), "whole"),
        ((0.0, 1.0, [1, 1], [1]), "as many bins"),
    ):
        with pytest.raises(ValueError, match=message):
            ScoreHistogram(*arguments)
    with pytest.raises(ValueError, match="bins"):
        ScoreHistogram.from_scores([0.1], [0], bins=0)
