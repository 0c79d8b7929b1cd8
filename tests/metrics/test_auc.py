"""The AUC family against scikit-learn and against its own invariances."""

from __future__ import annotations

import importlib
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from fedauc.metrics import UndefinedAUC, auc, average_precision, partial_auc, roc_points

module = importlib.import_module("fedauc.metrics.auc")  # the package's name `auc` is the function
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
TOLERANCE = 1e-12

coarse = st.integers(-4, 4).map(lambda k: k / 4)  # many ties
fine = st.floats(-1e6, 1e6, width=32)
special = st.sampled_from([0.0, -0.0, 1.0, float(np.nextafter(np.float32(1), np.float32(2))), 1e-40])
extreme = st.sampled_from([0.0, 1e-45, 3e-45, 1.2e-38, 1e-20, 1.0, 2.0, 3e38, float("inf")]).flatmap(
    lambda value: st.sampled_from([value, -value])
)


@st.composite
def rows(draw: st.DrawFn, values: Any = None) -> Rows:
    """(scores, labels, weights) with both classes, each with some positive weight."""
    mixtures = [coarse, fine, special, st.one_of(coarse, fine, special)] if values is None else [values]
    score = draw(st.sampled_from(mixtures))
    weight = st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-3, 1e3))
    body = draw(st.lists(st.tuples(score, st.integers(0, 1), weight), max_size=40))
    ends = [(draw(score), label, draw(st.floats(0.1, 10))) for label in (0, 1)]
    scores, labels, weights = (np.array(column) for column in zip(*body, *ends, strict=True))
    scores = np.abs(scores) if draw(st.booleans()) else scores
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return scores.astype(dtype), labels.astype(draw(st.sampled_from([bool, np.int64, np.float32]))), weights


@settings(deadline=None)
@given(rows())
def test_auc_is_sklearns(data: Rows) -> None:
    scores, labels, weights = data
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=TOLERANCE)
    expected = roc_auc_score(labels, scores, sample_weight=weights)
    assert auc(scores, labels, weights) == pytest.approx(expected, abs=1e-9)


@settings(deadline=None)
@given(rows())
def test_auc_is_the_pair_count_exactly(data: Rows) -> None:
    scores, labels, _ = data
    assert auc(scores, labels) == by_pairs(scores, labels)


def by_pairs(scores: np.ndarray, labels: np.ndarray) -> float:
    """The definition, pair by pair."""
    high, low = scores[labels == 1][:, None], scores[labels == 0][None, :]
    twice = 2 * int((high > low).sum()) + int((high == low).sum())
    return twice / (2 * high.size * low.size)


@settings(deadline=None)
@given(st.one_of(rows(values=extreme), rows()), st.sampled_from([1, 2, 5, 2**16]))
def test_every_way_of_counting_is_the_pair_count_exactly(data: Rows, block: int) -> None:
    scores, labels, _ = data
    scores = scores.astype(np.float32)
    expected = by_pairs(scores, labels)
    with mock.patch.object(module, "BLOCK", block):  # runs of equal scores end in another block
        assert auc(scores, labels) == expected
        assert auc(np.repeat(scores, 3)[::3], labels) == expected
        with mock.patch.object(module, "RARE", 1.0):  # the smaller class among all
            assert auc(scores, labels) == expected
            assert auc(scores.astype(np.float64), labels) == expected
    assert auc(scores.astype(np.float64), labels) == expected
    assert auc(torch.tensor(scores), labels) == expected
    ranks = np.unique(scores, return_inverse=True)[1]  # scikit-learn takes no infinities
    assert expected == pytest.approx(roc_auc_score(labels, ranks), abs=TOLERANCE)


@settings(deadline=None)
@given(rows(values=st.integers(-128, 127)), st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u8", "?", "f2"]))
def test_scores_of_any_type(data: Rows, dtype: str) -> None:
    scores, labels, _ = data
    scores = scores.astype(np.int64).astype(dtype)
    expected = by_pairs(scores, labels)
    assert auc(scores, labels) == expected
    assert auc(torch.tensor(scores), torch.tensor(labels)) == expected
    assert expected == pytest.approx(roc_auc_score(labels, scores), abs=TOLERANCE)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01, 0.0003])
@pytest.mark.parametrize("decimals", [None, 5, 2, 0])
@pytest.mark.parametrize("probabilities", [False, True])
def test_many_rows(share: float, decimals: int | None, probabilities: bool) -> None:
    rng = np.random.default_rng(0)
    labels = rng.random(150_000) < share
    scores = (rng.standard_normal(labels.size) + labels).astype(np.float32)
    scores = 1 / (1 + np.exp(-scores)) if probabilities else scores
    scores = scores if decimals is None else scores.round(decimals)
    area = auc(scores, labels)
    assert area == pytest.approx(roc_auc_score(labels, scores), abs=TOLERANCE)
    assert area == auc(scores.astype(np.float64), labels)  # counted another way
    assert area == auc(-scores, ~labels)


