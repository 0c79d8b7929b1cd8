"""Run cells of a paper's table and put ours beside theirs.

OUT/PAPER/TABLE/CELL/seed-S/         runs; whatever is finished is not run again
RESULTS/PAPER/results.json           the numbers of all cells that were run
RESULTS/PAPER/curves.json            what was measured along these runs
RESULTS/PAPER/NAME.svg               the paper's figures, as far as their cells were run
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedauc.errors import InputError
from fedauc.experiments.config import Config
from fedauc.experiments.jobs import each
from fedauc.experiments.outcome import versions
from fedauc.experiments.records import read_json, write_json
from fedauc.experiments.runner import Watch
from fedauc.papers.cells import Cell, Measured, Paper
from fedauc.papers.names import CURVES, DONE, KEY, RESULTS
from fedauc.papers.pictures import draw


class Job(NamedTuple):
    """A cell with one seed."""

    cell: Cell
    config: Config
    folder: Path


def reproduce(
    paper: Paper,
    table: str,
    patterns: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    results: Path,
    *,
    device: str = "cpu",
    root: str | None = None,
    jobs: int = 1,
    watch: Watch | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Run the cells that can be run, and put their rows, which are returned, into results.json at the end."""
    home = out / paper.name / table

    def folder(cell: Cell, seed: int) -> Path:
        return home / folder_of(cell) / f"seed-{seed}"

    able = []
    for cell in paper.chosen(table, patterns):
        done = all((folder(cell, seed) / DONE).exists() for seed in seeds)
        if not done and (why := cell.absent(root)):
            say(f"{cell.key} is left out: {why}")
        else:
            able.append(cell)
    if not able:
        raise InputError("None of these cells can be run here.")
    work = [Job(cell, cell.config(seed, device, root), folder(cell, seed)) for seed in seeds for cell in able]

    def after(job: Job, measured: Measured) -> None:
        value = "not reached" if measured.value is None else f"{measured.value:.4f}"
        say(f"{job.cell.key} seed {job.config.seed}: {value} ({measured.seconds:.0f} s)")

    found = each(work, _measured, jobs, watch, after)
    rows = []
    for cell in able:
        mine = [measured for job, measured in zip(work, found, strict=True) if job.cell is cell]
        command = f"fedauc reproduce {paper.name} {table} --cells '{cell.key}' --seeds {len(seeds)}"
        rows.append(_row(cell, mine, seeds, f"{command} --device {device}"))
    merge(results / paper.name / RESULTS, rows, KEY)
    curves = [
        _named(job.cell) | {"seed": job.config.seed, "curve": dict(measured.curve)}
        for job, measured in zip(work, found, strict=True)
        if measured.curve
    ]
    merge(results / paper.name / CURVES, curves, (*KEY, "seed"))
    for drawn in draw(paper.pictures, results / paper.name):
        say(f"picture: {drawn}")
    return rows


def folder_of(cell: Cell) -> str:
    return re.sub(r"[^A-Za-z0-9._=-]+", "_", cell.key)


def _measured(job: Job, watch: Watch | None) -> Measured:
    """Measure a cell with one seed, once."""
    kept = job.folder / DONE
    about = job.config.as_dict()
    if kept.exists():
        known = read_json(kept)
        if known["config"] != about:
            raise InputError(f"{job.folder} was measured with other settings; choose another --out.")
        return Measured(**known["measured"])
    job.folder.mkdir(parents=True, exist_ok=True)
    measured = job.cell.measure(job.config, job.folder, watch)
    write_json(kept, {"config": about, "measured": measured._asdict(), "versions": versions()})
    return measured


def _row(cell: Cell, found: Sequence[Measured], seeds: Sequence[int], command: str) -> dict[str, Any]:
    values = [measured.value for measured in found]
    known = [value for value in values if value is not None]
    whole = len(known) == len(values)

    def mean(name: str) -> float:
        return statistics.fmean(getattr(measured, name) for measured in found)

    return _named(cell) | {
        "theirs": cell.theirs,
        "theirs_std": cell.theirs_std,
        "ours_mean": statistics.fmean(known) if whole else None,
        "ours_std": statistics.stdev(known) if whole and len(known) > 1 else None,
        "ours_by_seed": values,
        "seeds": list(seeds),
        "rounds": round(mean("rounds")),
        "bytes_up": round(mean("bytes_up")),
        "bytes_down": round(mean("bytes_down")),
        "seconds": round(mean("seconds"), 1),
        "more": {name: [measured.more[name] for measured in found] for name in found[0].more},
        "command": command,
        "settings": {"preset": cell.preset, **cell.settings},
    }


def _named(cell: Cell) -> dict[str, Any]:
    return {name: getattr(cell, name) for name in KEY}


def merge(path: Path, rows: Sequence[Mapping[str, Any]], key: Sequence[str]) -> None:
    """Put rows into a file of them, in the place of those with the same key."""
    known = read_json(path) if path.exists() else []
    mine = {tuple(row[name] for name in key): dict(row) for row in (*known, *rows)}
    if mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, sorted(mine.values(), key=lambda row: [str(row[name]) for name in key]))
