"""Run cells of a paper's table and put ours beside theirs.

OUT/PAPER/TABLE/CELL/seed-S/         runs; whatever is finished is not run again
RESULTS/PAPER/results.json           the numbers of all cells that were run
RESULTS/PAPER/curves.json            what was measured along these runs
RESULTS/PAPER/NAME.svg               the paper's figures, as far as their cells were run
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedauc.errors import InputError, some
from fedauc.experiments.config import FILES, Config
from fedauc.experiments.jobs import each
from fedauc.experiments.outcome import versions
from fedauc.experiments.records import write_json, write_rows
from fedauc.experiments.runner import Watch
from fedauc.locks import by_one
from fedauc.papers.cells import Cell, Paper
from fedauc.papers.names import CURVES, DONE, KEY, RESULTS, place_of
from fedauc.papers.pictures import draw
from fedauc.papers.rows import Measured, done_in, rows_of
from fedauc.transports import ranks

FAILED, TAKEN = "failed", "taken"
SEED = re.compile(r"seed-(\d+)")
COUNTED = ("rounds", "bytes_up", "bytes_down", "seconds")


class Job(NamedTuple):
    """A cell with one seed."""

    cell: Cell
    config: Config
    folder: Path


class Known(NamedTuple):
    """A seed of a cell that was measured."""

    seed: int
    device: str
    measured: Measured


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
    add: bool = False,
    watch: Watch | None = None,
    say: Callable[[str], None] = lambda text: None,
    failed: Callable[[Job], None] = lambda job: None,
) -> list[dict[str, Any]]:
    """Run the cells that can be run; each one's row goes into results.json with every seed that is done. What
    has `failed` does not stop the others.

    A row is of all seeds that were ever measured in `out` with the same settings, and of the others that
    stand in results.json with them. With `add` those that stand there, of this cell or the same one of
    another table, are not measured again.
    """
    if ranks.here().size > 1:
        raise InputError("Cells are measured one by one, or --jobs at a time: without torchrun.")
    published = results / paper.name
    work: dict[str, list[Job]] = {}
    absent: dict[str, list[str]] = {}
    before: dict[Path, str] = {}
    for cell in paper.chosen(table, patterns):
        mine = [
            Job(cell, cell.config(seed, device, root), folder_of(paper, cell, seed, out)) for seed in seeds
        ]
        before |= _before(mine, paper, out, published if add else None, root)
        if not all(job.folder in before for job in mine) and (why := cell.absent(root)):
            absent.setdefault(why, []).append(cell.key)
        else:
            work[cell.key] = mine
    for why, keys in absent.items():
        say(f"{some(keys, 3)}: left out. {why}")
    if not work:
        raise InputError("None of these cells can be run here.")
    firsts = [mine[0] for mine in work.values()]
    _tried(firsts, published)
    if replaced := _replaced(firsts, published):
        if add:
            raise InputError(
                f"{replaced}, and --add replaces nothing: choose another --results, or replace them without"
                " --add."
            )
        say(f"{replaced}, which are replaced.")
    rows: dict[str, dict[str, Any]] = {}

    def after(job: Job, measured: Measured) -> None:
        value = "not reached" if measured.value is None else f"{measured.value:.4f}"
        if why := measured.more.get(FAILED):
            failed(job)
            say(f"{job.cell.key} seed {job.config.seed}: failed: {why}")
            return
        say(f"{job.cell.key} seed {job.config.seed}: {value}{before.get(job.folder, '')}")
        with by_one(published / RESULTS):
            write(job)

    def write(job: Job) -> None:
        """A cell's row, of all seeds that are there now: other processes may have added some."""
        cell = job.cell
        known = {**_standing(cell, published), **{each.seed: each for each in _ever(job)}}
        rows[cell.key] = _written(paper, cell, [known[seed] for seed in sorted(known)], published)

    def known(job: Job) -> Measured | None:
        return found.measured if (found := _known(job.config, job.folder)) else None

    pieces = [job for seed in zip(*work.values(), strict=True) for job in seed]
    each(pieces, _measured, jobs, watch, after, known)
    if rows:
        say(f"numbers: {published / RESULTS}")
    with by_one(published / RESULTS):
        for drawn in draw(paper.pictures, published, paper.methods):
            say(f"picture: {drawn}")
    return [rows[key] for key in work if key in rows]


