"""What clients say about the columns of their rows: kinds, sums and counts, from which all is prepared.

`Moments` and `Levels` are one column of one client's message, `ClientStatistics` is the message. `Sums` and
`Counts` are the same of all clients at once, to the last bit, for where all of them are simulated here.

Sums of squares and cubes are centred at the client's own mean and moved to the common mean when they are
added (Chan, Golub and LeVeque), which loses no digits as raw power sums would. They are added with exactly
rounded `math.fsum`, so the order of the clients does not change a bit of the result.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedauc.data.columns import Columns, as_text
from fedauc.errors import InputError, nearest

Kind = Literal["numeric", "unsure", "identifier", "categorical"]
Schema = dict[str, Kind]
KINDS: tuple[Kind, ...] = ("numeric", "unsure", "identifier", "categorical")

SKEWNESS = 3.0
IDENTIFIER_SHARE = 0.9
IDENTIFIER_ROWS = 20
SLAB = 2**20  # values of which moments are computed at once, where clients have few


def size(message: Any) -> int:
    """Bytes of a message as it travels: compact JSON in UTF-8."""
    return len(json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode())


# --------------------------------------------------------------------------------- what a client sends


@dataclass(frozen=True)
class Moments:
    """Sums of one numeric column: `m2` and `m3` are sums of (x - mean)² and (x - mean)³."""

    count: int = 0
    missing: int = 0
    mean: float = 0.0
    m2: float = 0.0
    m3: float = 0.0
    low: float | None = None
    high: float | None = None

    @staticmethod
    def of(values: np.ndarray) -> Moments:
        x = values[~np.isnan(values)]
        missing = len(values) - len(x)
        if not len(x):
            return Moments(missing=missing)
        low, high = float(x.min()), float(x.max())
        mean = low if low == high else min(max(float(x.mean()), low), high)
        d = x - mean
        square = d * d
        return Moments(len(x), missing, mean, float(square.sum()), float((square * d).sum()), low, high)

    @staticmethod
    def total(parts: Sequence[Moments]) -> Moments:
        """All parts added up, the same for any order of the parts."""
        missing = sum(part.missing for part in parts)
        seen = [part for part in parts if part.count]
        if len(seen) <= 1:
            return Moments(**{**asdict(seen[0] if seen else Moments()), "missing": missing})
        count = sum(part.count for part in seen)
        mean = math.fsum(part.count * part.mean for part in seen) / count
        shift = [part.mean - mean for part in seen]
        m2 = math.fsum(p.m2 + p.count * d * d for p, d in zip(seen, shift, strict=True))
        m3 = math.fsum(p.m3 + 3 * d * p.m2 + p.count * d**3 for p, d in zip(seen, shift, strict=True))
        low = min(part.low for part in seen if part.low is not None)
        high = max(part.high for part in seen if part.high is not None)
        return Moments(count, missing, mean, m2, m3, low, high)

    @property
    def std(self) -> float:
        return math.sqrt(max(self.m2, 0.0) / self.count) if self.count else 0.0

    @property
    def skewness(self) -> float:
        return self.m3 / self.count / self.std**3 if self.std > 0 else 0.0


@dataclass(frozen=True)
class Levels:
    """How often each value of one categorical column occurs, and how often it is missing."""

    counts: dict[str, int] = field(default_factory=dict)
    missing: int = 0

    @staticmethod
    def total(parts: Sequence[Levels]) -> Levels:
        counts: Counter[str] = Counter()
        for part in parts:
            counts.update(part.counts)
        return Levels(dict(sorted(counts.items())), sum(part.missing for part in parts))


@dataclass(frozen=True)
class ClientStatistics:
    """What one client sends, or what the server has added up so far."""

    rows: int
    numeric: dict[str, Moments]
    categorical: dict[str, Levels]

    def merge(self, other: ClientStatistics) -> ClientStatistics:
        return merge_statistics([self, other])

    def to_dict(self) -> dict[str, Any]:
        """The message for JSON; a column's sums are a list in the order of their fields."""
        numeric = {name: list(astuple(value)) for name, value in self.numeric.items()}
        categorical = {name: [value.counts, value.missing] for name, value in self.categorical.items()}
        return {"rows": self.rows, "numeric": numeric, "categorical": categorical}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> ClientStatistics:
        numeric = {name: Moments(*value) for name, value in message["numeric"].items()}
        categorical = {name: Levels(*value) for name, value in message["categorical"].items()}
        return cls(message["rows"], numeric, categorical)

    @property
    def nbytes(self) -> int:
        """Bytes that travel from the client to the server."""
        return size(self.to_dict())


def propose_schema(frame: pd.DataFrame) -> Schema:
    """What one client takes its columns for; with few rows it is `unsure` whether text is an identifier."""
    schema: Schema = {}
    for name, dtype in frame.dtypes.items():
        if pd.api.types.is_numeric_dtype(dtype):
            schema[str(name)] = "numeric"
            continue
        codes, _ = text_codes(frame, str(name))
        seen = codes[codes >= 0]
        if len(seen) < IDENTIFIER_ROWS:
            schema[str(name)] = "unsure"
        else:
            distinct = len(np.unique(seen))
            schema[str(name)] = "identifier" if distinct > IDENTIFIER_SHARE * len(seen) else "categorical"
    return schema


