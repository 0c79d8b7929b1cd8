"""CODA's dual step: α ← mean over clients of [mean negative score - mean positive score].

    server, before the first round of stage s > 1     every client
      send v                                            draw I batches, without training on them
      α ← Σ ŵ h̄⁻ / Σ ŵ[-] - Σ ŵ h̄⁺ / Σ ŵ[+]              send its sums of scores and of weights, by class

Guo et al., "Communication-efficient distributed stochastic AUC maximization with deep neural networks",
ICML 2020. At the saddle of the minimax objective α = b - a = E⁻h - E⁺h; CODA+ found the step unnecessary.

Where this departs from the paper, and why: class means are ratios of sums over clients, because most clients
have no positives; a client looks at as many examples as in a round of training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core.method import Aggregate, Batch, Cohort, Draw, Knobs, Upload
from fedauc.core.tree import Tree
from fedauc.methods.base import Rule, of, under
from fedauc.objectives.base import Apply


class Broadcast(NamedTuple):
    z: Tree


class Local(NamedTuple):
    z: Tree
    sums: Tree


@dataclass(frozen=True)
class DualEstimate(Rule):
    """A phase without training: what α would be at the saddle, from the clients' scores."""

    apply: Apply
    objective: Any

    @property
    def draw(self) -> Draw:
        return "stratified"

    def server_init(self, params: Tree, counts: NDArray[np.int64]) -> Any:
        raise NotImplementedError("the dual is estimated between other rounds")

    def broadcast(self, s: Any) -> Broadcast:
        return Broadcast(s.z)

    def client_init(self, d: Broadcast, own: Tree, c: Tree) -> Local:
        zero = next(iter(d.z.values())).new_zeros(())
        return Local(d.z, dict.fromkeys(("h+", "h-", "w+", "w-"), zero))

    def client_move(self, l: Local, batch: Batch, eta: Tensor) -> tuple[Local, Tree]:
        h = self.objective.score(self.apply(l.z, batch.x))
        positive, negative = batch.weight * batch.y, batch.weight * (1 - batch.y)
        new = {"h+": positive @ h, "h-": negative @ h, "w+": positive.sum(), "w-": negative.sum()}
        return l._replace(sums={n: l.sums[n] + new[n] for n in l.sums}), {"loss": h.mean()}

    def client_finish(self, d: Broadcast, l: Local, c: Tree, outs: Tree, knobs: Knobs) -> tuple[Upload, Tree]:
        return Upload(mean=under("dual", l.sums), gather={}), c

    def server_update(self, s: Any, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Any:
        mean = of("dual", aggregate.mean)
        alpha = mean["h-"] / mean["w-"] - mean["h+"] / mean["w+"]
        return s._replace(z=s.z | self.objective.at_dual(alpha))
