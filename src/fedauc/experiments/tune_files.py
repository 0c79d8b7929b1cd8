"""The files of a search and its trials, checked as they are read: of a damaged one is said what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedauc.errors import InputError
from fedauc.experiments.config import Config
from fedauc.experiments.records import Needs, damaged, read_object
from fedauc.experiments.tune_draw import Place

RESULT, TRIAL = "tune.json", "trial.json"
SCHEMA = 2
SEARCH: Needs = {"grid": dict, "config.method": str, "rows": str}
BEGUN: Needs = {"config.method": str, "rounds": int, "every": int, "failed": str}
ENDED: Needs = {"valid_auc": (int, float), "test_auc": (int, float), "rounds": int, "data.notes": list}
"""What is read of a search, of a trial and of a trial's result."""
ELSEWHERE = "choose another --out"


def search(out: Path) -> dict[str, Any]:
    """What is known of a search of this version."""
    path = out / RESULT
    known = read_object(path, {"schema": int}, ELSEWHERE)
    if known["schema"] != SCHEMA:
        raise InputError(f"{out} holds a search of another version of fedauc; {ELSEWHERE}.")
    return read_object(path, SEARCH, ELSEWHERE)


def tried(out: Path, grid: Mapping[str, Sequence[Any]], most: int) -> list[Place] | None:
    """The combinations that a search has drawn, if it was so many of this grid that it last tried."""
    known = search(out)
    plain = json.loads(json.dumps({name: list(values) for name, values in grid.items()}))
    if (known["grid"], known.get("most")) != (plain, most) or not known.get("trials"):
        return None
    try:
        return sorted(
            tuple(values.index(row["settings"][name]) for name, values in plain.items())
            for row in known["trials"]
        )
    except (TypeError, KeyError, ValueError):
        raise damaged(out / RESULT, ELSEWHERE) from None


def begun(folder: Path) -> dict[str, Any]:
    """What is known of a trial with one seed."""
    return read_object(folder / TRIAL, BEGUN, _anew(folder))


def config(folder: Path) -> Config:
    """What a trial's folder stands for."""
    about = begun(folder)["config"]
    try:
        return Config.from_dict(about)
    except InputError as error:
        raise damaged(folder / TRIAL, _anew(folder)) from error


def configured(folder: Path) -> None:
    """Whether a trial's run says what it is, if there is one."""
    if (folder / "config.json").exists():
        read_object(folder / "config.json", {"method": str}, _anew(folder))


def ended(folder: Path) -> dict[str, Any]:
    """What came out of a trial with one seed."""
    return read_object(folder / "result.json", ENDED, _anew(folder))


def _anew(folder: Path) -> str:
    return f"remove {folder} to train this trial anew"
