"""Who holds which rows: pure functions from classes and a generator to one client code per row.

A client may end up without positives, and under a strong Dirichlet split without rows: `report` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fedauc.data.rows import Rows
from fedauc.errors import InputError, nearest


def _check(rows: int, clients: int) -> None:
    if clients < 1:
        raise InputError(f"The number of clients must be at least 1, not {clients}.")
    if clients > rows:
        raise InputError(
            f"{rows} rows cannot be split over {clients} clients; ask for at most {rows} clients."
        )


def _even(rows: np.ndarray, parts: int) -> np.ndarray:
    """A code 0..parts-1 per row, in runs whose lengths differ by at most one."""
    return np.arange(len(rows), dtype=np.int64) * parts // max(len(rows), 1)


def iid(n: int, clients: int, rng: np.random.Generator) -> np.ndarray:
    """Random rows for everybody, in parts whose sizes differ by at most one."""
    _check(n, clients)
    order = rng.permutation(n)
    codes = np.empty(n, dtype=np.int64)
    codes[order] = _even(order, clients)
    return codes


def dirichlet(classes: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """Each class split over the clients by its own Dirichlet(alpha) draw; small alpha, unequal clients."""
    _check(len(classes), clients)
    if not 0.0 < alpha < float("inf"):
        raise InputError(f"The Dirichlet concentration alpha must be a positive number, not {alpha}.")
    codes = np.empty(len(classes), dtype=np.int64)
    for label in np.unique(classes):
        rows = rng.permutation(np.flatnonzero(classes == label))
        shares = rng.dirichlet(np.full(clients, alpha))
        if not np.isclose(shares.sum(), 1.0):  # beyond what floating point can draw
            raise InputError(f"The Dirichlet concentration alpha={alpha:g} is too extreme to draw from.")
        cuts = np.rint(np.cumsum(shares[:-1]) * len(rows)).astype(np.int64).clip(0, len(rows))
        codes[rows] = np.repeat(np.arange(clients), np.diff(cuts, prepend=0, append=len(rows)))
    return codes


def disjoint_classes(
    classes: np.ndarray,
    clients: int,
    rng: np.random.Generator,
    classes_per_client: int | None = None,
    y: np.ndarray | None = None,
) -> np.ndarray:
    """Whole classes dealt in turn, so that no two clients share one ("IH").

    With `y`, the positive classes are dealt before the negative ones, so that both are spread evenly.
    """
    _check(len(classes), clients)
    labels, inverse = np.unique(classes, return_inverse=True)
    if len(labels) < clients:
        raise InputError(
            f"{len(labels)} classes cannot be dealt to {clients} clients without sharing a class."
        )
    if classes_per_client is not None and classes_per_client * clients != len(labels):
        raise InputError(
            f"{clients} clients with {classes_per_client} classes each do not use up the {len(labels)} "
            f"classes; choose both so that their product is {len(labels)}."
        )
    order = rng.permutation(len(labels))
    if y is not None:
        positive = np.zeros(len(labels), dtype=bool)
        positive[inverse[np.asarray(y) == 1]] = True
        order = np.concatenate([order[positive[order]], order[~positive[order]]])
    owner = np.empty(len(labels), dtype=np.int64)
    owner[order] = rng.permutation(clients)[np.arange(len(labels)) % clients]
    return owner[inverse]


def one_class_per_client(classes: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
    """Every client holds one class only; where clients outnumber classes, some share a class's rows."""
    _check(len(classes), clients)
    labels = np.unique(classes)
    if clients < len(labels):
        raise InputError(
            f"One class per client needs at least as many clients as classes ({len(labels)}), not {clients}."
        )
    codes = np.empty(len(classes), dtype=np.int64)
    order = rng.permutation(clients)
    for i, label in enumerate(labels):
        owners = order[i :: len(labels)]
        rows = rng.permutation(np.flatnonzero(classes == label))
        if len(rows) < len(owners):
            raise InputError(
                f"Class {label} has {len(rows)} rows for {len(owners)} of the {clients} clients; "
                "ask for fewer clients."
            )
        codes[rows] = owners[_even(rows, len(owners))]
    return codes


def label_sorted(
    labels: np.ndarray, clients: int, shards_per_client: int, rng: np.random.Generator
) -> np.ndarray:
    """Rows sorted by label, cut into equal shards, and each client dealt `shards_per_client` of them."""
    _check(len(labels), clients)
    shards = clients * shards_per_client
    if not 1 <= shards <= len(labels):
        raise InputError(
            f"{len(labels)} rows cannot be cut into {shards} shards, "
            f"{shards_per_client} for each of {clients} clients."
        )
    shuffled = rng.permutation(len(labels))
    order = shuffled[np.argsort(np.asarray(labels)[shuffled], kind="stable")]
    codes = np.empty(len(labels), dtype=np.int64)
    codes[order] = (rng.permutation(shards) % clients)[_even(order, shards)]
    return codes


