"""`python -m benchmarks scale`: does a round cost more when more clients stay at home, and what does a
run on millions of rows need?"""

from __future__ import annotations

import json
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedauc import models
from fedauc.core.loop import Federation, advance, begin
from fedauc.data.federated import FederatedData
from fedauc.methods import LocalSGDA
from fedauc.objectives import CrossEntropy
from fedauc.participation import Cyclic
from fedauc.schedules import Stagewise

CLIENTS = (10**2, 10**4, 10**6)
PER_ROUND = 10  # M, whatever the number of clients
ROWS = 10  # of a client
FEATURES = 8
WARM_UP = 5
MEDICARE_ROWS = 4_000_000
BAR_GIB = 4.0


class Crowd:
    """A federation of N clients of which M take part in a round."""

    def __init__(self, clients: int) -> None:
        n = clients * ROWS
        x = torch.randn(n, FEATURES, generator=torch.Generator().manual_seed(0))
        y = torch.arange(n) % 2
        owner = np.repeat(np.arange(clients), ROWS)
        names = [f"client-{i}" for i in range(clients)]
        start = time.perf_counter()
        data = FederatedData.build(x, y, owner, names)
        model, params = models.init(models.Linear(), (FEATURES,), seed=0)
        self.fed = Federation(
            method=LocalSGDA(model, CrossEntropy()),
            data=data,
            participation=Cyclic(groups=10, per_round=PER_ROUND),
            schedule=Stagewise(steps=20, cycles=10**6),
        )
        self.state = begin(self.fed, params)
        self.setup_s = time.perf_counter() - start

    def round(self) -> float:
        """One round; its seconds."""
        start = time.perf_counter()
        self.state, _ = advance(self.fed, self.state)
        return time.perf_counter() - start


def crowds(turns: int) -> list[dict[str, Any]]:
    """A row per number of clients. The crowds take turns; memory is that of a process of their own."""
    torch.set_num_threads(1)
    at_work = {clients: Crowd(clients) for clients in CLIENTS}
    times: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
    for turn in range(WARM_UP + turns):
        for clients, crowd in at_work.items():
            seconds = crowd.round()
            if turn >= WARM_UP:
                times[clients].append(seconds)
    base = statistics.median(times[CLIENTS[0]])
    return [
        {
            "clients": clients,
            "per_round": PER_ROUND,
            "rows": clients * ROWS,
            "setup_s": at_work[clients].setup_s,
            "round_ms": 1e3 * statistics.median(times[clients]),
            "fastest_round_ms": 1e3 * min(times[clients]),
            "ratio_to_fewest": statistics.median(times[clients]) / base,
            "peak_gib": _alone("crowd", str(clients))["peak_gib"],
        }
        for clients in CLIENTS
    ]


def medicare() -> dict[str, Any]:
    """A whole run in a process of its own: seconds of its parts, and the most memory it ever held."""
    return _alone("medicare", str(MEDICARE_ROWS)) | {"bar_gib": BAR_GIB}


def _alone(*task: str) -> dict[str, Any]:
    """The result of a task of this module in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.scale", *task]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def _crowd(clients: int) -> dict[str, Any]:
    crowd = Crowd(clients)
    for _ in range(WARM_UP):
        crowd.round()
    return {"peak_gib": _peak_gib()}


def _medicare(rows: int) -> dict[str, Any]:
    from fedauc.experiments import runner
    from fedauc.experiments.config import Config
    from fedauc.experiments.prepare import prepare

    settings = {"data.source": "medicare-like", "data.rows": rows, "schedule.cycles": 3}
    config = Config.resolve("cycp-pairwise", settings)
    clock = [time.perf_counter()]
    prepared = prepare(config.data, config.seed, config.device)
    clock.append(time.perf_counter())
    trained = runner.train(config, prepared)
    clock.append(time.perf_counter())
    result = runner.summarise(trained)
    clock.append(time.perf_counter())
    prepare_s, train_s, summarise_s = np.diff(clock).tolist()
    return {
        "rows": rows,
        "features": result["data"]["features"],
        "clients": result["data"]["clients"],
        "rounds": result["rounds"],
        "test_auc": result["test_auc"],
        "prepare_s": prepare_s,
        "train_s": train_s,
        "summarise_s": summarise_s,
        "peak_gib": _peak_gib(),
    }


def _peak_gib() -> float:
    """The most memory this process ever held."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux ru_maxrss starts at what the parent process held
        return int(re.search(r"VmHWM:\s*(\d+) kB", status.read_text())[1]) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


if __name__ == "__main__":
    task = {"crowd": _crowd, "medicare": _medicare}[sys.argv[1]]
    print(json.dumps(task(int(sys.argv[2]))))
