"""`python -m benchmarks scale`: how time and memory of a round grow, one factor at a time, and what ten
million rows need in memory and mapped. Every measurement is a process of its own."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedauc import models
from fedauc.core.loop import Federation, advance, begin
from fedauc.data.federated import FederatedData
from fedauc.methods import LocalSGDA
from fedauc.methods.control_variates import ControlVariates
from fedauc.objectives import CrossEntropy
from fedauc.participation import Uniform
from fedauc.schedules import Stagewise
from fedauc.transports import LocalTransport

FEATURES = 32
SECONDS = 3.0  # that rounds are timed for
ROUNDS = (5, 40)  # but so many at least and at most
WARM_UP = 3  # rounds, in which what can be recorded is
FILLED_AT_ONCE = 4096  # clients
SAME = 0.05  # share of the memory that does not count as growth
TABLE_ROWS, TABLE_FEATURES, TABLE_CLIENTS = 10_000_000, 30, 50
MEDICARE_ROWS = 4_000_000


@dataclass(frozen=True)
class Case:
    """A federation; the values here are the base case, from which one at a time is varied."""

    clients: int = 10_000
    per_round: int = 10
    steps: int = 10
    rows: int = 2_000_000
    hidden: tuple[int, ...] = ()
    """Of the model; none: linear."""
    keeps: bool = False
    """Whether every client keeps something between rounds (SCAFFOLD's control variate)."""


class Sweep(NamedTuple):
    """Cases that differ in one factor."""

    factor: str
    cases: list[Case]


SWEEPS = {
    "N clients": Sweep("clients", [Case(clients=10**k) for k in range(2, 7)]),
    "N clients that all keep a control variate": Sweep(
        "clients", [Case(clients=10**k, keeps=True) for k in range(2, 7)]
    ),
    "M clients in a round": Sweep("per_round", [Case(per_round=m) for m in (10, 40, 160, 640, 4000)]),
    "M clients in a round of one step, 41,473 parameters": Sweep(
        "per_round", [Case(per_round=m, steps=1, hidden=(256, 128)) for m in (64, 256, 1000, 4000)]
    ),
    "I local steps": Sweep("steps", [Case(steps=i) for i in (5, 10, 20, 40, 80)]),
    "rows": Sweep("rows", [Case(rows=n) for n in (10**5, 10**6, 10**7)]),
    "parameters": Sweep(
        "parameters", [Case(hidden=h) for h in ((), (64,), (256, 128), (1024, 256), (1400, 1400))]
    ),
}


class Crowd:
    """A case, ready to go."""

    def __init__(self, case: Case) -> None:
        self.case = case
        x = torch.randn(case.rows, FEATURES, generator=torch.Generator().manual_seed(0))
        y = torch.arange(case.rows) % 2
        owner = np.arange(case.rows) // 2 % case.clients  # both classes for everybody
        names = [f"client-{i}" for i in range(case.clients)]
        start = time.perf_counter()
        data = FederatedData.build(x, y, owner, names)
        settings = models.MLP(case.hidden) if case.hidden else models.Linear()
        model, params = models.init(settings, (FEATURES,), seed=0)
        self.parameters = sum(value.numel() for value in params.values())
        rule = LocalSGDA(model, CrossEntropy())
        self.fed = Federation(
            method=ControlVariates(rule) if case.keeps else rule,
            data=data,
            participation=Uniform(case.per_round),
            schedule=Stagewise(steps=case.steps, cycles=10**6),
            transport=LocalTransport(compile=False),
        )
        self.state = begin(self.fed, params)
        self.setup_s = time.perf_counter() - start
        if case.keeps:
            self._fill()

    def _fill(self) -> None:
        """As if everybody had taken part."""
        kept, memory = self.fed.method.memory_init(self.state.server.z), self.state.memory
        for first in range(0, self.case.clients, FILLED_AT_ONCE):
            some = range(first, min(first + FILLED_AT_ONCE, self.case.clients))
            memory = memory.updated((i, {name: v.clone() for name, v in kept.items()}) for i in some)
        self.state = self.state._replace(memory=memory)

    def round(self) -> float:
        """One round; its seconds."""
        start = time.perf_counter()
        self.state, _ = advance(self.fed, self.state)
        return time.perf_counter() - start


def measured(case: Case) -> dict[str, Any]:
    """What a round of a case takes."""
    torch.set_num_threads(1)
    start_gib = peak_gib()
    crowd = Crowd(case)
    for _ in range(WARM_UP):
        crowd.round()
    times: list[float] = []
    least, most = ROUNDS
    while len(times) < least or (len(times) < most and sum(times) < SECONDS):
        times.append(crowd.round())
    return {
        "parameters": crowd.parameters,
        "setup_s": crowd.setup_s,
        "round_ms": 1e3 * statistics.median(times),
        "fastest_ms": 1e3 * min(times),
        "peak_gib": peak_gib(),
        "start_gib": start_gib,
    }


def sweep(name: str) -> dict[str, Any]:
    """A factor varied: a row per case, and how fast time and memory grow."""
    sweep = SWEEPS[name]
    rows: list[dict[str, Any]] = []
    for case in sweep.cases:
        found = alone("case", json.dumps(asdict(case)))
        value = found["parameters"] if sweep.factor == "parameters" else getattr(case, sweep.factor)
        ratio = found["fastest_ms"] / (rows[0] if rows else found)["fastest_ms"]
        rows.append({"value": value} | found | {"ratio": ratio})
    return {"name": name, "rows": rows, "growth": growth(rows)}


def growth(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """b of time ∝ value^b, over all rows and between the last two, and between these the bytes of each."""
    value = np.array([row["value"] for row in rows], dtype=float)
    seconds = np.array([row["fastest_ms"] for row in rows])
    memory = np.array([row["peak_gib"] for row in rows]) * 2**30
    more = memory[-1] - memory[-2]
    return {
        "exponent": float(np.polyfit(np.log(value), np.log(seconds), 1)[0]),
        "last_exponent": math.log(seconds[-1] / seconds[-2]) / math.log(value[-1] / value[-2]),
        "bytes_each": float(more / (value[-1] - value[-2])) if more > SAME * memory[-1] else 0.0,
    }


def tables() -> list[dict[str, Any]]:
    """A whole run on a Parquet file of ten million rows: in memory, mapped, and mapped again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        alone("write", str(path))
        keep = {"FEDAUC_CACHE": str(Path(folder) / "cache")}
        return [
            {"held": name} | alone("table", json.dumps([str(path), setting]), keep)
            for name, setting in (("in memory", "off"), ("mapped", "on"), ("mapped, second run", "on"))
        ]


def medicare() -> dict[str, Any]:
    """A whole run on generated rows."""
    return {"held": "generated, in memory"} | alone("medicare", str(MEDICARE_ROWS))


def alone(task: str, argument: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The result of a task of this module in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.scale", task, argument]
    environment = {**os.environ, **(environment or {})}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout)


# -------------------------------------------------------------------------------------------------- the page


def page(text: str, found: Mapping[str, Any]) -> str:
    """docs/scale.md with new numbers: what stands between <!-- NAME --> and <!-- end --> is replaced."""
    new = {sweep["name"]: _sweep_table(sweep) for sweep in found["sweeps"]}
    new |= {"table": _run_table(found["tables"]), "medicare": _run_table([found["medicare"]])}
    for name, table in new.items():
        pattern = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)"
        text, places = re.subn(pattern, lambda m, t=table: m[1] + t + m[2], text, flags=re.DOTALL)
        if places != 1:
            raise ValueError(f"the page has {places} places for the table {name!r}, and one is needed")
    return text


def _sweep_table(sweep: Mapping[str, Any]) -> str:
    head = sweep["name"], "set-up", "a round", "the fastest", "against the first", "peak memory"
    lines = [head, ("---",) * len(head)]
    for row in sweep["rows"]:
        times = (f"{row[name]:,.1f} ms" for name in ("round_ms", "fastest_ms"))
        size = f"{row['peak_gib']:.2f} GiB"
        lines.append((f"{row['value']:,}", f"{row['setup_s']:.2f} s", *times, f"{row['ratio']:.2f}", size))
    growth = sweep["growth"]
    each = growth["bytes_each"]
    memory = f"memory grows by {each:,.0f} bytes for each one more" if each else "memory does not grow"
    return _markdown(lines) + (
        f"\nTime grows with the power {growth['exponent']:.2f}, between the last two with the power"
        f" {growth['last_exponent']:.2f}; between these {memory}.\n"
    )


def _run_table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = "rows", "prepare", "train 3 cycles", "test", "peak so far", "peak in the end", "own", "test AUC"
    lines = [head, ("---",) * len(head)]
    for row in rows:
        seconds = (f"{row[name]:.1f} s" for name in ("prepare_s", "train_s", "summarise_s"))
        memory = (row[name] for name in ("prepare_peak_gib", "peak_gib", "own_gib"))
        sizes = ("–" if size is None else f"{size:.2f} GiB" for size in memory)
        lines.append((row["held"], *seconds, *sizes, f"{row['test_auc']:.6f}"))
    return _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# ----------------------------------------------------------------------------- what the fresh processes do


def _case(argument: str) -> dict[str, Any]:
    given = json.loads(argument)
    return measured(replace(Case(**given), hidden=tuple(given["hidden"])))


def _write(path: str) -> dict[str, Any]:
    """The table, a tenth of its rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    names = [f"f{j}" for j in range(TABLE_FEATURES)]
    weights = rng.standard_normal(TABLE_FEATURES).astype(np.float32)
    writer = None
    for _ in range(10):
        n = TABLE_ROWS // 10
        x = rng.standard_normal((TABLE_FEATURES, n), dtype=np.float32)
        y = weights @ x + 20 * rng.standard_normal(n) > 35
        columns = {name: x[j] for j, name in enumerate(names)}
        part = pa.table(columns | {"site": rng.integers(0, TABLE_CLIENTS, n), "event": y.astype(np.int8)})
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()
    return {}


def _table(argument: str) -> dict[str, Any]:
    path, setting = json.loads(argument)
    return _run({"path": [path], "label": "event", "client": "site", "memory_map": setting})


def _medicare(rows: str) -> dict[str, Any]:
    return _run({"source": "medicare-like", "rows": int(rows)})


def _run(data: Mapping[str, Any]) -> dict[str, Any]:
    """A run of three cycles: seconds and peak memory of its parts."""
    from fedauc.experiments import outcome, runner
    from fedauc.experiments.config import Config
    from fedauc.experiments.prepare import prepare

    settings = {f"data.{name}": value for name, value in data.items()} | {"schedule.cycles": 3}
    config = Config.resolve("cycp-pairwise", settings)
    clock = [time.perf_counter()]
    prepared = prepare(config.data, config.seed, config.device)
    clock.append(time.perf_counter())
    prepare_gib = peak_gib()
    trained = runner.train(config, prepared)
    clock.append(time.perf_counter())
    result = outcome.summarise(trained)
    clock.append(time.perf_counter())
    prepare_s, train_s, summarise_s = np.diff(clock).tolist()
    return {
        "rows": result["data"]["rows"],
        "features": result["data"]["features"],
        "clients": result["data"]["clients"],
        "rounds": result["rounds"],
        "test_auc": result["test_auc"],
        "prepare_s": prepare_s,
        "train_s": train_s,
        "summarise_s": summarise_s,
        "prepare_peak_gib": prepare_gib,
        "peak_gib": peak_gib(),
        "own_gib": _status("RssAnon"),
    }


def peak_gib() -> float:
    """The most memory this process ever held."""
    found = _status("VmHWM")  # on Linux ru_maxrss starts at what the parent process held
    if found is not None:
        return found
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


def _status(name: str) -> float | None:
    """GiB of what Linux says of this process; RssAnon is what it holds without mapped files."""
    status = Path("/proc/self/status")
    found = re.search(rf"{name}:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 2**20 if found else None


if __name__ == "__main__":
    task = {"case": _case, "write": _write, "table": _table, "medicare": _medicare}[sys.argv[1]]
    print(json.dumps(task(sys.argv[2])))
