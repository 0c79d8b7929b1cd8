"""From data settings and a seed to tensors: read, split, make rare, deal to clients, standardise.

The result depends on nothing but the `data` section and the seed, so methods that are compared see the
same rows. Validation and test rows keep the natural share of positives; imbalance, label noise and
partitions concern the training rows.

Rows stay where they are, and splits are row numbers, until the very end: then a column at a time is put into
one matrix, training rows first, of which the parts are views. Where the matrix is large it is a file in the
cache (`data/mapped.py`), which the next run with the same files and settings finds.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core import rng
from fedauc.data import mapped
from fedauc.data.columns import Columns
from fedauc.data.federated import FederatedData
from fedauc.data.files import ARRAY_SUFFIX, PARQUET_SUFFIXES, open_columns
from fedauc.data.imbalance import flip_positives, remove_positives
from fedauc.data.partition import PARTITIONS, partition
from fedauc.data.preprocess import Column, Preprocessor, fit_federated
from fedauc.data.rows import Rows
from fedauc.data.sources import load_source
from fedauc.data.split import ordered_split, stratified_split
from fedauc.data.statistics import column_of
from fedauc.data.table import Table, read_table
from fedauc.errors import InputError, nearest
from fedauc.experiments.settings import DataSettings

PUBLISHED_VALID = 0.1
LARGE = 2**29
"""Bytes of features from which on they are mapped by themselves."""


@dataclass(frozen=True)
class Part:
    """Rows to evaluate on."""

    x: Tensor
    y: NDArray[np.int8]
    client: NDArray[np.int64] | None
    """Codes into `Prepared.names`; None where the rows belong to no client."""


@dataclass(frozen=True)
class Prepared:
    """Everything a run needs of the data."""

    name: str
    train: FederatedData
    valid: Part
    test: Part
    names: tuple[str, ...]
    """All clients; those with training rows first, in the order of `train`."""
    preprocessor: Preprocessor | None
    notes: tuple[str, ...]
    setup_up: int = 0
    setup_down: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row."""
        return tuple(self.train.x.shape[1:])


def prepare(settings: DataSettings, seed: int, device: str = "cpu") -> Prepared:
    """Read and prepare the data."""
    folder = _folder(settings, seed)
    if folder is not None and folder.exists():
        return _from_folder(folder, device)
    if settings.source is not None:
        raw = _from_source(settings, seed)
    elif not settings.path:
        raise InputError(
            "No data: give --data a CSV or Parquet file, or the name of a data set (fedauc datasets)."
        )
    elif settings.label is None:
        raise InputError("No label: --label names the column that says which rows are positive.")
    else:
        raw = _from_files(settings, by_column=folder is not None)
    train, valid, test = _split(raw, settings, seed)
    raw = replace(raw, main=train, valid=None, test=None)  # what says where all rows belong is large itself
    train = _made_rare(train, settings, seed)
    train, names = _dealt(train, raw.names, settings, seed)
    if settings.partition is not None:  # simulated clients own training rows only
        valid, test = replace(valid, client=None), replace(test, client=None)
    outline = _outlined(raw, (train, valid, test), names)
    if folder is None:
        return _assembled(outline, _matrix(outline), device)
    outline = outline.by_client()
    try:
        _to_folder(folder, outline)
    except OSError as error:
        why = (
            f"The prepared rows cannot be kept in {folder.parent}: {error.strerror or error}. Name a folder"
            " with more room (FEDAUC_CACHE), or hold them in memory (--set data.memory_map=off)."
        )
        if settings.memory_map == "on":
            raise InputError(why) from error
        outline = replace(outline, notes=(*outline.notes, f"{why} They are held in memory."))
        return _assembled(outline, _matrix(outline), device)
    return _from_folder(folder, device)


# --------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class _Rows:
    """Rows of a table or of images by their numbers: what they hold is read when it is put in its place."""

    x: Columns | NDArray[np.float32]
    number: NDArray[np.int64]
    y: NDArray[np.int8]
    classes: NDArray[np.int64] | NDArray[np.int8]
    client: NDArray[np.int64] | None
    order: pd.Series | None = None

    @classmethod
    def all(cls, x: Columns | NDArray[np.float32], *about: Any) -> _Rows:
        return cls(x, np.arange(len(x)), *about)

    def take(self, index: NDArray[np.int64]) -> _Rows:
        client = None if self.client is None else self.client[index]
        order = None if self.order is None else self.order.iloc[index]
        return _Rows(self.x, self.number[index], self.y[index], self.classes[index], client, order)


@dataclass(frozen=True)
class _Raw:
    """What was read: the rows to split, and validation and test rows where they are given."""

    name: str
    main: _Rows
    valid: _Rows | None
    test: _Rows | None
    names: tuple[str, ...] | None
    notes: tuple[str, ...] = ()

    @property
    def short_name(self) -> str:
        """Without folders: reports travel, paths need not."""
        return ", ".join(part.rsplit("/", 1)[-1] for part in self.name.split(", "))


