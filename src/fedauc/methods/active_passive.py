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
from fedauc.methods.local_sgda import decayed
from fedauc.objectives.base import Apply
from fedauc.objectives.pairwise_auc import PairwiseAUC

CLASSES = ("negatives", "positives")


class Scores(NamedTuple):
    """Scores of one class with the weights they are drawn by, and the round each came from."""

    h: Tensor
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


@dataclass(frozen=True)
class ActivePassive:
    """Local SGD on pairs of own (active) and other clients' earlier (passive) scores."""

    apply: Apply
    objective: PairwiseAUC
    refresh: Literal["cycle", "round", "rolling"] = "rolling"
    """Passive scores are those of the previous cycle, of the previous round, or each client's latest."""
    passive: int = 32
    """P, passive scores of each class that a client receives per local step."""
    weight_decay: float = 0.0
    """ℓ₂ penalty on the model's parameters."""

    def __post_init__(self) -> None:
        if not isinstance(self.objective, PairwiseAUC):
            raise InputError(
                f"active-passive needs a pairwise objective: {type(self.objective).__name__} is a sum over"
                " examples and has no pairs to complete with passive scores; use the rule local-sgda."
            )
        if self.passive < 1:
            raise InputError(f"passive={self.passive} must be at least 1.")

    @property
    def draw(self) -> Draw:
        return "stratified"

    def server_init(self, params: Tree) -> Server:
        like = next(iter(params.values()))
        empty = Scores(like.new_zeros(0), like.new_zeros(0), like.new_zeros(0, dtype=torch.int64))
        return Server(params, dict.fromkeys(CLASSES, empty), dict.fromkeys(CLASSES, empty))

    def memory_init(self, z: Tree) -> Tree:
        return {}

    def broadcast(self, s: Server) -> Broadcast:
        return Broadcast(s.z)

    def address(self, s: Server, cohort: Cohort, knobs: Knobs, seed: int) -> Tree:
        """R₁, R₂ [M, I·P] for each client; nothing before the pools are filled, when clients only score."""
        filled = all(len(pool.h) for pool in s.passive.values())
        size = knobs.steps * self.passive if filled else 0
        return {
            name: drawn(s.passive[name], cohort, size, rng.fold(seed, rng.PASSIVE, code, knobs.round))
            for code, name in enumerate(CLASSES)
        }

    def client_init(self, d: Broadcast, own: Tree, c: Tree) -> Local:
        return Local(d.z, own)

    def client_step(self, l: Local, batch: Batch, eta: Tensor) -> tuple[Local, Tree]:
        positives, negatives = l.buffer["positives"][: self.passive], l.buffer["negatives"][: self.passive]
        if not len(positives):  # nothing to compare with yet: only fill the pools
            h = self.objective.score(self.apply(l.z, batch.x))
            return l, {"loss": h.new_full((), math.nan), "h": h, "y": batch.y}

        def value(z: Tree) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            h = self.objective.score(self.apply(z, batch.x))
            loss = self.objective.loss(h, batch.y, batch.weight, positives, negatives)
            return loss, (loss.detach(), h.detach())

        gradient, (loss, h) = torch.func.grad(value, has_aux=True)(l.z)
        gradient = decayed(gradient, l.z, self.weight_decay)
        buffer = {name: scores.roll(-self.passive) for name, scores in l.buffer.items()}
        return Local(tree.add(l.z, gradient, -eta), buffer), {"loss": loss / 2, "h": h, "y": batch.y}

    def client_finish(self, d: Broadcast, l: Local, c: Tree, outs: Tree, knobs: Knobs) -> tuple[Upload, Tree]:
        h, y = outs["h"].flatten(), outs["y"].flatten()
        scores = {"negatives": Gathered(h, y == 0), "positives": Gathered(h, y > 0)}
        return Upload(mean=tree.sub(l.z, d.z), gather=scores), c

    def server_update(self, s: Server, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Server:
        z = tree.add(s.z, aggregate.mean)
        new = {
            name: weighted(aggregate.gather[name], cohort.share[:, code], knobs.round)
            for code, name in enumerate(CLASSES)
        }
        if self.refresh == "cycle":
            fresh = {name: joined(s.fresh[name], new[name]) for name in CLASSES}
            if not knobs.cycle_end:
                return Server(z, s.passive, fresh)
            passive = {name: fresh[name] if len(fresh[name].h) else s.passive[name] for name in CLASSES}
            return Server(z, passive, {name: since(fresh[name], knobs.round + 1) for name in CLASSES})
        window = 1 if self.refresh == "round" else knobs.cycle_length
        both = {name: joined(s.passive[name], new[name]) for name in CLASSES}
        return Server(z, {name: recent(both[name], knobs.round + 1 - window) for name in CLASSES}, s.fresh)

    def server_stage(self, s: Server) -> Server:
        return s


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
        return scores.h.new_zeros(len(clients), 0)
    shuffled = rng.permuted(rng.fold(key, clients, 0), np.array([[size]]), np.arange(size)[None, :])
    points = torch.as_tensor((shuffled + rng.uniform(key, clients, 1)) / size, device=scores.h.device)
    cumulated = scores.weight.double().cumsum(0)
    index = torch.searchsorted(cumulated, points * cumulated[-1], right=True)
    return scores.h[index.clamp(max=len(scores.h) - 1)]
