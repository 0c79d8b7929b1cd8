"""Pairwise AUC: E⁺E⁻ ψ(h⁺ - h⁻) for any surrogate ψ of the pair's order.

Eq. (9) and Table 10 of "Communication-Efficient Federated AUC Maximization with Cyclic Client
Participation"; FedXL (Guo et al. 2023). It couples examples of different clients, so it is not a sum over
examples: an example is *active* where it is trained on, and meets *passive* scores that other clients
computed earlier (`methods.active_passive`). Gradients flow through the active score only; the positive
side is ∇₁ψ, the negative side ∇₂ψ (eq. (12) prints ∇₁ where ∇₂ is meant).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.objectives.base import Link, linked

Surrogate = Literal["square", "squared-hinge", "logistic", "sigmoid", "barrier-hinge", "q-norm-hinge"]


@runtime_checkable
class Pairwise(Protocol):
    """An objective of pairs: active examples against passive parts of other clients."""

    @property
    def kept(self) -> int:
        """How many of its positives a client keeps an estimate u for; 0: the objective has no estimates."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the passive parts that are not scalars."""

    def score(self, output: Tensor) -> Tensor:
        """What is compared and what travels, from the model's output: [B] or [B, …]."""

    def paired(
        self, h: Tensor, y: Tensor, weight: Tensor, passive: Tree, before: Tensor
    ) -> tuple[Tensor, Tree]:
        """The objective of a batch against passive parts, and new estimates; `before` are the old."""

    def unpaired(self, y: Tensor) -> Tree:
        """The estimates while there is nothing to compare with."""


@dataclass(frozen=True)
class PairwiseAUC:
    """Mean of ψ over pairs of a positive and a negative score."""

    surrogate: Surrogate = "logistic"
    """ψ of Table 10, as a function of t = h⁺ - h⁻; the paper's experiments use `sigmoid`."""
    margin: float = 1.0
    """m of the square and hinge surrogates."""
    lam: float = 1.0
    """λ: the sigmoid and logistic surrogates see t/λ."""
    tau: float = 2.0
    """τ, the slope of the barrier hinge."""
    q: float = 1.5
    """q > 1 of the q-norm hinge."""
    link: Link = "identity"
    """h: sigmoid of the logit, or the logit itself."""

    def __post_init__(self) -> None:
        if self.surrogate not in SURROGATES:
            raise InputError(f"surrogate={self.surrogate!r} is not one of {', '.join(SURROGATES)}.")
        if self.lam <= 0:
            raise InputError(f"lam={self.lam} must be positive.")
        if self.surrogate == "q-norm-hinge" and self.q <= 1:
            raise InputError(f"q={self.q} must be above 1: the q-norm hinge is not smooth otherwise.")
        if self.surrogate == "barrier-hinge" and self.tau <= 1:
            raise InputError(f"tau={self.tau} must be above 1, or the barrier hinge has no barrier.")

    @property
    def kept(self) -> int:
        return 0

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {}

    def score(self, output: Tensor) -> Tensor:
        """h, what is compared and what travels."""
        return linked(self.link, output)

    def psi(self, t: Tensor) -> Tensor:
        """ψ(t) at t = h⁺ - h⁻."""
        return SURROGATES[self.surrogate](self, t)

    def loss(self, h: Tensor, y: Tensor, weight: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Σⱼ weightⱼ · mean over passive scores of ψ(±(hⱼ - passive)); h [B], passive scores [P] each.

        The weights of the positives sum to c⁺ and those of the negatives to c⁻, so this is
        c⁺·mean ψ(h⁺, passive⁻) + c⁻·mean ψ(passive⁺, h⁻).
        """
        t = margins(h, y, positives, negatives)
        return (weight * self.psi(t).mean(dim=1)).sum()

    def paired(
        self, h: Tensor, y: Tensor, weight: Tensor, passive: Tree, before: Tensor
    ) -> tuple[Tensor, Tree]:
        return self.loss(h, y, weight, passive["positives"], passive["negatives"]), {}

    def unpaired(self, y: Tensor) -> Tree:
        return {}


def margins(h: Tensor, y: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """t [B, P]: h - passive⁻ for positives, passive⁺ - h for negatives."""
    return torch.where(y[:, None] > 0, h[:, None] - negatives[None, :], positives[None, :] - h[:, None])


def _barrier_hinge(o: PairwiseAUC, t: Tensor) -> Tensor:
    return torch.maximum(
        o.margin - o.tau * (o.margin + t), torch.maximum(o.tau * (t - o.margin), o.margin - t)
    )


SURROGATES: dict[str, Callable[[PairwiseAUC, Tensor], Tensor]] = {
    "square": lambda o, t: (o.margin - t) ** 2,
    "squared-hinge": lambda o, t: F.relu(o.margin - t) ** 2,
    "logistic": lambda o, t: F.softplus(-t / o.lam),
    "sigmoid": lambda o, t: torch.sigmoid(-t / o.lam),
    "barrier-hinge": _barrier_hinge,
    "q-norm-hinge": lambda o, t: F.relu(o.margin - t) ** o.q,
}
