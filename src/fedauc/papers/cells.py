"""Cells of the papers' tables: what was run, what the paper says, and how it is run here.

A cell is a preset with settings, and a number in a paper. `tested` trains it as `fedauc train` does and
reads the test AUC; a paper that measures something else has a measure of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedauc.data.sources import SOURCES, default_root, load_source
from fedauc.errors import InputError, nearest
from fedauc.experiments import runner
from fedauc.experiments.command import train_command
from fedauc.experiments.config import Config
from fedauc.experiments.jobs import prepared
from fedauc.experiments.runner import Watch
from fedauc.papers.names import like, name_of
from fedauc.papers.pictures import Picture
from fedauc.papers.rows import Measured
from fedauc.report.load import load_run

Measure = Callable[[Config, Path, Watch | None], Measured]


def tested(config: Config, folder: Path, watch: Watch | None) -> Measured:
    """The test AUC of the model that validation has chosen."""
    result = runner.run(config, folder, resume=True, prepared=prepared(config), watch=watch)
    along = [row for row in load_run(folder).metrics if row.get("valid_auc") is not None]
    rounds, steps = [row["round"] for row in along], config.sections["schedule"].get("steps", 1)
    return Measured(
        result["test_auc"],
        result["rounds"],
        result["bytes_up"],
        result["bytes_down"],
        result["seconds"],
        {name: result[name] for name in ("valid_auc", "best_round")},
        {
            "round": rounds,
            "step": [number * steps for number in rounds],
            "valid_auc": [round(row["valid_auc"], 4) for row in along],
        },
    )


@dataclass(frozen=True)
class Cell:
    """One number of a table, or one point or curve of a figure."""

    table: str
    method: str
    """As the paper calls it."""
    dataset: str
    setting: str
    preset: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    theirs: float | None = None
    """None: the paper shows it in a picture only, or does not have it."""
    theirs_std: float | None = None
    measure: Measure = tested
    quantity: str = "test AUC"
    note: str = ""
    """What must be known to compare."""

    @property
    def key(self) -> str:
        """Names it within its table."""
        return name_of(vars(self))

    def config(self, seed: int, device: str, root: str | None) -> Config:
        more: dict[str, Any] = {"seed": seed, "device": device}
        if root is not None:
            more["data.root"] = root
        if "data.path" in self.settings:
            more["data.path"] = [str(path) for path in self._paths(root)]
        return Config.resolve(self.preset, {**self.settings, **more})

    def command(self, seed: int, device: str, root: str | None) -> str:
        """The one that trains it."""
        return train_command(self.config(seed, device, root), self.settings)

    def absent(self, root: str | None) -> str:
        """Why it cannot be run here; empty: it can."""
        for path in self._paths(root):
            if not path.exists():
                return (
                    f"{path} does not exist. Where it is, --data-root or FEDAUC_DATA says (docs/tables.md)."
                )
        source = str(self.settings.get("data.source"))
        return "" if source not in SOURCES else _unreadable(source, root)

    def _paths(self, root: str | None) -> list[Path]:
        """Files that are no named data set, in the folder of published files."""
        return [Path(root or default_root()) / name for name in self.settings.get("data.path", ())]


@lru_cache(maxsize=32)
def _unreadable(source: str, root: str | None) -> str:
    """Why the files of a source cannot be read; empty: they can."""
    if not SOURCES[source].needs_files:
        return ""
    listed = SOURCES[source].listed
    try:
        if listed is not None:
            listed(Path(root or default_root()))
        else:
            load_source(source, root=root)
    except InputError as error:
        return f"{error} Where they are, --data-root or FEDAUC_DATA says."
    return ""


@dataclass(frozen=True)
class Paper:
    """A paper and its cells."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    pictures: tuple[Picture, ...] = ()
    same: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Figures that show cells of a table: which table, and cells like what."""
    ours: Sequence[str] = ()
    """What is not in the paper: tables, or cells with their table like what."""

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(cell.method for cell in self.cells))

    @property
    def tables(self) -> list[str]:
        return [*dict.fromkeys(cell.table for cell in self.cells), *self.same]

    def added(self, cell: Cell) -> bool:
        """Whether a cell is not in the paper."""
        return any(like(f"{cell.table}/{cell.key}", pattern) for pattern in self.ours)

    def alike(self, cell: Cell) -> list[Cell]:
        """The cells of all tables that are run and measured like this one, which is the first."""
        mine = cell.config(0, "cpu", None)
        others = (
            other
            for other in self.cells
            if (other.table, other.key) != (cell.table, cell.key)
            and (other.preset, other.dataset, other.measure) == (cell.preset, cell.dataset, cell.measure)
        )
        return [cell, *(other for other in others if other.config(0, "cpu", None) == mine)]

    def chosen(self, table: str, patterns: Sequence[str]) -> list[Cell]:
        """The cells of a table whose name is like one of the patterns (`*`: anything)."""
        if table not in self.tables:
            raise InputError(f"Paper {self.name} has no {table!r}.{nearest(table, self.tables)}")
        home, within = self.same.get(table, (table, "*"))
        cells = [cell for cell in self.cells if cell.table == home and like(cell.key, within)]
        for pattern in patterns:
            if not any(like(cell.key, pattern) for cell in cells):
                hint = nearest(pattern, (cell.key for cell in cells), most=4)
                raise InputError(
                    f"No cell of {table} is like {pattern}.{hint} `fedauc reproduce {self.name}` lists all."
                )
        return [cell for cell in cells if not patterns or any(like(cell.key, each) for each in patterns)]


def printed(text: str) -> Iterator[tuple[str, list[tuple[float, float | None]]]]:
    """Rows of a table as it stands in a paper: a name, then numbers `mean` or `mean±std`."""
    for line in text.strip().splitlines():
        name, *numbers = line.split()
        row = []
        for number in numbers:
            mean, _, std = number.partition("±")
            row.append((float(mean), float(std) if std else None))
        yield name, row


def removed(share: float) -> float:
    """Of the positives, where half of the rows is positive and such a share is to be left."""
    return 1 - share / (1 - share)
