"""Searches over a small table."""

from __future__ import annotations

from fedauc.experiments import runner
from tests.experiments.tables import claims_csv

METHOD = "cycp-minimax"
GRID = {"eta": [0.01, 0.1, 0.3], "train.batch": [8, 16, 32]}


def settings_for(folder):
    path = claims_csv(folder)
    return {"data.path": [str(path)], "data.label": "fraud", "data.client": "state", "schedule.cycles": 9}


class Interrupts(runner.Silent):
    """After so many rounds of all runs."""

    def __init__(self, rounds: int, by: BaseException | None = None) -> None:
        self.left, self.by = rounds, by or KeyboardInterrupt()

    def round(self, record, auc, traffic) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.by