def folder_of(paper: Paper, cell: Cell, seed: int, out: Path) -> Path:
    """Where a cell is run with a seed."""
    return out / paper.name / cell.table / re.sub(r"[^A-Za-z0-9._=-]+", "_", cell.key) / f"seed-{seed}"


def _measured(job: Job, watch: Watch | None) -> Measured:
    """Measure a cell with one seed, once. What fails is said, and tried again when it is asked for again."""
    if (found := _known(job.config, job.folder)) is not None:  # by another process, meanwhile
        return found.measured
    job.folder.mkdir(parents=True, exist_ok=True)
    try:
        measured = job.cell.measure(job.config, job.folder, watch)
    except InputError as error:
        return Measured(None, 0, 0, 0, 0.0, {FAILED: str(error)})
    kept = {"config": job.config.as_dict(), "measured": measured._asdict(), "versions": versions()}
    write_json(job.folder / DONE, kept)
    return measured


def _known(config: Config, folder: Path) -> Known | None:
    """What was measured in a folder, by whatever device, from wherever the files were."""
    if not (folder / DONE).exists():
        return None
    kept = done_in(folder)
    if keys := _differing(config, kept):
        raise InputError(f"{folder} has other settings ({', '.join(keys)}); choose another --out.")
    return _measurement(config.seed, kept)


def _measurement(seed: int, kept: Mapping[str, Any]) -> Known:
    return Known(seed, kept["config"]["device"], Measured(**kept["measured"]))


def _differing(config: Config, kept: Mapping[str, Any]) -> list[str]:
    return config.differing(kept["config"], ("device", *FILES))  # (files are the cell's own)


def _standing(cell: Cell, published: Path) -> dict[int, Known]:
    """The seeds that stand in results.json with the same settings."""
    row, along = (_row_of(published / file, _named(cell)) for file in (RESULTS, CURVES))
    if row is None or _other(cell, row):
        return {}
    curves = dict(zip(along["seeds"], along["curves"], strict=True)) if along else {}
    numbers = {name: row[name] for name in COUNTED}
    found = {}
    for i, seed in enumerate(row["seeds"]):
        more = {name: values[i] for name, values in row["more"].items()}
        measured = Measured(row["ours_by_seed"][i], **numbers, more=more, curve=curves.get(seed, {}))
        found[seed] = Known(seed, row["devices"][i], measured)
    return found


def _before(
    jobs: Sequence[Job], paper: Paper, out: Path, published: Path | None, root: str | None
) -> dict[Path, str]:
    """Which seeds of a cell need not be run, and why; they are laid into its folders.

    They were measured there, or for the same cell of another table, or stand in the results that are
    `published`. What was once taken from those counts only where they are given.
    """
    same = paper.alike(jobs[0].cell)
    standing = [_standing(cell, published) for cell in same] if published else []
    found = {}
    for job in jobs:
        if published is None and (job.folder / DONE).exists() and done_in(job.folder).get(TAKEN):
            (job.folder / DONE).unlink()
        _known(job.config, job.folder)  # (unless it is of other settings)
        places = [folder_of(paper, cell, job.config.seed, out) for cell in same]
        if kept := _done_at(places, job, bool(published)) or _published(standing, job):
            if not (job.folder / DONE).exists():
                job.folder.mkdir(parents=True, exist_ok=True)
                write_json(job.folder / DONE, kept)
            whence = "from results.json" if kept.get(TAKEN) else "finished before"
            found[job.folder] = f" ({whence}, not run)"
    return found


def _done_at(places: Sequence[Path], job: Job, taken: bool) -> dict[str, Any] | None:
    """What was measured in the first of these folders that has this; what was `taken` may not count."""
    done = (done_in(place) for place in places if (place / DONE).exists())
    fitting = (each for each in done if not _differing(job.config, each) and (taken or not each.get(TAKEN)))
    return next(fitting, None)


def _published(standing: Sequence[Mapping[int, Known]], job: Job) -> dict[str, Any] | None:
    """The same as it stands in results.json."""
    known = next((seeds[job.config.seed] for seeds in standing if job.config.seed in seeds), None)
    if known is None:
        return None
    config = job.config.changed({"device": known.device}).as_dict()
    return {"config": config, "measured": known.measured._asdict(), TAKEN: True}


def _tried(jobs: Sequence[Job], published: Path) -> None:
    """Whatever is read or written later: what is in the way of it is better known now."""
    with by_one(published / RESULTS):
        rows_of(published / CURVES)
        for job in jobs:
            _ever(job)


