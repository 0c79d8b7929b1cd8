"""The coordinator's side: agree with all sites on the data, then train, validate and test with them.

`prepared` gives what `experiments.prepare` gives for rows in this process, without any rows: the runner
trains, chooses, tests and reports as ever, and reaches clients and rows through a link.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedauc.core import checkpoint, rng
from fedauc.data.federated import FederatedData
from fedauc.data.preprocess import Preprocessor
from fedauc.data.split import shared_split
from fedauc.data.statistics import ClientStatistics, merge_schemas, merge_statistics, skewed_columns
from fedauc.errors import InputError
from fedauc.experiments.assembly import Prepared
from fedauc.experiments.config import Config
from fedauc.federation import messages
from fedauc.federation.attendance import Attendance
from fedauc.federation.everybody import Everybody
from fedauc.federation.messages import digest
from fedauc.federation.remote import Remote
from fedauc.federation.scores import RemotePart, Share

TABLE = ("source", "path", "client", "valid", "test", "split_by")
HERE_ALONE = (*TABLE, "remove_positives", "flip_positives", "partition")
"""Data settings that only make sense where all rows are in one place."""
AGREED = "agreed.json"


@dataclass(frozen=True)
class Agreed:
    """What is the same for all runs of an experiment."""

    everybody: Everybody
    counts: NDArray[np.int64]
    """[N, 2, 3]: the sites' negatives and positives that train, validate and test."""
    plan: list[dict[str, Any]]
    preprocessor: Preprocessor
    path: Path
    """Where this is kept."""
    runs: list[str]
    """What the sites are ready for."""

    @property
    def training(self) -> NDArray[np.int64]:
        return self.counts[:, :, 0]

    def keep(self) -> None:
        """`_known` is the inverse."""
        content = {
            "runs": self.runs,
            "sites": list(self.everybody.sites),
            "counts": self.counts.tolist(),
            "plan": self.plan,
            "preprocessor": self.preprocessor.to_json(),
            "traffic": self.everybody.traffic,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.write_atomic(self.path, json.dumps(content).encode())

    def begin(self, config: Config, run: str) -> None:
        """Tell all sites of another run on the same rows."""
        start(self.everybody, config, run)
        self.everybody.ask(lambda i: messages.Split({}, run, i, self.plan[i]), messages.Proposed)
        self.fit(config, run)

    def fit(self, config: Config, run: str) -> None:
        """All sites make their rows ready."""
        objective = _fitted(config, self.training)
        text = self.preprocessor.to_json()
        self.everybody.ask(lambda i: messages.Fitted({}, run, i, text, objective), messages.Ready)
        self.runs.append(run)
        self.keep()


@dataclass(frozen=True)
class Reach:
    """How the runner reaches the clients of a run."""

    agreed: Agreed
    settings: Mapping[str, Any]
    remotes: dict[str, Remote] = field(default_factory=dict)

    def __call__(self, config: Config) -> Remote:
        """The transport of a run; a method that trains first is a run of its own."""
        if (run := run_of(config)) not in self.agreed.runs:
            self.agreed.begin(config, run)
        if run not in self.remotes:
            everybody, shape = self.agreed.everybody, (len(self.agreed.preprocessor.feature_names),)
            self.remotes[run] = Remote(everybody.attendance, run, shape, everybody.sites, **self.settings)
        return self.remotes[run]


def prepared(
    config: Config,
    attendance: Attendance,
    sites: Sequence[str],
    folder: Path,
    share: Share | None = None,
    **settings: Any,
) -> Prepared:
    """Agree with all sites on split and preprocessing; `settings` are those of `Remote`.

    What has been agreed is kept in `folder`: a coordinator that was restarted goes on with whoever is there.
    """
    for name in HERE_ALONE:
        if getattr(config.data, name):
            raise InputError(f"data.{name} cannot be set in a federation: rows are at the sites.")
    if config.train.statistics != "averaged":
        raise InputError(f"train.statistics={config.train.statistics} is not possible in a federation yet.")
    if config.data.label is None:
        raise InputError("No label: data.label names the column that says which rows are positive.")
    everybody = Everybody(attendance, tuple(sites))
    run = run_of(config)
    agreed = _known(folder / AGREED, run, everybody) or _agreed(config, everybody, run, folder / AGREED)
    reach = Reach(agreed, settings)
    quorum = settings.get("quorum", 1.0) if settings.get("absent") == "retry" else 0.0
    rows = torch.empty(0, len(agreed.preprocessor.feature_names))
    parts = {}
    for number, name in enumerate(("valid", "test"), start=1):
        counts = agreed.counts[:, :, number]
        y = np.repeat(np.tile(np.array([0, 1], dtype=np.int8), len(sites)), counts.reshape(-1))
        client = np.repeat(np.arange(len(sites)), counts.sum(axis=1))
        how = (counts, share or Share(), quorum)
        parts[name] = RemotePart(rows, y, client, everybody, run, name, *how)
    empty = np.zeros(len(sites) + 1, dtype=np.int64)
    return Prepared(
        name="federation",
        train=FederatedData(rows, rows[:, 0], empty[:0], empty, agreed.training, list(sites)),
        valid=parts["valid"],
        test=parts["test"],
        names=tuple(sites),
        preprocessor=agreed.preprocessor,
        notes=tuple(agreed.preprocessor.notes),
        setup_up=everybody.traffic[1],
        setup_down=everybody.traffic[0],
        reach=reach,
    )


def _agreed(config: Config, everybody: Everybody, run: str, path: Path) -> Agreed:
    """Split and preprocessing, which everybody must take part in."""
    counted = start(everybody, config, run)
    counts = np.array([[reply.negatives, reply.positives] for reply in counted])
    shares = (
        1 - config.data.valid_fraction - config.data.test_fraction,
        config.data.valid_fraction,
        config.data.test_fraction,
    )
    split = shared_split(counts, shares, rng.generator(config.seed, rng.SPLIT))
    plan = [{"classes": [list(share) for share in classes]} for classes in split]
    by_part = np.array([[share.counts for share in classes] for classes in split])
    _enough(by_part, everybody.sites)
    proposed = everybody.ask(lambda i: messages.Split({}, run, i, plan[i]), messages.Proposed)
    preprocessor = _preprocessor(everybody, run, [reply.schema for reply in proposed])
    agreed = Agreed(everybody, by_part, plan, preprocessor, path, [])
    agreed.fit(config, run)
    return agreed


def _known(path: Path, run: str, everybody: Everybody) -> Agreed | None:
    """What was agreed before, for this very run and these sites."""
    try:
        kept = json.loads(path.read_text())
        preprocessor = Preprocessor.from_json(kept["preprocessor"])
        counts, plan, runs, sites = (kept[name] for name in ("counts", "plan", "runs", "sites"))
        everybody.traffic[:] = kept["traffic"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged ({error!r}); remove it to agree anew.") from error
    if run not in runs or sites != list(everybody.sites):
        raise InputError(f"{path} belongs to another experiment or other sites; choose another folder.")
    return Agreed(everybody, np.array(counts), plan, preprocessor, path, runs)


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


def _enough(counts: NDArray[np.int64], sites: Sequence[str]) -> None:
    for part, name in ((1, "validation"), (2, "test")):
        if not counts[:, :, part].sum(axis=0).all():
            raise InputError(f"The {name} rows of all sites together hold only one class.")
    if not (trains := counts[:, :, 0].sum(axis=1) > 0).all():
        raise InputError(f"The site {sites[int(np.argmin(trains))]!r} has no training rows.")
