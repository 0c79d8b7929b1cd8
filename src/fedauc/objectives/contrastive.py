"""Contrastive loss on embeddings: metric learning across clients.

    ψ(e₁, e₂) = ½ δ ‖e₁ - e₂‖² + ½ (1-δ) (m - ‖e₁ - e₂‖)₊²,      δ = 1 for examples of the same class

Eq. (14) of "Communication-Efficient Federated AUC Maximization with Cyclic Client Participation"; Hadsell,
Chopra & LeCun 2006. The passive parts are embeddings instead of scores; nothing else changes, which shows
that the active-passive machinery is general.

Where this departs from the paper, and why: the attracting and the repelling pairs are averaged separately
(a rare class has few of its own kind), and ‖·‖ is smoothed at zero, where it has no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedauc.core.tree import Tree
from fedauc.errors import InputError

SMOOTH = 1e-12


@dataclass(frozen=True)
class Contrastive:
    """Embeddings of one class near each other, of different classes at least a margin apart."""

    dimension: int = 8
    """Size of an embedding: the model's outputs per example."""
    margin: float = 1.0
    """m, the distance beyond which examples of different classes do not repel."""

    def __post_init__(self) -> None:
        if self.dimension < 1:
            raise InputError(f"dimension={self.dimension} must be at least 1.")
        if self.margin <= 0:
            raise InputError(f"margin={self.margin} must be positive.")

    @property
    def kept(self) -> int:
        return 0

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(("negatives", "positives"), (self.dimension,))

    def score(self, output: Tensor) -> Tensor:
        """The embedding itself."""
        return output

    def paired(
        self, h: Tensor, y: Tensor, weight: Tensor, passive: Tree, before: Tensor
    ) -> tuple[Tensor, Tree]:
        to_positives, to_negatives = (distance(h, passive[name]) for name in ("positives", "negatives"))
        same = torch.where(y[:, None] > 0, to_positives, to_negatives)
        other = torch.where(y[:, None] > 0, to_negatives, to_positives)
        each = (same**2).mean(dim=1) / 2 + (F.relu(self.margin - other) ** 2).mean(dim=1) / 2
        return (weight * each).sum(), {}

    def unpaired(self, y: Tensor) -> Tree:
        return {}


def distance(a: Tensor, b: Tensor) -> Tensor:
    """‖a_i - b_j‖ [B, P] of embeddings [B, D] and [P, D]."""
    return (((a[:, None, :] - b[None, :, :]) ** 2).sum(dim=2) + SMOOTH).sqrt()
