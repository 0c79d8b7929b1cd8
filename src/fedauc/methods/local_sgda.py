"""Local SGDA, stagewise, with a proximal term: FedAvg, CODA+, CyCp-Minimax, RS-Minimax.

    server, round (e, k)                       client m
      send z = (v, α)                            z_{m,0} = z
                                                 for t = 1..I:
                                                   draw a batch
                                                   v ← v - η (∇_v F(v, α) + γ (v - v₀ˢ))
                                                   α ← α + η  ∇_α F(v, α)
      z ← z + Σ_m ŵ_m (z_{m,I} - z)              send z_{m,I} - z

Yuan et al., "Federated deep AUC maximization for heterogeneous data with a constant communication
complexity", ICML 2021 (CODA+, Alg. 1-2); Vangapally et al., "Communication-efficient federated AUC
maximization with cyclic client participation" (Alg. 1-2); McMahan et al. 2017 (FedAvg: no dual, γ = 0).

Where this departs from the papers, and why: Alg. 1 of the second omits the proximal term of its eq. (5),
which is here (γ = 0 turns it off). Clients send differences instead of models, so that weights ŵ that do
not sum to one (groups with fewer positives than others) are unbiased; with ŵ = 1/M it is the average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from fedauc.core import tree
from fedauc.core.method import Aggregate, Batch, Cohort, Draw, Knobs, Upload
from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.objectives.base import Apply, Objective, field


class Server(NamedTuple):
    z: Tree
    anchor: Tree
    """v₀ˢ, the stage's start; empty while γ = 0."""


class Local(NamedTuple):
    z: Tree
    anchor: Tree


@dataclass(frozen=True)
class LocalSGDA:
    """I local steps of stochastic gradient descent-ascent, then the weighted mean."""

    apply: Apply
    objective: Objective
    gamma: float = 0.0
    """γ, the proximal pull towards the stage's start; 0 turns it off."""
    weight_decay: float = 0.0
    """ℓ₂ penalty on the model's parameters (not on the objective's own variables)."""

    def __post_init__(self) -> None:
        if not isinstance(self.objective, Objective):
            raise InputError(
                f"{type(self.objective).__name__} compares examples of different clients, so it is not a sum"
                " over examples that local-sgda could descend; use the rule active-passive."
            )

    @property
    def draw(self) -> Draw:
        return self.objective.draw

    def server_init(self, params: Tree) -> Server:
        like = next(iter(params.values()))
        return self.server_stage(Server(params | self.objective.variables(like), {}))

    def memory_init(self, z: Tree) -> Tree:
        return {}

    def broadcast(self, s: Server) -> Server:
        return s

    def address(self, s: Server, cohort: Cohort, knobs: Knobs, seed: int) -> Tree:
        return {}

    def client_init(self, d: Server, own: Tree, c: Tree) -> Local:
        return Local(d.z, d.anchor)

    def client_step(self, l: Local, batch: Batch, eta: Tensor) -> tuple[Local, Tree]:
        gradient, loss = field(self.apply, self.objective, l.z, batch)
        gradient = decayed(gradient, l.z, self.weight_decay)
        for name, start in l.anchor.items():
            gradient[name] = gradient[name] + self.gamma * (l.z[name] - start)
        z = self.objective.projected(tree.add(l.z, gradient, -eta))
        return l._replace(z=z), {"loss": loss}

    def client_finish(self, d: Server, l: Local, c: Tree, outs: Tree, knobs: Knobs) -> tuple[Upload, Tree]:
        return Upload(mean=tree.sub(l.z, d.z), gather={}), c

    def server_update(self, s: Server, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Server:
        return s._replace(z=self.objective.projected(tree.add(s.z, aggregate.mean)))

    def server_stage(self, s: Server) -> Server:
        anchor = {n: v for n, v in s.z.items() if n not in self.objective.duals} if self.gamma else {}
        return s._replace(anchor=anchor)


def decayed(gradient: Tree, z: Tree, weight_decay: float) -> Tree:
    """The gradient with ℓ₂ decay of the model's parameters (an objective's variables are named auc.*)."""
    if not weight_decay:
        return dict(gradient)
    return {n: g if n.startswith("auc.") else g + weight_decay * z[n] for n, g in gradient.items()}