def _replaced(jobs: Sequence[Job], published: Path) -> str:
    """What stands in results.json and is of other settings; empty: nothing."""
    others = []
    for cell in (job.cell for job in jobs):
        row = _row_of(published / RESULTS, _named(cell))
        if row and _other(cell, row):
            others.append(f"{cell.key} (seed {', '.join(map(str, row['seeds']))})")
    return f"{published / RESULTS} has other settings of {some(others, 3)}" if others else ""


def _other(cell: Cell, row: Mapping[str, Any]) -> bool:
    """Whether a row is of other settings."""
    return bool(row["settings"] != json.loads(json.dumps(_settings(cell))))


def _row_of(path: Path, named: Mapping[str, str]) -> dict[str, Any] | None:
    return next((row for row in rows_of(path) if {name: row[name] for name in KEY} == named), None)


def _named(cell: Cell) -> dict[str, str]:
    return {name: getattr(cell, name) for name in KEY}


def _settings(cell: Cell) -> dict[str, Any]:
    return {"preset": cell.preset, **cell.settings}


def _ever(job: Job) -> list[Known]:
    """The seeds of a cell that were measured with these settings, now or before, in their order."""
    folders = {
        int(named[1]): each.parent
        for each in job.folder.parent.glob(f"*/{DONE}")
        if (named := SEED.fullmatch(each.parent.name))
    }
    found = {seed: done_in(folder) for seed, folder in sorted(folders.items())}
    return [
        _measurement(seed, kept)
        for seed, kept in found.items()
        if not _differing(job.config.changed({"seed": seed}), kept)
    ]


def _written(paper: Paper, cell: Cell, known: Sequence[Known], published: Path) -> dict[str, Any]:
    """A cell's row."""
    row = _named(cell) | _row(paper, cell, known)
    merge(published / RESULTS, row)
    curves = [dict(each.measured.curve) for each in known]
    if any(curves):
        along = _named(cell) | {"seeds": row["seeds"], "curves": curves}
        merge(published / CURVES, along, write_rows)
    return row


def _row(paper: Paper, cell: Cell, known: Sequence[Known]) -> dict[str, Any]:
    found, seeds = [each.measured for each in known], [each.seed for each in known]
    values = [measured.value for measured in found]
    reached = [value for value in values if value is not None]
    whole = len(reached) == len(values)
    command = f"fedauc reproduce {paper.name} {cell.table} --cells '{cell.key}'"
    commands = [
        f"{command}{f' --seed {first}' if first else ''} --seeds {count} --device {device}"
        for first, count, device in _stretches(known)
    ]

    def mean(name: str) -> float:
        return statistics.fmean(getattr(measured, name) for measured in found)

    return {
        "quantity": cell.quantity,
        "theirs": cell.theirs,
        "theirs_std": cell.theirs_std,
        "ours_mean": statistics.fmean(reached) if whole else None,
        "ours_std": statistics.stdev(reached) if whole and len(reached) > 1 else None,
        "ours_by_seed": values,
        "seeds": seeds,
        "rounds": round(mean("rounds")),
        "bytes_up": round(mean("bytes_up")),
        "bytes_down": round(mean("bytes_down")),
        "seconds": round(mean("seconds"), 1),
        "more": {
            name: [measured.more.get(name) for measured in found]
            for name in dict.fromkeys(name for measured in found for name in measured.more)
        },
        "devices": [each.device for each in known],
        "command": " && ".join(commands),
        "settings": _settings(cell),
        "in_paper": not paper.added(cell),
        "note": cell.note,
    }


def _stretches(known: Sequence[Known]) -> list[tuple[int, int, str]]:
    """Seeds in their order as the first ones, lengths and devices of stretches without a gap."""
    places = itertools.groupby(enumerate(known), key=lambda at: (at[1].seed - at[0], at[1].device))
    groups = [[each for _, each in group] for _, group in places]
    return [(group[0].seed, len(group), group[0].device) for group in groups]


def merge(path: Path, row: Mapping[str, Any], write: Callable[[Path, list[Any]], None] = write_json) -> None:
    """Put a row into a file of them, in the place of that of the same cell."""
    mine = {tuple(each[name] for name in KEY): dict(each) for each in (*rows_of(path), row)}
    write(path, sorted(mine.values(), key=place_of))
