"""LocalSCGDAM: minimax AUC at the point that a cross-entropy step leads to.

    min over x, max over y of  f(g(x), y),   f the minimax AUC,   g(x) = x - ρ ∇L_CE(w) in the w part

    all clients, from (x, y, h, u, v) of the server       x = (w, a, b), y = α
      for t = 1..I (p in the paper):
        x ← x - γ_x η u                                   y ← y + γ_y η v
        h ← (1 - αη) h + αη g(x; ξ)                       the inner function
        u ← (1 - β_x η) u + β_x η ∇g(x; ξ)ᵀ ∇_h f(h, y; ζ)     v ← (1 - β_y η) v + β_y η ∇_y f(h, y; ζ)
    server: x, y, h, u, v are averaged

∇g(x)ᵀ d = d - ρ ∇²L_CE(w) d is a Hessian-vector product, taken exactly by differentiating ∇L_CE(w) along d.

Zhang et al., "Federated compositional deep AUC maximization", NeurIPS 2023 (eq. 2-4, Alg. 1).

Where this departs from the paper, and why: h - x is kept and averaged instead of h, so that h stays where x
is whatever moves x (a stage's average, amplification) and whatever weights a round has; the product αη is the
setting (see `momentum`); the first step of the run makes h, u and v and moves nothing; ξ and ζ are the halves
of a batch. They should be different rows: where one batch serves as both (`xi="shared"`), x learns to fit any
batch by an inner step on that batch, with ever larger gradients, and a deep network learns nothing else
(papers/004). A client that has fewer rows of a class than a batch has places for it repeats them, and then
they are in both. A network's running statistics are those at x, which is the model in the end, and not those
at h. `hessian="first-order"` takes ∇g = I, which saves the second derivative and is another algorithm. As
printed, the mean of products ∇g_kᵀ∇f_k is not the product of means that eq. (4) has, so with different
clients the method settles O(ρ) away from its optimum, whatever the step size (docs/convergence.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedauc.core import tree
from fedauc.core.method import Batch, Draw
from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.methods.momentum import LocalSGDAM, State, mixed
from fedauc.objectives.base import Slope, field, outputs
from fedauc.objectives.cross_entropy import CrossEntropy


@dataclass(frozen=True)
class LocalSCGDAM(LocalSGDAM):
    """Momentum descent-ascent on AUC after an inner step of cross-entropy."""

    name: ClassVar[str] = "local-scgdam"

    rho: float = 0.1
    """ρ, the inner step of cross-entropy; with 0 there is AUC alone."""
    h_rate: float = 0.9
    """α·η of the paper: the share of the newest value in the estimate h of the inner function."""
    hessian: Literal["exact", "first-order"] = "exact"
    """The inner function's derivative: I - ρ∇²L_CE, or I."""
    xi: Literal["own", "shared"] = "own"
    """ξ, the rows of the inner step: its own half of the batch, AUC having the other; or shared with AUC, all
    of it, which is right where a batch is all rows of a client."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.objective.duals:
            raise InputError(
                f"local-scgdam composes AUC with a step of cross-entropy: {type(self.objective).__name__}"
                " outside would be cross-entropy of cross-entropy; use the objective minimax-auc."
            )
        if self.rho < 0:
            raise InputError(f"rho={self.rho} must not be negative.")
        if not 0 < self.h_rate <= 1:
            raise InputError(f"h_rate={self.h_rate} must be above 0 and at most 1.")

    @property
    def samples(self) -> int:
        """ξ and ζ."""
        return 2 if self.xi == "own" else 1

    def offset_init(self, z: Tree) -> Tree:
        primal = {n: v for n, v in tree.learned(z).items() if n not in self.objective.duals}
        return {n: torch.zeros_like(v) for n, v in primal.items()}

    def estimate(self, z: Tree, l: State, batch: Batch) -> tuple[Slope, Tree]:
        """∇gᵀ∇f(h, y) and the new h - x."""
        w = {n: v for n, v in tree.learned(z).items() if not n.startswith(tree.OWN)}
        xi, zeta = halves(batch, self.draw) if self.samples == 2 else (batch, batch)
        inner = partial(self._cross_entropy_gradient, z, xi)
        entropy, backward, *statistics = torch.func.vjp(inner, w, has_aux=True)
        share = mixed(self.h_rate, l.started)
        h = {}
        for n, behind in l.h.items():
            old = l.z[n] + behind
            g = z[n] - self.rho * entropy[n] if n in entropy else z[n]
            h[n] = old + share * (g - old)
        offset = {n: value - z[n] for n, value in h.items()}
        slope = field(self.apply, self.objective, z | h, zeta)._replace(statistics=statistics[0])
        if self.hessian == "first-order" or not self.rho:
            return slope, offset
        (curvature,) = backward({n: slope.gradient[n] for n in entropy})  # ∇²L_CE is symmetric
        return slope._replace(gradient=tree.add(slope.gradient, curvature, -self.rho)), offset

    def _cross_entropy_gradient(self, z: Tree, xi: Batch, w: Tree) -> tuple[Tree, Tree]:
        """∇_w L_CE, and the running statistics. Weights of a stratified batch sum to c⁺ + c⁻, which is 2
        where both count the same."""
        weight = xi.weight / 2 if self.draw == "stratified" else xi.weight

        def loss(w: Tree) -> tuple[Tensor, Tree]:
            logit, statistics = outputs(self.apply, z | w, xi.x)
            return CrossEntropy().loss(w, logit, xi.y, weight), statistics

        return torch.func.grad(loss, has_aux=True)(w)


def halves(batch: Batch, draw: Draw) -> tuple[Batch, Batch]:
    """Every other row each, of batches that have their positives first or rows as they come. What the weights
    sum to stays: in each class, or in all."""
    groups = (batch.y == 1, batch.y == 0) if draw == "stratified" else (torch.ones_like(batch.y) == 1,)
    parts = []
    for first in (0, 1):
        part = Batch(*(each[first::2] for each in batch))
        weight = torch.zeros_like(part.weight)
        for group in groups:
            own = part.weight * group[first::2]
            mine, whole = own.sum(), (batch.weight * group).sum()
            weight = weight + own * torch.where(mine > 0, whole / mine, 0.0)  # (a client may lack a class)
        parts.append(part._replace(weight=weight))
    return parts[0], parts[1]
