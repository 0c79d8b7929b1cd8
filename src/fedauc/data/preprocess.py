"""Federated preprocessing: from a table's columns to a float32 matrix, by sums that clients send.

No rows are pooled. There are three small exchanges, all counted in bytes by `fit_federated`:

0. each client says of every column whether it holds numbers or text (`propose_schema`); the server
   answers with the common schema (`merge_schemas`). A text column in which a client sees hardly any value
   twice is an identifier: its values never leave a client.
1. each client sends `ClientStatistics`: count, mean, centred sums of squares and cubes, minimum, maximum
   and missing count of a numeric column, and how often each value occurs in a categorical one.
2. the server names the strongly skewed columns, and each client sends the same sums of log(1 + x).

The server then sends the finished `Preprocessor` to all clients. What is sent is in `data/statistics.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import pandas as pd

from fedauc.data.columns import Columns
from fedauc.data.statistics import (
    IDENTIFIER_ROWS,
    IDENTIFIER_SHARE,
    ClientStatistics,
    Counts,
    Groups,
    Levels,
    Moments,
    Schema,
    Sums,
    digits,
    is_skewed,
    merge_statistics,
    numbers,
    size,
    text_codes,
)
from fedauc.errors import InputError, some

OTHER = "(other)"
MISSING = "(missing)"
CLIP = 20.0  # 10 costs 0.004 of AUC on card fraud, where the frauds are the outliers
MAX_LEVELS = 64


# ----------------------------------------------------------------------------- what the server sends back


@dataclass(frozen=True)
class NumericColumn:
    """(log1p of) the value, standardised and clipped; 0 where missing, with an indicator if it ever was."""

    name: str
    mean: float
    std: float  # 0: constant, so that only the indicator is left
    log1p: bool
    indicator: bool
    kind: Literal["numeric"] = "numeric"

    @property
    def outputs(self) -> list[str]:
        return [self.name] * (self.std > 0) + [f"{self.name} {MISSING}"] * self.indicator

    def fill(self, frame: pd.DataFrame, out: np.ndarray) -> None:
        x = numbers(frame, self.name)
        if self.indicator:
            out[:, -1] = np.isnan(x)
        if self.std > 0:
            if self.log1p:
                x = np.log1p(np.maximum(x, 0.0))
            x -= self.mean
            x /= self.std
            np.clip(x, -CLIP, CLIP, out=x)
            x[np.isnan(x)] = 0.0
            out[:, 0] = x


@dataclass(frozen=True)
class CategoricalColumn:
    """One indicator per frequent value, then one for all others and one for missing where they are kept."""

    name: str
    levels: list[str]
    other: bool
    missing: bool
    kind: Literal["categorical"] = "categorical"

    @property
    def outputs(self) -> list[str]:
        levels = [*self.levels, *[OTHER] * self.other, *[MISSING] * self.missing]
        return [f"{self.name}={level}" for level in levels]

    def fill(self, frame: pd.DataFrame, out: np.ndarray) -> None:
        codes, texts = text_codes(frame, self.name)
        position = {level: i for i, level in enumerate(self.levels)}
        unseen = len(self.levels) if self.other else -1
        missing = len(self.levels) + self.other if self.missing else -1
        column = np.array([position.get(text, unseen) for text in texts] + [missing], dtype=np.int32)[codes]
        rows = np.flatnonzero(column >= 0)
        out[rows, column[rows]] = 1.0


Column = NumericColumn | CategoricalColumn


class Preprocessor:
    """Turns feature columns into a float32 matrix; the same for every client and for prediction."""

    def __init__(self, plan: Sequence[Column], notes: Sequence[str] = ()) -> None:
        self.plan = list(plan)
        self.notes = list(notes)

    @classmethod
    def fit(
        cls,
        schema: Schema,
        first: Sequence[ClientStatistics],
        second: Sequence[ClientStatistics] = (),
    ) -> Preprocessor:
        """From the statistics of both rounds; `second` covers `skewed_columns` of the merged `first`."""
        return cls.planned(schema, merge_statistics(first), merge_statistics(second))

    @classmethod
    def planned(cls, schema: Schema, total: ClientStatistics, logs: ClientStatistics) -> Preprocessor:
        """From the clients' statistics added up; `logs` are those of the logarithms."""
        plan: list[Column] = []
        notes: list[str] = []
        for name, kind in schema.items():
            if kind == "numeric":
                log1p = name in logs.numeric
                moments = logs.numeric[name] if log1p else total.numeric[name]
                column: Column | str = _plan_numeric(name, moments, log1p)
            elif kind == "categorical":
                column = _plan_categorical(name, total.categorical[name], total.rows)
            else:
                column = _identifier(name)
            if isinstance(column, str):
                notes.append(column)
            else:
                plan.append(column)
        logged = [c.name for c in plan if isinstance(c, NumericColumn) and c.log1p]
        if logged:
            notes.append(f"The logarithm of 1 + x is taken of the strongly skewed columns {some(logged, 8)}.")
        folded = [c.name for c in plan if isinstance(c, CategoricalColumn) and c.other]
        if folded:
            notes.append(f"Rare values are joined into {OTHER!r} in the columns {some(folded, 8)}.")
        if not plan:
            raise InputError("No feature column is left: " + " ".join(notes))
        return cls(plan, notes)

    @property
    def columns(self) -> list[str]:
        """The table columns that `transform` needs."""
        return [column.name for column in self.plan]

    @property
    def categorical(self) -> list[str]:
        """Those of them that hold text."""
        return [column.name for column in self.plan if isinstance(column, CategoricalColumn)]

    @property
    def feature_names(self) -> list[str]:
        return [name for column in self.plan for name in column.outputs]

    def transform(self, frame: pd.DataFrame) -> np.ndarray:
        """The rows as a float32 matrix with `feature_names` as columns; further columns are ignored."""
        out = np.zeros((len(frame), len(self.feature_names)), dtype=np.float32)
        start = 0
        for column in self.plan:
            end = start + len(column.outputs)
            column.fill(frame, out[:, start:end])
            start = end
        return out

    def to_json(self) -> str:
        message = {"version": 1, "plan": [asdict(column) for column in self.plan], "notes": self.notes}
        return json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Preprocessor:
        try:
            message = json.loads(text)
            kinds = {"numeric": NumericColumn, "categorical": CategoricalColumn}
            return cls([kinds[column["kind"]](**column) for column in message["plan"]], message["notes"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"The stored preprocessor cannot be read: {error!r}.") from error

    @property
    def nbytes(self) -> int:
        """Bytes that travel from the server to one client."""
        return len(self.to_json().encode())


def fit_federated(
    features: Columns, client: np.ndarray, rows: np.ndarray | None = None
) -> tuple[Preprocessor, int, int]:
    """Fit on a table whose rows belong to clients: each client's rows are only ever summarised.

    `client` belongs to `rows`, by default all. Returns the preprocessor and the bytes that all clients
    together sent (up) and received (down). A column is read once and all clients' sums are computed at once,
    so memory grows with a column and not with the table, and a million clients are no million loops.
    """
    if len(client) == 0:
        raise InputError("There are no rows to prepare the features from.")
    groups = Groups.of(client, rows)
    schema: Schema = {}
    total = ClientStatistics(len(client), {}, {})
    logs = ClientStatistics(len(client), {}, {})
    proposals = messages = again = 0
    for name in map(str, features.columns):
        frame = pd.DataFrame({name: features[name]}, copy=False)
        key = size(name) + 1
        if pd.api.types.is_numeric_dtype(frame.dtypes[name]):
            schema[name] = "numeric"
            proposals += groups.clients * (key + size("numeric"))
            values = numbers(frame, name)[groups.rows]
            sums = Sums.of(values, groups)
            total.numeric[name] = sums.total()
            messages += groups.clients * key + sums.nbytes
            if is_skewed(total.numeric[name]):
                sums = Sums.of(np.log1p(values), groups)
                logs.numeric[name] = sums.total()
                again += groups.clients * key + sums.nbytes
        else:
            counts = Counts.of(frame, name, groups)
            schema[name] = counts.kind
            proposals += groups.clients * key + counts.proposal_nbytes
            if counts.kind == "categorical":
                total.categorical[name] = counts.total()
                messages += groups.clients * key + counts.nbytes
    fitted = Preprocessor.planned(schema, total, logs)
    skewed = list(logs.numeric)
    # What is left is the same for every client: braces, commas, names of the parts, and the number of rows.
    empty = size(ClientStatistics(0, {}, {}).to_dict()) - 1
    around = groups.clients * empty + digits(groups.sizes)
    proposals += groups.clients * (2 + len(schema) - 1)
    commas = max(len(total.numeric) - 1, 0) + max(len(total.categorical) - 1, 0)
    up = proposals + messages + around + groups.clients * commas
    if skewed:
        up += again + around + groups.clients * (len(skewed) - 1)
    down = groups.clients * (size(schema) + (size(skewed) if skewed else 0) + fitted.nbytes)
    return fitted, up, down


# ---------------------------------------------------------------------------------------------- details


def _identifier(name: str) -> str:
    return f"The column {name!r} is left out: it looks like an identifier, as hardly any value occurs twice."


def _plan_numeric(name: str, moments: Moments, log1p: bool) -> Column | str:
    if not math.isfinite(moments.m2):
        raise InputError(f"The column {name!r} has values too large to standardise.")
    std = moments.std if moments.low != moments.high else 0.0
    if std == 0 and not (moments.missing and moments.count):
        return f"The column {name!r} is left out: it has the same value in every training row."
    return NumericColumn(name, moments.mean, std, log1p, moments.missing > 0)


def _plan_categorical(name: str, levels: Levels, rows: int) -> Column | str:
    """Values seen often enough get their own indicator, at most 64 with those for others and missing."""
    count = sum(levels.counts.values())
    if len(levels.counts) > max(IDENTIFIER_ROWS, IDENTIFIER_SHARE * count):
        return _identifier(name)
    enough = rare_below(rows)
    frequent = [v for v, c in levels.counts.items() if c >= enough and v not in (OTHER, MISSING)]
    kept = sorted(frequent, key=lambda value: (-levels.counts[value], value))[: MAX_LEVELS - 2]
    other = count - sum(levels.counts[value] for value in kept)
    if not kept or (len(kept) == 1 and other + levels.missing < enough):
        return f"The column {name!r} is left out: it has no two values that occur at least {enough} times."
    return CategoricalColumn(name, sorted(kept), other >= enough, levels.missing > 0)


def rare_below(rows: int) -> int:
    """How often a value must occur to have its own indicator: 10 times or in 0.05 % of the rows, whichever
    is more, and in a table of less than 1,000 rows in 1 % of them (but twice)."""
    return max(min(10, max(2, rows // 100)), math.ceil(rows / 2000))
