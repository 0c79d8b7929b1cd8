"""Pooling an AUC across organisations: by histograms of the scores, or exactly by the scores themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedauc.metrics._inputs import Array, Values, as_positive, as_scores
from fedauc.metrics.auc import UndefinedAUC


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Counts of positives and negatives in equal bins of [low, high]; organisations share only these.

    Adding the histograms of several organisations gives the histogram of their pooled rows, in any order.
    Pairs in different bins are ordered for certain; the AUC is unsure only about pairs within a bin.
    """

    low: float
    high: float
    positives: npt.NDArray[np.int64]
    negatives: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if not (self.low < self.high and np.isfinite(self.high - self.low)):
            raise ValueError(f"A histogram needs finite low < high, not {self.low} and {self.high}.")
        for name in ("positives", "negatives"):
            given = np.asarray(getattr(self, name))
            counts = given.astype(np.int64)
            if given.ndim != 1 or given.size == 0 or (counts != given).any() or (counts < 0).any():
                raise ValueError(f"The {name} of a histogram must be one whole, non-negative count per bin.")
            counts.flags.writeable = False
            object.__setattr__(self, name, counts)
        if self.positives.size != self.negatives.size:
            raise ValueError("A histogram needs as many bins of positives as of negatives.")

    @classmethod
    def from_scores(
        cls, scores: Values, labels: Values, bins: int = 1024, low: float = 0.0, high: float = 1.0
    ) -> ScoreHistogram:
        """Count scores by bin; those outside [low, high] are clipped into the first or last bin."""
        if bins < 1:
            raise ValueError(f"bins must be at least 1, not {bins}.")
        empty = np.zeros(bins, dtype=np.int64)
        cls(low, high, empty, empty)  # checks the range
        values = as_scores(scores)
        positive = as_positive(labels, values.size)
        return cls(low, high, *(counted(values[rows], bins, low, high) for rows in (positive, ~positive)))

    def merge(self, other: ScoreHistogram) -> ScoreHistogram:
        """The histogram of both organisations' rows; the bins must be the same."""
        mine, theirs = ((h.low, h.high, h.positives.size) for h in (self, other))
        if mine != theirs:
            raise ValueError(f"Histograms with different (low, high, bins) cannot merge: {mine}, {theirs}.")
        return ScoreHistogram(
            self.low, self.high, self.positives + other.positives, self.negatives + other.negatives
        )

    def __add__(self, other: ScoreHistogram) -> ScoreHistogram:
        return self.merge(other) if isinstance(other, ScoreHistogram) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScoreHistogram):
            return NotImplemented
        return (
            (self.low, self.high) == (other.low, other.high)
            and np.array_equal(self.positives, other.positives)
            and np.array_equal(self.negatives, other.negatives)
        )

    def _pairs(self) -> tuple[int, int, int]:
        """(pairs won across bins, pairs within a bin, all pairs), in Python integers of any size."""
        wins = within = below = 0
        for p, n in zip(self.positives.tolist(), self.negatives.tolist(), strict=True):
            wins += p * below
            within += p * n
            below += n
        total = sum(self.positives.tolist()) * below
        if total == 0:
            raise UndefinedAUC("only one class (or no row) is in the histogram, so the AUC is undefined")
        return wins, within, total

    def auc(self) -> float:
        """The AUC with every pair inside a bin counted ½."""
        wins, within, total = self._pairs()
        return (2 * wins + within) / (2 * total)

    def scores(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """(negatives, positives): a score for every row, all of a bin alike; their AUC is `auc`."""
        middle = (
            self.low + (np.arange(self.positives.size) + 0.5) * (self.high - self.low) / self.positives.size
        )
        negatives, positives = (
            np.repeat(middle.astype(np.float32), counts) for counts in (self.negatives, self.positives)
        )
        return negatives, positives

    def bounds(self) -> tuple[float, float]:
        """(lowest, highest) AUC that the counts allow; the exact AUC of the scores is always between.

        This holds for the clipped and for the original scores: clipping only moves pairs within an end bin.
        """
        wins, within, total = self._pairs()
        return wins / total, (wins + within) / total


def counted(scores: Array, bins: int, low: float, high: float) -> npt.NDArray[np.int64]:
    """How many scores are in each bin; those outside are in the first or last one."""
    # Every step is monotone even after rounding, so a higher bin always means a higher score.
    place = (np.clip(scores.astype(np.float64), low, high) - low) / (high - low) * bins
    return np.bincount(np.minimum(place.astype(np.int64), bins - 1), minlength=bins)


def merge_exact(parts: Iterable[tuple[Values, Values]]) -> tuple[Array, npt.NDArray[np.bool_]]:
    """All (scores, labels) of ``parts`` as one pair of arrays (labels as booleans): the exact pooled AUC."""
    scores: list[Array] = []
    positives: list[npt.NDArray[np.bool_]] = []
    for values, labels in parts:
        scores.append(as_scores(values))
        positives.append(as_positive(labels, scores[-1].size))
    if not scores:
        raise ValueError("There are no parts to merge.")
    return np.concatenate(scores), np.concatenate(positives)
