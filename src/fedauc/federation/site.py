"""A site: its rows, and what it does with them when it is asked to.

    start     → counted    the table is read; how many rows of each class
    split     → proposed   which rows train, validate and test; what the columns of the training rows hold
    summarise → summary    sums of these columns
    fitted    → ready      rows become numbers
    task      → answer     local training (`worker`)
    rate      → rated      scores of validation or test rows, or their histogram

Whatever its own limits (`policy`) do not allow, a site refuses.

What has been agreed before training begins is kept in the site's folder, so that a site that was restarted
goes on with the next task.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedauc import models
from fedauc.core import checkpoint
from fedauc.core.tree import Tree
from fedauc.data.federated import FederatedData
from fedauc.data.preprocess import Preprocessor
from fedauc.data.split import Share, own_split
from fedauc.data.statistics import propose_schema, summarise
from fedauc.data.table import Table, read_table
from fedauc.experiments.assembly import Part
from fedauc.experiments.config import Config
from fedauc.experiments.settings import DataSettings
from fedauc.federation import messages
from fedauc.federation.messages import Message, Refused, digest
from fedauc.federation.policy import Policy
from fedauc.federation.worker import Worker
from fedauc.metrics.mergeable import counted
from fedauc.models import Model

LOG = logging.getLogger(__name__)
PARTS = ("train", "valid", "test")
KEPT = (messages.Start, messages.Split, messages.Fitted)
"""What is kept of a run's preparation, in this order."""


@dataclass
class Run:
    """What a site has made of a run's preparation so far."""

    start: messages.Start
    config: Config
    table: Table
    rows: dict[str, np.ndarray] = field(default_factory=dict)
    """Row numbers by part."""
    parts: dict[str, Part] = field(default_factory=dict)
    model: Model | None = None
    worker: Worker | None = None


