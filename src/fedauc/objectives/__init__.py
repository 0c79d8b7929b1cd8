"""Objectives: what is minimised."""

from fedauc.objectives.base import Objective, field
from fedauc.objectives.cross_entropy import CrossEntropy
from fedauc.objectives.minimax_auc import MinimaxAUC
from fedauc.objectives.pairwise_auc import PairwiseAUC

OBJECTIVES: dict[str, type] = {
    "cross-entropy": CrossEntropy,
    "minimax-auc": MinimaxAUC,
    "pairwise-auc": PairwiseAUC,
}

__all__ = ["OBJECTIVES", "CrossEntropy", "MinimaxAUC", "Objective", "PairwiseAUC", "field"]
