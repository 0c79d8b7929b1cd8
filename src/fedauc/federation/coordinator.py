"""The coordinator's side: agree with all sites on the data, then train, validate and test with them.

`prepared` gives what `experiments.prepare` gives for rows in this process, without any rows: the runner
trains, chooses, tests and reports as ever, and reaches clients and rows through a link.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedauc.core import rng
from fedauc.core.tree import Tree
from fedauc.data.federated import FederatedData
from fedauc.data.preprocess import Preprocessor
from fedauc.data.split import shared_split
from fedauc.data.statistics import ClientStatistics, merge_schemas, merge_statistics, skewed_columns
from fedauc.errors import InputError
from fedauc.experiments.assembly import Part, Prepared
from fedauc.experiments.config import Config
from fedauc.federation import messages
from fedauc.federation.messages import Message, Refused, digest
from fedauc.federation.remote import Link, Remote, opened
from fedauc.models import Model

M = TypeVar("M", bound=Message)

TABLE = ("source", "path", "client", "valid", "test", "split_by")
HERE_ALONE = (*TABLE, "remove_positives", "flip_positives", "partition")
"""Data settings that only make sense where all rows are in one place."""


@dataclass(frozen=True)
class Everybody:
    """All sites of a federation, to be asked something at once."""

    link: Link
    sites: tuple[str, ...]
    """Names; a site's number is its place."""
    deadline: float
    traffic: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes down and up."""

    def ask(self, request: Callable[[int], Message], reply: type[M]) -> list[M]:
        """Everybody's reply, in the order of the sites; all must answer."""
        asked = [request(i) for i in range(len(self.sites))]
        requests = {name: message.packed() for name, message in zip(self.sites, asked, strict=True)}
        replies = self.link.exchange(requests, self.deadline)
        found: list[M] = []
        wrong: list[str] = []
        for i, name in enumerate(self.sites):
            answer = replies.get(name)
            try:
                message = opened(answer, reply)
                if (message.run, message.client) != (asked[i].run, i):
                    raise Refused("an answer for another run or of another site")
                found.append(message)
                self.traffic[0] += len(requests[name])
                self.traffic[1] += len(answer) if isinstance(answer, bytes) else 0
            except Refused as reason:
                wrong.append(f"{name}: {reason}")
        if wrong:
            raise InputError(f"Not all sites could {reply.kind}: {'; '.join(wrong)}.")
        return found


@dataclass(frozen=True)
class Agreed:
    """What is the same for all runs of an experiment."""

    everybody: Everybody
    training: NDArray[np.int64]
    """[N, 2]: the sites' negatives and positives that train."""
    plan: list[dict[str, Any]]
    preprocessor: Preprocessor

    def begin(self, config: Config, run: str) -> None:
        """Tell all sites of another run on the same rows."""
        start(self.everybody, config, run)
        self.everybody.ask(lambda i: messages.Split({}, run, i, self.plan[i]), messages.Proposed)
        self.fit(config, run)

    def fit(self, config: Config, run: str) -> list[messages.Ready]:
        """All sites make their rows ready."""
        objective = _fitted(config, self.training)
        text = self.preprocessor.to_json()
        return self.everybody.ask(lambda i: messages.Fitted({}, run, i, text, objective), messages.Ready)


@dataclass(frozen=True)
class RemotePart(Part):
    """Rows to evaluate on, at the sites."""

    everybody: Everybody
    run: str
    name: str

    def scores(self, model: Model, z: Tree) -> NDArray[np.float32]:
        def request(client: int) -> Message:
            return messages.Rate(z, self.run, client, self.name)

        each = [reply.tensors["scores"].numpy() for reply in self.everybody.ask(request, messages.Rated)]
        return np.concatenate(each)


@dataclass(frozen=True)
class Reach:
    """How the runner reaches the clients of a run."""

    agreed: Agreed
    settings: Mapping[str, Any]
    remotes: dict[str, Remote] = field(default_factory=dict)

    def __call__(self, config: Config) -> Remote:
        """The transport of a run; a method that trains first is a run of its own."""
        if (run := run_of(config)) not in self.remotes:
            self.agreed.begin(config, run)
            self.add(run)
        return self.remotes[run]

    def add(self, run: str) -> None:
        """A run that the sites are ready for."""
        everybody, shape = self.agreed.everybody, (len(self.agreed.preprocessor.feature_names),)
        self.remotes[run] = Remote(everybody.link, run, shape, everybody.sites, **self.settings)


