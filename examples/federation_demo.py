"""Four hospitals on one machine: each is a process of its own, with mutual TLS, and two groups take turns.

In the middle all processes of one hospital are killed; the others go on. Then the server is killed as well
while that hospital starts again; the supervisor resumes the run, and the hospital takes part again.

    make federation-demo DATA=path/to/heart.csv

DATA is a table with the columns `hospital` (which hospital a row belongs to) and `disease` (0 or 1); without
it the made-up rows of examples/hospitals.csv are used. Written to runs/federation-demo: result.json with
`test_auc`, `in_process_test_auc` (the same experiment in one process, undisturbed), `seconds_per_round` and
`faults`; the coordinator's folder with the report; and a folder for every hospital.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path

import pandas as pd

from fedauc.experiments import records, runner
from fedauc.experiments.config import Config
from fedauc.federation.rehearsal import Rehearsal

HERE = Path(__file__).parent
LABEL, HOSPITAL = "disease", "hospital"
CYCLES = 150


def tables(data: Path, folder: Path) -> dict[str, Path]:
    """A file for each hospital."""
    frame = pd.read_csv(data)
    for column in (LABEL, HOSPITAL):
        if column not in frame:
            sys.exit(f"{data} has no column {column!r}.")
    folder.mkdir(parents=True)
    found = {}
    for name, rows in frame.groupby(HOSPITAL):
        found[str(name)] = folder / f"{name}.csv"
        rows.drop(columns=HOSPITAL).to_csv(found[str(name)], index=False)
    return found


def disturbed(federation: Rehearsal, victim: str) -> list[dict]:
    """Kill a hospital, and later the server while the hospital comes back."""
    federation.until_round(CYCLES // 3)
    federation.kill_site(victim)
    killed = federation.round + 1
    say(f"round {killed}: all processes of {victim} killed")
    federation.until(lambda: federation.status()["faults"] > 0)
    federation.until_round(federation.round + 4)
    federation.kill(federation.server())
    federation.join(victim)
    again, took, began = federation.round + 1, taken_part(federation, victim), time.monotonic()
    say(f"round {again}: the server killed, and {victim} started again")
    resumed = federation.until_round(again)
    say(f"round {again}: resumed after {resumed:.1f} s")
    federation.until(lambda: taken_part(federation, victim) > took)
    back = time.monotonic() - began
    say(f"round {federation.round}: {victim} takes part again, {back:.1f} s after its start")
    return [
        {"fault": "all processes of a site killed", "site": victim, "round": killed}
        | {"rounds_without_it": again - killed, "seconds_from_start_to_taking_part": round(back, 1)},
        {"fault": "server killed", "round": again, "seconds_to_next_round": round(resumed, 1)},
    ]


def taken_part(federation: Rehearsal, site: str) -> int:
    return next(row["took_part"] for row in federation.status()["sites"] if row["site"] == site)


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE / "hospitals.csv")
    parser.add_argument("--out", type=Path, default=Path("runs/federation-demo"))
    given = parser.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)
    files = tables(given.data, given.out / "tables")
    say(f"{len(files)} hospitals: {', '.join(files)}")
    with Rehearsal(given.out, files) as federation:
        options = ("--method", "cycp-pairwise", "--set", f"cycles={CYCLES}")
        federation.init(LABEL, "1", *options, rounds={"quorum": 0.5, "grace": 1})
        say("kits made; the hospitals join, and the coordinator starts")
        federation.join()
        federation.start()
        faults = disturbed(federation, sorted(files)[-1])
        if federation.wait(600):
            sys.exit(f"The coordinator has failed: {(given.out / 'supervisor.log').read_text()}")
        plan = federation.folder.begun()
        result = json.loads((federation.run / "result.json").read_text())
        seconds = [line["seconds"] for line in federation.folder.rounds()]
        report = federation.run / "report.html"
    say("the same experiment in one process")
    about = json.loads(json.dumps(plan.config.as_dict()))
    about["data"]["path"] = [str(path) for path in files.values()]
    alone = runner.run(Config.from_dict(about), given.out / "in-process")
    found = {
        "test_auc": result["test_auc"],
        "in_process_test_auc": alone["test_auc"],
        "seconds_per_round": round(statistics.median(b - a for a, b in pairwise(seconds)), 4),
        "rounds": result["rounds"],
        "faults": faults,
        "report": str(report.relative_to(given.out.absolute())),
    }
    records.write_json(given.out / "result.json", found)
    say(f"test AUC {found['test_auc']:.4f}, in one process {found['in_process_test_auc']:.4f}")
    if faults[0]["rounds_without_it"]:
        gone = faults[0]
        say(f"they differ because {gone['site']} missed {gone['rounds_without_it']} rounds of its group")
    say(f"{found['seconds_per_round']} s a round; report: {report}")


if __name__ == "__main__":
    main()