def by_column(values: Iterable[Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """One client per value of a column: the codes and, in sorted order, the names."""
    codes, unique = pd.factorize(pd.Series(values))
    if (codes < 0).any():
        raise InputError(f"Row {int(np.flatnonzero(codes < 0)[0])} of the client column has no value.")
    found = list(unique)
    if all(isinstance(v, (float, np.floating)) and float(v).is_integer() for v in found):
        found = [int(v) for v in found]  # 3.0 is client "3"
    try:
        order = sorted(range(len(found)), key=lambda i: found[i])
    except TypeError:  # values of mixed types
        order = sorted(range(len(found)), key=lambda i: str(found[i]))
    rank = np.empty(len(found), dtype=np.int64)
    rank[order] = np.arange(len(found))
    return rank[codes], tuple(str(found[i]) for i in order)


def natural(rows: Rows, clients: int | None) -> np.ndarray:
    """The source's own clients."""
    if rows.client is None:
        raise InputError(
            "This source has no clients of its own; choose a partition such as 'dirichlet' or 'iid'."
        )
    if clients is not None and len(rows) and clients <= rows.client.max():
        raise InputError(
            f"This source has {int(rows.client.max()) + 1} clients of its own, "
            f"more than the {clients} asked for."
        )
    return rows.client


@dataclass(frozen=True)
class Partition:
    """A way to split rows over clients, by name; `options` holds what it can be told, and the defaults."""

    name: str
    summary: str
    function: Callable[..., np.ndarray]  # (rows, clients, rng, **options)
    options: Mapping[str, Any] = field(default_factory=dict)


PARTITIONS: dict[str, Partition] = {
    p.name: p
    for p in (
        Partition("iid", "random rows, equal sizes", lambda r, n, rng: iid(len(r), n, rng)),
        Partition(
            "dirichlet",
            "each class split over the clients by its own Dirichlet(alpha) draw",
            lambda r, n, rng, alpha: dirichlet(r.classes, n, alpha, rng),
            {"alpha": 0.5},
        ),
        Partition(
            "disjoint-classes",
            "whole classes dealt to the clients, no two of which share one (IH)",
            lambda r, n, rng, classes_per_client: disjoint_classes(
                r.classes, n, rng, classes_per_client, r.y
            ),
            {"classes_per_client": None},
        ),
        Partition(
            "one-class-per-client",
            "every client holds rows of one class only",
            lambda r, n, rng: one_class_per_client(r.classes, n, rng),
        ),
        Partition(
            "label-sorted",
            "rows sorted by class, cut into shards, and the shards dealt to the clients",
            lambda r, n, rng, shards_per_client: label_sorted(r.classes, n, shards_per_client, rng),
            {"shards_per_client": 2},
        ),
        Partition(
            "natural",
            "the source's own clients (states, hospitals, the values of a column)",
            lambda r, n, rng: natural(r, n),
        ),
    )
}


def partition(
    name: str, rows: Rows, clients: int | None, rng: np.random.Generator, **options: Any
) -> np.ndarray:
    """One client code per row, by the partition of that name; `clients` may be None for 'natural' only."""
    if name not in PARTITIONS:
        raise InputError(f"There is no partition {name!r}.{nearest(name, PARTITIONS)}")
    chosen = PARTITIONS[name]
    for option in options:
        if option not in chosen.options:
            hint = nearest(option, chosen.options) or " It has no options."
            raise InputError(f"Partition {name!r} has no option {option!r}.{hint}")
    if clients is None and name != "natural":
        raise InputError(f"Partition {name!r} needs the number of clients.")
    return chosen.function(rows, clients, rng, **{**chosen.options, **options})


def report(y: np.ndarray, client: np.ndarray, names: Sequence[str] | int) -> list[dict[str, Any]]:
    """Rows and positives of every client (given its names, or how many there are), also of empty ones."""
    labels = [f"client-{i}" for i in range(names)] if isinstance(names, int) else list(names)
    rows = np.bincount(client, minlength=len(labels))
    if len(rows) > len(labels):
        raise InputError(f"Client code {len(rows) - 1} has no name: there are {len(labels)} clients.")
    positives = np.bincount(client[np.asarray(y) == 1], minlength=len(labels))
    return [
        {"client": label, "rows": int(n), "positives": int(p)}
        for label, n, p in zip(labels, rows, positives, strict=True)
    ]
