"""Ratio loss: the class whose gradients are drowned out counts for more.

    server, round r                              client m
      send z and R = (R₋, R₊)                      every example of class q weighs 1 + β R_q
                                                   G_q = Σ over its examples of class q of ∂ℓ/∂(last layer)
      G_q ← moving average over a cycle of         send the mean of G_q over its local steps, besides z
            Σ_m ŵ_m G_q,m
      R_q = ‖G of the other class‖ / ‖G_q‖

Wang et al., "Addressing class imbalance in federated learning", AAAI 2021: the size of the last layer's
gradient that a class alone would cause says how rare and how well learned it is.

Where this departs from the paper, and why: the paper's server estimates R from the change of the last layer's
row of each class, with auxiliary examples of every class. A model of one score has one row and a server of
rare events has no examples; here clients add up the two classes' gradients of the last layer, which are
two vectors as long as the last layer. R is used one round later; it is at most 100, and 1 until both classes
were seen. It is taken where a local step begins, also under momentum, whose gradient is taken after the move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core import tree
from fedauc.core.method import Aggregate, Batch, Cohort, Knobs, Method, Upload
from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.methods.base import Wrapper, of, under
from fedauc.objectives.base import Apply, outputs
from fedauc.objectives.cross_entropy import CrossEntropy

MOST = 100.0


class Server(NamedTuple):
    inner: Any
    size: Tree
    """G₋ and G₊: last-layer gradients of the two classes."""

    @property
    def z(self) -> Tree:
        return self.inner.z


class Broadcast(NamedTuple):
    inner: Any
    ratio: Tensor
    """R₋, R₊."""

    @property
    def z(self) -> Tree:
        return self.inner.z


class Local(NamedTuple):
    inner: Any
    ratio: Tensor

    @property
    def z(self) -> Tree:
        return self.inner.z


@dataclass(frozen=True)
class RatioWeights(Wrapper):
    """Classes weighed by the ratio of the gradients that they cause in the last layer."""

    inner: Method
    beta: float = 0.1
    """β: an example of class q weighs 1 + β·R_q."""

    def __post_init__(self) -> None:
        if self.beta < 0:
            raise InputError(f"beta={self.beta} must not be negative.")
        if self.ranks:
            raise InputError(
                "ratio weights are those of cross-entropy: an objective that compares the classes has nothing"
                " to make up for by weighing one of them up; use the objective cross-entropy."
            )
        if self.inner.draw != "natural":
            raise InputError(
                "ratio weights make up for rare classes in batches as they come; stratified batches are"
                " balanced already, so there is nothing to make up for: use cross-entropy with natural draws."
            )

    def server_init(self, params: Tree, counts: NDArray[np.int64]) -> Server:
        inner = self.inner.server_init(params, counts)
        nothing = {name: torch.zeros_like(value) for name, value in _last_layer(params).items()}
        return Server(inner, under("-", nothing) | under("+", nothing))

    def broadcast(self, s: Server) -> Broadcast:
        minus, plus = (torch.stack([v.square().sum() for v in of(q, s.size).values()]).sum() for q in "-+")
        ratio = torch.stack([(plus / minus).sqrt(), (minus / plus).sqrt()])
        known = (minus > 0) & (plus > 0)
        return Broadcast(self.inner.broadcast(s.inner), torch.where(known, ratio.clamp(max=MOST), 1.0))

    def client_init(self, d: Broadcast, own: Tree, c: Tree) -> Local:
        return Local(self.inner.client_init(d.inner, own, c), d.ratio)

    def client_move(self, l: Local, batch: Batch, eta: Tensor) -> tuple[Local, Tree]:
        observed: Tree = {}
        for q, chosen in (("-", 1 - batch.y), ("+", batch.y)):
            observed |= under(q, _last_layer_gradient(self.apply, l.z, batch, chosen * batch.weight))
        factor = 1 + self.beta * torch.where(batch.y > 0, l.ratio[1], l.ratio[0])
        weighed = batch._replace(weight=batch.weight * factor)
        inner, outs = self.inner.client_move(l.inner, weighed, eta)  # type: ignore[attr-defined]
        return l._replace(inner=inner), outs | under("ratio", observed)

    def client_finish(self, d: Broadcast, l: Local, c: Tree, outs: Tree, knobs: Knobs) -> tuple[Upload, Tree]:
        upload, memory = self.inner.client_finish(d.inner, l.inner, c, outs, knobs)
        observed = {name: value.mean(dim=0) for name, value in outs.items() if name.startswith("ratio/")}
        return upload._replace(mean=upload.mean | observed), memory

    def server_update(self, s: Server, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Server:
        inner = self.inner.server_update(s.inner, aggregate, cohort, knobs)
        share = 1 / min(knobs.round + 1, knobs.cycle_length)
        return Server(inner, tree.lerp(s.size, of("ratio", aggregate.mean), share))


def _last_layer(z: Tree) -> Tree:
    """The parameters of the layer that makes the score: the last one's."""
    own = [name for name in tree.learned(z) if not name.startswith(tree.OWN)]
    layer = own[-1].rpartition(".")[0]
    return {name: z[name] for name in own if name.rpartition(".")[0] == layer}


def _last_layer_gradient(apply: Apply, z: Tree, batch: Batch, weight: Tensor) -> Tree:
    def loss(last: Tree) -> Tensor:
        logit, _ = outputs(apply, z | last, batch.x)
        return CrossEntropy().loss(last, logit, batch.y, weight)

    return torch.func.grad(loss)(_last_layer(z))
