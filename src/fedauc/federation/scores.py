"""Evaluation with the rows at their sites: what each shares of its scores, put together.

A site sends every score, or how many fall into each bin of a histogram, or nothing, as its limits have it. A
histogram stands for as many rows as it counts, all of a bin alike; pairs within a bin are then ties, so the
AUC is off by at most half the share of such pairs, and `bounds` says between what it lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedauc.core.tree import Tree
from fedauc.experiments.assembly import Part, Scored
from fedauc.federation.everybody import Everybody
from fedauc.federation.messages import Message, Rate, Rated, Refused
from fedauc.metrics.auc import UndefinedAUC
from fedauc.metrics.mergeable import ScoreHistogram
from fedauc.models import Model


@dataclass(frozen=True)
class Share:
    """What sites are asked to share of the rows that they score."""

    form: Literal["scores", "histogram"] = "scores"
    """Every score, or how many fall into each bin; a site may share less."""
    bins: int = 4096
    """Bins of a histogram, as wide as each other."""
    range: float = 20.0
    """Scores from -range to range have bins; what is beyond is in the first or last one."""

    def histogram(self, negatives: NDArray[np.int64], positives: NDArray[np.int64]) -> ScoreHistogram:
        return ScoreHistogram(-self.range, self.range, positives, negatives)


class Given(NamedTuple):
    """What a site gave: a score for each of its rows, the negatives before the positives."""

    scores: NDArray[np.float32]
    exact: bool


def read(reply: Rated, counts: list[int], share: Share) -> Given:
    """A site's scores; refused where they are not what was asked for."""
    sent = {name: value.numpy() for name, value in reply.tensors.items()}
    if reply.form == "nothing":
        raise Refused("the site does not share its scores")
    if sent.keys() != {"negatives", "positives"} or reply.form not in ("scores", "histogram"):
        raise Refused("scores of another form than agreed")
    each = sent["negatives"], sent["positives"]
    if reply.form == "histogram":
        if any(v.dtype != np.int64 or v.shape != (share.bins,) or (v < 0).any() for v in each):
            raise Refused("a histogram of another form than agreed")
        each = share.histogram(*each).scores()
    elif any(v.dtype != np.float32 or v.ndim != 1 for v in each):
        raise Refused("scores of another type than agreed")
    if [len(v) for v in each] != counts:
        raise Refused("scores of another number of rows than agreed")
    return Given(np.concatenate(each), reply.form == "scores")


@dataclass(frozen=True)
class RemotePart(Part):
    """Rows to evaluate on, at the sites; of each site the negatives stand before the positives."""

    everybody: Everybody
    run: str
    name: str
    counts: NDArray[np.int64]
    """[N, 2]: negatives and positives of each site."""
    share: Share

    def scored(self, model: Model, z: Tree, *, patient: bool = True) -> Scored:
        """The rows of the sites that answer and share."""
        share = self.share

        def request(client: int) -> Message:
            form = (share.form, share.bins, -share.range, share.range)
            return Rate(z, self.run, client, self.name, *form)

        replies, why = self.everybody.asked(request, Rated, patient=patient)
        given: dict[int, Given] = {}
        for client, reply in sorted(replies.items()):
            try:
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
        return found if exact else found._replace(bounds=self._bounds(found))

    def _bounds(self, found: Scored) -> tuple[float, float] | None:
        """Between which the AUC of these rows lies, by the bins that their scores are in."""
        share = self.share
        try:
            every = ScoreHistogram.from_scores(found.scores, found.y, share.bins, -share.range, share.range)
            return every.bounds()
        except UndefinedAUC:
            return None
