"""Local SGDA with momentum: LocalSGDAM, and LocalSGDM where the objective has no dual.

    all clients, from (x, y, u, v) of the server          x = (w, a, b), y = α
      first step of the run:  u = ∇_x f(x, y),  v = ∇_y f(x, y)
      for t = 1..I (p in the paper):
        x ← x - γ_x η u                                   y ← y + γ_y η v
        u ← (1 - β_x η) u + β_x η ∇_x f(x, y; ζ)          v ← (1 - β_y η) v + β_y η ∇_y f(x, y; ζ)
    server: x, y, u, v are averaged

Sharma et al., "Federated minimax optimization: improved convergence analyses and algorithms", ICML 2022
(LocalSGDAM); Yu, Jin & Yang, ICML 2019 (LocalSGDM); Alg. 1 of Zhang et al., "Federated compositional deep
AUC maximization", NeurIPS 2023, without its inner function.

Where this departs from the papers, and why: the products βη are the settings, so that a step size that decays
does not freeze the momentum. The first step of the run is the initialisation: it moves nothing. Clients send
what their steps added to the momentum, and (1-β)^I of the server's own is left whatever the weights of the
round are: those are unbiased over a cycle and need not sum to one, and in a plain sum of differences the
momentum of a group that counts for three would grow without limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core import tree
from fedauc.core.method import Aggregate, Batch, Cohort, Draw, Knobs, Upload
from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.methods.base import Rule, averaged, decayed, of, to_one, under
from fedauc.methods.local_sgda import decomposable
from fedauc.objectives.base import Apply, Objective, Slope, field


class State(NamedTuple):
    """What the server keeps, sends and averages."""

    z: Tree
    """x and y."""
    momentum: Tree
    """u and -v: the momentum of the field F = (∂primal, -∂dual)."""
    h: Tree
    """h - x, h the estimate of an inner function; empty where there is none."""
    started: Tensor
    """0 before the first step of the run, then 1."""


@dataclass(frozen=True)
class LocalSGDAM(Rule):
    """Local descent-ascent along moving averages of the gradients, which are averaged with the model."""

    plain_steps: ClassVar[bool] = False
    name: ClassVar[str] = "local-sgdam"

    apply: Apply
    objective: Objective
    gamma_x: float = 1.0
    """γ_x, what the step size is multiplied with for the primal variables."""
    gamma_y: float = 1.0
    """γ_y, what the step size is multiplied with for the dual variable."""
    beta_x: float = 0.1
    """β_x·η of the paper: the share of the newest gradient in the primal momentum."""
    beta_y: float = 0.1
    """β_y·η of the paper: the share of the newest gradient in the dual momentum."""
    weight_decay: float = 0.0
    """ℓ₂ penalty on the model's parameters (not on the objective's own variables)."""

    def __post_init__(self) -> None:
        decomposable(self.objective, self.name)
        for name in ("beta_x", "beta_y"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(f"{name}={getattr(self, name)} must be above 0 and at most 1.")
        for name in ("gamma_x", "gamma_y"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name}={getattr(self, name)} must be positive.")

    @property
    def draw(self) -> Draw:
        return self.objective.draw

    def server_init(self, params: Tree, counts: NDArray[np.int64]) -> State:
        z = params | self.objective.variables(next(iter(params.values())))
        nothing = {name: torch.zeros_like(value) for name, value in tree.learned(z).items()}
        return State(z, nothing, self.offset_init(z), next(iter(z.values())).new_zeros(()))

    def offset_init(self, z: Tree) -> Tree:
        """h - x before h is known."""
        return {}

    def broadcast(self, s: State) -> State:
        return s

    def client_init(self, d: State, own: Tree, c: Tree) -> State:
        return d

    def client_move(self, l: State, batch: Batch, eta: Tensor) -> tuple[State, Tree]:
        z = {n: v - eta * self._of(n, self.gamma_x, self.gamma_y) * l.momentum[n] if n in l.momentum else v
             for n, v in l.z.items()}  # fmt: skip
        z = self.projected(z)
        slope, offset = self.estimate(z, l, batch)
        gradient = decayed(slope.gradient, z, self.weight_decay)
        momentum = {}
        for n, old in l.momentum.items():
            share = mixed(self._of(n, self.beta_x, self.beta_y), l.started)
            momentum[n] = old + share * (gradient[n] - old)
        return State(z | slope.statistics, momentum, offset, torch.ones_like(l.started)), {"loss": slope.loss}

    def estimate(self, z: Tree, l: State, batch: Batch) -> tuple[Slope, Tree]:
        """The stochastic field at z and the new h - x."""
        return field(self.apply, self.objective, z, batch), {}

    def client_finish(self, d: State, l: State, c: Tree, outs: Tree, knobs: Knobs) -> tuple[Upload, Tree]:
        fresh = tree.sub(l.momentum, self._faded(d, knobs))
        mean = tree.sub(l.z, d.z) | under("momentum", fresh) | under("h", tree.sub(l.h, d.h))
        return Upload(mean=mean, gather={}), c

    def server_update(self, s: State, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> State:
        z = self.projected(averaged(s.z, aggregate, cohort))
        momentum = tree.add(self._faded(s, knobs), of("momentum", aggregate.mean))
        offset = tree.add(s.h, of("h", aggregate.mean), to_one(cohort))
        return State(z, momentum, offset, torch.ones_like(s.started))

    def _faded(self, s: State, knobs: Knobs) -> Tree:
        """What is left of the server's momentum in the clients' after their I steps."""
        shares = {n: 1 - self._of(n, self.beta_x, self.beta_y) for n in s.momentum}
        return {n: old * (s.started * shares[n] ** knobs.steps) for n, old in s.momentum.items()}

    def projected(self, z: Tree) -> Tree:
        return self.objective.projected(z)

    def _of(self, name: str, primal: float, dual: float) -> float:
        return dual if name in self.objective.duals else primal


def mixed(share: float, started: Tensor) -> Tensor:
    """The share of what is new in a moving average: all of it in the first step of the run."""
    return 1 - started * (1 - share)