def test_scores_are_not_changed() -> None:
    scores = np.array([-1.5, 0.0, 2.0, -0.0], dtype=np.float32)
    auc(scores, [0, 1, 1, 0])
    assert scores.tobytes() == np.array([-1.5, 0.0, 2.0, -0.0], dtype=np.float32).tobytes()


@settings(deadline=None)
@given(rows(), st.floats(0.01, 1.0))
def test_partial_auc_is_sklearns(data: Rows, max_fpr: float) -> None:
    scores, labels, weights = data
    for w in (None, weights):
        expected = roc_auc_score(labels, scores, max_fpr=max_fpr, sample_weight=w)
        assert partial_auc(scores, labels, max_fpr, w) == pytest.approx(expected, abs=1e-9)


@settings(deadline=None)
@given(rows(), st.floats(0.01, 1.0))
def test_raw_partial_auc_is_the_area_of_the_curve(data: Rows, max_fpr: float) -> None:
    scores, labels, _ = data
    fpr, tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
    below = fpr <= max_fpr
    grid = np.append(fpr[below], max_fpr)
    heights = np.append(tpr[below], np.interp(max_fpr, fpr, tpr))
    expected = np.trapezoid(heights, grid)
    assert partial_auc(scores, labels, max_fpr, standardized=False) == pytest.approx(expected, abs=1e-9)


@settings(deadline=None)
@given(rows())
def test_average_precision_is_sklearns(data: Rows) -> None:
    scores, labels, _ = data
    expected = average_precision_score(labels, scores)
    assert average_precision(scores, labels) == pytest.approx(expected, abs=TOLERANCE)


@settings(deadline=None)
@given(rows())
def test_monotone_transforms_change_nothing(data: Rows) -> None:
    scores, labels, _ = data
    ranks = np.unique(scores, return_inverse=True)[1]
    assert auc(scores, labels) == auc(ranks**3 - 7, labels) == auc(ranks.astype(np.float32), labels)


@settings(deadline=None)
@given(rows())
def test_flipping_labels_or_scores_gives_the_complement(data: Rows) -> None:
    scores, labels, weights = data
    flipped = 1 - labels.astype(int)
    assert auc(scores, flipped) == pytest.approx(1 - auc(scores, labels), abs=TOLERANCE)
    assert auc(-scores, flipped) == auc(scores, labels)
    assert auc(scores, flipped, weights) == pytest.approx(1 - auc(scores, labels, weights), abs=1e-9)


@settings(deadline=None)
@given(rows())
def test_integer_weights_are_repeated_rows(data: Rows) -> None:
    scores, labels, weights = data
    times = np.ceil(np.minimum(weights, 5)).astype(int)
    expected = auc(np.repeat(scores, times), np.repeat(labels, times))
    assert auc(scores, labels, times) == pytest.approx(expected, abs=TOLERANCE)


@settings(deadline=None)
@given(rows(), st.integers(2, 12))
def test_roc_points_lie_on_the_curve_and_keep_the_corners(data: Rows, limit: int) -> None:
    scores, labels, _ = data
    fpr, tpr = roc_points(scores, labels, limit)
    assert 2 <= fpr.size == tpr.size <= limit
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(fpr) >= 0).all()
    assert (np.diff(tpr) >= 0).all()
    full = set(zip(*roc_curve(labels, scores, drop_intermediate=False)[:2], strict=True))
    assert set(zip(fpr, tpr, strict=True)) <= full


@settings(deadline=None)
@given(rows())
def test_enough_roc_points_have_the_whole_area(data: Rows) -> None:
    scores, labels, _ = data
    fpr, tpr = roc_points(scores, labels)
    assert np.trapezoid(tpr, fpr) == pytest.approx(auc(scores, labels), abs=TOLERANCE)


