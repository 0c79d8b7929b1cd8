"""`python -m benchmarks [speed | scale]`: measure, print a table, write results.json or scale.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent


def speed(turns: int = 12) -> None:
    from benchmarks.speed import run

    rows = run(turns)
    (HERE / "results.json").write_text(json.dumps(rows, indent=2) + "\n")
    show("100 clients, 10 per round, 20 steps of batch 32", rows)


def scale(turns: int = 40) -> None:
    from benchmarks.scale import crowds, medicare

    rows, run = crowds(turns), medicare()
    (HERE / "scale.json").write_text(json.dumps({"clients": rows, "medicare": run}, indent=2) + "\n")
    show("a round of 10 clients out of N", rows)
    show("a whole run on 4 million generated rows", [run])


def show(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(*rows[0], title=title, title_justify="left", box=None)
    for row in rows:
        table.add_row(*(f"{v:,.2f}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


if __name__ == "__main__":
    command = sys.argv[1] if len(sys.argv) > 1 else "speed"
    if command not in ("speed", "scale"):
        sys.exit(f"python -m benchmarks takes speed or scale, not {command!r}")
    {"speed": speed, "scale": scale}[command]()