def _from_source(settings: DataSettings, seed: int) -> _Raw:
    assert settings.source is not None
    options = {"rows": settings.rows} if settings.rows is not None else {}
    bundle = load_source(
        settings.source,
        root=settings.root,
        positive=settings.positive,
        download=settings.download,
        seed=seed,
        **options,
    )

    def rows(part: Rows | None) -> _Rows | None:
        if part is None:
            return None
        x = part.x if part.x.ndim > 2 else pd.DataFrame(part.x, columns=bundle.feature_names, copy=False)
        return _Rows.all(x, part.y, part.classes, part.client)

    main = rows(bundle.train)
    assert main is not None
    return _Raw(settings.source, main, rows(bundle.valid), rows(bundle.test), bundle.client_names)


def _from_files(settings: DataSettings, by_column: bool) -> _Raw:
    table = _read(settings, settings.path, settings.positive, by_column)
    codes = {name: code for code, name in enumerate(table.client_names)}

    def rows(table: Table) -> _Rows:
        code = np.array([codes.setdefault(name, len(codes)) for name in table.client_names], dtype=np.int64)
        return _Rows.all(table.features, table.y, table.y, code[table.client], table.order)

    main = rows(table)
    valid = rows(_read(settings, [settings.valid], table.positive, by_column)) if settings.valid else None
    test = rows(_read(settings, [settings.test], table.positive, by_column)) if settings.test else None
    return _Raw(table.source, main, valid, test, tuple(codes), table.notes)


def _read(settings: DataSettings, path: Sequence[str], positive: str | None, by_column: bool) -> Table:
    assert settings.label is not None
    return read_table(
        list(path),
        label=settings.label,
        client=settings.client,
        drop=settings.drop,
        positive=positive,
        split_by=settings.split_by,
        small_clients=settings.small_clients,
        by_column=by_column,
    )


# -------------------------------------------------------------------------------- splitting, rarity, clients


def _split(raw: _Raw, settings: DataSettings, seed: int) -> tuple[_Rows, _Rows, _Rows]:
    """Train, valid and test; what is given as a file or published is not split off."""
    valid_share = 0.0 if raw.valid is not None else settings.valid_fraction
    if raw.test is not None and settings.source and valid_share == DataSettings.valid_fraction:
        valid_share = PUBLISHED_VALID
    test_share = 0.0 if raw.test is not None else settings.test_fraction
    if raw.valid is not None and raw.test is not None:
        train, valid, test = raw.main, raw.valid, raw.test
    else:
        parts = _split_index(raw.main, (1 - valid_share - test_share, valid_share, test_share), seed)
        train = raw.main.take(parts[0])
        valid = raw.valid if raw.valid is not None else raw.main.take(parts[1])
        test = raw.test if raw.test is not None else raw.main.take(parts[2])
    for name, part in (("validation", valid), ("test", test)):
        if len(np.unique(part.y)) < 2:
            raise InputError(
                f"The {name} rows of {raw.name} hold only one class ({len(part.y)} rows), so no AUC can be"
                f" measured; give more rows or a larger share (data.{name[:5]}_fraction)."
            )
    return train, valid, test


def _split_index(
    rows: _Rows, fractions: tuple[float, float, float], seed: int
) -> tuple[NDArray[np.int64], ...]:
    """Rows of each part: by the order of a column, or by client and class."""
    if rows.order is not None:
        return ordered_split(rows.order, rows.y, fractions)
    client = rows.client if rows.client is not None else np.zeros(len(rows.y), dtype=np.int64)
    return stratified_split(rows.classes, client, fractions, rng.generator(seed, rng.SPLIT))


def _made_rare(rows: _Rows, settings: DataSettings, seed: int) -> _Rows:
    generator = rng.generator(seed, rng.IMBALANCE)
    if settings.remove_positives:
        rows = rows.take(remove_positives(rows.y, settings.remove_positives, generator))
    if settings.flip_positives:
        rows = replace(rows, y=flip_positives(rows.y, settings.flip_positives, generator))
    return rows


def _dealt(
    rows: _Rows, names: tuple[str, ...] | None, settings: DataSettings, seed: int
) -> tuple[_Rows, tuple[str, ...]]:
    """Clients of the training rows: by the partition, the column, or one for all."""
    if settings.partition is None:
        if rows.client is not None and names is not None:
            return rows, names
        return replace(rows, client=np.zeros(len(rows.y), dtype=np.int64)), ("all",)
    if settings.partition not in PARTITIONS:
        raise InputError(
            f"There is no partition {settings.partition!r}.{nearest(settings.partition, PARTITIONS)}"
        )
    options = {name: getattr(settings, name) for name in PARTITIONS[settings.partition].options}
    bare = Rows(np.empty((len(rows.y), 0), dtype=np.float32), rows.y, rows.classes, rows.client)
    generator = rng.generator(seed, rng.PARTITION)
    codes = partition(settings.partition, bare, settings.clients, generator, **options)
    width = len(str(settings.clients - 1))
    return replace(rows, client=codes), tuple(f"client-{i:0{width}d}" for i in range(settings.clients))


