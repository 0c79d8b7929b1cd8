"""Active-passive optimisation of pairwise losses: CyCp-Pairwise and FedXL (RS-Pairwise).

    server, round (e, k)                       client m
      send w, and to each client a random        w_{m,0} = w
      part R₁, R₂ of the score pools H₁, H₂      shuffle R₁, R₂ into buffers B₁, B₂
                                                 for t = 1..I:
                                                   draw positives and negatives, compute their scores h
                                                   take the next passive scores from B₁, B₂
                                                   w ← w - η ∇ [mean ψ(h⁺, passive⁻) + mean ψ(passive⁺, h⁻)]
      w ← w + Σ_m ŵ_m (w_{m,I} - w)              send w_{m,I} - w and the scores h
      add the scores to the next pools

Vangapally et al., "Communication-efficient federated AUC maximization with cyclic client participation"
(Alg. 3-4: pools of the previous cycle); Guo et al., "FedXL", ICML 2023 (pools of the previous round).

Where this departs from the papers, and why: the two parts are weighted by what the client's classes count
for (`core.weighting`), because most clients have no positives; a passive score is drawn with the same
weights. Every active score meets all P passive scores of its step instead of one, which costs nothing
(scores are scalars) and lowers the variance. `refresh="rolling"` replaces a group's scores as soon as the
group answered, so that they are at most one cycle old instead of two.

What is compared is the objective's business: a scalar score, an embedding (`Contrastive`), or a score with an
estimate u that belongs to the example and is kept by its client (`PartialAUC`, FedXL2); the estimates travel
as a third pool beside the positives they belong to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core import rng, tree
from fedauc.core.method import Aggregate, Batch, Cohort, Draw, Gathered, Knobs, Pool, Upload
from fedauc.core.rng import U64
from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.methods.base import Rule, averaged, decayed
from fedauc.objectives.base import Apply, differentiate
from fedauc.objectives.pairwise_auc import Pairwise


class Scores(NamedTuple):
    """Scores of one class with the weights they are drawn by, and the round each came from."""

    h: Tensor
    """[n] scores, or [n, …] embeddings."""
    weight: Tensor
    round: Tensor


class Server(NamedTuple):
    z: Tree
    passive: dict[str, Scores]
    """H₁, H₂: what clients are paired with now."""
    fresh: dict[str, Scores]
    """What has come in since; becomes `passive` at the next refresh."""


class Broadcast(NamedTuple):
    z: Tree


class Local(NamedTuple):
    z: Tree
    buffer: Tree
    """B₁, B₂: passive scores, the next ones first."""
    kept: Tree
    """log u: estimates of the client's own positives, where the objective has any."""