@settings(max_examples=20, deadline=None)
@given(rows(values=st.floats(0, 1, width=16)))
def test_tensors_lists_and_columns(data: Rows) -> None:
    scores, labels, weights = data
    expected = auc(scores, labels)
    tensor = torch.tensor(scores, requires_grad=True)
    assert auc(tensor, torch.tensor(labels)) == expected
    assert auc(tensor[:, None], torch.tensor(labels)[:, None]) == expected
    assert auc(tensor.to(torch.float16), labels) == expected
    assert auc(scores.tolist(), labels.tolist()) == expected
    assert auc(scores.astype(">f4"), labels) == expected
    assert auc(tensor, labels, torch.tensor(weights)) == auc(scores, labels, weights)
    assert auc(torch.tensor(scores).bfloat16(), labels) == auc(
        torch.tensor(scores).bfloat16().float(), labels
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_tensors_on_a_gpu() -> None:
    scores, labels = torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])
    assert auc(scores.cuda(), labels.cuda()) == 0.75
    rng = np.random.default_rng(0)
    for decimals in (7, 2, 0):
        for share in (0.5, 0.01):
            y = rng.random(100_000) < share
            s = rng.standard_normal(y.size).astype(np.float32).round(decimals) * np.float32(1e-3)
            s[:3] = 0.0, -0.0, np.inf
            expected = auc(s, y)
            for same in (y, torch.tensor(y).cuda(), torch.tensor(y).long().cuda()[:, None]):
                assert auc(torch.tensor(s).cuda(), same) == expected
            assert auc(torch.tensor(s).cuda().double()[:, None], y) == expected
    with pytest.raises(ValueError, match="1 of the 2 scores are NaN"):
        auc(torch.tensor([0.1, float("nan")]).cuda(), [0, 1])
    with pytest.raises(ValueError, match="one of them is 2"):
        auc(scores.cuda(), torch.tensor([0, 1, 2, 1]).cuda())
    with pytest.raises(ValueError, match="4 scores but 3 labels"):
        auc(scores.cuda(), torch.tensor([0, 1, 1]).cuda())
    with pytest.raises(ValueError, match="shape"):
        auc(scores.cuda().reshape(2, 2), labels.cuda())
    with pytest.raises(UndefinedAUC, match="only one class"):
        auc(scores.cuda(), torch.ones(4).cuda())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_minus_zero_ties_with_zero(dtype: type) -> None:
    assert auc(np.array([0.0, -0.0], dtype), [1, 0]) == 0.5
    assert auc(np.array([-0.0, 0.0], dtype), [1, 0], [1, 1]) == 0.5
    assert average_precision(np.array([0.0, -0.0], dtype), [1, 0]) == 0.5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_infinite_scores_are_ranked(dtype: type) -> None:
    scores, labels = np.array([np.inf, np.inf, 0, 1], dtype), [1, 0, 0, 1]
    assert auc(scores, labels) == 0.625
    assert auc(scores, labels, np.ones(4)) == 0.625
    assert partial_auc(scores, labels, 1.0) == 0.625
    assert auc(-scores, labels) == 0.375


def test_a_perfect_ranking_is_exactly_one_and_a_constant_exactly_half() -> None:
    labels = np.arange(100_000) % 3 == 0
    for scores in (labels.astype(np.float32), labels.astype(float), labels):
        assert auc(scores, labels) == 1.0
        assert auc(1 - scores.astype(int), labels) == 0.0
        assert auc(scores * 0, labels) == 0.5


def test_counts_beyond_32_bits_are_exact() -> None:
    labels = np.arange(400_000) % 2  # 4e10 pairs; positive k beats k + 1 of the negatives
    expected = (200_000 * 200_001 // 2) / 200_000**2
    for scores in (np.arange(400_000), np.arange(400_000, dtype=np.float32), np.arange(-200_000.0, 200_000)):
        assert auc(scores, labels) == expected


def test_weights_of_extreme_size() -> None:
    scores, labels = [0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]
    assert auc(scores, labels, [1e-300, 1e-300, 1e-300, 1e-300]) == pytest.approx(0.75)
    assert auc(scores, labels, [1e308, 1e308, 1e308, 1e308]) == pytest.approx(0.75)


def test_one_class_is_undefined() -> None:
    for labels in ([0, 0], [1, 1]):
        for metric in (auc, roc_points, lambda s, y: partial_auc(s, y, 0.5), lambda s, y: auc(s, y, [1, 1])):
            with pytest.raises(UndefinedAUC, match="only one class"):
                metric([0.1, 0.2], labels)
    with pytest.raises(UndefinedAUC, match="only one class has a positive weight"):
        auc([0.1, 0.2], [0, 1], [0, 1])
    with pytest.raises(UndefinedAUC, match="no rows"):
        auc([], [])
    with pytest.raises(UndefinedAUC, match="no positives"):
        average_precision([0.1, 0.2], [0, 0])
    assert average_precision([0.1, 0.2], [1, 1]) == 1.0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan_scores_are_refused(dtype: type) -> None:
    scores = np.array([0.1, np.nan, 0.3], dtype)
    for metric in (auc, average_precision, roc_points):
        with pytest.raises(ValueError, match="1 of the 3 scores are NaN"):
            metric(scores, [0, 1, 1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.1, 0.2], [0, 2]), "labels must be 0 or 1, but one of them is 2"),
        (([0.1, 0.2], [-1, 1]), "labels must be 0 or 1, but one of them is -1"),
        (([0.1, 0.2], [0.0, np.nan]), "labels must be 0 or 1, but one of them is nan"),
        (([0.1, 0.2], [0, 1, 1]), "2 scores but 3 labels"),
        (([0.1, 0.2], [0, 1], [1.0]), "2 scores but 1 weights"),
        (([0.1, 0.2], [0, 1], [1.0, -1.0]), "not negative"),
        (([0.1, 0.2], [0, 1], [1.0, np.inf]), "finite"),
        ((np.zeros((2, 2)), [0, 1]), "shape is"),
        ((["a", "b"], [0, 1]), "real numbers"),
    ],
)
def test_bad_input_is_named(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        auc(*arguments)


def test_bad_options_are_named() -> None:
    for max_fpr in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="max_fpr"):
            partial_auc([0.1, 0.2], [0, 1], max_fpr)
    with pytest.raises(ValueError, match="limit"):
        roc_points([0.1, 0.2], [0, 1], limit=1)