# ------------------------------------------------------------------------------------------------- assembling


@dataclass(frozen=True)
class _Outline:
    """Prepared data without their numbers: the rows in their places, and how each becomes numbers."""

    name: str
    names: tuple[str, ...]
    members: int
    """Clients with training rows; they come first."""
    parts: tuple[_Rows, _Rows, _Rows]
    preprocessor: Preprocessor | None
    notes: tuple[str, ...]
    setup_up: int
    setup_down: int

    @property
    def slices(self) -> tuple[slice, slice, slice]:
        """Where the parts stand among all rows."""
        ends = np.cumsum([len(part.y) for part in self.parts]).tolist()
        return slice(0, ends[0]), slice(ends[0], ends[1]), slice(ends[1], ends[2])

    def by_client(self) -> _Outline:
        """With a client's training rows together, so that a round looks at few places of a file."""
        train, valid, test = self.parts
        assert train.client is not None
        order = np.argsort(2 * train.client + train.y, kind="stable")
        return replace(self, parts=(train.take(order), valid, test))


def _outlined(raw: _Raw, parts: tuple[_Rows, _Rows, _Rows], names: tuple[str, ...]) -> _Outline:
    """Fit the preprocessing, and put clients with training rows first."""
    train = parts[0]
    assert train.client is not None
    notes = list(raw.notes)
    preprocessor, up, down = None, 0, 0
    if not isinstance(train.x, np.ndarray):
        preprocessor, up, down = fit_federated(train.x, train.client, train.number)
        notes += preprocessor.notes
        if not preprocessor.feature_names:
            raise InputError(f"{raw.name} has no usable feature column beside the label and the client.")
    if len(names) == 1:
        notes.append(
            "All rows belong to one client: name a client column, or deal them out with a partition."
        )
    has_rows = np.bincount(train.client, minlength=len(names)) > 0
    order = np.argsort(~has_rows, kind="stable")
    position = np.argsort(order)
    absent = [names[i] for i in order[int(has_rows.sum()) :]]
    if absent:
        shown = ", ".join(absent[:5]) + (" and others" if len(absent) > 5 else "")
        notes.append(f"{len(absent)} clients have no training rows and do not take part: {shown}.")
    placed = [part if part.client is None else replace(part, client=position[part.client]) for part in parts]
    return _Outline(
        name=raw.short_name,
        names=tuple(names[i] for i in order),
        members=int(has_rows.sum()),
        parts=(placed[0], placed[1], placed[2]),
        preprocessor=preprocessor,
        notes=tuple(notes),
        setup_up=up,
        setup_down=down,
    )


def _matrix(outline: _Outline) -> Tensor:
    """The numbers of all rows, one part after the other."""
    rows = outline.slices[-1].stop
    if outline.preprocessor is None:
        assert isinstance(outline.parts[0].x, np.ndarray)
        x = np.empty((rows, *outline.parts[0].x.shape[1:]), dtype=np.float32)
        for part, place in zip(outline.parts, outline.slices, strict=True):
            assert isinstance(part.x, np.ndarray)
            np.take(part.x, part.number, axis=0, out=x[place], mode="clip")  # "raise" would make a copy
        return torch.from_numpy(x)
    x = np.zeros((rows, len(outline.preprocessor.feature_names)), dtype=np.float32)
    start = 0
    for column in outline.preprocessor.plan:
        end = start + len(column.outputs)
        _fill(column, outline, x[:, start:end])
        start = end
    return torch.from_numpy(x)


def _fill(column: Column, outline: _Outline, out: NDArray[np.float32]) -> None:
    """One column of all rows; it is read once where it comes from one table."""
    read: dict[int, pd.Series] = {}
    for part, place in zip(outline.parts, outline.slices, strict=True):
        assert not isinstance(part.x, np.ndarray)
        if id(part.x) not in read:
            read[id(part.x)] = column_of(part.x, column.name)
        values = read[id(part.x)].array.take(part.number)
        column.fill(pd.DataFrame({column.name: values}, copy=False), out[place])


