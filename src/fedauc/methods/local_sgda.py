"""Local SGDA, stagewise, with a proximal term: FedAvg, FedProx, CODA, CODA+, NPA, CyCp-Minimax, RS-Minimax.

    server, round (e, k)                       client m
      send z = (v, α)                            z_{m,0} = z
                                                 for t = 1..I:
                                                   draw a batch
                                                   v ← v - η (∇_v F(v, α) + γ (v - v₀ˢ) + μ (v - v_{m,0}))
                                                   α ← α + η  ∇_α F(v, α)
      z ← z + Σ_m ŵ_m (z_{m,I} - z)              send z_{m,I} - z

Yuan et al., "Federated deep AUC maximization for heterogeneous data with a constant communication
complexity", ICML 2021 (CODA+, Alg. 1-2; NPA is I = 1); Guo et al., "Communication-efficient distributed
stochastic AUC maximization with deep neural networks", ICML 2020 (CODA: `reestimate`); Vangapally et al.,
"Communication-efficient federated AUC maximization with cyclic client participation" (Alg. 1-2); McMahan
et al. 2017 (FedAvg: no dual, γ = μ = 0); Li et al., "Federated optimization in heterogeneous networks",
MLSys 2020 (FedProx: μ > 0).

Where this departs from the papers, and why: Alg. 1 of CyCp omits the proximal term of its eq. (5), which is
here (γ = 0 turns it off). Clients send differences instead of models, so that weights ŵ that do not sum to
one (groups with fewer positives than others) are unbiased; with ŵ = 1/M it is the average. FedProx solves
its proximal problem by the same number of steps everywhere instead of to a client's own accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core import tree
from fedauc.core.method import Aggregate, Batch, Cohort, Draw, Knobs, Phase, Upload
from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.methods.base import Rule, averaged, decayed
from fedauc.methods.dual_estimate import DualEstimate
from fedauc.objectives.base import Apply, Objective, field
from fedauc.participation.full import Full


class Server(NamedTuple):
    z: Tree
    anchor: Tree
    """v₀ˢ, the stage's start; empty while γ = 0."""


class Local(NamedTuple):
    z: Tree
    anchor: Tree
    start: Tree
    """v_{m,0}, the round's start; empty while μ = 0."""


@dataclass(frozen=True)
class LocalSGDA(Rule):
    """I local steps of stochastic gradient descent-ascent, then the weighted mean."""

    apply: Apply
    objective: Objective
    gamma: float = 0.0
    """γ, the proximal pull towards the stage's start; 0 turns it off."""
    mu: float = 0.0
    """μ, FedProx's pull towards the round's start; 0 turns it off."""
    weight_decay: float = 0.0
    """ℓ₂ penalty on the model's parameters (not on the objective's own variables)."""
    reestimate: bool = False
    """Estimate the dual anew from all clients' scores when a stage begins (CODA)."""

    def __post_init__(self) -> None:
        decomposable(self.objective, "local-sgda")
        if self.reestimate and not self.objective.duals:
            raise InputError(
                f"reestimate=True needs an objective with a dual variable: {type(self.objective).__name__}"
                " has none that could be estimated anew."
            )

    @property
    def draw(self) -> Draw:
        return self.objective.draw

    def phases(self, new_stage: bool) -> tuple[Phase, ...]:
        if not (self.reestimate and new_stage):
            return (Phase(self),)
        return Phase(DualEstimate(self.apply, self.objective), Full()), Phase(self)

    def server_init(self, params: Tree, counts: NDArray[np.int64]) -> Server:
        like = next(iter(params.values()))
        return self.server_stage(Server(params | self.objective.variables(like), {}))

    def broadcast(self, s: Server) -> Server:
        return s

    def client_init(self, d: Server, own: Tree, c: Tree) -> Local:
        return Local(d.z, d.anchor, self._primal(d.z) if self.mu else {})

    def client_move(self, l: Local, batch: Batch, eta: Tensor) -> tuple[Local, Tree]:
        slope = field(self.apply, self.objective, l.z, batch)
        gradient = decayed(slope.gradient, l.z, self.weight_decay)
        for strength, towards in ((self.gamma, l.anchor), (self.mu, l.start)):
            gradient |= {n: gradient[n] + strength * (l.z[n] - v) for n, v in towards.items()}
        return l._replace(z=tree.add(l.z, gradient, -eta) | slope.statistics), {"loss": slope.loss}

    def client_finish(self, d: Server, l: Local, c: Tree, outs: Tree, knobs: Knobs) -> tuple[Upload, Tree]:
        return Upload(mean=tree.sub(l.z, d.z), gather={}), c

    def server_update(self, s: Server, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Server:
        return s._replace(z=self.projected(averaged(s.z, aggregate, cohort)))

    def server_stage(self, s: Server) -> Server:
        return s._replace(anchor=self._primal(s.z) if self.gamma else {})

    def projected(self, z: Tree) -> Tree:
        return self.objective.projected(z)

    def _primal(self, z: Tree) -> Tree:
        return {n: v for n, v in tree.learned(z).items() if n not in self.objective.duals}


def decomposable(objective: object, rule: str) -> None:
    """Object to objectives that are not a sum over examples."""
    if not isinstance(objective, Objective):
        raise InputError(
            f"{type(objective).__name__} compares examples of different clients, so it is not a sum over"
            f" examples that {rule} could descend; use the rule active-passive."
        )
