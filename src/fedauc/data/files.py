"""CSV and Parquet files as data frames, and where in a file a row stands."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedauc.errors import InputError

CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_SUFFIXES = (".parquet", ".pq")


def read_frame(path: str | Path, *, text: Collection[str] = ()) -> pd.DataFrame:
    """The table in one CSV (``,`` ``;`` or tab separated, also gzipped) or Parquet file, as it stands.

    Columns named in `text` keep their exact text (a CSV's ``007`` stays ``007``). An unnamed first
    column that only counts the rows, as pandas and R write it, is left out.
    """
    path = Path(path)
    name = path.name.lower()
    if not path.exists():
        raise InputError(f"The file {path} does not exist.")
    if path.is_dir():
        raise InputError(f"{path} is a folder, and a CSV or Parquet file is needed.")
    if not name.endswith(CSV_SUFFIXES + PARQUET_SUFFIXES):
        kinds = ", ".join(CSV_SUFFIXES + PARQUET_SUFFIXES)
        raise InputError(f"The file {path} has a suffix that is not one of {kinds}.")
    try:
        if path.stat().st_size == 0:
            raise InputError(f"The file {path} is empty.")
        frame = _read_csv(path, text) if name.endswith(CSV_SUFFIXES) else _read_parquet(path)
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(
            f"The file {path} is not UTF-8 text: {error.reason} at byte {error.start}."
        ) from error
    except (OSError, EOFError, zlib.error, csv.Error, pa.ArrowException, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise InputError(f"The file {path} cannot be read: {reason}.") from error
    if frame.empty:
        raise InputError(f"The file {path} has no rows.")
    return frame


def _open_text(path: Path) -> TextIO:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _sniff(path: Path) -> tuple[str, str]:
    """Separator and decimal mark of a CSV file, from its beginning."""
    with _open_text(path) as stream:
        head = stream.read(1 << 16)
    header = re.sub(r'"[^"]*"', "", head.lstrip().split("\n", 1)[0])
    separator = max(",;\t", key=header.count)
    comma = separator != "," and re.search(r"(?:^|[;\t])-?\d+,\d+(?=[;\t\r\n])", head, re.MULTILINE)
    point = re.search(r"(?:^|[;\t])-?\d+\.\d+(?=[;\t\r\n])", head, re.MULTILINE)
    return separator, "," if comma and not point else "."


def _read_csv(path: Path, text: Collection[str]) -> pd.DataFrame:
    separator, decimal = _sniff(path)
    with _open_text(path) as stream:
        rows = csv.reader(stream, delimiter=separator, skipinitialspace=True)
        filled = (row for row in rows if any(map(str.strip, row)))
        header = [name.strip() for name in next(filled, [])]
        width = len(next(filled, []))
    if not header:
        raise InputError(f"The file {path} is empty.")
    if width > len(header):  # pandas would take the first column for row names
        raise InputError(f"The first row of {path} has {width} values, and its header {len(header)} names.")
    no_duplicates([name for name in header if name], str(path))
    names = [name or f"Unnamed: {i}" for i, name in enumerate(header)]
    frame = pd.read_csv(
        path,
        sep=separator,
        decimal=decimal,
        header=0,
        names=names,
        dtype={name: str for name in text if name in names},
        encoding="utf-8-sig",
        skipinitialspace=True,
        low_memory=False,
    )
    empty = [
        name for name, given in zip(names, header, strict=True) if not given and frame[name].isna().all()
    ]
    if len(frame):
        frame = frame.drop(columns=empty)  # a separator at the end of each line
    if not header[0] and names[0] in frame and pd.api.types.is_integer_dtype(frame[names[0]]):
        counted = frame[names[0]].to_numpy() - np.arange(len(frame))
        if len(frame) and counted[0] in (0, 1) and (counted == counted[0]).all():
            frame = frame.drop(columns=names[0])
    return frame


def _read_parquet(path: Path) -> pd.DataFrame:
    no_duplicates(pq.read_schema(path).names, str(path))
    frame = pd.read_parquet(path)
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index(drop=frame.index.names == [None])
    return frame.rename(columns=str)


def no_duplicates(names: Sequence[str], source: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{source} has two columns named {name!r}.")
        seen.add(name)


def place(path: Path, row: int) -> str:
    """Where the row at this position stands in its file."""
    if not path.name.lower().endswith(CSV_SUFFIXES):
        return f"{path}, row {row + 1}"
    with _open_text(path) as stream:
        reader = csv.reader(stream, delimiter=_sniff(path)[0], skipinitialspace=True)
        records = (reader.line_num for fields in reader if fields and (len(fields) > 1 or fields[0].strip()))
        for position, line in enumerate(records):
            if position == row + 1:
                return f"{path}, line {line}"
    return f"{path}, row {row + 1}"
