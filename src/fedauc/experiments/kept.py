"""Prepared rows in a folder of the cache, from where they are mapped instead of being held in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedauc.data import mapped
from fedauc.data.files import ARRAY_SUFFIX, PARQUET_SUFFIXES, open_columns
from fedauc.data.preprocess import Preprocessor
from fedauc.errors import InputError
from fedauc.experiments.assembly import Chosen, Outline, Prepared, assembled, fill
from fedauc.experiments.settings import DataSettings

LARGE = 2**29
"""Bytes of features from which on they are mapped by themselves."""


def place(settings: DataSettings, seed: int) -> Path | None:
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


def write(folder: Path, outline: Outline) -> None:
    """x.npy, y.npy and client.npy (-1: nobody's row) of all rows, and the rest as JSON."""
    assert outline.preprocessor is not None
    rows = outline.slices[-1].stop

    def columns() -> Iterator[NDArray[np.float32]]:
        assert outline.preprocessor is not None
        for column in outline.preprocessor.plan:
            block = np.zeros((len(column.outputs), rows), dtype=np.float32)
            fill(column, outline, block.T)
            yield block

    with mapped.written(folder) as beside:
        mapped.room_for(8 * rows * len(outline.preprocessor.feature_names), beside)
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


def read(folder: Path, device: str) -> Prepared:
    """The inverse of `write`."""
    try:
        mapped.used(folder)
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
        parts.append(Chosen(nothing, np.arange(0), y[own], y[own], owner))
    preprocessor = Preprocessor.from_json(about.pop("preprocessor"))
    names, notes = tuple(about.pop("names")), tuple(about.pop("notes"))
    outline = Outline(
        names=names, notes=notes, parts=(parts[0], parts[1], parts[2]), preprocessor=preprocessor, **about
    )
    return assembled(outline, x, device)
