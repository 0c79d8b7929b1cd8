"""Schedules: step size, local steps and stages over the cycles of a run."""

from fedauc.schedules.base import Schedule, Stage
from fedauc.schedules.stagewise import Stagewise
from fedauc.schedules.theory import CodascaTheory, MinimaxTheory, PairwiseTheory

SCHEDULES: dict[str, type] = {
    "stagewise": Stagewise,
    "theory-minimax": MinimaxTheory,
    "theory-pairwise": PairwiseTheory,
    "theory-codasca": CodascaTheory,
}

__all__ = [
    "SCHEDULES",
    "CodascaTheory",
    "MinimaxTheory",
    "PairwiseTheory",
    "Schedule",
    "Stage",
    "Stagewise",
]