def merge_schemas(schemas: Iterable[Schema]) -> Schema:
    """One schema for all: text wins over numbers, and a repeated value over the look of an identifier."""
    rank: dict[str, int] = {}
    for schema in schemas:
        for name, kind in schema.items():
            rank[name] = max(rank.get(name, 0), KINDS.index(kind))
    return {name: "categorical" if KINDS[k] == "unsure" else KINDS[k] for name, k in rank.items()}


def summarise(frame: pd.DataFrame, schema: Schema, *, log1p: bool = False) -> ClientStatistics:
    """The statistics of one client's rows; with `log1p`, of log(1 + x) of numeric columns (second round)."""
    numeric, categorical = {}, {}
    for name, kind in schema.items():
        if kind == "numeric":
            values = numbers(frame, name)
            numeric[name] = Moments.of(np.log1p(values) if log1p else values)
        elif kind == "categorical":
            codes, texts = text_codes(frame, name)
            rows = np.bincount(codes[codes >= 0], minlength=len(texts))
            counts: Counter[str] = Counter()
            for text, count in zip(texts, rows.tolist(), strict=True):
                if count:
                    counts[text] += count
            categorical[name] = Levels(dict(sorted(counts.items())), int((codes < 0).sum()))
    return ClientStatistics(len(frame), numeric, categorical)


def merge_statistics(parts: Sequence[ClientStatistics]) -> ClientStatistics:
    """The sum of the clients' statistics, the same for any order of the clients."""
    names = list(dict.fromkeys(name for part in parts for name in part.numeric))
    texts = list(dict.fromkeys(name for part in parts for name in part.categorical))
    return ClientStatistics(
        sum(part.rows for part in parts),
        {
            name: Moments.total([part.numeric[name] for part in parts if name in part.numeric])
            for name in names
        },
        {name: Levels.total([p.categorical[name] for p in parts if name in p.categorical]) for name in texts},
    )


def is_skewed(m: Moments) -> bool:
    """Whether a column takes the logarithm: none negative, skewness above 3, reaching beyond 1."""
    return m.low is not None and m.high is not None and m.low >= 0 and m.high > 1 and m.skewness > SKEWNESS


def skewed_columns(total: ClientStatistics) -> list[str]:
    """Numeric columns that take the logarithm."""
    return [name for name, m in total.numeric.items() if is_skewed(m)]


# --------------------------------------------------------------- what all clients send, computed at once


@dataclass(frozen=True)
class Groups:
    """Rows sorted by client, and how many each client has."""

    rows: np.ndarray
    sizes: np.ndarray

    @staticmethod
    def of(client: np.ndarray, rows: np.ndarray | None = None) -> Groups:
        order = np.argsort(client, kind="stable")
        edges = np.flatnonzero(np.diff(client[order], prepend=-1, append=-1))
        return Groups(order if rows is None else rows[order], np.diff(edges))

    @property
    def clients(self) -> int:
        return len(self.sizes)

    def owner(self) -> np.ndarray:
        """Which client each of the sorted rows belongs to, numbered from 0."""
        return np.repeat(np.arange(self.clients), self.sizes)


