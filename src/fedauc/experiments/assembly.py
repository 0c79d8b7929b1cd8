"""Prepared data: which rows are where, and the one matrix in which they become numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core.loop import Transport
from fedauc.core.tree import Tree
from fedauc.data.columns import Columns
from fedauc.data.federated import FederatedData
from fedauc.data.preprocess import Column, Preprocessor
from fedauc.data.statistics import column_of
from fedauc.methods.base import of
from fedauc.models import Model
from fedauc.models.model import DEEP

CHUNK = 2048
"""Rows that a small model scores at once on a CPU."""
SAMPLE = 1000
"""Rows of a part of which a fingerprint knows all."""


class Scored(NamedTuple):
    """Rows and what a model gave them; rows at a site that did not answer are not among them."""

    scores: NDArray[np.float32]
    y: NDArray[np.int8]
    client: NDArray[np.int64] | None
    """Codes into `Prepared.names`; None where the rows belong to no client."""
    rows: NDArray[np.int64] | None = None
    """Their numbers in the part; None: all."""
    why: Mapping[int, str] = {}
    """Of clients whose own AUC is not to be shown, why not."""
    paired: bool = True
    """Whether a row is the same one for another model: of a histogram it is not."""
    bounds: tuple[float, float] | None = None
    """Between which the AUC of all rows lies, where not all scores are exact."""


@dataclass(frozen=True)
class Part:
    """Rows to evaluate on."""

    x: Tensor
    y: NDArray[np.int8]
    client: NDArray[np.int64] | None
    """Codes into `Prepared.names`; None where the rows belong to no client."""

    def scored(self, model: Model, z: Tree, *, patient: bool = True) -> Scored:
        """The rows with their scores; whoever is `patient` waits for clients that are elsewhere."""
        return Scored(self.scores(model, z), self.y, self.client)

    def scores(self, model: Model, z: Tree) -> NDArray[np.float32]:
        """Logits of the rows, each with its client's statistics where there are such."""
        # On a CPU few at once, so that what the layers compute stays in the cache.
        chunk = None if self.x.is_cuda or len(model.parameters) > DEEP else CHUNK
        found = model.scores(z, self.x, chunk).numpy(force=True)
        if self.client is None:
            return found
        for client in sorted({int(name.split("/")[1]) for name in z if name.startswith("clients/")}):
            rows = np.flatnonzero(self.client == client)
            if len(rows):
                own = z | of(f"clients/{client}", z)
                found[rows] = model.scores(own, self.x[torch.from_numpy(rows)], chunk).numpy(force=True)
        return found


@dataclass(frozen=True)
class Prepared:
    """Everything a run needs of the data."""

    name: str
    train: FederatedData
    valid: Part
    test: Part
    names: tuple[str, ...]
    """All clients; those with training rows first, in the order of `train`."""
    preprocessor: Preprocessor | None
    notes: tuple[str, ...]
    setup_up: int = 0
    setup_down: int = 0
    reach: Callable[[Any], Transport] | None = None
    """Where the clients are elsewhere: the transport that carries a configuration out."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row."""
        return tuple(self.train.x.shape[1:])

    @cached_property
    def fingerprint(self) -> str:
        """Tells these rows from others: by all labels and clients, and by what some of the rows hold."""
        found = hashlib.sha256(repr((self.shape, self.names)).encode())
        found.update(self.train.counts.tobytes() + self.train.order.tobytes())
        for x in (self.train.x, self.valid.x, self.test.x):
            some = np.unique(np.linspace(0, len(x) - 1, min(len(x), SAMPLE)).astype(np.int64))
            found.update(x[torch.from_numpy(some)].numpy(force=True).tobytes())
        for part in (self.valid, self.test):
            found.update(part.y.tobytes() + (b"" if part.client is None else part.client.tobytes()))
        return found.hexdigest()[:16]


