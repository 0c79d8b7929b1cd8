"""Evaluation with the rows at their sites: what each shares of its scores, put together.

A site sends every score, or how many fall into each bin of a histogram, or nothing, as its limits have it. A
histogram stands for as many rows as it counts, all of a bin alike: pairs within a bin are then ties, and
`bounds` says between what the AUC of the rows themselves lies. Where all sites send histograms, the AUC is
the middle of the two; where some send scores, it is somewhere between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.experiments.assembly import Part, Scored
from fedauc.federation.everybody import Everybody
from fedauc.federation.messages import Message, Rate, Rated, Refused
from fedauc.metrics.auc import UndefinedAUC
from fedauc.metrics.mergeable import ScoreHistogram
from fedauc.models import Model

MOST_BINS = 2**16
"""So fine that scores of one bin are told apart in float32 no better than this."""


@dataclass(frozen=True)
class Share:
    """What sites are asked to share of the rows that they score."""

    form: Literal["scores", "histogram"] = "scores"
    """Every score, or how many fall into each bin; a site may share less."""
    bins: int = 4096
    """Bins of a histogram, as wide as each other."""
    range: float = 20.0
    """Scores from -range to range have bins; what is beyond is in the first or last one."""

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= MOST_BINS:
            raise InputError(f"share.bins={self.bins} must be between 1 and {MOST_BINS}.")
        if not 0 < self.range < math.inf:
            raise InputError(f"share.range={self.range} must be positive and finite.")

    def histogram(self, negatives: NDArray[np.int64], positives: NDArray[np.int64]) -> ScoreHistogram:
        return ScoreHistogram(-self.range, self.range, positives, negatives)


class Given(NamedTuple):
    """What a site gave: a score for each of its rows, the negatives before the positives."""

    scores: NDArray[np.float32]
    exact: bool


def read(reply: Rated, counts: list[int], share: Share) -> Given:
    """A site's scores; refused where they are not what was asked for."""
    if reply.form == "nothing":
        raise Refused("the site does not share its scores")
    if reply.tensors.keys() != {"negatives", "positives"} or reply.form not in ("scores", "histogram"):
        raise Refused("scores of another form than agreed")
    sent = [reply.tensors[name] for name in ("negatives", "positives")]
    exact = reply.form == "scores"
    if any(value.dtype != (torch.float32 if exact else torch.int64) or value.dim() != 1 for value in sent):
        raise Refused("scores of another type than agreed")
    if not exact and not all(_possible(v, most, share) for v, most in zip(sent, counts, strict=True)):
        raise Refused("a histogram of another form than agreed")
    if [len(value) if exact else int(value.sum()) for value in sent] != counts:
        raise Refused("scores of another number of rows than agreed")
    if exact and not all(torch.isfinite(value).all() for value in sent):
        raise Refused("scores that are not finite")
    negatives, positives = (value.numpy() for value in sent)
    each = (negatives, positives) if exact else share.histogram(negatives, positives).scores()
    return Given(np.concatenate(each), exact)


def _possible(counts: Tensor, most: int, share: Share) -> bool:
    """Whether there are as many bins as agreed, and none has fewer rows than none or more than all."""
    return len(counts) == share.bins and bool((counts >= 0).all() and (counts <= most).all())


@dataclass(frozen=True)
class RemotePart(Part):
    """Rows to evaluate on, at the sites; of each site the negatives stand before the positives."""

    everybody: Everybody
    run: str
    name: str
    counts: NDArray[np.int64]
    """[N, 2]: negatives and positives of each site."""
    share: Share
    quorum: float = 0.0
    """Of the sites that are open, as many are waited for in the course of a run."""

    def scored(self, model: Model, z: Tree, *, patient: bool = True) -> Scored:
        """The rows of the sites that answer and share."""
        share = self.share
        if not all(torch.isfinite(value).all() for value in z.values()):
            return Scored(np.full(len(self.y), np.nan, dtype=np.float32), self.y, self.client)

        def request(client: int) -> Message:
            form = (share.form, share.bins, -share.range, share.range)
            return Rate(z, self.run, client, self.name, *form)

        replies, why = self.everybody.asked(request, Rated, patient=patient, quorum=self.quorum)
        given: dict[int, Given] = {}
        for client, reply in sorted(replies.items()):
            try:
                if reply.part != self.name:
                    raise Refused("scores of other rows than agreed")
                given[client] = read(reply, self.counts[client].tolist(), share)
            except Refused as reason:
                why[client] = str(reason)
                continue
            if not reply.own_auc:
                why[client] = "the site does not share its own AUC"
        assert self.client is not None
        rows = np.flatnonzero(np.isin(self.client, list(given)))
        scores = np.concatenate([np.empty(0, dtype=np.float32), *(each.scores for each in given.values())])
        found = Scored(scores, self.y[rows], self.client[rows], rows, why)
        exact = all(each.exact for each in given.values())
        return found if exact else found._replace(paired=False, bounds=self._bounds(found))

    def _bounds(self, found: Scored) -> tuple[float, float] | None:
        """Between which the AUC of these rows lies, by the bins that their scores are in."""
        share = self.share
        try:
            every = ScoreHistogram.from_scores(found.scores, found.y, share.bins, -share.range, share.range)
            return every.bounds()
        except UndefinedAUC:
            return None
