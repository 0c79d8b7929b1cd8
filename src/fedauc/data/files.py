"""CSV, Parquet and NumPy files as data frames or column by column, and where in a file a row stands."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedauc.data.columns import Columns
from fedauc.errors import InputError

CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_SUFFIXES = (".parquet", ".pq")
ARRAY_SUFFIX = ".npy"
AT_ONCE = 2**18
"""Rows of an array that are looked at together."""
_PACKED = "{} holds packed arrays (.npz), which cannot be mapped: save the rows with numpy.save as .npy."
MANY = 2**20
"""Rows from which on a Parquet file is read column by column, even where all of it is kept."""


def read_frame(path: str | Path, *, text: Collection[str] = ()) -> pd.DataFrame:
    """The table in one CSV (``,`` ``;`` or tab separated, also gzipped), Parquet or .npy file, as it stands.

    Columns named in `text` keep their exact text (a CSV's ``007`` stays ``007``). An unnamed first
    column that only counts the rows, as pandas and R write it, is left out. The columns of an array are
    x0, x1 and so on.
    """
    path = Path(path)
    name = path.name.lower()
    with _reading(path):
        if name.endswith(CSV_SUFFIXES):
            frame = _read_csv(path, text)
        elif name.endswith(PARQUET_SUFFIXES):
            frame = _read_parquet(path)
        else:
            array = ArrayColumns(path)
            frame = pd.DataFrame({column: array[column] for column in array.columns}, copy=False)
    if frame.empty:
        raise InputError(f"The file {path} has no rows.")
    return frame


def open_columns(path: str | Path) -> Columns:
    """The same table, of which a column is read when it is asked for; a CSV file is read as a whole."""
    path = Path(path)
    if path.name.lower().endswith(CSV_SUFFIXES):
        return read_frame(path)
    with _reading(path):
        table = ParquetColumns(path) if path.name.lower().endswith(PARQUET_SUFFIXES) else ArrayColumns(path)
    if len(table) == 0:
        raise InputError(f"The file {path} has no rows.")
    return table


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file is said in one sentence that names it."""
    if not path.exists():
        raise InputError(f"The file {path} does not exist.")
    if path.is_dir():
        raise InputError(f"{path} is a folder, and a CSV or Parquet file is needed.")
    if path.suffix.lower() == ".npz":
        raise InputError(_PACKED.format(path))
    if not path.name.lower().endswith(CSV_SUFFIXES + PARQUET_SUFFIXES + (ARRAY_SUFFIX,)):
        kinds = ", ".join((*CSV_SUFFIXES, *PARQUET_SUFFIXES, ARRAY_SUFFIX))
        raise InputError(f"The file {path} has a suffix that is not one of {kinds}.")
    try:
        if path.stat().st_size == 0:
            raise InputError(f"The file {path} is empty.")
        yield
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(
            f"The file {path} is not UTF-8 text: {error.reason} at byte {error.start}."
        ) from error
    except (OSError, EOFError, zlib.error, csv.Error, pa.ArrowException, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise InputError(f"The file {path} cannot be read: {reason}.") from error


class ParquetColumns:
    """The columns of a Parquet file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        schema = pq.read_schema(path)
        no_duplicates(schema.names, str(path))
        self.columns = list(_plain_index(schema.empty_table().to_pandas()).columns)
        self._rows: int = pq.read_metadata(path).num_rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, name: str) -> pd.Series:
        with _reading(self.path):
            column = _plain_index(pd.read_parquet(self.path, columns=[name]))[name]
        pa.default_memory_pool().release_unused()  # Arrow would keep what it held for reading
        return column


class ArrayColumns:
    """The columns x0, x1, … of an array in a .npy file; further columns may stand in files of their own."""

    def __init__(self, path: Path, beside: Sequence[str] = ()) -> None:
        self.path = path
        with _reading(path):
            array = _array(path)
        if array.ndim != 2:
            raise InputError(f"{path} has shape {list(array.shape)}, and [rows, features] is needed.")
        self.dtype, self.shape, self.offset = array.dtype, array.shape, array.offset
        self.by_column = not array.flags.c_contiguous
        self.position = {f"x{i}": i for i in range(self.shape[1])}
        self.beside = {name: Path(name) for name in beside}
        for name, file in self.beside.items():
            with _reading(file):
                shape = _array(file).shape
            if shape not in ((len(self),), (len(self), 1)):
                raise InputError(
                    f"{name} has shape {list(shape)}, and one value for each of the {len(self)} rows "
                    f"of {path} is needed."
                )
        self.columns = [*self.beside, *self.position]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, name: str) -> pd.Series:
        if name in self.beside:
            with _reading(self.beside[name]):
                return pd.Series(np.array(_array(self.beside[name])).reshape(-1), name=name)
        with _reading(self.path):
            return pd.Series(self._read(self.position[name]), name=name, copy=False)

    def _read(self, column: int) -> np.ndarray:
        """A part at a time, so that the process never holds more of the file than that."""
        rows, columns = self.shape
        if self.by_column:
            at = self.offset + column * rows * self.dtype.itemsize
            return np.fromfile(self.path, self.dtype, count=rows, offset=at)
        values = np.empty(rows, dtype=self.dtype)
        for start in range(0, rows, AT_ONCE):
            at = self.offset + start * columns * self.dtype.itemsize
            shape = (min(AT_ONCE, rows - start), columns)
            part = np.memmap(self.path, self.dtype, "r", offset=at, shape=shape)
            values[start : start + AT_ONCE] = part[:, column]
        return values


def _array(path: Path) -> np.memmap:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.memmap):  # an .npz by its content
        raise InputError(_PACKED.format(path))
    if array.dtype.kind not in "biuf" and array.ndim > 1:
        raise InputError(f"{path} holds {array.dtype} values, and numbers are needed.")
    return array


class Stacked:
    """Tables with the same columns, one under the other."""

    def __init__(self, tables: Sequence[Columns]) -> None:
        self.tables = tables
        self.columns = list(dict.fromkeys(name for table in tables for name in table.columns))

    def __len__(self) -> int:
        return sum(map(len, self.tables))

    def __getitem__(self, name: str) -> pd.Series:
        return pd.concat([table[name] for table in self.tables], ignore_index=True)


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
    if pq.read_metadata(path).num_rows < MANY:
        return _plain_index(pd.read_parquet(path))
    table = ParquetColumns(path)  # as a whole it would be held two or three times
    return pd.DataFrame({name: table[name] for name in table.columns}, copy=False)


def _plain_index(frame: pd.DataFrame) -> pd.DataFrame:
    """With the index, where it holds anything, as columns."""
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
    if path.suffix.lower() == ".npz":
        raise InputError(_PACKED.format(path))
    if not path.name.lower().endswith(CSV_SUFFIXES):
        return f"{path}, row {row + 1}"
    with _open_text(path) as stream:
        reader = csv.reader(stream, delimiter=_sniff(path)[0], skipinitialspace=True)
        records = (reader.line_num for fields in reader if fields and (len(fields) > 1 or fields[0].strip()))
        for position, line in enumerate(records):
            if position == row + 1:
                return f"{path}, line {line}"
    return f"{path}, row {row + 1}"
