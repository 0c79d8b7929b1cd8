"""A site's side: look at the table before anything is sent, join, and stay."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import psutil

from fedauc.data.files import open_columns
from fedauc.data.statistics import column_of, propose_schema
from fedauc.errors import InputError
from fedauc.federation import kits, processes
from fedauc.federation.plan import Plan
from fedauc.federation.site import reading

LONGEST = 30.0
"""Seconds at most before a site that has gone is started again."""
STEADY = 60.0
"""Seconds after which a start counts as one that went well."""
FEW = 10
"""Positives below which a site is told that they are few."""
CONNECTED = "Successfully registered"
"""What FLARE logs then."""
SHOWN = 5
"""Values of the label that are shown."""
SAID = "fedauc says: "
"""In its log, what a site's process tells its people."""
KINDS = {"numeric": "number", "categorical": "text", "identifier": "text", "unsure": "text"}


@dataclass(frozen=True)
class Examined:
    """What a look at a table has found."""

    rows: int
    positives: int
    columns: list[tuple[str, str, float]]
    """Name, number or text, and the share of missing values."""
    labels: dict[str, int]
    """The label's most frequent values, and in how many rows they are."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def examine(plan: Plan, data: Path) -> Examined:
    """Hold a table against the federation's plan; nothing is sent."""
    experiment = plan.experiment
    table = reading(data)(plan.config.data)
    assert isinstance(table.features, pd.DataFrame)
    kinds = {name: KINDS[kind] for name, kind in propose_schema(table.features).items()}
    missing = table.features.isna().mean()
    columns = [(name, kind, float(missing[name])) for name, kind in kinds.items()]
    positives = int(table.y.sum())
    values = column_of(open_columns(data), experiment.label).astype("string").value_counts()
    labels = {str(name): int(count) for name, count in values.items()}
    notes, problems = [*table.notes], _compared(kinds, plan.columns)
    if positives in (0, len(table.y)):
        notes.append(
            f"All rows are {'positive' if positives else 'negative'}: is {experiment.positive!r} really how a"
            " positive is written here?"
        )
    elif positives < FEW:
        notes.append(f"Only {positives} rows are positive.")
    if len(labels) > 2:
        notes.append(f"All that is not {experiment.positive!r} counts as negative.")
    shown = dict(list(labels.items())[:SHOWN])
    return Examined(len(table.y), positives, columns, shown, problems, notes)


def _compared(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """What is missing, too much, or of another kind."""
    if not wanted:
        return []
    wrong = [f"The column {name!r} is missing." for name in wanted if name not in found]
    wrong += [f"The column {name!r} is not in the federation." for name in found if name not in wanted]
    for name, kind in wanted.items():
        if name in found and kind not in ("any", found[name]):
            wrong.append(f"The column {name!r} holds {found[name]}s, and the federation wants {kind}s.")
    return wrong


def join(kit: Path, data: Path, limits: Path | None, say: Callable[[str], None]) -> None:
    """Stay connected until told to end; a client that ends is started again."""
    from fedauc.federation.flare import DATA, LIMITS

    environment = {DATA: str(data.absolute())} | ({LIMITS: str(limits.absolute())} if limits else {})
    child = processes.Child("site", kits.site_command(kit), kit.absolute() / "site.log", environment)
    stopping = processes.told(signal.SIGTERM, signal.SIGINT)
    _alone(kit)
    _clear(kit)
    pause = 1.0
    try:
        while not stopping.is_set():
            began = time.monotonic()
            seen = read = child.log.stat().st_size if child.log.exists() else 0
            child.start()
            while child.alive and not stopping.wait(0.2):
                new = _since(child.log, read)
                read += len(new.encode(errors="surrogateescape"))
                for line in new.splitlines():
                    if CONNECTED in line:
                        say("connected; trains when the coordinator asks")
                    elif SAID in line:
                        say(line.partition(SAID)[2])
            if stopping.is_set():
                return
            child.end()
            pause = 1.0 if time.monotonic() - began > STEADY else min(2 * pause, LONGEST)
            say(f"not connected ({_reason(_since(child.log, seen))}); trying again in {pause:.0f} s")
            stopping.wait(pause)
    finally:
        child.end()


def _alone(kit: Path) -> None:
    """A kit is used by one process at a time: two would take each other's place."""
    path = kit / "joined.pid"
    other = None
    with suppress(OSError, ValueError, psutil.Error):
        process = psutil.Process(int(path.read_text()))
        other = process.pid if "join" in process.cmdline() else None
    if other not in (None, os.getpid()):
        raise InputError(f"{kit} is in use already, by process {other}.")
    path.write_text(str(os.getpid()))


def _clear(kit: Path) -> None:
    """End a client that another `site join` has left behind when it was killed."""
    mine = processes.naming(lambda argument: argument == str(kit.absolute()))
    processes.end([each for each in mine if kits.CLIENT in each.info["cmdline"]])


def _since(log: Path, place: int) -> str:
    """The whole lines that a log has said since it was so long."""
    with open(log, "rb") as file:
        file.seek(place)
        return file.read().rpartition(b"\n")[0].decode(errors="surrogateescape")


def _reason(said: str) -> str:
    """The last line of a log that tells of an error."""
    lines = [line.strip() for line in said.splitlines() if "rror" in line or "failed" in line.lower()]
    return lines[-1][-200:] if lines else "its process has ended"
