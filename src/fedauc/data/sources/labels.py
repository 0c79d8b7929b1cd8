"""From a source's classes to the two that are told apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from fedauc.data.rows import Bundle, Rows
from fedauc.errors import InputError, nearest

Part = tuple[np.ndarray, np.ndarray]  # features, and class codes [n] or indicators [n, classes]


def choose(source: str, positive: str, names: Sequence[str]) -> list[int]:
    """The class codes of a comma separated list of codes (6), ranges (0-4) and names (Shirt)."""
    by_name = {name.casefold(): code for code, name in enumerate(names)}
    chosen: set[int] = set()
    for word in (w.strip() for w in positive.split(",")):
        span = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if word.casefold() in by_name:
            chosen.add(by_name[word.casefold()])
        elif span:
            first, last = int(span[1]), int(span[2] or span[1])
            if not first <= last < len(names):
                raise InputError(
                    f"{source!r} has the classes 0 to {len(names) - 1}, so {word!r} is none of them."
                )
            chosen.update(range(first, last + 1))
        else:
            raise InputError(f"{source!r} has no class {word!r}.{nearest(word, names)}")
    return sorted(chosen)


def choose_excluded(source: str, positive: str) -> None:
    """Of providers, those who were excluded are to be found, and nobody else."""
    if choose(source, positive, ("ordinary", "excluded")) != [1]:
        raise InputError(f"In {source!r} the positive class is 'excluded' (1), and no other makes sense.")


def bundle(
    source: str,
    positive: str,
    names: Sequence[str],
    train: Part,
    valid: Part | None = None,
    test: Part | None = None,
    feature_names: tuple[str, ...] | None = None,
) -> Bundle:
    """The parts of a source as rows, positive where the class is among `positive`."""
    chosen = choose(source, positive, names)
    rows = _rows(source, train, chosen, names)
    for value, word in ((1, "positive"), (0, "negative")):
        if not (rows.y == value).any():
            raise InputError(f"{source!r} has no {word} training row when positive is {positive!r}.")
    others = [part and _rows(source, part, chosen, names) for part in (valid, test)]
    return Bundle(source, rows, others[0], others[1], None, feature_names)


def _rows(source: str, part: Part, chosen: list[int], names: Sequence[str]) -> Rows:
    x, labels = part
    if labels.ndim == 2:  # several classes may hold for one row
        y = (labels[:, chosen] != 0).any(axis=1).astype(np.int8)
        return Rows(x, y, y.astype(np.int64))
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
        raise InputError(f"{source!r} has a label outside 0 to {len(names) - 1} in its files.")
    y = np.isin(labels, chosen).astype(np.int8)
    return Rows(x, y, (y if len(names) == 2 else labels).astype(np.int64))


def unit(images: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Bytes as float32 in [0, 1]."""
    return np.divide(images, np.float32(255), out=out, dtype=np.float32, order="C")
