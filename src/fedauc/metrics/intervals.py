"""How sure one can be of an AUC: DeLong's variance, an interval, and a paired test.

Symbols: m positives with scores Xᵢ, n negatives with scores Yⱼ, ψ(x, y) = 1[x > y] + ½ 1[x = y], and the
structural components V₁₀(Xᵢ) = Σⱼ ψ(Xᵢ, Yⱼ) / n and V₀₁(Yⱼ) = Σᵢ ψ(Xᵢ, Yⱼ) / m (DeLong, DeLong &
Clarke-Pearson, Biometrics 44, 1988). The variance of the AUC is var(V₁₀)/m + var(V₀₁)/n with sample
variances. As in Sun & Xu (IEEE Signal Process. Lett. 21, 2014) the components come from midranks in
O((m + n) log(m + n)): n V₁₀(Xᵢ) is the midrank of Xᵢ among all scores less its midrank among the
positives, which is what two binary searches in the sorted negatives count.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtr, ndtri

from fedauc.metrics._inputs import Array, Values
from fedauc.metrics.auc import UndefinedAUC, checked, split, whole_runs


def _placements(values: Array, others: Array) -> npt.NDArray[np.int64]:
    """2 Σ_y ψ(value, y) over ``others`` for each value: integers, so that sums stay exact."""
    others = np.sort(others)
    left, right = (np.searchsorted(others, values, side=side) for side in ("left", "right"))
    return left + right


def _components(positives: Array, negatives: Array) -> tuple[Array, Array]:
    """(2n V₁₀ per positive, 2m (1 - V₀₁) per negative), in the order given."""
    return _placements(positives, negatives), _placements(negatives, positives)


def _row_components(scores: Values, labels: Values) -> tuple[Array, Array]:
    """The same in the order of the rows, from one sort of all scores with their labels and rows.

    With r rows and p positives before a run of equal scores, r' and p' at its end, a negative in it has
    2m (1 - V₀₁) = p + p' and a positive 2n V₁₀ = r + r' - (p + p').
    """
    values, positive = checked(scores, labels)
    if values.size > 2**31:
        return _components(values.compress(positive), values.compress(~positive))
    keys = _ordered(values)  # in 64 bits: score, label (1), row (31)
    keys <<= 1
    keys |= positive
    keys <<= 31
    keys |= np.arange(keys.size, dtype=np.int32)
    keys.sort()
    components = np.empty(keys.size, dtype=np.int64)
    positives = 0
    for block in whole_runs(keys, 2**32 - 1):
        key = keys[block]
        hit, score = (key >> 31 & 1).astype(np.bool_), key >> 32
        ends = np.append(np.flatnonzero(score[1:] != score[:-1]) + 1, key.size)
        length, hits = np.diff(ends, prepend=0), np.cumsum(hit)[ends - 1]
        r = np.repeat(2 * (block.start + ends) - length, length)  # r + r'
        p = np.repeat(2 * (positives + hits) - np.diff(hits, prepend=0), length)
        components[key & (2**31 - 1)] = np.where(hit, r - p, p)
        positives += int(hits[-1])
    return components.compress(positive), components.compress(~positive)


def _ordered(scores: Array) -> npt.NDArray[np.int64]:
    """Integers of 32 bits, with a sign, in the order of the scores."""
    if scores.dtype != np.float32:
        return np.unique(scores, return_inverse=True)[1].astype(np.int64)
    bits = (scores + np.float32(0)).view(np.int32)  # a copy in which -0.0 became 0.0
    bits ^= (bits >> 31) & np.int32(2**31 - 1)
    return bits.astype(np.int64)


def _variance(ten: Array, one: Array) -> float:
    """var(V₁₀)/m + var(V₀₁)/n from (differences of) the integer components; nan if m or n is 1."""
    m, n = ten.size, one.size
    if min(m, n) < 2:
        return math.nan
    return float(np.var(ten, ddof=1)) / (4.0 * n * n * m) + float(np.var(one, ddof=1)) / (4.0 * m * m * n)


def delong(scores: Values, labels: Values) -> tuple[float, float]:
    """(AUC, DeLong's estimate of its variance); the variance is nan with one positive or one negative."""
    ten, one = _components(*map(np.sort, split(scores, labels)))  # sorted: the searches run much faster
    return int(ten.sum()) / (2 * ten.size * one.size), _variance(ten, one)


def _hanley_mcneil(theta: float, m: int, n: int) -> float:
    """Variance of an AUC θ from m positives and n negatives (Hanley & McNeil, Radiology 143, 1982).

    (θ(1-θ) + (m-1)(Q₁-θ²) + (n-1)(Q₂-θ²)) / mn with Q₁ = θ/(2-θ), Q₂ = 2θ²/(1+θ), factored so that it is
    never negative.
    """
    spread = 1 + (m - 1) * (1 - theta) / (2 - theta) + (n - 1) * theta / (1 + theta)
    return theta * (1 - theta) * spread / (m * n)


def _score_bound(theta: float, end: float, z: float, m: int, n: int) -> float:
    """The t between ``end`` (0 or 1) and θ with |θ - t| = z √V(t), V the Hanley-McNeil variance."""
    outside, inside = end, theta
    for _ in range(80):
        middle = (outside + inside) / 2
        if abs(theta - middle) >= z * math.sqrt(_hanley_mcneil(middle, m, n)):
            outside = middle
        else:
            inside = middle
    return outside


def auc_interval(scores: Values, labels: Values, level: float = 0.95) -> tuple[float, float]:
    """A confidence interval for the AUC, always inside [0, 1] and around the estimate.

    DeLong's variance on the logit scale: expit(logit θ ± z √var / (θ(1-θ))). Where that variance cannot
    be estimated (one positive, one negative, every score tied, or an AUC of exactly 0 or 1) the interval
    holds every t with |θ - t| ≤ z √V(t), V being the Hanley-McNeil variance with the same class counts
    (inverting the score test, Newcombe, Stat. Med. 25, 2006); unlike a variance taken at θ = 1 it is
    never a single point: 50 perfectly ranked positives still leave a lower end below 1.

    With few positives DeLong's variance is itself noisy and the interval too short: in simulations with
    400 negatives, 95% intervals around AUC 0.92 held it 93% of the time with 50 positives, 90% with 20
    and 80% with 5, mostly by lying above it.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, not {level}.")
    z = float(ndtri(0.5 + level / 2))
    ten, one = _components(*map(np.sort, split(scores, labels)))
    m, n = ten.size, one.size
    theta, variance = int(ten.sum()) / (2 * m * n), _variance(ten, one)
    if variance > 0 and 0 < theta < 1:
        centre, half = logit(theta), z * math.sqrt(variance) / (theta * (1 - theta))
        low, high = float(expit(centre - half)), float(expit(centre + half))
        return min(low, theta), max(high, theta)
    return _score_bound(theta, 0.0, z, m, n), _score_bound(theta, 1.0, z, m, n)


def _paired(scores_a: Values, scores_b: Values, labels: Values) -> tuple[Array, Array]:
    """Row by row differences of the two scores' components."""
    ten_a, one_a = _row_components(scores_a, labels)
    ten_b, one_b = _row_components(scores_b, labels)
    return ten_a - ten_b, one_a - one_b


def delong_difference(scores_a: Values, scores_b: Values, labels: Values) -> tuple[float, float]:
    """(AUC of a - AUC of b, variance of that difference) for two scores of the same rows.

    Paired: what both rank alike does not count as noise. The variance is nan with one positive or one
    negative.
    """
    ten, one = _paired(scores_a, scores_b, labels)
    return int(ten.sum()) / (2 * ten.size * one.size), _variance(ten, one)


def delong_test(scores_a: Values, scores_b: Values, labels: Values) -> float:
    """Two-sided p-value that two scores of the same rows have the same AUC (paired DeLong test).

    1 when the two rank every pair alike. Raises UndefinedAUC when the variance of the difference cannot be
    estimated: one positive, one negative, or different AUCs with a zero variance.
    """
    ten, one = _paired(scores_a, scores_b, labels)
    if not ten.any() and not one.any():
        return 1.0
    difference = int(ten.sum()) / (2 * ten.size * one.size)
    variance = _variance(ten, one)
    if not variance > 0:
        raise UndefinedAUC("the variance of the difference between the two AUCs cannot be estimated")
    return float(2 * ndtr(-abs(difference) / math.sqrt(variance)))
