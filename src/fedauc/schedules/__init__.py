"""Schedules: step size, local steps and stages over the cycles of a run."""

from fedauc.schedules.base import Schedule, Stage
from fedauc.schedules.stagewise import Stagewise

SCHEDULES: dict[str, type] = {"stagewise": Stagewise}

__all__ = ["SCHEDULES", "Schedule", "Stage", "Stagewise"]
