"""Objectives: what is minimised."""

from fedauc.objectives.base import Objective, field
from fedauc.objectives.contrastive import Contrastive
from fedauc.objectives.cross_entropy import CrossEntropy
from fedauc.objectives.minimax_auc import MinimaxAUC
from fedauc.objectives.pairwise_auc import Pairwise, PairwiseAUC
from fedauc.objectives.partial_auc import PartialAUC

OBJECTIVES: dict[str, type] = {
    "cross-entropy": CrossEntropy,
    "minimax-auc": MinimaxAUC,
    "pairwise-auc": PairwiseAUC,
    "partial-auc": PartialAUC,
}

__all__ = [
    "OBJECTIVES",
    "Contrastive",
    "CrossEntropy",
    "MinimaxAUC",
    "Objective",
    "Pairwise",
    "PairwiseAUC",
    "PartialAUC",
    "field",
]
