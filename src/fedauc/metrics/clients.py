"""The AUC of every client's own test rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedauc.metrics._inputs import Array, Values, as_positive, as_scores, as_vector


def _codes(clients: Values, names: Sequence[str], rows: int) -> Array:
    """The position in ``names`` of every row's client."""
    given = as_vector(clients, "clients")
    if given.size != rows:
        raise ValueError(f"There are {rows} scores but {given.size} clients.")
    index = pd.Index(list(names), dtype=object)
    if not index.is_unique:
        raise ValueError(f"The client name {index[index.duplicated()][0]!r} is given twice.")
    if given.size == 0:
        return np.zeros(0, dtype=np.int64)
    if given.dtype.kind in "iu":
        bad = (given < 0) | (given >= len(names))
        codes = given
    else:
        codes = index.get_indexer(pd.Index(given, dtype=object))
        bad = codes < 0
    if bad.any():
        raise ValueError(f"Client {given[bad][0]!s} is not among the {len(names)} client names.")
    return codes.astype(np.int64)


def per_client(scores: Values, labels: Values, clients: Values, names: Sequence[str]) -> list[dict[str, Any]]:
    """One row per client name, in order: client, rows, positives, auc (or None) and why it is None.

    ``clients`` holds each row's client, as a position in ``names`` or as the name itself. All rows are
    sorted once by (client, score); pairs are counted in integers, so each AUC is what ``auc`` gives.
    """
    values = as_scores(scores)
    positive = as_positive(labels, values.size)
    codes = _codes(clients, names, values.size)

    order = np.lexsort((values, codes))
    code, value, hit = codes[order], values[order], positive[order]
    negatives_before = np.concatenate(([0], np.cumsum(~hit)))
    starts = np.searchsorted(code, np.arange(len(names) + 1))  # client k has rows starts[k]:starts[k+1]
    new = np.append(True, (code[1:] != code[:-1]) | (value[1:] != value[:-1]))[: code.size]
    first = np.append(np.flatnonzero(new), code.size)  # where each block of tied rows begins
    block = np.cumsum(new) - 1
    seen = negatives_before[first[block]] + negatives_before[first[block + 1]]
    twice = np.where(hit, seen - 2 * negatives_before[starts[code]], 0)  # 2 wins + ties of each positive

    totals = np.concatenate(([0], np.cumsum(twice)))[starts]
    rows = np.diff(starts).tolist()
    misses = np.diff(negatives_before[starts]).tolist()
    result: list[dict[str, Any]] = []
    for name, count, negatives, pairs in zip(names, rows, misses, np.diff(totals).tolist(), strict=True):
        positives = count - negatives
        why = None
        if count == 0:
            why = "no test rows"
        elif positives == 0:
            why = "no positives in the test rows"
        elif negatives == 0:
            why = "no negatives in the test rows"
        area = None if why else pairs / (2 * positives * negatives)
        result.append({"client": name, "rows": count, "positives": positives, "auc": area, "why": why})
    return result


def worst_accuracy(predicted: Values, labels: Values, clients: Values | None) -> float | None:
    """The lowest share of rows classified rightly at any client; None where clients are not known."""
    if clients is None:
        return None
    right = as_vector(predicted, "predicted").astype(bool) == (as_vector(labels, "labels") > 0)
    codes = as_vector(clients, "clients")
    rows = np.bincount(codes)
    return float((np.bincount(codes, weights=right)[rows > 0] / rows[rows > 0]).min())