@dataclass(frozen=True)
class ActivePassive(Rule):
    """Local SGD on pairs of own (active) and other clients' earlier (passive) scores."""

    apply: Apply
    objective: Pairwise
    refresh: Literal["cycle", "round", "rolling"] = "rolling"
    """Passive scores are those of the previous cycle, of the previous round, or each client's latest."""
    passive: int = 32
    """P, passive scores of each class that a client receives per local step."""
    weight_decay: float = 0.0
    """ℓ₂ penalty on the model's parameters."""

    def __post_init__(self) -> None:
        if not isinstance(self.objective, Pairwise):
            raise InputError(
                f"active-passive needs a pairwise objective: {type(self.objective).__name__} is a sum over"
                " examples and has no pairs to complete with passive scores; use the rule local-sgda."
            )
        if self.passive < 1:
            raise InputError(f"passive={self.passive} must be at least 1.")

    @property
    def draw(self) -> Draw:
        return "stratified"

    @property
    def pools(self) -> dict[str, int]:
        """What is gathered, and of which class it is."""
        return {"negatives": 0, "positives": 1} | ({"estimates": 1} if self.objective.kept else {})

    def server_init(self, params: Tree, counts: NDArray[np.int64]) -> Server:
        like = next(iter(params.values()))
        wide = {name: like.new_zeros(0, *shape) for name, shape in self.objective.shapes.items()}
        empty = {
            name: Scores(wide.get(name, like.new_zeros(0)), like.new_zeros(0), like.new_zeros(0).long())
            for name in self.pools
        }
        return Server(params, empty, empty)

    def memory_init(self, z: Tree) -> Tree:
        """log u of each positive and one more slot, for examples that have none; -1: not estimated yet."""
        size = self.objective.kept
        return {"log_u": next(iter(z.values())).new_full((size + 1,), -1.0)} if size else {}

    def broadcast(self, s: Server) -> Broadcast:
        return Broadcast(s.z)

    def address(self, s: Server, cohort: Cohort, knobs: Knobs, seed: int) -> Tree:
        """R₁, R₂ [M, I·P] for each client; nothing before the pools are filled, when clients only score."""
        filled = all(len(pool.h) for pool in s.passive.values())
        size = knobs.steps * self.passive if filled else 0
        return {
            name: drawn(s.passive[name], cohort, size, rng.fold(seed, rng.PASSIVE, code, knobs.round))
            for name, code in self.pools.items()
        }

    def client_init(self, d: Broadcast, own: Tree, c: Tree) -> Local:
        return Local(d.z, own, c)

    def client_move(self, l: Local, batch: Batch, eta: Tensor) -> tuple[Local, Tree]:
        passive = {name: scores[: self.passive] for name, scores in l.buffer.items()}
        slot, before = self._own_estimates(l, batch)

        def loss(z: Tree, output: Tensor) -> tuple[Tensor, Tree]:
            h = self.objective.score(output)
            value, aux = self.objective.paired(h, batch.y, batch.weight, passive, before)
            return value, {"h": h} | aux

        if not len(passive["positives"]):  # nothing to compare with yet: only fill the pools
            h = self.objective.score(self.apply(l.z, batch.x))
            nothing = h.new_full((), math.nan)
            return l, {"loss": nothing, "y": batch.y, "h": h} | self.objective.unpaired(batch.y)
        slope = differentiate(self.apply, l.z, batch.x, loss)
        gradient = decayed(slope.gradient, l.z, self.weight_decay)
        buffer = {name: scores.roll(-self.passive, dims=0) for name, scores in l.buffer.items()}
        kept = l.kept
        if kept:  # what negatives write to their common slot must not depend on an order
            new = torch.where(batch.y > 0, slope.aux["log_u"], -1.0)
            kept = {"log_u": kept["log_u"].scatter(0, slot, new)}
        z = tree.add(l.z, gradient, -eta) | slope.statistics
        return Local(z, buffer, kept), {"loss": slope.loss / 2, "y": batch.y} | slope.aux

    def _own_estimates(self, l: Local, batch: Batch) -> tuple[Tensor, Tensor]:
        """Where log u of each example is kept (negatives share the last slot), and its value."""
        slot = torch.where(batch.y > 0, batch.row, self.objective.kept)
        return slot, l.kept["log_u"][slot] if l.kept else batch.weight

    def client_finish(self, d: Broadcast, l: Local, c: Tree, outs: Tree, knobs: Knobs) -> tuple[Upload, Tree]:
        y = outs["y"].flatten()
        of_pool = {"negatives": "h", "positives": "h", "estimates": "log_u"}
        scores = {
            name: Gathered(outs[of_pool[name]].flatten(0, 1), y > 0 if code else y == 0)
            for name, code in self.pools.items()
        }
        return Upload(mean=tree.sub(l.z, d.z), gather=scores), l.kept

    def server_update(self, s: Server, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Server:
        z = averaged(s.z, aggregate, cohort)
        new = {
            name: weighted(aggregate.gather[name], cohort.share[:, code], knobs.round)
            for name, code in self.pools.items()
        }
        if self.refresh == "cycle":
            fresh = {name: joined(s.fresh[name], new[name]) for name in new}
            if not knobs.cycle_end:
                return Server(z, s.passive, fresh)
            passive = {name: fresh[name] if len(fresh[name].h) else s.passive[name] for name in new}
            return Server(z, passive, {name: since(fresh[name], knobs.round + 1) for name in new})
        window = 1 if self.refresh == "round" else knobs.cycle_length
        both = {name: joined(s.passive[name], new[name]) for name in new}
        return Server(z, {name: recent(both[name], knobs.round + 1 - window) for name in new}, s.fresh)


def weighted(pool: Pool, share: NDArray[np.float64], round: int) -> Scores:
    """A round's scores; a client's scores together weigh what the client counts for."""
    weight = torch.as_tensor(share, dtype=pool.values.dtype, device=pool.owner.device)
    each = weight / torch.bincount(pool.owner, minlength=len(share)).clamp(min=1)
    return Scores(pool.values, each[pool.owner], torch.full_like(pool.owner, round))


def joined(a: Scores, b: Scores) -> Scores:
    return Scores(torch.cat([a.h, b.h]), torch.cat([a.weight, b.weight]), torch.cat([a.round, b.round]))


def since(scores: Scores, round: int) -> Scores:
    keep = scores.round >= round
    return Scores(scores.h[keep], scores.weight[keep], scores.round[keep])


def recent(scores: Scores, round: int) -> Scores:
    """The scores since a round; the last ones there are where no client had the class since."""
    return since(scores, min(round, int(scores.round.max()))) if len(scores.h) else scores


def drawn(scores: Scores, cohort: Cohort, size: int, key: U64) -> Tensor:
    """A random part of a pool for each client, shuffled: [M, size], drawn by weight.

    Systematic sampling: `size` equidistant points with a random start on the cumulated weights, so that with
    equal weights nothing is drawn twice before everything was drawn once.
    """
    clients = cohort.clients[:, None]
    if size == 0:
        return scores.h.new_zeros(len(clients), 0, *scores.h.shape[1:])
    shuffled = rng.permuted(rng.fold(key, clients, 0), np.array([[size]]), np.arange(size)[None, :])
    points = torch.as_tensor((shuffled + rng.uniform(key, clients, 1)) / size, device=scores.h.device)
    weight = scores.weight.double()
    cumulated = (weight if float(weight.sum()) > 0 else torch.ones_like(weight)).cumsum(0)
    index = torch.searchsorted(cumulated, points * cumulated[-1], right=True)
    return scores.h[index.clamp(max=len(scores.h) - 1)]