@dataclass(frozen=True)
class Chosen:
    """Rows of a table or of images by their numbers: what they hold is read when it is put in its place."""

    x: Columns | NDArray[np.float32]
    number: NDArray[np.int64]
    y: NDArray[np.int8]
    classes: NDArray[np.int64] | NDArray[np.int8]
    client: NDArray[np.int64] | None
    order: pd.Series | None = None

    @classmethod
    def all(cls, x: Columns | NDArray[np.float32], *about: Any) -> Chosen:
        return cls(x, np.arange(len(x)), *about)

    def take(self, index: NDArray[np.int64]) -> Chosen:
        client = None if self.client is None else self.client[index]
        order = None if self.order is None else self.order.iloc[index]
        return Chosen(self.x, self.number[index], self.y[index], self.classes[index], client, order)


@dataclass(frozen=True)
class Outline:
    """Prepared data without their numbers: the rows in their places, and how each becomes numbers."""

    name: str
    names: tuple[str, ...]
    members: int
    """Clients with training rows; they come first."""
    parts: tuple[Chosen, Chosen, Chosen]
    preprocessor: Preprocessor | None
    notes: tuple[str, ...]
    setup_up: int
    setup_down: int

    @property
    def slices(self) -> tuple[slice, slice, slice]:
        """Where the parts stand among all rows."""
        ends = np.cumsum([len(part.y) for part in self.parts]).tolist()
        return slice(0, ends[0]), slice(ends[0], ends[1]), slice(ends[1], ends[2])

    def by_client(self) -> Outline:
        """With a client's training rows together, so that a round looks at few places of a file."""
        train, valid, test = self.parts
        assert train.client is not None
        order = np.argsort(2 * train.client + train.y, kind="stable")
        return replace(self, parts=(train.take(order), valid, test))


def matrix(outline: Outline) -> Tensor:
    """The numbers of all rows, one part after the other."""
    rows = outline.slices[-1].stop
    if outline.preprocessor is None:
        assert isinstance(outline.parts[0].x, np.ndarray)
        x = np.empty((rows, *outline.parts[0].x.shape[1:]), dtype=np.float32)
        for part, place in zip(outline.parts, outline.slices, strict=True):
            assert isinstance(part.x, np.ndarray)
            np.take(part.x, part.number, axis=0, out=x[place], mode="clip")  # "raise" would make a copy
        return torch.from_numpy(x)
    x = np.zeros((rows, len(outline.preprocessor.feature_names)), dtype=np.float32)
    start = 0
    for column in outline.preprocessor.plan:
        end = start + len(column.outputs)
        fill(column, outline, x[:, start:end])
        start = end
    return torch.from_numpy(x)


def fill(column: Column, outline: Outline, out: NDArray[np.float32]) -> None:
    """One column of all rows; it is read once where it comes from one table."""
    read: dict[int, pd.Series] = {}
    for part, place in zip(outline.parts, outline.slices, strict=True):
        assert not isinstance(part.x, np.ndarray)
        if id(part.x) not in read:
            read[id(part.x)] = column_of(part.x, column.name)
        values = read[id(part.x)].array.take(part.number)
        column.fill(pd.DataFrame({column.name: values}, copy=False), out[place])


def assembled(outline: Outline, x: Tensor, device: str) -> Prepared:
    x = x.to(device)
    train, valid, test = (x[place] for place in outline.slices)
    rows = outline.parts[0]
    assert rows.client is not None
    members = list(outline.names[: outline.members])
    return Prepared(
        name=outline.name,
        train=FederatedData.build(train, torch.from_numpy(rows.y), rows.client, members, device),
        valid=Part(valid, outline.parts[1].y, outline.parts[1].client),
        test=Part(test, outline.parts[2].y, outline.parts[2].client),
        names=outline.names,
        preprocessor=outline.preprocessor,
        notes=outline.notes,
        setup_up=outline.setup_up,
        setup_down=outline.setup_down,
    )