def prepared(
    config: Config, link: Link, sites: Sequence[str], deadline: float = 600.0, **settings: Any
) -> Prepared:
    """Agree with all sites on split and preprocessing; `settings` are those of `Remote`."""
    for name in HERE_ALONE:
        if getattr(config.data, name):
            raise InputError(f"data.{name} cannot be set in a federation: rows are at the sites.")
    if config.train.statistics != "averaged":
        raise InputError(f"train.statistics={config.train.statistics} is not possible in a federation yet.")
    if config.data.label is None:
        raise InputError("No label: data.label names the column that says which rows are positive.")
    everybody = Everybody(link, tuple(sites), deadline)
    run = run_of(config)
    counted = start(everybody, config, run)
    counts = np.array([[reply.negatives, reply.positives] for reply in counted])
    shares = (
        1 - config.data.valid_fraction - config.data.test_fraction,
        config.data.valid_fraction,
        config.data.test_fraction,
    )
    split = shared_split(counts, shares, rng.generator(config.seed, rng.SPLIT))
    plan = [{"classes": [list(share) for share in classes]} for classes in split]
    training = np.array([[share.counts[0] for share in classes] for classes in split])
    _enough(split, sites)
    proposed = everybody.ask(lambda i: messages.Split({}, run, i, plan[i]), messages.Proposed)
    preprocessor = _preprocessor(everybody, run, [reply.schema for reply in proposed])
    agreed = Agreed(everybody, training, plan, preprocessor)
    ready = agreed.fit(config, run)
    reach = Reach(agreed, settings)
    reach.add(run)
    rows = torch.empty(0, len(preprocessor.feature_names))
    parts = {}
    for number, name in enumerate(("valid", "test"), start=1):
        y = np.concatenate([reply.tensors[name].numpy() for reply in ready]).astype(np.int8)
        lengths = [sum(share.counts[number] for share in classes) for classes in split]
        parts[name] = RemotePart(rows, y, np.repeat(np.arange(len(sites)), lengths), everybody, run, name)
    empty = np.zeros(len(sites) + 1, dtype=np.int64)
    return Prepared(
        name="federation",
        train=FederatedData(rows, rows[:, 0], empty[:0], empty, training, list(sites)),
        valid=parts["valid"],
        test=parts["test"],
        names=tuple(sites),
        preprocessor=preprocessor,
        notes=tuple(preprocessor.notes),
        setup_up=everybody.traffic[1],
        setup_down=everybody.traffic[0],
        reach=reach,
    )


def run_of(config: Config) -> str:
    """The name of a run: of everything that is configured."""
    return digest(json.dumps(config.as_dict(), sort_keys=True))[:16]


def start(everybody: Everybody, config: Config, run: str) -> list[messages.Counted]:
    """Tell all sites of a run."""
    n, about = len(everybody.sites), config.as_dict()
    return everybody.ask(lambda i: messages.Start({}, run, i, n, about), messages.Counted)


def _preprocessor(everybody: Everybody, run: str, proposals: Sequence[Any]) -> Preprocessor:
    schema = merge_schemas(proposals)

    def statistics(columns: Mapping[str, Any], log1p: bool) -> list[ClientStatistics]:
        replies = everybody.ask(
            lambda i: messages.Summarise({}, run, i, dict(columns), log1p), messages.Summary
        )
        return [ClientStatistics.from_dict(reply.statistics) for reply in replies]

    first = statistics(schema, False)
    skewed = skewed_columns(merge_statistics(first))
    second = statistics({name: schema[name] for name in skewed}, True) if skewed else []
    return Preprocessor.fit(schema, first, second)


def _fitted(config: Config, training: NDArray[np.int64]) -> dict[str, Any]:
    """The objective's settings that depend on all clients' classes."""
    objective = config.component("objective")
    if not hasattr(objective, "fitted"):
        return {}
    known = config.sections["objective"]
    fitted = objective.fitted(training)
    return {n: getattr(fitted, n) for n in known if n != "name" and getattr(fitted, n) != known[n]}


def _enough(split: Sequence[Any], sites: Sequence[str]) -> None:
    counts = np.array([[share.counts for share in classes] for classes in split])  # [site, class, part]
    for part, name in ((1, "validation"), (2, "test")):
        if not counts[:, :, part].sum(axis=0).all():
            raise InputError(f"The {name} rows of all sites together hold only one class.")
    if not (trains := counts[:, :, 0].sum(axis=1) > 0).all():
        raise InputError(f"The site {sites[int(np.argmin(trains))]!r} has no training rows.")