def _assembled(outline: _Outline, x: Tensor, device: str) -> Prepared:
    x = x.to(device)
    train, valid, test = (x[place] for place in outline.slices)
    rows = outline.parts[0]
    assert rows.client is not None
    members = list(outline.names[: outline.members])
    return Prepared(
        name=outline.name,
        train=FederatedData.build(train, torch.from_numpy(rows.y), rows.client, members, device),
        valid=Part(valid, outline.parts[1].y, outline.parts[1].client),
        test=Part(test, outline.parts[2].y, outline.parts[2].client),
        names=outline.names,
        preprocessor=outline.preprocessor,
        notes=outline.notes,
        setup_up=outline.setup_up,
        setup_down=outline.setup_down,
    )


# ------------------------------------------------------------------------------------------------ mapped rows


def _folder(settings: DataSettings, seed: int) -> Path | None:
    """Where the prepared rows are kept and mapped from; None: they are held in memory."""
    if settings.memory_map == "off":
        return None
    wanted = settings.memory_map == "on"
    if settings.source is not None:
        if wanted:
            raise InputError(
                f"data.memory_map=on: {settings.source} is unpacked or generated as a whole, so there is"
                " nothing to map; files that can be mapped are Parquet and .npy."
            )
        return None
    tables = [Path(path) for path in settings.path]
    for path in tables:
        if not path.name.lower().endswith((*PARQUET_SUFFIXES, ARRAY_SUFFIX)):
            if wanted:
                raise InputError(
                    f"data.memory_map=on: {path} cannot be read column by column; write it as Parquet"
                    " (pandas: read_csv(…).to_parquet(…)), or leave the setting out."
                )
            return None
    files = [Path(name) for name in (*settings.path, settings.valid, settings.test) if name]
    if tables and tables[0].suffix.lower() == ARRAY_SUFFIX:
        files += [Path(name) for name in (settings.label, settings.client, settings.split_by) if name]
    if not files or not all(file.is_file() for file in files):
        return None  # whoever reads them says so
    if not wanted and sum(len(table) * len(table.columns) for table in map(open_columns, tables)) * 4 < LARGE:
        return None
    about = {
        name: value for name, value in asdict(settings).items() if name not in ("memory_map", "download")
    }
    return mapped.place(files, about | {"seed": seed})


def _to_folder(folder: Path, outline: _Outline) -> None:
    """x.npy, y.npy and client.npy (-1: nobody's row) of all rows, and the rest as JSON."""
    assert outline.preprocessor is not None
    rows = outline.slices[-1].stop

    def columns() -> Iterator[NDArray[np.float32]]:
        assert outline.preprocessor is not None
        for column in outline.preprocessor.plan:
            block = np.zeros((len(column.outputs), rows), dtype=np.float32)
            _fill(column, outline, block.T)
            yield block

    with mapped.written(folder) as beside:
        need = 8 * rows * len(outline.preprocessor.feature_names)
        if (free := shutil.disk_usage(beside).free) < need:
            raise OSError(
                errno.ENOSPC, f"{need / 2**30:.1f} GiB are needed and {free / 2**30:.1f} GiB are free"
            )
        mapped.write_columns(beside / "x.npy", columns(), rows)
        owners = [np.full(len(p.y), -1) if p.client is None else p.client for p in outline.parts]
        np.save(beside / "client.npy", np.concatenate(owners))
        np.save(beside / "y.npy", np.concatenate([part.y for part in outline.parts]))
        about = {
            "name": outline.name,
            "names": outline.names,
            "members": outline.members,
            "sizes": [len(part.y) for part in outline.parts],
            "preprocessor": outline.preprocessor.to_json(),
            "notes": outline.notes,
            "setup_up": outline.setup_up,
            "setup_down": outline.setup_down,
        }
        (beside / "about.json").write_text(json.dumps(about))


def _from_folder(folder: Path, device: str) -> Prepared:
    """The inverse of `_to_folder`."""
    try:
        os.utime(folder)  # used now: it is kept longer
        x = mapped.open_rows(folder / "x.npy")
        y, client = np.load(folder / "y.npy"), np.load(folder / "client.npy")
        about = json.loads((folder / "about.json").read_text())
        sizes = about.pop("sizes")
        if not len(x) == len(y) == len(client) == sum(sizes):
            raise ValueError("its files differ in length")
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"The prepared rows in {folder} are damaged ({error}); remove that folder."
        ) from error
    nothing = np.empty((0, *x.shape[1:]), dtype=np.float32)  # the matrix is there already
    parts = []
    for end, size in zip(np.cumsum(sizes).tolist(), sizes, strict=True):
        own = slice(end - size, end)
        owner = client[own] if size and client[end - 1] >= 0 else None
        parts.append(_Rows(nothing, np.arange(0), y[own], y[own], owner))
    preprocessor = Preprocessor.from_json(about.pop("preprocessor"))
    names, notes = tuple(about.pop("names")), tuple(about.pop("notes"))
    outline = _Outline(
        names=names, notes=notes, parts=(parts[0], parts[1], parts[2]), preprocessor=preprocessor, **about
    )
    return _assembled(outline, x, device)
