"""The area under the ROC curve and its relatives.

The AUC is the Mann-Whitney probability P(s⁺ > s⁻) + ½ P(s⁺ = s⁻) for the score s⁺ of a random positive
and s⁻ of a random negative (Hanley & McNeil, Radiology 143, 1982). Every function takes numpy arrays,
torch tensors (on any device) or lists; labels are 0/1 or False/True; NaN scores raise ``ValueError``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedauc.metrics._inputs import Array, Values, as_positive, as_scores, as_weights


class UndefinedAUC(ValueError):
    """The metric has no value on these rows, for example because only one class is present."""


def _checked(scores: Values, labels: Values) -> tuple[Array, npt.NDArray[np.bool_]]:
    """(scores, mask of the positives); raises UndefinedAUC unless both classes are there."""
    values = as_scores(scores)
    positive = as_positive(labels, values.size)
    if values.size == 0:
        raise UndefinedAUC("there are no rows, so the AUC is undefined")
    count = int(np.count_nonzero(positive))
    if count in (0, values.size):
        which = "positives" if count else "negatives"
        raise UndefinedAUC(f"only one class is present ({values.size} {which}), so the AUC is undefined")
    return values, positive


def split(scores: Values, labels: Values) -> tuple[Array, Array]:
    """The scores of the positives and of the negatives; raises UndefinedAUC unless both exist."""
    values, positive = _checked(scores, labels)
    return values[positive], values[~positive]


def _count_split(positives: Array, negatives: Array) -> tuple[int, int]:
    """(wins, ties): exact counts of the pairs with s⁺ > s⁻ and s⁺ = s⁻.

    Each class is sorted and the distinct scores of the smaller one are looked up in the larger; the two
    sorts together cost no more than one sort of all the scores. int64 holds up to 9e18 pairs.
    """
    positives, negatives = np.sort(positives), np.sort(negatives)
    swap = positives.size > negatives.size
    few, many = (negatives, positives) if swap else (positives, negatives)
    pairs = few.size * many.size
    starts = np.flatnonzero(np.append(True, few[1:] != few[:-1]))
    repeats = np.diff(starts, append=few.size)
    few = few[starts]
    below = np.searchsorted(many, few, side="left")
    tied = many[np.minimum(below, many.size - 1)] == few
    ties = int((np.searchsorted(many, few[tied], side="right") - below[tied]) @ repeats[tied])
    wins = int(below @ repeats)
    return (pairs - wins - ties if swap else wins), ties


def _count_packed(scores: Array, positive: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """The same counts from one sort, for float32 scores that are not negative, such as probabilities.

    The bits of such scores are in the scores' order and leave a bit for the label, so that in the sorted
    keys the negatives come just before the positives they tie with. A positive at position i with j
    positives before it therefore has i - j negatives at or below it.
    """
    keys = (scores + np.float32(0)).view(np.uint32)  # a copy in which -0.0 became 0.0
    keys <<= 1
    keys |= positive
    keys.sort()
    hit = (keys & 1).astype(np.bool_)
    hits = np.flatnonzero(hit)
    at_or_below = int(hits.sum()) - hits.size * (hits.size - 1) // 2
    edge = np.flatnonzero(hit[1:] & (keys[1:] - keys[:-1] == 1)) + 1  # first positive tied with negatives
    key = keys[edge]
    first, last = np.searchsorted(keys, key - np.uint32(1)), np.searchsorted(keys, key, side="right")
    ties = int((edge - first) @ (last - edge))
    return at_or_below - ties, ties


def auc(scores: Values, labels: Values, weights: Values | None = None) -> float:
    """Exact area under the ROC curve; a tied pair counts ½.

    Without ``weights`` it is a quotient of integers, correctly rounded. With them (non-negative) it is
    Σᵢⱼ wᵢ wⱼ (1[sᵢ > sⱼ] + ½ 1[sᵢ = sⱼ]) / Σᵢⱼ wᵢ wⱼ over positives i and negatives j.
    """
    if weights is not None:
        return _weighted_auc(scores, labels, weights)
    values, positive = _checked(scores, labels)
    if values.dtype == np.float32 and values.min() >= 0:
        wins, ties = _count_packed(values, positive)
    else:
        wins, ties = _count_split(values[positive], values[~positive])
    m = int(np.count_nonzero(positive))
    return (2 * wins + ties) / (2 * m * (values.size - m))


def _class_weights(weights: Values, positive: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Weights with each class scaled to a largest weight of 1, which leaves both ROC axes unchanged."""
    scaled = as_weights(weights, positive.size)
    for rows in (positive, ~positive):
        largest = scaled[rows].max()
        if largest == 0:
            raise UndefinedAUC("only one class has a positive weight, so the AUC is undefined")
        scaled[rows] /= largest
    return scaled