@dataclass(frozen=True)
class Site:
    """One organisation's side of all runs that it takes part in."""

    name: str
    read: Callable[[DataSettings], Table]
    """Reads the local table, as the experiment's data settings say."""
    folder: Path
    """The site's own; a run has a folder in it."""
    policy: Policy = field(default_factory=Policy)
    agreed: Mapping[str, Any] = field(default_factory=dict)
    """Data settings that this site has agreed to, by its kit."""
    runs: dict[str, Run] = field(default_factory=dict)
    one: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """One request at a time: a task that comes again while it is worked on waits for its answer."""

    def answer(self, request: bytes) -> bytes:
        """What came of a request; whatever is not as agreed is refused."""
        with self.one:
            return self._answer(request)

    def _answer(self, request: bytes) -> bytes:
        kind = messages.kind_of(request)
        if kind not in HANDLERS:
            raise Refused(f"a request of the unknown kind {kind[:40]!r}")
        message, handle = HANDLERS[kind]
        received = message.unpacked(request)
        try:
            reply = handle(self, received)
        except Refused:
            raise
        except Exception as error:  # its text may hold a path or a value, which are nobody else's business
            LOG.error("The request %r cannot be carried out: %s", kind, error, exc_info=error)
            raise Refused(f"the request {kind!r} cannot be carried out; the site's log says why") from None
        if message in KEPT:
            folder = self._folder(received.run)
            folder.mkdir(parents=True, exist_ok=True)
            checkpoint.write_atomic(folder / f"{kind}.safetensors", request)
        return reply if isinstance(reply, bytes) else reply.packed()

    def _folder(self, run: str) -> Path:
        return self.folder / digest(run)[:16]  # (a run's name comes from outside)

    def _run(self, run: str) -> Run:
        """What is known of a run, also by a site that was restarted."""
        if run not in self.runs:
            for message in KEPT:
                kept = self._folder(run) / f"{message.kind}.safetensors"
                if kept.exists():
                    HANDLERS[message.kind][1](self, message.unpacked(kept.read_bytes()))
        if run not in self.runs:
            raise Refused("a request for a run that has not been started here")
        return self.runs[run]

    def _task(self, message: messages.Task) -> bytes:
        worker = self._run(message.run).worker
        if worker is None:
            raise Refused("a task before the rows were prepared")
        if message.phase == 0 and not worker.knows(message):
            self.policy.count_round(self.folder)
        return worker.answer(message)

    def _start(self, message: messages.Start) -> Message:
        config = Config.from_dict(message.config)
        self.policy.check_method(config.method)
        for name, agreed in self.agreed.items():
            if getattr(config.data, name) != agreed:
                raise Refused(f"another data.{name} than the kit says")
        table = self.read(config.data)
        self.runs[message.run] = Run(message, config, table)
        positives = int(table.y.sum())
        return messages.Counted({}, message.run, message.client, len(table.y) - positives, positives)

    def _split(self, message: messages.Split) -> Message:
        run = self._run(message.run)
        shares = [Share(int(s), int(i), list(map(int, counts))) for s, i, counts in message.plan["classes"]]
        rows = own_split(run.table.y, shares)
        run.rows = dict(zip(PARTS, rows, strict=True))
        return messages.Proposed({}, message.run, message.client, dict(propose_schema(self._training(run))))

    def _summarise(self, message: messages.Summarise) -> Message:
        training = self._training(self._run(message.run))
        own = propose_schema(training)
        for name, kind in message.schema.items():
            if own.get(name) == "numeric" and kind == "categorical" and not self.policy.numbers_as_text:
                raise Refused(f"the values of a column that holds numbers here ({name})")
        found = summarise(training, message.schema, log1p=message.log1p)
        return messages.Summary({}, message.run, message.client, found.to_dict())

    def _training(self, run: Run) -> pd.DataFrame:
        assert isinstance(run.table.features, pd.DataFrame)
        return run.table.features.iloc[run.rows["train"]]

    def _fitted(self, message: messages.Fitted) -> Message:
        run = self._run(message.run)
        config = run.config.changed({f"objective.{n}": value for n, value in message.objective.items()})
        preprocessor = Preprocessor.from_json(message.preprocessor)
        assert isinstance(run.table.features, pd.DataFrame)
        x = torch.from_numpy(preprocessor.transform(run.table.features))
        y = run.table.y
        run.parts = {name: Part(x[torch.from_numpy(rows)], y[rows], None) for name, rows in run.rows.items()}
        model, params = models.init(config.component("model"), tuple(x.shape[1:]), config.seed)
        run.model = model
        run.worker = Worker(
            message.run,
            config.method_of(model, config.component("objective")),
            params,
            _own(run.parts["train"], self.name, message.client),
            run.start.clients,
            self._folder(message.run),
        )
        return messages.Ready({}, message.run, message.client)

    def _rate(self, message: messages.Rate) -> Message:
        run = self._run(message.run)
        if run.model is None or message.part not in ("valid", "test"):
            raise Refused("rows to score that there are not")
        part, form = run.parts[message.part], self.policy.form(message.form)
        sent: Tree = {}
        if form != "nothing":
            scores = part.scores(run.model, message.tensors)
            by_class = {name: scores[part.y == y] for name, y in (("negatives", 0), ("positives", 1))}
            if form == "histogram":
                self.policy.check_bins(message.bins)
                bins = (message.bins, message.low, message.high)
                sent = {name: torch.from_numpy(counted(each, *bins)) for name, each in by_class.items()}
            else:
                sent = {name: torch.from_numpy(each) for name, each in by_class.items()}
        own = self.policy.own_auc
        return messages.Rated(sent, message.run, message.client, message.part, form, own)


HANDLERS: dict[str, tuple[type[Message], Callable[[Site, Any], Message | bytes]]] = {
    "start": (messages.Start, Site._start),
    "split": (messages.Split, Site._split),
    "summarise": (messages.Summarise, Site._summarise),
    "fitted": (messages.Fitted, Site._fitted),
    "rate": (messages.Rate, Site._rate),
    "task": (messages.Task, Site._task),
}


def reading(path: str | Path) -> Callable[[DataSettings], Table]:
    """Reads the table at a path, which may hold rows of one class alone."""

    def read(data: DataSettings) -> Table:
        assert data.label is not None, "the experiment names no label"
        return read_table(path, label=data.label, positive=data.positive, drop=data.drop, lone_class=True)

    return read


def _own(part: Part, name: str, client: int) -> FederatedData:
    """The rows of one client of many."""
    order = np.argsort(part.y, kind="stable")
    positives = int(part.y.sum())
    counts = np.array([[len(part.y) - positives, positives]])
    y = torch.from_numpy(part.y).to(part.x.dtype)
    return FederatedData(part.x, y, order, np.array([0, len(order)]), counts, [name], client)
