"""Seconds of a round of a real federation: two sites on this machine, with mutual TLS.

    python -m benchmarks.federation              # → federation.json

What is reported is the whole round, with one step of training at each site, the checkpoint and its fsync.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from fedauc.core.checkpoint import read_tensors
from fedauc.federation.rehearsal import Rehearsal

HERE = Path(__file__).parent
FIRST = 3
"""Rounds that do not count: sites read their tables' numbers in and set up."""
WORKS = {"tiny": ("[5]", 24), "200 MB": ("[7000,7000]", 10)}
"""Hidden units, and rounds."""


def tables(folder: Path, sites: int) -> dict[str, Path]:
    generator = np.random.default_rng(0)
    found = {}
    for number in range(sites):
        y = (generator.random(200) < 0.2).astype(int)
        frame = pd.DataFrame({f"x{i}": generator.normal(0.3 * y, 1) for i in range(5)} | {"y": y})
        found[f"site-{number}"] = folder / f"site-{number}.csv"
        frame.to_csv(found[f"site-{number}"], index=False)
    return found


def measured(hidden: str, rounds: int) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="federation-"))
    try:
        with Rehearsal(folder / "here", tables(folder, 2)) as federation:
            options = ["--method", "cycp-minimax", "--model", "mlp"]
            settings = {"hidden": hidden, "cycles": rounds, "steps": 1, "batch": 8, "eval_every": 1000}
            for name, value in settings.items():
                options += ["--set", f"{name}={value}"]
            federation.init("y", "1", *options)
            federation.change({'group = "group-2"': 'group = "group-1"'})
            federation.join()
            federation.start()
            if federation.wait(1800):
                sys.exit((folder / "here/supervisor.log").read_text())
            seconds = [line["seconds"] for line in federation.folder.rounds()]
            exchange = [line["seconds"] for line in federation.folder.participation() if "round" in line]
            model, _ = read_tensors(federation.run / "model.safetensors")
        each = [b - a for a, b in pairwise(seconds)][FIRST - 1 : -1]
        return {
            "model_mb": sum(v.numel() * v.element_size() for v in model.values()) / 1e6,
            "rounds": len(each),
            "seconds_per_round": statistics.median(each),
            "slowest": max(each),
            "of_which_exchange": statistics.median(exchange[FIRST:-1]),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    found = {}
    for name, (hidden, rounds) in WORKS.items():
        found[name] = measured(hidden, rounds)
        print(name, json.dumps(found[name]), flush=True)
    (HERE / "federation.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
