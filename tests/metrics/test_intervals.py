"""DeLong against its O(mn) definition, and the interval's behaviour at the edges."""

from __future__ import annotations

import importlib
import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import rankdata

from fedauc.metrics import UndefinedAUC, auc, auc_interval, delong, delong_difference, delong_test, intervals

score = st.one_of(st.integers(-3, 3).map(float), st.floats(-10, 10))


@st.composite
def paired(draw: st.DrawFn, fewest: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(scores a, scores b, labels) with at least ``fewest`` rows of each class."""
    labels = draw(st.lists(st.integers(0, 1), max_size=25)) + [0, 1] * fewest
    a, b = (draw(st.lists(score, min_size=len(labels), max_size=len(labels))) for _ in range(2))
    return np.array(a), np.array(b), np.array(labels)


def structural(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V₁₀ and V₀₁ of DeLong et al. (1988), written out pair by pair."""
    x, y = scores[labels == 1], scores[labels == 0]
    psi = np.array([[1.0 if a > b else 0.5 if a == b else 0.0 for b in y] for a in x])
    return psi.mean(axis=1), psi.mean(axis=0)


def naive_covariance(a: np.ndarray, b: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """S₁₀/m + S₀₁/n for the two AUCs."""
    pairs = zip(structural(a, labels), structural(b, labels), strict=True)
    return sum(np.cov(np.stack(pair)) / pair[0].size for pair in pairs)


@settings(deadline=None)
@given(paired())
def test_delong_is_the_naive_one(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    a, b, labels = data
    area, variance = delong(a, labels)
    assert area == auc(a, labels)
    assert variance == pytest.approx(naive_covariance(a, b, labels)[0, 0], abs=1e-12)


@settings(deadline=None)
@given(paired())
def test_paired_test_is_the_naive_one(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    a, b, labels = data
    s = naive_covariance(a, b, labels)
    variance = s[0, 0] + s[1, 1] - 2 * s[0, 1]
    try:
        p = delong_test(a, b, labels)
    except UndefinedAUC:
        assert variance == pytest.approx(0, abs=1e-12)
        return
    assert p == delong_test(b, a, labels)
    assert 0 <= p <= 1
    if variance > 1e-9:
        z = abs(auc(a, labels) - auc(b, labels)) / math.sqrt(variance)
        assert p == pytest.approx(2 * ndtr(-z), abs=1e-9)


def test_components_are_differences_of_midranks() -> None:
    rng = np.random.default_rng(3)
    scores, labels = rng.integers(0, 30, 200).astype(float), rng.random(200) < 0.2
    x, y = scores[labels], scores[~labels]
    m, n = x.size, y.size
    v10 = (rankdata(scores)[labels] - rankdata(x)) / n
    v01 = 1 - (rankdata(scores)[~labels] - rankdata(y)) / m
    expected = v10.var(ddof=1) / m + v01.var(ddof=1) / n
    assert delong(scores, labels) == pytest.approx((v10.mean(), expected), rel=1e-12)


@settings(deadline=None)
@given(
    paired(fewest=1),
    st.sampled_from([np.float32, np.float64, np.int64]),
    st.sampled_from([1, 3, 2**16]),
)
def test_components_by_rows_are_those_by_classes(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], dtype: type, block: int
) -> None:
    scores, _, labels = data
    scores = np.append(scores, [0.0, -0.0]).astype(dtype)
    labels = np.append(labels, [0, 1])
    expected = intervals._components(scores[labels == 1], scores[labels == 0])
    with mock.patch.object(importlib.import_module("fedauc.metrics.auc"), "BLOCK", block):
        found = intervals._row_components(scores, labels)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_difference_of_many_rows_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(0)
    labels = rng.random(70_000) < 0.01
    a = (rng.standard_normal(labels.size) + labels).astype(np.float32)
    b = (a + rng.standard_normal(labels.size)).astype(np.float32).round(2)
    difference, variance = delong_difference(a, b, labels)
    assert difference == pytest.approx(auc(a, labels) - auc(b, labels), abs=1e-15)
    ten, one = (
        u - v
        for u, v in zip(
            intervals._components(a[labels], a[~labels]),
            intervals._components(b[labels], b[~labels]),
            strict=True,
        )
    )
    assert variance == intervals._variance(ten, one)


@settings(deadline=None)
@given(paired(fewest=1), st.floats(0.5, 0.99))
def test_interval_holds_the_estimate_and_stays_inside(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], level: float
) -> None:
    scores, _, labels = data
    low, high = auc_interval(scores, labels, level)
    assert 0 <= low <= auc(scores, labels) <= high <= 1
    assert low < high
    wider = auc_interval(scores, labels, (1 + level) / 2)
    assert wider[0] <= low
    assert wider[1] >= high
    mirrored = auc_interval(scores, 1 - labels, level)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 1000), (2, 50), (50, 2), (50, 5000)])