def _weighted_auc(scores: Values, labels: Values, weights: Values) -> float:
    values, positive = _checked(scores, labels)
    scaled = _class_weights(weights, positive)
    high, low = values[positive], values[~positive]
    up, down = np.argsort(high), np.argsort(low)
    high, low = high[up], low[down]
    mass = np.concatenate(([0.0], np.cumsum(scaled[~positive][down])))
    twice = mass[np.searchsorted(low, high, side="left")] + mass[np.searchsorted(low, high, side="right")]
    share = scaled[positive][up]
    area = float(share @ twice) / (2.0 * float(share.sum()) * float(mass[-1]))
    return min(1.0, max(0.0, area))


def _cumulative(
    scores: Array, positive: npt.NDArray[np.bool_], weights: Array | None = None
) -> tuple[Array, Array]:
    """(false positives, true positives) as the threshold falls past each distinct score, from (0, 0)."""
    order = np.argsort(scores)[::-1]
    ranked, hit = scores[order], positive[order]
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), ranked.size - 1)
    mass = np.ones(ranked.size, dtype=np.int64) if weights is None else weights[order]
    true, false = np.cumsum(mass * hit)[ends], np.cumsum(mass * ~hit)[ends]
    return np.concatenate(([0], false)), np.concatenate(([0], true))


def _curve(scores: Values, labels: Values, weights: Values | None = None) -> tuple[Array, Array]:
    """(fpr, tpr) at every distinct threshold, from (0, 0) to (1, 1)."""
    values, positive = _checked(scores, labels)
    scaled = None if weights is None else _class_weights(weights, positive)
    false, true = _cumulative(values, positive, scaled)
    return false / false[-1], true / true[-1]


def partial_auc(
    scores: Values,
    labels: Values,
    max_fpr: float,
    weights: Values | None = None,
    standardized: bool = True,
) -> float:
    """Area under the ROC curve over false-positive rates in [0, max_fpr].

    Standardized as in McClish (Med. Decis. Making 9, 1989): with a the raw area and f = max_fpr,
    ½ (1 + (a - f²/2) / (f - f²/2)), which is ½ for chance and 1 for a perfect ranking (the definition of
    scikit-learn's ``roc_auc_score(max_fpr=f)``). Otherwise the raw area a, at most f.
    """
    if not 0 < max_fpr <= 1:
        raise ValueError(f"max_fpr must be above 0 and at most 1, not {max_fpr}.")
    if max_fpr == 1:
        return auc(scores, labels, weights)
    fpr, tpr = _curve(scores, labels, weights)
    stop = int(np.searchsorted(fpr, max_fpr, side="right"))
    last = np.interp(max_fpr, fpr[stop - 1 : stop + 1], tpr[stop - 1 : stop + 1])
    area = float(np.trapezoid(np.append(tpr[:stop], last), np.append(fpr[:stop], max_fpr)))
    chance = max_fpr**2 / 2
    return 0.5 * (1 + (area - chance) / (max_fpr - chance)) if standardized else area


def average_precision(scores: Values, labels: Values) -> float:
    """Average precision Σₖ (Rₖ - Rₖ₋₁) Pₖ over distinct thresholds k (recall R, precision P).

    Undefined without positives; 1 without negatives.
    """
    values = as_scores(scores)
    positive = as_positive(labels, values.size)
    if not positive.any():
        raise UndefinedAUC("there are no positives, so the average precision is undefined")
    false, true = _cumulative(values, positive)
    return float(np.diff(true) @ (true[1:] / (true[1:] + false[1:])) / true[-1])


def roc_points(scores: Values, labels: Values, limit: int = 400) -> tuple[Array, Array]:
    """(fpr, tpr) for a plot: at most ``limit`` points of the ROC curve, from (0, 0) to (1, 1).

    Points inside a straight run are dropped first; if too many remain, those nearest to equal steps of
    fpr + tpr are kept.
    """
    if limit < 2:
        raise ValueError(f"limit must be at least 2, the two corners, not {limit}.")
    fpr, tpr = _curve(scores, labels)
    right, up = np.diff(fpr) > 0, np.diff(tpr) > 0
    straight = (right[1:] == right[:-1]) & (up[1:] == up[:-1]) & (right[1:] != up[1:])
    keep = np.flatnonzero(np.concatenate(([True], ~straight, [True])))
    if keep.size > limit:
        along = (fpr + tpr)[keep]
        keep = keep[np.unique(np.searchsorted(along, np.linspace(0.0, along[-1], limit)))]
    return fpr[keep], tpr[keep]
