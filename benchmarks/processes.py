"""`torchrun --nproc-per-node 2 -m benchmarks.processes`: a round of one process, and of all that are started.

Both take turns in the same run: while the first computes a round by itself the others wait. Writes
processes.json.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.__main__ import show
from benchmarks.work import BATCH, STEPS, WORKS
from fedauc import models
from fedauc.core.loop import Federation, advance, begin
from fedauc.experiments.config import Config
from fedauc.transports import LocalTransport, ranks

TURNS = 9
CASES = (
    ("cycp-pairwise", "linear", STEPS),
    ("cycp-minimax", "mlp", STEPS),
    ("cycp-pairwise", "mlp", STEPS),
    ("cycp-codasca", "mlp", STEPS),
    ("cycp-minimax", "cnn", STEPS),
    ("cycp-minimax", "resnet20", 4),
)


class Rounds:
    """A federation that goes on, round by round."""

    def __init__(self, fed: Federation, params: dict[str, torch.Tensor]) -> None:
        self.fed, self.state = fed, begin(fed, params)

    def __call__(self) -> None:
        self.state, _ = advance(self.fed, self.state)


def measured(preset: str, name: str, steps: int) -> dict[str, Any]:
    """A row: milliseconds of a round, and CPU milliseconds of each process."""
    work, here = WORKS[name], ranks.here()
    config = Config.resolve(
        preset,
        {
            "data.source": "digits",  # not read: the rows are the benchmark's
            "participation.groups": work.groups,
            "schedule.steps": steps,
            "schedule.cycles": 10,
            "train.batch": BATCH,
            "train.compile": False,
        },
    )
    model, params = models.init(work.settings, work.shape, 0)
    fed = config.federation(work.data(), model)
    together = Rounds(fed, params)
    alone = Rounds(replace(fed, transport=LocalTransport(compile=False)), params)
    for _ in range(2):
        together()
        alone()
    shared, single = [], []
    for _ in range(TURNS):
        here.told(lambda: None)
        shared.append(_seconds(together))
        here.told(lambda: None)
        if here.first:
            single.append(_seconds(alone))
        here.told(lambda: None)
    if not here.first:
        return {}
    one, many = (statistics.median(wall for wall, _ in times) for times in (single, shared))
    return {
        "method": preset,
        "model": name,
        "one_ms": 1e3 * one,
        f"{here.size}_processes_ms": 1e3 * many,
        "ratio": statistics.median(a / b for (a, _), (b, _) in zip(single, shared, strict=True)),
        "cpu_ms_of_one": 1e3 * statistics.median(cpu for _, cpu in single),
        "cpu_ms_of_each": 1e3 * statistics.median(cpu for _, cpu in shared),
    }


def _seconds(work: Callable[[], Any]) -> tuple[float, float]:
    """Of the clock, and of this process."""
    start, own = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - own


if __name__ == "__main__":
    if ranks.join().size == 1:
        sys.exit("torchrun --nproc-per-node 2 -m benchmarks.processes")
    torch.set_num_threads(1)
    rows = [measured(*case) for case in CASES]
    if ranks.here().first:
        Path(__file__).with_suffix(".json").write_text(json.dumps(rows, indent=2) + "\n")
        show("a round of one process and of several", rows)
    ranks.leave()
