"""Decomposable objectives: a sum over examples, in the model's score and a few variables of their own.

The variables live beside the model's parameters in one iterate z. Some are primal (descended), some dual
(ascended); seen as one field F(z) = (∂primal, -∂dual) both are "z ← z - η F(z)", which is why federated
averaging and CODA+ share their local step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core import tree
from fedauc.core.method import Batch, Draw
from fedauc.core.tree import Tree

Apply = Callable[[Tree, Tensor], Tensor]
"""The model: parameters and a batch of inputs to one raw score (logit) per example. A model that has running
statistics also has `observe(z, x)`, which gives the scores in training and the new statistics."""

Link = Literal["sigmoid", "identity"]
"""h: the score an AUC objective sees, the sigmoid of the logit or the logit itself."""


def linked(link: Link, logit: Tensor) -> Tensor:
    """h = σ(logit) or h = logit."""
    return torch.sigmoid(logit) if link == "sigmoid" else logit


@runtime_checkable
class Objective(Protocol):
    """A decomposable objective; a frozen dataclass of its hyper-parameters."""

    @property
    def draw(self) -> Draw:
        """How local batches are drawn; decides what `Batch.weight` sums to."""

    @property
    def duals(self) -> frozenset[str]:
        """Names of the variables that are ascended."""

    def variables(self, like: Tensor) -> Tree:
        """The objective's own variables at the start, in the type and on the device of `like`."""

    def fitted(self, counts: NDArray[np.int64]) -> Objective:
        """The objective for clients with these numbers of negatives and positives [N, 2]."""

    def loss(self, z: Tree, logit: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """The objective of a batch: a weighted sum over its examples."""

    def projected(self, z: Tree) -> Tree:
        """z with the objective's own variables inside their bounds; after every step and every average."""


class Slope(NamedTuple):
    """A gradient at z on a batch."""

    gradient: Tree
    """For everything in z that is learned."""
    loss: Tensor
    aux: Tree
    """What the loss gave besides its value (scores)."""
    statistics: Tree
    """The model's running statistics after this batch."""


def differentiate(
    apply: Apply, z: Tree, x: Tensor, loss: Callable[[Tree, Tensor], tuple[Tensor, Tree]]
) -> Slope:
    """∇ loss(z, logit) at z, through the model in training."""
    learned = tree.learned(z)
    observed = {name: value for name, value in z.items() if name not in learned}

    def value(learned: Tree) -> tuple[Tensor, tuple[Tensor, Tree, Tree]]:
        z = learned | observed
        logit, statistics = outputs(apply, z, x)
        result, aux = loss(z, logit)
        return result, (result.detach(), {n: v.detach() for n, v in aux.items()}, statistics)

    gradient, (result, aux, statistics) = torch.func.grad(value, has_aux=True)(learned)
    return Slope(gradient, result, aux, {name: value.detach() for name, value in statistics.items()})


def outputs(apply: Apply, z: Tree, x: Tensor) -> tuple[Tensor, Tree]:
    """The model's scores in training and, where it has any, its new running statistics."""
    observe = getattr(apply, "observe", None)
    return (apply(z, x), {}) if observe is None else observe(z, x)


def field(apply: Apply, objective: Objective, z: Tree, batch: Batch) -> Slope:
    """F(z) = (∂primal, -∂dual) on a batch."""
    slope = differentiate(
        apply, z, batch.x, lambda z, logit: (objective.loss(z, logit, batch.y, batch.weight), {})
    )
    return slope._replace(gradient=ascended(slope.gradient, objective.duals))


def ascended(gradient: Tree, duals: frozenset[str]) -> Tree:
    """The gradient as a field: dual components change sign."""
    return {name: -value if name in duals else value for name, value in gradient.items()}
