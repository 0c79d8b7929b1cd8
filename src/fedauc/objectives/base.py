"""Decomposable objectives: a sum over examples, in the model's score and a few variables of their own.

The variables live beside the model's parameters in one iterate z. Some are primal (descended), some dual
(ascended); seen as one field F(z) = (∂primal, -∂dual) both are "z ← z - η F(z)", which is why federated
averaging and CODA+ share their local step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedauc.core.method import Batch, Draw
from fedauc.core.tree import Tree

Apply = Callable[[Tree, Tensor], Tensor]
"""The model: parameters and a batch of inputs to one raw score (logit) per example."""

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

    def fitted(self, positive_rate: float) -> Objective:
        """The objective with the federation's share of positives p filled in, where it needs it."""

    def loss(self, z: Tree, logit: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """The objective of a batch: a weighted sum over its examples."""

    def projected(self, z: Tree) -> Tree:
        """z with the objective's own variables inside their bounds; after every step and every average."""


def field(apply: Apply, objective: Objective, z: Tree, batch: Batch) -> tuple[Tree, Tensor]:
    """F(z) = (∂primal, -∂dual) on a batch, and the objective's value there."""

    def value(z: Tree) -> tuple[Tensor, Tensor]:
        loss = objective.loss(z, apply(z, batch.x), batch.y, batch.weight)
        return loss, loss.detach()

    gradient, loss = torch.func.grad(value, has_aux=True)(z)
    for name in objective.duals:
        gradient[name] = -gradient[name]
    return gradient, loss
