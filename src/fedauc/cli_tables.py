"""Tables and lists that commands print."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from fedauc.consoles import err_console, out_console, say

if TYPE_CHECKING:
    from fedauc.papers.cells import Cell, Paper


def print_notes(notes: list[str]) -> None:
    for note in notes:
        err_console.print(f"note: {note}", style="dim", markup=False, highlight=False)


def print_list(rows: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        say(f"{name:<{width}}  {text}")


def _number(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "–"
    digits = 4 if abs(mean) < 2 else 1
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def list_cells(paper: Paper, root: str | None) -> None:
    """Cells with the paper's numbers, and what must be known of them: which of them cannot be run, or are not
    in the paper."""
    table = Table("table", "cell", "theirs", "", box=None)
    known: dict[str, str] = {}
    for cell in paper.cells:
        remarks = ["not in the paper"] if paper.added(cell) else []
        remarks += [cell.note] if cell.note else []
        remarks += [f"cannot be run here: {absent}"] if (absent := cell.absent(root)) else []
        signs = [known.setdefault(remark, f"[{len(known) + 1}]") for remark in remarks]
        table.add_row(cell.table, cell.key, _number(cell.theirs, cell.theirs_std), escape(" ".join(signs)))
    out_console.print(table)
    for name, (home, cells) in paper.same.items():
        say(f"{name} shows the cells {cells} of {home}.")
    for remark, sign in known.items():
        say(f"{sign} {remark}")


def show_cells(
    paper: Paper, cells: Sequence[Cell], seeds: Sequence[int], device: str, root: str | None, out: Path
) -> None:
    """The commands that train cells, with what is measured and the paper's number."""
    from fedauc.papers.reproduce import folder_of

    for cell in cells:
        theirs = f", theirs {_number(cell.theirs, cell.theirs_std)}" if cell.theirs is not None else ""
        say(f"# {cell.key}: {cell.quantity}{theirs}")
        for seed in seeds:
            folder = folder_of(paper, cell, seed, out)
            say(f"{cell.command(seed, device, root)} --out {shlex.quote(str(folder))}")


def print_cells(rows: list[dict[str, Any]]) -> None:
    from fedauc.progress import human_bytes  # (torch is not loaded for a help text)

    if not rows:
        return
    quantity = "; ".join(dict.fromkeys(row["quantity"] for row in rows))
    table = Table(
        "method",
        "data",
        "setting",
        "theirs",
        "ours",
        "seeds",
        "rounds",
        "traffic",
        box=None,
        title=quantity,
    )
    for row in rows:
        theirs, ours = _number(row["theirs"], row["theirs_std"]), _number(row["ours_mean"], row["ours_std"])
        if missed := row["ours_by_seed"].count(None):
            ours = f"not by {missed} of {len(row['seeds'])} seeds"
        traffic = human_bytes(row["bytes_up"] + row["bytes_down"])
        table.add_row(
            row["method"],
            row["dataset"],
            row["setting"],
            theirs,
            ours,
            ", ".join(map(str, row["seeds"])),
            str(row["rounds"]),
            traffic,
        )
    out_console.print(table)
    for note in dict.fromkeys(row["note"] for row in rows if row["note"]):
        say(note)


def print_trials(content: dict[str, Any]) -> None:
    names = list(content["grid"])
    table = Table(*names, "validation AUC", "trained", "rounds", "", box=None)
    for row in content["trials"]:
        auc = "–" if row["valid_auc"] is None else f"{row['valid_auc']:.4f}"
        values = [str(row["settings"][name]) for name in names]
        trained = "failed" if row["note"] else f"{100 * row['share']:.0f} %"
        table.add_row(*values, auc, trained, "–" if row["note"] else str(row["rounds"]), row["note"])
    out_console.print(table)
    first, *others = (row["valid_auc"] or 0.0 for row in content["trials"])
    if any(auc > first for auc in others):
        say("Only numbers after the same share of the rounds compare: trials left earlier may have more.")


def print_comparison(content: dict[str, Any]) -> None:
    from fedauc.progress import human_bytes  # (torch is not loaded for a help text)

    seeds = max(len(row["seeds"]) for row in content["rows"])
    auc = "test AUC" if seeds == 1 else f"test AUC ± deviation of {seeds} seeds"
    table = Table("method", auc, "validation", "rounds", "traffic", "seconds", box=None)
    for row in sorted(content["rows"], key=lambda row: -row["test_auc"]):
        spread = "" if row["test_auc_std"] is None else f" ± {row['test_auc_std']:.4f}"
        table.add_row(
            row["method"],
            f"{row['test_auc']:.4f}{spread}",
            "" if row["valid_auc"] is None else f"{row['valid_auc']:.4f}",
            str(row["rounds"]),
            human_bytes(row["bytes_up"] + row["bytes_down"]),
            f"{row['seconds']:.1f}",
            style="dim" if row["kind"] == "yardstick" else None,
        )
    out_console.print(table)