def test_interval_of_a_perfect_ranking(m: int, n: int) -> None:
    labels = np.arange(m + n) < m
    low, high = auc_interval(labels, labels)
    assert 0 < low < high == 1
    assert auc_interval(~labels, labels)[0] == 0 < auc_interval(~labels, labels)[1] < 1
    more = np.arange(10 * (m + n)) < 10 * m
    assert low < auc_interval(more, more)[0]


def test_interval_of_one_positive_uses_hanley_mcneil() -> None:
    scores, labels = np.arange(101.0), np.arange(101) == 80
    assert math.isnan(delong(scores, labels)[1])
    theta = 0.8
    for t in auc_interval(scores, labels, 0.9):
        q1, q2 = t / (2 - t), 2 * t * t / (1 + t)
        variance = (t * (1 - t) + 0 * (q1 - t * t) + 99 * (q2 - t * t)) / 100
        assert abs(theta - t) == pytest.approx(1.6448536269514722 * math.sqrt(variance), rel=1e-9)


def test_interval_of_a_constant_score_is_not_a_point() -> None:
    low, high = auc_interval(np.zeros(40), np.arange(40) < 10)
    assert low < 0.4
    assert high > 0.6


@pytest.mark.parametrize(
    ("m", "n", "shift", "least"),
    [(30, 100, 1.2, 0.93), (100, 1000, 2.0, 0.92), (20, 400, 2.0, 0.88)],
)
def test_interval_covers(m: int, n: int, shift: float, least: float) -> None:
    """Binormal scores have AUC Φ(shift/√2); 95% intervals should hold it about 95 times in 100.

    The last case is DeLong's known shortfall with few positives and a high AUC: about 90 in 100.
    """
    rng = np.random.default_rng(11)
    truth, labels = ndtr(shift / math.sqrt(2)), np.arange(m + n) < m
    held = 0
    for _ in range(800):
        low, high = auc_interval(rng.standard_normal(m + n) + shift * labels, labels)
        held += low <= truth <= high
    assert least <= held / 800 <= 0.98


def test_paired_test_has_its_size_and_some_power() -> None:
    rng = np.random.default_rng(5)
    labels = np.arange(300) < 60
    null, power = [], []
    for _ in range(400):
        shared, one, two = rng.standard_normal((3, 300))
        signal = labels + shared
        null.append(delong_test(signal + one, signal + two, labels))
        power.append(delong_test(signal + 0.1 * one, signal + 2 * two, labels))
    assert 0.02 <= np.mean(np.array(null) < 0.05) <= 0.09
    assert np.mean(np.array(power) < 0.05) > 0.5


def test_paired_test_at_the_edges() -> None:
    scores, labels = np.arange(10.0), np.arange(10) % 2
    assert delong_test(scores, np.exp(scores), labels) == 1.0
    with pytest.raises(UndefinedAUC, match="cannot be estimated"):
        delong_test(labels, 1 - labels, labels)  # AUC 1 against 0, both without spread
    with pytest.raises(UndefinedAUC, match="cannot be estimated"):
        delong_test(scores, -scores, np.arange(10) == 3)
    with pytest.raises(UndefinedAUC, match="only one class"):
        delong([0.1, 0.2], [1, 1])
    with pytest.raises(ValueError, match="level"):
        auc_interval(scores, labels, 95)
