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

from fedauc import metrics
from fedauc.core.tree import Tree
from fedauc.experiments.assembly import Scored


class Candidate(NamedTuple):
    """A validated output."""

    z: Tree
    auc: float
    round: int


class Selection(NamedTuple):
    """The highest validation AUC so far with its rows, and the choice."""

    peak: Candidate
    scored: Scored
    choice: Candidate

    def after(self, now: Candidate, scored: Scored) -> Selection:
        """Take a newly validated output in; the two are compared on the rows that both have."""
        if now.auc > self.peak.auc:
            return Selection(now, scored, now)
        old, new = _common(self.scored, scored)
        if not 0 < new.y.sum() < len(new.y):  # nothing to compare
            return self
        if old.paired and new.paired:
            below, variance = metrics.delong_difference(old.scores, new.scores, new.y)
        else:
            before, after = (metrics.delong(each.scores, each.y) for each in (old, new))
            below, variance = before[0] - after[0], before[1] + after[1]
        if math.isnan(variance) or below <= math.sqrt(variance):
            return self._replace(choice=now)
        return self


def _common(a: Scored, b: Scored) -> tuple[Scored, Scored]:
    """Both with the rows that both have, in the same order."""
    if a.rows is None and b.rows is None:
        return a, b
    first, second = (np.arange(len(each.y)) if each.rows is None else each.rows for each in (a, b))
    _, old, new = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    return (
        a._replace(scores=a.scores[old], y=a.y[old]),
        b._replace(scores=b.scores[new], y=b.y[new]),
    )


def first(now: Candidate, scored: Scored) -> Selection:
    """The selection after the first validation."""
    return Selection(now, scored, now)
