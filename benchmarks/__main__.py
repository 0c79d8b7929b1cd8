"""`python -m benchmarks [speed | scale]`: measure, print a table, write results.json or scale.json."""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent


def speed(device: str, works: str | None, turns: int, seconds: float) -> None:
    from benchmarks import speed
    from benchmarks.work import USUAL

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the peers go, and their files with them
    names = tuple(works.split(",")) if works else USUAL[device]
    file = HERE / "results.json"
    notes = []
    for new in speed.run(names, device, turns, seconds):
        rows = speed.merged(new, json.loads(file.read_text()) if file.exists() else [])
        file.write_text(json.dumps(rows, indent=2) + "\n")
        notes += [f"{row['work']}: {row['system']} {row['note']}" for row in new if "note" in row]
    show("rounds/s: 10 % of the clients in a round, 20 steps of batch 32", speed.summary(rows))
    print(*notes, sep="\n")


def scale() -> None:
    from benchmarks.scale import SWEEPS, medicare, page, sweep, tables

    found: dict[str, Any] = {"sweeps": []}
    for name in SWEEPS:
        found["sweeps"].append(sweep(name))
        show(f"a round, by {name}", found["sweeps"][-1]["rows"])
        show("", [found["sweeps"][-1]["growth"]])
    found |= {"tables": tables(), "medicare": medicare()}
    show("a whole run on a Parquet file of 10 million rows", found["tables"])
    show("a whole run on 4 million generated rows", [found["medicare"]])
    (HERE / "scale.json").write_text(json.dumps(found, indent=2) + "\n")
    text = HERE.parent / "docs" / "scale.md"
    text.write_text(page(text.read_text(), found))


def show(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(*rows[0], title=title, title_justify="left", box=None)
    for row in rows:
        table.add_row(*map(shown, row.values()))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def shown(value: Any) -> str:
    return "–" if value is None else f"{value:,.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("command", nargs="?", choices=("speed", "scale"), default="speed")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--works", help="names with commas in between; where not said, those usual for the device"
    )
    parser.add_argument("--turns", type=int, default=12, help="in which everyone is timed once")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no turn begins, by work")
    arguments = parser.parse_args()
    if arguments.command == "scale":
        scale()
    else:
        speed(arguments.device, arguments.works, arguments.turns, arguments.seconds)
