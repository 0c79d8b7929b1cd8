"""Cross-entropy, plain and class-weighted: what federated averaging minimises."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core.method import Draw
from fedauc.core.tree import Tree


@dataclass(frozen=True)
class CrossEntropy:
    """-log P(y | x) with P(1 | x) = σ(logit).

    `natural` draws rows as they come, which is the papers' FedAvg; `stratified` draws half positives and
    half negatives and weighs the classes equally (class-weighted cross-entropy).
    """

    draw: Draw = "natural"
    """Rows as they come, or class-balanced."""

    @property
    def ranks(self) -> bool:
        return False

    @property
    def duals(self) -> frozenset[str]:
        return frozenset()

    def variables(self, like: Tensor) -> Tree:
        return {}

    def fitted(self, counts: NDArray[np.int64]) -> CrossEntropy:
        return self

    def projected(self, z: Tree) -> Tree:
        return z

    def loss(self, z: Tree, logit: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return (weight * F.binary_cross_entropy_with_logits(logit, y, reduction="none")).sum()
