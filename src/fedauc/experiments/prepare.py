"""From data settings and a seed to tensors: read, split, make rare, deal to clients, standardise.

The result depends on nothing but the `data` section and the seed, so methods that are compared see the
same rows. Validation and test rows keep the natural share of positives; imbalance, label noise and
partitions concern the training rows.

Rows stay where they are, and splits are row numbers, until the very end: then a column at a time is put into
one matrix, training rows first, of which the parts are views. Where the matrix is large it is a file in the
cache (`kept`), which the next run with the same files and settings finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedauc.core import rng
from fedauc.data.imbalance import flip_positives, remove_positives
from fedauc.data.partition import PARTITIONS, partition
from fedauc.data.preprocess import fit_federated
from fedauc.data.rows import Rows
from fedauc.data.sources import load_source
from fedauc.data.split import ordered_split, stratified_split
from fedauc.data.table import Table, read_table
from fedauc.errors import InputError, nearest, some
from fedauc.experiments import kept
from fedauc.experiments.assembly import Chosen, Outline, Prepared, assembled, matrix
from fedauc.experiments.settings import DataSettings

PUBLISHED_VALID = 0.1


def prepare(settings: DataSettings, seed: int, device: str = "cpu") -> Prepared:
    """Read and prepare the data."""
    folder = kept.place(settings, seed)
    if folder is not None and folder.exists():
        return kept.read(folder, device)
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
        return assembled(outline, matrix(outline), device)
    outline = outline.by_client()
    try:
        kept.write(folder, outline)
    except OSError as error:
        why = (
            f"The prepared rows cannot be kept in {folder.parent}: {error.strerror or error}. Name a folder"
            " with more room (FEDAUC_CACHE), or hold them in memory (--set data.memory_map=off)."
        )
        if settings.memory_map == "on":
            raise InputError(why) from error
        outline = replace(outline, notes=(*outline.notes, f"{why} They are held in memory."))
        return assembled(outline, matrix(outline), device)
    return kept.read(folder, device)


# --------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class _Raw:
    """What was read: the rows to split, and validation and test rows where they are given."""

    name: str
    main: Chosen
    valid: Chosen | None
    test: Chosen | None
    names: tuple[str, ...] | None
    notes: tuple[str, ...] = ()

    @property
    def short_name(self) -> str:
        """Without folders: reports travel, paths need not."""
        return ", ".join(part.rsplit("/", 1)[-1] for part in self.name.split(", "))


def _from_source(settings: DataSettings, seed: int) -> _Raw:
    assert settings.source is not None
    given = {"rows": settings.rows, "image_size": settings.image_size}
    options = {name: value for name, value in given.items() if value is not None}
    bundle = load_source(
        settings.source,
        root=settings.root,
        positive=settings.positive,
        download=settings.download,
        seed=seed,
        **options,
    )

    def rows(part: Rows | None) -> Chosen | None:
        if part is None:
            return None
        x = part.x
        if isinstance(x, np.ndarray) and x.ndim == 2:
            x = pd.DataFrame(x, columns=bundle.feature_names, copy=False)
        return Chosen.all(x, part.y, part.classes, part.client)

    main = rows(bundle.train)
    assert main is not None
    return _Raw(settings.source, main, rows(bundle.valid), rows(bundle.test), bundle.client_names)


def _from_files(settings: DataSettings, by_column: bool) -> _Raw:
    table = _read(settings, settings.path, settings.positive, by_column)
    codes = {name: code for code, name in enumerate(table.client_names)}

    def rows(table: Table) -> Chosen:
        code = np.array([codes.setdefault(name, len(codes)) for name in table.client_names], dtype=np.int64)
        return Chosen.all(table.features, table.y, table.y, code[table.client], table.order)

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


def _split(raw: _Raw, settings: DataSettings, seed: int) -> tuple[Chosen, Chosen, Chosen]:
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
    rows: Chosen, fractions: tuple[float, float, float], seed: int
) -> tuple[NDArray[np.int64], ...]:
    """Rows of each part: by the order of a column, or by client and class."""
    if rows.order is not None:
        return ordered_split(rows.order, rows.y, fractions)
    client = rows.client if rows.client is not None else np.zeros(len(rows.y), dtype=np.int64)
    return stratified_split(rows.classes, client, fractions, rng.generator(seed, rng.SPLIT))


def _made_rare(rows: Chosen, settings: DataSettings, seed: int) -> Chosen:
    generator = rng.generator(seed, rng.IMBALANCE)
    if settings.remove_positives:
        rows = rows.take(remove_positives(rows.y, settings.remove_positives, generator))
    if settings.flip_positives:
        rows = replace(rows, y=flip_positives(rows.y, settings.flip_positives, generator))
    return rows


def _dealt(
    rows: Chosen, names: tuple[str, ...] | None, settings: DataSettings, seed: int
) -> tuple[Chosen, tuple[str, ...]]:
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


def _outlined(raw: _Raw, parts: tuple[Chosen, Chosen, Chosen], names: tuple[str, ...]) -> Outline:
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
        notes.append(f"{len(absent)} clients have no training rows and do not take part: {some(absent, 5)}.")
    placed = [part if part.client is None else replace(part, client=position[part.client]) for part in parts]
    return Outline(
        name=raw.short_name,
        names=tuple(names[i] for i in order),
        members=int(has_rows.sum()),
        parts=(placed[0], placed[1], placed[2]),
        preprocessor=preprocessor,
        notes=tuple(notes),
        setup_up=up,
        setup_down=down,
    )
