"""The area under the ROC curve and its relatives.

The AUC is the Mann-Whitney probability P(s⁺ > s⁻) + ½ P(s⁺ = s⁻) for the score s⁺ of a random positive
and s⁻ of a random negative (Hanley & McNeil, Radiology 143, 1982). Every function takes numpy arrays,
torch tensors (on any device) or lists; labels are 0/1 or False/True; NaN scores raise ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from fedauc.metrics._inputs import Array, Values, as_positive, as_scores, as_weights

BLOCK = 2**16
"""Scores that are looked at together: few enough to stay in the cache."""
RARE = 0.02
"""Share of the smaller class up to which looking its scores up costs less than packing all."""


class UndefinedAUC(ValueError):
    """The metric has no value on these rows, for example because only one class is present."""


def checked(scores: Values, labels: Values) -> tuple[Array, npt.NDArray[np.bool_]]:
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
    values, positive = checked(scores, labels)
    return values.compress(positive), values.compress(~positive)


def _count_split(values: Array, positive: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """(wins, ties): exact counts of the pairs with s⁺ > s⁻ and s⁺ = s⁻.

    Each class is sorted and the distinct scores of the smaller one are looked up in the larger; the two
    sorts together cost no more than one sort of all the scores. A rare class is looked up among all scores,
    its own included, which are not counted. int64 holds up to 9e18 pairs.
    """
    m = int(np.count_nonzero(positive))
    swap = 2 * m > values.size
    small = ~positive if swap else positive
    few = np.sort(values.compress(small))
    apart = few.size > RARE * values.size
    many = np.sort(values.compress(~small) if apart else values)
    own_below = np.flatnonzero(np.append(True, few[1:] != few[:-1]))
    repeats = np.diff(own_below, append=few.size)
    few = few[own_below]
    own_below, own = (np.zeros_like(own_below),) * 2 if apart else (own_below, repeats)
    below = np.searchsorted(many, few, side="left")
    other = below + own  # a tied score of the larger class would be here
    tied = (other < many.size) & (many[np.minimum(other, many.size - 1)] == few)
    upto = np.searchsorted(many, few[tied], side="right")
    ties = int((upto - other[tied]) @ repeats[tied])
    wins = int((below - own_below) @ repeats)
    return (m * (values.size - m) - wins - ties if swap else wins), ties


def _packed(scores: Array, positive: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32] | None:
    """32-bit keys in the order of float32 scores whose last bit is the label; None where they do not fit.

    A sign and 31 bits of magnitude leave no bit for the label, but no score lies between zero and the
    smallest magnitude: without that gap the magnitudes need 30 bits, unless some are 2¹²⁸ times others.
    Block by block, so that the passes run in the cache and cost a twentieth of the sort that follows.
    """
    bits = np.ascontiguousarray(scores).view(np.uint32)
    blocks = [slice(start, start + BLOCK) for start in range(0, bits.size, BLOCK)]
    smallest, largest, signed = 2**32 - 1, 0, False
    for block in blocks:
        magnitude = bits[block] & np.uint32(2**31 - 1)
        largest = max(largest, int(magnitude.max()))
        magnitude -= np.uint32(1)  # a zero becomes the largest of all
        smallest = min(smallest, int(magnitude.min()))
        signed = signed or int(bits[block].max()) >= 2**31
    gap = min(smallest, largest)
    if signed and largest - gap >= 2**30:
        return None
    keys = np.empty_like(bits)
    for block in blocks:
        sign, key = (bits[block].view(np.int32) >> 31).view(np.uint32), keys[block]  # sign: 0 or all ones
        np.bitwise_and(bits[block], np.uint32(2**31 - 1), out=key)
        np.maximum(key, np.uint32(gap), out=key)
        key -= np.uint32(gap)
        key ^= sign  # with the next line: negate where the score is negative, so that -0.0 is 0.0
        key -= sign
        key += np.uint32(largest - gap if signed else 0)
        key <<= np.uint32(1)
        key |= positive[block]
    return keys


def whole_runs(keys: Array, low: int) -> Iterator[slice]:
    """Blocks of sorted keys; one ends where a run of keys that differ in their bits `low` only does."""
    start = 0
    while start < keys.size:
        stop = min(start + BLOCK, keys.size)
        stop += int(np.searchsorted(keys[stop:], keys[stop - 1] | keys.dtype.type(low), side="right"))
        yield slice(start, stop)
        start = stop


def _count_packed(keys: npt.NDArray[np.uint32]) -> tuple[int, int]:
    """The counts of `_count_split` from one sort of `_packed` keys, which are changed.

    In the sorted keys the negatives come just before the positives they tie with, so a positive at position
    i with j positives before it has i - j negatives at or below it. Block by block again.
    """
    keys.sort()
    at_or_below = ties = negatives = 0
    for block in whole_runs(keys, 1):
        key = keys[block]
        hit = (key & np.uint32(1)).astype(np.bool_)
        hits = np.flatnonzero(hit)
        at_or_below += int(hits.sum()) + hits.size * negatives - hits.size * (hits.size - 1) // 2
        step = key[1:] - key[:-1]
        tied = hit[1:] & (step == 1)  # from the negatives with a score to the positives with it
        if tied.any():
            ends = np.flatnonzero(step != 0)
            run = np.flatnonzero(tied.take(ends))
            lengths = np.diff(ends, prepend=-1, append=key.size - 1)
            ties += int(lengths[run] @ lengths[run + 1])
        negatives += key.size - hits.size
    return at_or_below - ties, ties


def _on_device(scores: torch.Tensor, labels: Values) -> float | None:
    """The AUC where the scores are, without moving them; None where the checks on the host must say why."""
    scores = scores.detach().squeeze(1) if scores.ndim == 2 and scores.shape[1] == 1 else scores.detach()
    if isinstance(labels, torch.Tensor) and labels.is_cuda:
        given = labels.to(scores.device).reshape(-1)
        positive, negative = given == 1, given == 0
    else:
        positive = torch.from_numpy(as_positive(labels, scores.numel())).to(scores.device)
        negative = ~positive
    hits, misses = int(positive.sum()), int(negative.sum())
    if scores.ndim != 1 or scores.is_complex() or scores.isnan().any():
        return None
    if hits == 0 or misses == 0 or not hits + misses == len(positive) == len(scores):
        return None
    ranked, order = scores.sort()
    last = torch.cat((ranked[1:] != ranked[:-1], positive.new_ones(1))).nonzero()[:, 0]  # of equal scores
    below = torch.nn.functional.pad((~positive[order]).cumsum(0)[last], (1, 0))
    rows = torch.nn.functional.pad(last + 1, (1, 0)).diff()
    twice = int(((rows - below.diff()) * (below[1:] + below[:-1])).sum())  # 2 wins + ties
    return twice / (2 * hits * misses)


def auc(scores: Values, labels: Values, weights: Values | None = None) -> float:
    """Exact area under the ROC curve; a tied pair counts ½.

    Without ``weights`` it is a quotient of integers, correctly rounded. With them (non-negative) it is
    Σᵢⱼ wᵢ wⱼ (1[sᵢ > sⱼ] + ½ 1[sᵢ = sⱼ]) / Σᵢⱼ wᵢ wⱼ over positives i and negatives j.
    """
    if weights is not None:
        return _weighted_auc(scores, labels, weights)
    if isinstance(scores, torch.Tensor) and scores.is_cuda:
        area = _on_device(scores, labels)
        if area is not None:
            return area
    values, positive = checked(scores, labels)
    m = int(np.count_nonzero(positive))
    n = values.size - m
    keys = _packed(values, positive) if values.dtype == np.float32 and min(m, n) > RARE * (m + n) else None
    if keys is not None:
        wins, ties = _count_packed(keys)
    else:
        wins, ties = _count_split(values, positive)
    return (2 * wins + ties) / (2 * m * n)


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
    values, positive = checked(scores, labels)
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
    values, positive = checked(scores, labels)
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
