"""Tables and lists that commands print."""

from __future__ import annotations

import shlex
from typing import Any

from rich.table import Table

from fedauc.consoles import err_console, out_console, say


def print_notes(notes: list[str]) -> None:
    for note in notes:
        err_console.print(f"note: {note}", style="dim", markup=False, highlight=False)


def print_list(rows: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        say(f"{name:<{width}}  {text}")


def shell(name: str, value: Any) -> str:
    """A setting as it is given to --set, in quotes where a shell needs them."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return shlex.quote(f"{name}={text}")


def print_cells(rows: list[dict[str, Any]], quantity: str) -> None:
    from fedauc.progress import human_bytes  # (torch is not loaded for a help text)

    def shown(mean: float | None, std: float | None) -> str:
        if mean is None:
            return "–"
        digits = 4 if abs(mean) < 2 else 1
        return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")

    table = Table(
        "method", "data", "setting", "theirs", "ours", "rounds", "traffic", box=None, title=quantity
    )
    for row in rows:
        theirs, ours = shown(row["theirs"], row["theirs_std"]), shown(row["ours_mean"], row["ours_std"])
        traffic = human_bytes(row["bytes_up"] + row["bytes_down"])
        table.add_row(
            row["method"], row["dataset"], row["setting"], theirs, ours, str(row["rounds"]), traffic
        )
    out_console.print(table)


def print_trials(content: dict[str, Any]) -> None:
    names = list(content["grid"])
    table = Table(*names, "validation AUC", "trained", "rounds", "", box=None)
    for row in content["trials"]:
        auc = "–" if row["valid_auc"] is None else f"{row['valid_auc']:.4f}"
        values = [str(row["settings"][name]) for name in names]
        table.add_row(*values, auc, f"{100 * row['share']:.0f} %", str(row["rounds"]), row["note"])
    out_console.print(table)


def print_comparison(content: dict[str, Any]) -> None:
    from fedauc.progress import human_bytes  # (torch is not loaded for a help text)

    table = Table("method", "test AUC", "validation", "rounds", "traffic", "seconds", box=None)
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
