"""What rules and wrappers share.

A *rule* is what clients do in a local step and how the server averages (one file each). A *wrapper* changes
one thing about whatever it wraps: control variates, amplification, who counts for how much. A method is
server(correction(rule(objective))).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core import tree
from fedauc.core.method import Aggregate, Batch, Cohort, Draw, Knobs, Method, Phase, Upload, moved
from fedauc.core.tree import Tree
from fedauc.objectives.base import Apply


class Steps:
    """A local step: a move, and back inside the bounds."""

    def client_move(self, l: Any, batch: Batch, eta: Tensor) -> tuple[Any, Tree]:
        """The step without regard to bounds."""
        raise NotImplementedError

    def projected(self, z: Tree) -> Tree:
        return z

    def client_step(self, l: Any, batch: Batch, eta: Tensor) -> tuple[Any, Tree]:
        l, outs = self.client_move(l, batch, eta)
        z = self.projected(l.z)
        return l if z is l.z else moved(l, z), outs


class Rule(Steps):
    """What most rules do not need."""

    plain_steps: ClassVar[bool] = True
    """Whether a local step is z ← z - η·(an estimate of the gradient at z)."""

    @property
    def samples(self) -> int:
        """Into how many samples a step parts its batch; each has a positive and a negative."""
        return 1

    @property
    def ranks(self) -> bool:
        """Whether the objective compares the classes, so that rows of one class alone mean nothing."""
        return bool(getattr(self.objective, "ranks", True))  # type: ignore[attr-defined]

    def phases(self, new_stage: bool) -> tuple[Phase, ...]:
        return (Phase(self),)  # type: ignore[arg-type]

    def importance(self, s: Any) -> Tensor | None:
        return None

    def memory_init(self, z: Tree) -> Tree:
        return {}

    def memory_stage(self, c: Tree) -> Tree:
        return c

    def address(self, s: Any, cohort: Cohort, knobs: Knobs, seed: int) -> Tree:
        return {}

    def server_stage(self, s: Any) -> Any:
        return s


class Wrapper(Steps):
    """A method that does what `inner` does. Its server's state has a field `inner`: that of the inner one."""

    inner: Method

    @property
    def draw(self) -> Draw:
        return self.inner.draw

    @property
    def plain_steps(self) -> bool:
        return bool(getattr(self.inner, "plain_steps", True))

    @property
    def ranks(self) -> bool:
        return bool(self.inner.ranks)  # type: ignore[attr-defined]

    @property
    def keeps_shares(self) -> bool:
        """Whether the server keeps sums over all clients, weighted by what each counts for."""
        return bool(getattr(self.inner, "keeps_shares", False))

    @property
    def reweighs(self) -> bool:
        """Whether what clients count for changes from round to round."""
        return bool(getattr(self.inner, "reweighs", False))

    @property
    def reestimate(self) -> bool:
        """Whether the dual is estimated anew when a stage begins."""
        return bool(getattr(self.inner, "reestimate", False))

    @property
    def apply(self) -> Apply:
        """The model."""
        return self.inner.apply  # type: ignore[attr-defined]

    def phases(self, new_stage: bool) -> tuple[Phase, ...]:
        *before, last = self.inner.phases(new_stage)
        return (*(p._replace(method=self.beneath(p.method)) for p in before), last._replace(method=self))

    def beneath(self, phase: Method) -> Method:
        """An earlier phase of the wrapped method, on the wrapper's state."""
        return Beneath(phase)

    def importance(self, s: Any) -> Tensor | None:
        return self.inner.importance(s.inner)

    def memory_init(self, z: Tree) -> Tree:
        return self.inner.memory_init(z)

    def memory_stage(self, c: Tree) -> Tree:
        return self.inner.memory_stage(c)

    def broadcast(self, s: Any) -> Any:
        return self.inner.broadcast(s.inner)

    def address(self, s: Any, cohort: Cohort, knobs: Knobs, seed: int) -> Tree:
        return self.inner.address(s.inner, cohort, knobs, seed)

    def client_init(self, d: Any, own: Tree, c: Tree) -> Any:
        return self.inner.client_init(d, own, c)

    def client_move(self, l: Any, batch: Batch, eta: Tensor) -> tuple[Any, Tree]:
        return self.inner.client_move(l, batch, eta)  # type: ignore[attr-defined]

    def client_finish(self, d: Any, l: Any, c: Tree, outs: Tree, knobs: Knobs) -> tuple[Upload, Tree]:
        return self.inner.client_finish(d, l, c, outs, knobs)

    def server_update(self, s: Any, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Any:
        return s._replace(inner=self.inner.server_update(s.inner, aggregate, cohort, knobs))

    def server_stage(self, s: Any) -> Any:
        return s._replace(inner=self.inner.server_stage(s.inner))

    def server_init(self, params: Tree, counts: NDArray[np.int64]) -> Any:
        raise NotImplementedError

    def projected(self, z: Tree) -> Tree:
        return self.inner.projected(z)


@dataclass(frozen=True)
class Unchanged:
    """Nothing around the rule."""


@dataclass(frozen=True)
class Beneath(Wrapper):
    """An earlier phase of the wrapped method, on the wrapper's state."""

    inner: Method


def averaged(z: Tree, aggregate: Aggregate, cohort: Cohort) -> Tree:
    """z + Σ_m ŵ_m Δ_m. The weights are unbiased over a cycle and need not sum to one in a round; running
    statistics are averages already (a variance must stay positive), so theirs are made to."""
    statistics = to_one(cohort)
    return {
        name: torch.add(
            value, aggregate.mean[name], alpha=statistics if name.startswith(tree.STATISTICS) else 1
        )
        if name in aggregate.mean
        else value
        for name, value in z.items()
    }


def to_one(cohort: Cohort) -> float:
    """What makes the weights of a round sum to one (agnostic weights can all be zero)."""
    total = float(cohort.weight.sum())
    return 1 / total if total > 0 else 0.0


def decayed(gradient: Tree, z: Tree, weight_decay: float) -> Tree:
    """The gradient with ℓ₂ decay of the model's parameters (not of an objective's variables)."""
    if not weight_decay:
        return dict(gradient)
    return {n: g if n.startswith(tree.OWN) else g + weight_decay * z[n] for n, g in gradient.items()}


def under(prefix: str, values: Tree) -> Tree:
    """The values with their names under a prefix; the inverse of `of`."""
    return {f"{prefix}/{name}": value for name, value in values.items()}


def of(prefix: str, values: Tree) -> Tree:
    """The values under a prefix, with their own names."""
    start = f"{prefix}/"
    return {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}
