"""One column of a table as numbers or as categories.

After cleaning, a column is either numeric (a NumPy dtype, NaN where missing; dates are days since 1970,
booleans are 0 and 1) or categorical (pandas ``category`` of strings, missing as NaN).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd

from fedauc.errors import InputError

MISSING_MARKERS = frozenset([
    "", "NA", "na", "N/A", "n/a", "#N/A", "<NA>", "nan", "NaN", "NAN", "null", "NULL", "None", "NONE",
    "?", "-",
])  # fmt: skip
NUMBER_SHARE = 0.9
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")

UNREAD = {
    "number": (re.compile(r"[-+]?\d+(,\d{3})*,\d+(\.\d+)?"), "1234.5"),
    "date": (
        re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{2}(\d{2})?([ T].*)?|\d{4}([./])\d{1,2}\4\d{1,2}([ T].*)?"),
        "2021-08-18",
    ),
}
"""Text that people write numbers and dates as and that could mean another one, and what is read instead."""

Where = Callable[[int], str]
"""From a row's position to where the user finds it: ``icu.csv, line 12``."""


class Columns(Protocol):
    """What a data frame and a file that is read column by column have in common."""

    @property
    def columns(self) -> Sequence[str] | pd.Index: ...

    def __len__(self) -> int: ...

    def __getitem__(self, name: str, /) -> pd.Series: ...


def as_text(value: Any) -> str:
    """A value as text, the same for 1, 1.0 and '1'."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def clean_column(
    column: pd.Series, where: Where, kind: Literal["numeric", "categorical"] | None = None
) -> np.ndarray | pd.Categorical:
    """One feature column as numbers or as a categorical of strings.

    The kind is found from the values unless given: numeric and boolean types, dates, and text of which
    every value that is not missing is a number or an ISO date are numbers. Text of which at least 90 %
    are numbers or dates is taken for a damaged numeric column: an error that names the first bad value.
    """
    dtype = column.dtype
    if kind != "categorical":
        if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
            return _finite(_plain(column), column.name, where)
        if pd.api.types.is_timedelta64_dtype(dtype):
            return np.asarray(column.dt.total_seconds() / 86400, dtype=np.float64)
        if pd.api.types.is_datetime64_any_dtype(dtype):
            return _days(column)
    try:
        codes, uniques = pd.factorize(column)
    except TypeError as error:
        raise InputError(
            f"The column {column.name!r} ({where(0)}) holds lists or other nested values, which are not "
            f"features; leave it out with --drop {column.name}."
        ) from error
    texts = [as_text(value) for value in np.asarray(uniques, dtype=object)]
    present = np.array([text not in MISSING_MARKERS for text in texts], dtype=bool)
    if kind != "categorical":
        values = _numbers(column.name, codes, texts, present, where, strict=kind == "numeric")
        if values is not None:
            return _finite(values, column.name, where)
    levels = sorted({text for text, there in zip(texts, present, strict=True) if there})
    position = {text: i for i, text in enumerate(levels)}
    lookup = np.array([position.get(text, -1) for text in texts] + [-1], dtype=np.int32)
    return pd.Categorical.from_codes(lookup[codes], categories=pd.Index(levels, dtype=object))


def unread(name: str, values: np.ndarray | pd.Categorical) -> str:
    """What to say where a column's text looks like measurements, written in a way that is not read."""
    if not isinstance(values, pd.Categorical):
        return ""
    for kind, (pattern, instead) in UNREAD.items():
        alike = [text for text in values.categories if pattern.fullmatch(text)]
        if len(alike) >= NUMBER_SHARE * len(values.categories):
            return (
                f"The column {name!r} is taken for text, but {alike[0]!r} looks like a {kind}: write it as"
                f" {instead} if it is one."
            )
    return ""


def _plain(column: pd.Series) -> np.ndarray:
    """A numeric or boolean column with a NumPy dtype: integers stay integers where nothing is missing."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        return column.to_numpy(np.int8) if dtype.kind == "b" else column.to_numpy()
    if column.isna().any() or pd.api.types.is_float_dtype(dtype):
        return column.to_numpy(np.float64, na_value=np.nan)
    if pd.api.types.is_bool_dtype(dtype):
        return column.to_numpy(np.int8)
    return column.to_numpy(np.int64)


def _days(values: Any) -> np.ndarray:
    stamps = pd.DatetimeIndex(pd.to_datetime(values, utc=True, errors="coerce"))
    return np.asarray((stamps - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1), dtype=np.float64)


def _finite(values: np.ndarray, name: Any, where: Where) -> np.ndarray:
    if values.dtype.kind == "f" and len(values):
        infinite = np.isinf(values)
        if infinite.any():
            row = int(np.flatnonzero(infinite)[0])
            raise InputError(f"The column {name!r} has the infinite value {values[row]} at {where(row)}.")
    return values


def _numbers(
    name: Any, codes: np.ndarray, texts: list[str], present: np.ndarray, where: Where, strict: bool
) -> np.ndarray | None:
    """The numbers or days that a text column holds; None where it holds neither.

    `texts` are the distinct values, `codes` say which of them (-1: missing) each row has.
    """
    rows = np.bincount(codes[codes >= 0], minlength=len(texts))
    total = int(rows[present].sum())
    if total == 0:
        return np.full(len(codes), np.nan)
    if {text.lower() for text, there in zip(texts, present, strict=True) if there} <= {"true", "false"}:
        values = np.array([float(text.lower() == "true") for text in texts])
        what = "a number"
    elif (
        sum(rows[i] for i in np.flatnonzero(present) if _ISO_DATE.fullmatch(texts[i])) >= NUMBER_SHARE * total
    ):
        dates = [text if _ISO_DATE.fullmatch(text) else None for text in texts]
        values = _days(
            pd.to_datetime(pd.Series(dates, dtype=object), utc=True, format="ISO8601", errors="coerce")
        )
        what = "a date"
    else:
        values = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(np.float64)
        what = "a number"
    values = np.where(present, values, np.nan)
    bad = present & np.isnan(values)
    good = total - int(rows[bad].sum())
    if bad.any():
        if good < NUMBER_SHARE * total and not strict:
            return None
        row = int(np.flatnonzero(np.append(bad, False)[codes])[0])
        instead = "" if strict else f", or leave the column out with --drop {name}"
        raise InputError(
            f"The column {name!r} has {texts[codes[row]]!r} at {where(row)}, which is not {what} as its "
            f"other values are; correct it{instead}."
        )
    return np.append(values, np.nan)[codes]