@dataclass(frozen=True)
class Sums:
    """`Moments` of every client: arrays [clients]."""

    count: np.ndarray
    missing: np.ndarray
    mean: np.ndarray
    m2: np.ndarray
    m3: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @staticmethod
    def of(values: np.ndarray, groups: Groups) -> Sums:
        """To the last bit what `Moments.of` says of every client: those with equally many values form a
        matrix, of which NumPy adds up a row as it does a vector."""
        gone = np.isnan(values)
        missing = np.zeros(groups.clients, dtype=np.int64)
        if gone.any():
            missing = np.bincount(groups.owner()[gone], minlength=groups.clients)
            values = values[~gone]
        count = groups.sizes - missing
        start = np.cumsum(count) - count
        found = np.zeros((5, groups.clients))
        for n in np.unique(count[count > 0]).tolist():
            same = np.flatnonzero(count == n)
            for few in np.array_split(same, max(1, len(same) * n // SLAB)):
                if len(few) == 1:
                    x = values[start[few[0]] : start[few[0]] + n][None]
                else:
                    x = values[start[few][:, None] + np.arange(n)]
                low, high = x.min(axis=1), x.max(axis=1)
                mean = np.where(low == high, low, np.minimum(np.maximum(x.mean(axis=1), low), high))
                d = x - mean[:, None]
                square = d * d
                m2 = square.sum(axis=1)
                square *= d
                found[:, few] = mean, m2, square.sum(axis=1), low, high
        return Sums(count, missing, *found)

    def total(self) -> Moments:
        """`Moments.total` of all clients."""
        missing, seen = int(self.missing.sum()), self.count > 0
        count, mean, m2, m3, low, high = (
            values[seen] for values in (self.count, self.mean, self.m2, self.m3, self.low, self.high)
        )
        if len(count) == 0:
            return Moments(missing=missing)
        if len(count) == 1:
            parts = (float(values[0]) for values in (mean, m2, m3, low, high))
            return Moments(int(count[0]), missing, *parts)
        rows = int(count.sum())
        centre = math.fsum((count * mean).tolist()) / rows
        d = mean - centre
        cubes = np.array([shift**3 for shift in d.tolist()])
        return Moments(
            rows,
            missing,
            centre,
            math.fsum((m2 + count * d * d).tolist()),
            math.fsum((m3 + 3 * d * m2 + count * cubes).tolist()),
            float(low.min()),
            float(high.max()),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all clients' lists."""
        empty = int((self.count == 0).sum())
        floats = sum(digits(values) for values in (self.mean, self.m2, self.m3))
        ends = sum(digits(values[self.count > 0]) for values in (self.low, self.high))
        return 8 * len(self.count) + digits(self.count) + digits(self.missing) + floats + ends + 8 * empty


@dataclass(frozen=True)
class Counts:
    """`Levels` of every client: how often which of them has which text."""

    kind: Kind
    proposal_nbytes: int
    """Bytes of all clients' words for what they take the column for."""
    texts: list[str]
    missing: np.ndarray
    client: np.ndarray
    text: np.ndarray
    count: np.ndarray

    @staticmethod
    def of(frame: pd.DataFrame, name: str, groups: Groups) -> Counts:
        codes, texts = text_codes(frame, name)
        codes = codes[groups.rows]
        there = codes >= 0
        owner = groups.owner()[there]
        seen = np.bincount(owner, minlength=groups.clients)
        client, text, count = _pairs(owner, codes[there], len(texts))
        distinct = np.bincount(client, minlength=groups.clients)
        own = np.where(distinct > IDENTIFIER_SHARE * seen, 2, 3)
        own[seen < IDENTIFIER_ROWS] = 1
        words = sum(int((own == k).sum()) * size(kind) for k, kind in enumerate(KINDS))
        kind = merge_schemas([{name: KINDS[k]} for k in np.unique(own)])[name]
        different = list(dict.fromkeys(texts))
        if len(different) < len(texts):  # 1 and "1" are two values and one text
            position = {value: i for i, value in enumerate(different)}
            one = np.array([position[value] for value in texts])
            client, text, count = _pairs(owner, one[codes[there]], len(different))
        return Counts(kind, words, different, groups.sizes - seen, client, text, count)

    def total(self) -> Levels:
        rows = np.zeros(len(self.texts), dtype=np.int64)
        np.add.at(rows, self.text, self.count)
        found = {text: n for text, n in zip(self.texts, rows.tolist(), strict=True) if n}
        return Levels(dict(sorted(found.items())), int(self.missing.sum()))

    @property
    def nbytes(self) -> int:
        """Bytes of all clients' lists."""
        length = np.array([size(text) for text in self.texts], dtype=np.int64)
        entries = int(length[self.text].sum()) + len(self.text) + digits(self.count)
        commas = len(self.text) - len(np.unique(self.client))
        return 5 * len(self.missing) + entries + commas + digits(self.missing)


def _pairs(owner: np.ndarray, code: np.ndarray, codes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs of owner and code that occur, and how often."""
    pairs, count = np.unique(owner * max(codes, 1) + code, return_counts=True)
    return pairs // max(codes, 1), pairs % max(codes, 1), count


def digits(values: np.ndarray) -> int:
    """Bytes of numbers in JSON, without what stands between them."""
    return len(json.dumps(values.tolist(), separators=("", ":"))) - 2


# ------------------------------------------------------------------------------------------- reading columns


def column_of(frame: Columns, name: str) -> pd.Series:
    """A column that must be there."""
    if name not in frame.columns:
        raise InputError(f"The feature column {name!r} is missing.{nearest(name, map(str, frame.columns))}")
    return frame[name]


def numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    """A fresh float64 array, NaN where missing."""
    column = column_of(frame, name)
    try:
        if isinstance(column.dtype, np.dtype):
            return column.to_numpy().astype(np.float64)
        return column.to_numpy(np.float64, na_value=np.nan, copy=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"The feature column {name!r} must hold numbers: {error}.") from error


def text_codes(frame: pd.DataFrame, name: str) -> tuple[np.ndarray, list[str]]:
    """Codes (-1: missing) and the distinct values that occur, as text."""
    column = column_of(frame, name)
    codes: np.ndarray
    if not isinstance(column.dtype, pd.CategoricalDtype):
        codes, values = pd.factorize(column)
        return codes, [as_text(value) for value in np.asarray(values, dtype=object)]
    codes, values = column.cat.codes.to_numpy(), column.cat.categories
    used = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(values)))
    lookup = np.full(len(values) + 1, -1, dtype=np.int32)
    lookup[used] = np.arange(len(used))
    return lookup[codes], [as_text(value) for value in np.asarray(values[used], dtype=object)]
