"""How well scores rank rare events: the area under the ROC curve, its uncertainty, per client, pooled."""

from fedauc.metrics.auc import UndefinedAUC, auc, average_precision, partial_auc, roc_points
from fedauc.metrics.clients import per_client, worst_accuracy
from fedauc.metrics.intervals import auc_interval, delong, delong_difference, delong_test
from fedauc.metrics.mergeable import ScoreHistogram, merge_exact

__all__ = [
    "ScoreHistogram",
    "UndefinedAUC",
    "auc",
    "auc_interval",
    "average_precision",
    "delong",
    "delong_difference",
    "delong_test",
    "merge_exact",
    "partial_auc",
    "per_client",
    "roc_points",
    "worst_accuracy",
]
