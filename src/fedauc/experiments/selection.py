"""Which round's model is kept: the latest that validation cannot tell from the best.

With rare events the validation rows hold a handful of positives, and the highest of many noisy AUCs is often
a lucky, half-trained round at the very start. So the peak is kept as the reference, and a later round takes
its place as the *choice* while its AUC is at most one standard error of the paired difference below the peak
(DeLong et al. 1988; the one-standard-error rule of Breiman et al. 1984). A run that really gets worse, by
overfitting or divergence, falls below that and is not chosen.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedauc import metrics
from fedauc.core.tree import Tree


class Candidate(NamedTuple):
    """A validated output."""

    z: Tree
    auc: float
    round: int


class Selection(NamedTuple):
    """The highest validation AUC so far with its scores, and the choice."""

    peak: Candidate
    scores: NDArray[np.float32]
    choice: Candidate

    def after(self, now: Candidate, scores: NDArray[np.float32], y: NDArray[np.int8]) -> Selection:
        """Take a newly validated output in."""
        if now.auc > self.peak.auc:
            return Selection(now, scores, now)
        below, variance = metrics.delong_difference(self.scores, scores, y)
        if math.isnan(variance) or below <= math.sqrt(variance):
            return self._replace(choice=now)
        return self


def first(now: Candidate, scores: NDArray[np.float32]) -> Selection:
    """The selection after the first validation."""
    return Selection(now, scores, now)
