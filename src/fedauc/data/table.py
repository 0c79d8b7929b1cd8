"""A user's table: one file, or one file per client, into features, binary labels and client codes.

Everything a data scientist can get wrong here ends in an `InputError` of one sentence that names the
file, the column, the line (CSV, the header is line 1) or row (Parquet, counted from 1), or the client.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedauc.data.columns import (
    MISSING_MARKERS,
    Columns,
    Where,
    as_text,
    clean_column,
    unread,
)
from fedauc.data.files import (
    ARRAY_SUFFIX,
    ArrayColumns,
    Stacked,
    no_duplicates,
    open_columns,
    place,
    read_frame,
)
from fedauc.errors import InputError, nearest, some

MISSING_CLIENT = "(missing)"
SMALL_CLIENT = "(small)"
ONE_CLIENT = "all"
# Label pairs (negative, positive) that need no --positive, compared in lower case.
KNOWN_LABELS = (
    ("0", "1"), ("-1", "1"), ("false", "true"), ("f", "t"), ("no", "yes"), ("n", "y"),
    ("negative", "positive"), ("neg", "pos"), ("-", "+"), ("absent", "present"),
)  # fmt: skip

SmallClients = Literal["error", "merge", "keep"]
_BY_TIME = re.compile(r"\d{4}([-/._ T:]?(\d{2}|[QH]\d|W\d{2}))*")
"""Text that sorts by time: a year, and what belongs to it, with as many digits everywhere."""


class Cleaned:
    """Feature columns that are read and cleaned when they are asked for."""

    def __init__(self, table: Columns, columns: Sequence[str], source: str, where: Where) -> None:
        self.table, self.columns, self.source, self.where = table, columns, source, where

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, name: str) -> pd.Series:
        return pd.Series(self.values(name), name=name, copy=False)

    def values(self, name: str) -> np.ndarray | pd.Categorical:
        values = clean_column(self.table[name], self.where)
        if pd.isna(values).all():
            raise InputError(
                f"The column {name!r} of {self.source} is empty in every row; "
                f"leave it out with --drop {name}."
            )
        return values


@dataclass(frozen=True, eq=False)
class Table:
    """Features, binary labels and clients of one table, row by row."""

    features: pd.DataFrame | Cleaned
    y: np.ndarray
    client: np.ndarray
    client_names: tuple[str, ...]
    order: pd.Series | None
    positive: str
    source: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: np.ndarray) -> Table:
        """The rows at `index`, in that order; client codes and names stay as they are."""
        order = None if self.order is None else self.order.iloc[index].reset_index(drop=True)
        assert isinstance(self.features, pd.DataFrame)
        features = self.features.iloc[index].reset_index(drop=True)
        return replace(self, features=features, y=self.y[index], client=self.client[index], order=order)


def read_table(
    paths: str | Path | Sequence[str | Path],
    *,
    label: str,
    client: str | None = None,
    positive: str | int | float | None = None,
    drop: Collection[str] = (),
    split_by: str | None = None,
    keep_split_by: bool = False,
    min_rows: int = 2,
    small_clients: SmallClients = "error",
    by_column: bool = False,
    lone_class: bool = False,
) -> Table:
    """Read a labelled table.

    Several files are one file per client, named after the file, unless a `client` column is given; one
    file without a `client` column is a single client. Label, client and `split_by` columns are not
    features (`split_by` is one as well with `keep_split_by`). What happens to a client with fewer than
    `min_rows` rows is for `small_clients` to say: an error, all of them merged into one client, or kept.
    The features of an array (.npy) have their labels, clients and order in .npy files of their own. With
    `by_column` the features are not read yet: each is when it is asked for. With `lone_class`, which needs
    `positive`, the rows may all be of one class: the others are elsewhere.
    """
    files = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not files:
        raise InputError("No data file is given.")
    if files[0].suffix.lower() == ARRAY_SUFFIX:
        frames: Sequence[Columns] = [_array(files, label, client, split_by)]
    else:
        frames = [open_columns(file) if by_column else read_frame(file) for file in files]
    for file, frame in zip(files[1:], frames[1:], strict=True):
        _same_columns(files[0], frames[0], file, frame, drop)
    places = [file.resolve() for file in files]
    if len(set(places)) < len(places):
        twice = next(file for i, file in enumerate(files) if places.index(places[i]) < i)
        raise InputError(f"The file {twice} is given twice: its rows would be in training and in the test.")
    names = _client_names(files) if len(files) > 1 and client is None else None
    starts = np.cumsum([0] + [len(frame) for frame in frames])
    members = None if names is None else pd.Series(np.repeat(np.array(names, dtype=object), np.diff(starts)))

    def where(row: int) -> str:
        which = int(np.searchsorted(starts, row, side="right")) - 1
        return place(files[which], row - int(starts[which]))

    shown = [str(file) for file in files[:3]] + ([f"{len(files) - 3} more"] if len(files) > 3 else [])
    return _build(
        frames[0] if len(frames) == 1 else Stacked(frames),
        members=members,
        by_column=by_column,
        lone_class=lone_class,
        source=", ".join(shown),
        where=where,
        label=label,
        client=client,
        positive=positive,
        drop=drop,
        split_by=split_by,
        keep_split_by=keep_split_by,
        min_rows=min_rows,
        small_clients=small_clients,
    )


def from_frame(
    frame: pd.DataFrame,
    *,
    label: str,
    client: str | None = None,
    positive: str | int | float | None = None,
    drop: Collection[str] = (),
    split_by: str | None = None,
    keep_split_by: bool = False,
    min_rows: int = 2,
    small_clients: SmallClients = "error",
    source: str = "the table",
) -> Table:
    """The same as `read_table` for a data frame that is already in memory."""
    frame = frame.reset_index(drop=True).rename(columns=str)
    no_duplicates(list(frame.columns), source)
    if frame.empty:
        raise InputError(f"{source} has no rows.")
    return _build(
        frame,
        members=None,
        by_column=False,
        lone_class=False,
        source=source,
        where=lambda row: f"{source}, row {row + 1}",
        label=label,
        client=client,
        positive=positive,
        drop=drop,
        split_by=split_by,
        keep_split_by=keep_split_by,
        min_rows=min_rows,
        small_clients=small_clients,
    )


def read_features(
    path: str | Path, columns: Sequence[str], *, categorical: Collection[str] | None = None
) -> pd.DataFrame:
    """The feature columns of a file to predict on: no label needed, other columns are ignored.

    With `categorical` (what the fitted preprocessor says) these columns are read as text and each of the
    others must hold numbers; without it the kinds are found from the values as in `read_table`.
    """
    frame = read_frame(path, text=categorical or ())
    for name in columns:
        _column(frame, name, str(path), "feature column")

    def kind(name: str) -> Literal["numeric", "categorical"] | None:
        return None if categorical is None else "categorical" if name in categorical else "numeric"

    cleaned = {
        name: clean_column(frame[name], lambda row: place(Path(path), row), kind(name)) for name in columns
    }
    return pd.DataFrame(cleaned, index=frame.index, copy=False)


def _array(files: Sequence[Path], label: str, client: str | None, split_by: str | None) -> ArrayColumns:
    """An array with what belongs to it."""
    if len(files) > 1:
        raise InputError(
            f"{files[0]} is an array, and only one can be given: {files[1]} is one file too many."
        )
    for role, name in (("label", label), ("client", client), ("split-by", split_by)):
        if name is not None and not name.lower().endswith(ARRAY_SUFFIX):
            raise InputError(
                f"{files[0]} is an array without named columns: --{role} takes a .npy file with one value per"
                f" row, not {name!r}."
            )
    return ArrayColumns(files[0], [name for name in (label, client, split_by) if name is not None])


def _same_columns(first: Path, frame: Columns, file: Path, other: Columns, drop: Collection[str]) -> None:
    for one, two, has, lacks in ((frame, other, first, file), (other, frame, file, first)):
        extra = [name for name in one.columns if name not in set(two.columns) | set(drop)]
        if extra:
            raise InputError(
                f"{lacks} has no column {extra[0]!r}, which {has} has; all files need the same columns."
            )


def _client_names(files: Sequence[Path]) -> list[str]:
    """One name per file: its stem, or folder/stem where the stems alone are not distinct."""
    stems = [re.sub(r"\.(csv|tsv)$", "", file.stem, flags=re.IGNORECASE) for file in files]
    if len(set(stems)) < len(stems):
        stems = [f"{file.absolute().parent.name}/{stem}" for file, stem in zip(files, stems, strict=True)]
    for position, stem in enumerate(stems):
        if stem in stems[:position]:
            raise InputError(
                f"The files {files[stems.index(stem)]} and {files[position]} are both the client {stem!r}."
            )
    return stems


def _build(
    frame: Columns,
    *,
    members: pd.Series | None,
    by_column: bool,
    lone_class: bool,
    source: str,
    where: Where,
    label: str,
    client: str | None,
    positive: str | int | float | None,
    drop: Collection[str],
    split_by: str | None,
    keep_split_by: bool,
    min_rows: int,
    small_clients: SmallClients,
) -> Table:
    roles = {"label column": label, "client column": client, "split-by column": split_by}
    for role, name in roles.items():
        if name is not None:
            _column(frame, name, source, role)
            if name in drop:
                raise InputError(f"The column {name!r} is the {role} and cannot be dropped.")
    for one, two in (("client", client), ("split-by", split_by)):
        if two == label:
            raise InputError(f"The column {label!r} is given as both the label and the {one} column.")
    for name in drop:
        _column(frame, name, source, "column to drop")

    y, positive_text = _labels(frame[label], positive, source, where, lone_class)
    if client is not None:
        members = frame[client]
    if members is None:
        members = pd.Series(np.full(len(frame), ONE_CLIENT, dtype=object))
    codes, names = _clients(members)
    notes = _odd_clients(codes, names, client)
    codes, names, joined = _small_clients(codes, names, min_rows, small_clients, source)
    notes += joined
    order = None if split_by is None else _order(frame[split_by], where)

    kept_out = {label, client, *drop} | (set() if keep_split_by else {split_by})
    left = [str(name) for name in frame.columns if name not in kept_out]
    if not left:
        raise InputError(
            f"{source} has no feature column left beside the columns {_listed(kept_out - {None})}."
        )
    features = Cleaned(frame, left, source, where)
    if by_column:
        return Table(features, y, codes, names, order, positive_text, source, tuple(notes))
    cleaned = {name: features.values(name) for name in left}
    notes += [note for name, values in cleaned.items() if (note := unread(name, values))]
    table = pd.DataFrame(cleaned, index=pd.RangeIndex(len(frame)), copy=False)
    return Table(table, y, codes, names, order, positive_text, source, tuple(notes))


def _column(frame: Columns, name: str, source: str, role: str) -> None:
    if name not in frame.columns:
        raise InputError(f"{source} has no column {name!r}, the {role}.{nearest(name, frame.columns)}")


def _listed(values: Collection[Any], most: int = 6) -> str:
    texts = [repr(str(value)) for value in list(values)[:most]]
    if len(values) > most:
        texts.append(f"{len(values) - most} more")
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def natural(text: str) -> tuple[bool, int, str]:
    """Sorts names: whole numbers by their size, before everything else."""
    number = re.fullmatch(r"-?\d+", text) is not None
    return (not number, int(text) if number else 0, text)


def _labels(
    column: pd.Series, positive: str | int | float | None, source: str, where: Where, lone_class: bool
) -> tuple[np.ndarray, str]:
    """Labels as 0 and 1, and the text of the value that is 1."""
    codes, uniques = pd.factorize(column)
    texts = [as_text(value) for value in np.asarray(uniques, dtype=object)]
    gone = np.array([text in MISSING_MARKERS and text != "-" for text in texts] + [True])[codes]
    if gone.any():
        first = where(int(np.flatnonzero(gone)[0]))
        raise InputError(
            f"The label column {column.name!r} of {source} is empty in {int(gone.sum())} of {len(gone)} "
            f"rows, the first at {first}; fill these in or leave the rows out."
        )
    values = sorted(set(texts), key=natural)
    if positive is not None:
        chosen = _positive(as_text(positive), values, column.name, source, lone_class)
    elif len(values) != 2:
        raise InputError(
            f"The label column {column.name!r} of {source} has {len(values)} value{'s' * (len(values) > 1)}, "
            f"{_listed(values)}, and two are needed; --positive VALUE makes every other value negative."
        )
    else:
        known = {text.lower(): text for text in values}
        pair = next((pair for pair in KNOWN_LABELS if set(pair) == set(known)), None)
        if pair is None:
            raise InputError(
                f"The label column {column.name!r} of {source} has the values {_listed(values)}; say which "
                "one is the event to be found with --positive VALUE."
            )
        chosen = known[pair[1]]
    y = np.array([text == chosen for text in texts], dtype=np.int8)[codes]
    if y.all() and not lone_class:
        raise InputError(f"Every row of {source} has the label {chosen!r} in the column {column.name!r}.")
    return y, chosen


def _positive(wanted: str, values: list[str], name: Any, source: str, may_be_absent: bool) -> str:
    def number(text: str) -> float | None:
        try:
            return float(text)
        except ValueError:
            return None

    exact = [value for value in values if value == wanted]
    same = exact or [
        value for value in values if number(value) is not None and number(value) == number(wanted)
    ]
    same = same or [value for value in values if value.lower() == wanted.lower()]
    if not same and may_be_absent:
        return wanted
    if len(same) != 1:
        raise InputError(
            f"The label column {name!r} of {source} has no value {wanted!r}, given as the positive one; "
            f"its values are {_listed(values)}."
        )
    return same[0]


def _clients(column: pd.Series) -> tuple[np.ndarray, tuple[str, ...]]:
    codes, uniques = pd.factorize(column)
    texts = [as_text(value) or MISSING_CLIENT for value in np.asarray(uniques, dtype=object)] + [
        MISSING_CLIENT
    ]
    used = texts if (codes < 0).any() else texts[:-1]
    names = sorted(set(used), key=natural)
    position = {name: i for i, name in enumerate(names)}
    lookup = np.array([position.get(text, -1) for text in texts], dtype=np.int64)
    return lookup[codes], tuple(names)


def _odd_clients(codes: np.ndarray, names: tuple[str, ...], column: str | None) -> list[str]:
    """Clients that may not be what the user takes them for."""
    notes = []
    if column is not None and MISSING_CLIENT in names:
        rows = int((codes == names.index(MISSING_CLIENT)).sum())
        notes.append(f"{rows} rows have no value in {column!r}: they are a client of their own, '(missing)'.")
    plain: dict[str, str] = {}
    first = ((plain.setdefault(" ".join(name.lower().split()), name), name) for name in names)
    if pairs := [f"{one!r} and {other!r}" for one, other in first if one != other]:
        notes.append(f"Clients whose names differ in case or spaces only are two: {some(pairs, 3)}.")
    return notes


def _small_clients(
    codes: np.ndarray, names: tuple[str, ...], min_rows: int, what: SmallClients, source: str
) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
    if what not in ("error", "merge", "keep"):
        raise InputError(f"data.small_clients is {what!r} and must be one of error, merge and keep.")
    rows = np.bincount(codes, minlength=len(names))
    by_size = np.argsort(rows, kind="stable")
    small = int((rows < min_rows).sum())
    if small == 0 or what == "keep":
        return codes, names, []
    if what == "error":
        more = f" (and {small - 1} more client{'s' * (small > 2)} fewer than {min_rows})" if small > 1 else ""
        count = int(rows[by_size[0]])
        raise InputError(
            f"The client {names[by_size[0]]!r} of {source} has only {count} row{'s' * (count > 1)}{more}; "
            "join such clients into one with --set data.small_clients=merge, or keep them as they are with "
            "--set data.small_clients=keep."
        )
    while small < len(names) and rows[by_size[:small]].sum() < min_rows:
        small += 1
    merged = set(by_size[:small].tolist())
    kept = [name for i, name in enumerate(names) if i not in merged] + [SMALL_CLIENT]
    stays = np.array([i not in merged for i in range(len(names))])
    lookup = np.where(stays, np.cumsum(stays) - 1, len(kept) - 1)
    note = f"{small} clients with few rows are joined into the client {SMALL_CLIENT!r}."
    return lookup[codes], tuple(kept), [note]


def _order(column: pd.Series, where: Where) -> pd.Series:
    values = clean_column(column, where)
    gone = pd.isna(values)
    if gone.any():
        first = where(int(np.flatnonzero(gone)[0]))
        raise InputError(
            f"The split-by column {column.name!r} is empty in {int(gone.sum())} rows, the first at {first}."
        )
    if not isinstance(values, pd.Categorical):
        return pd.Series(values, name=column.name)
    if unordered := next((text for text in values.categories if not _BY_TIME.fullmatch(text)), None):
        raise InputError(
            f"The split-by column {column.name!r} holds text as {unordered!r}, which has no order in time: it"
            " needs numbers, or dates as 2021-08-18."
        )
    return pd.Series(np.asarray(values, dtype=object), name=column.name)
