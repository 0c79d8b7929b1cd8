"""Paper 002's measure: worst-case and average accuracy of ten classes against the time of the uplinks.

Every client holds one class, the model has a score per class, and the accuracy of a client is that of its
class. All that is special is the loss and what is measured: sampling, weights and times are those of the
presets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from fedauc.core import checkpoint, rng
from fedauc.core.loop import Federation, RoundRecord, RunState, advance, begin
from fedauc.core.tree import Tree
from fedauc.data.federated import FederatedData
from fedauc.data.sources import load_source
from fedauc.errors import InputError
from fedauc.experiments.config import FILES, Config
from fedauc.experiments.records import write_json
from fedauc.experiments.runner import Silent, Watch
from fedauc.locks import held
from fedauc.objectives import CrossEntropy
from fedauc.papers.cells import Measured

CLASSES = 10
ACCURACIES = ("valid_worst", "valid_mean", "test_worst", "test_mean")
VALID = 0.1
"""Share of the training rows by which step sizes are chosen."""
BUDGET = 1000.0
"""Seconds of uplinks that a run has."""
EVERY = 2.0
"""Seconds of uplinks between two points of a curve."""
SMOOTH = 10
"""Points of a curve whose mean says whether a goal is reached: single ones go up and down."""
SAVED = 25
"""Points between two checkpoints."""
TRIAL = 200.0
"""Seconds of uplinks that a trial of step sizes has."""


@dataclass(frozen=True)
class Softmax(CrossEntropy):
    """-log P(class | x), P = softmax of the scores; y is the class."""

    def loss(self, z: Tree, logit: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return (weight * F.cross_entropy(logit, y.long(), reduction="none")).sum()


class Rows(NamedTuple):
    """Of all classes."""

    x: Tensor
    y: NDArray[np.int64]


def dealt(config: Config) -> tuple[FederatedData, Rows, Rows]:
    """Training rows with a class per client, validation and test rows."""
    data = config.data
    assert data.source is not None
    found = load_source(data.source, root=data.root, positive="0")
    assert found.test is not None
    x = torch.from_numpy(found.train.x).flatten(1)
    order = rng.generator(config.seed, rng.SPLIT).permutation(len(x))
    held, train = np.split(order, [round(VALID * len(x))])
    classes = found.train.classes.astype(np.int64)
    names = [f"class-{number}" for number in range(CLASSES)]
    rows = torch.from_numpy(train)
    binary = torch.from_numpy((classes[train] == 0).astype(np.int8))
    dealt = FederatedData.build(x[rows], binary, classes[train], names, config.device)
    label = torch.from_numpy(classes[train]).to(dealt.x)
    test_x = torch.from_numpy(found.test.x).flatten(1).to(config.device)
    test = Rows(test_x, found.test.classes.astype(np.int64))
    valid = Rows(x[torch.from_numpy(held)].to(config.device), classes[held])
    return replace(dealt, y=label), valid, test


def network(config: Config, features: int) -> tuple[nn.Module, Tree]:
    """The configured model with a score per class, and its start values."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        hidden = tuple(config.sections["model"].get("hidden", ()))
        widths = (features, *hidden, CLASSES)
        layers: list[nn.Module] = []
        for wide, narrow in pairwise(widths):
            layers += [nn.Linear(wide, narrow), nn.ReLU()]
        module = nn.Sequential(*layers[:-1]).to(config.device)
    return module.requires_grad_(False), {name: p.detach().clone() for name, p in module.named_parameters()}


def scores(module: nn.Module, z: Tree, x: Tensor) -> Tensor:
    """[B, 10]."""
    return functional_call(module, {name: z[name] for name, _ in module.named_parameters()}, (x,))


def federation(config: Config, data: FederatedData, module: nn.Module) -> Federation:
    """The preset with the loss of ten classes."""
    scored = partial(scores, module)
    plain = config.federation(data, scored)  # type: ignore[arg-type]
    return replace(plain, method=config.method_of(scored, Softmax()))


def accuracy(module: nn.Module, z: Tree, rows: Rows) -> NDArray[np.float64]:
    """[10] of each class."""
    with torch.no_grad():
        found = scores(module, z, rows.x)
    right = found.argmax(dim=1).numpy(force=True) == rows.y
    return np.bincount(rows.y, weights=right, minlength=CLASSES) / np.bincount(rows.y, minlength=CLASSES)


def curve(
    config: Config, budget: float, folder: Path, watch: Watch | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Points along a run until the uplinks have taken `budget` seconds, and what travelled.

    An interrupted run goes on from the checkpoint in its folder.
    """
    data, valid, test = dealt(config)
    module, params = network(config, data.x.shape[1])
    fed = federation(config, data, module)
    state = begin(fed, params)
    points: list[dict[str, Any]] = []
    before, began, saved = 0.0, time.monotonic(), folder / "checkpoint.safetensors"
    if (kept := checkpoint.read_latest(saved)) is not None:
        state, _, extra = checkpoint.restored(saved, *kept, state, config.device)
        if keys := config.differing(extra["config"], FILES):
            raise InputError(f"{folder} was begun with other settings ({', '.join(keys)}).")
        points, before = extra["points"], extra["seconds"]

    def seconds() -> float:
        return before + time.monotonic() - began

    def beyond() -> Iterator[tuple[RunState, RoundRecord]]:
        """The rounds after which another point is due."""
        nonlocal state
        while state.ledger.seconds_up < budget:
            state, record = advance(fed, state)
            if state.ledger.seconds_up >= EVERY * (len(points) + 1):
                yield state, record

    watch = watch or Silent()
    watch.begin(f"{config.method} · seed {config.seed}", round(budget), int(state.ledger.seconds_up))
    try:
        for now, record in beyond():
            ledger, z = now.ledger, now.averaged.z
            points.append({"seconds_up": round(ledger.seconds_up, 3), "round": now.round})
            for name, rows in (("valid", valid), ("test", test)):
                each = accuracy(module, z, rows)
                points[-1] |= {
                    f"{name}_worst": round(float(each.min()), 4),
                    f"{name}_mean": round(float(each.mean()), 4),
                }
            gone = record._replace(round=int(ledger.seconds_up))  # (a bar of seconds, not of rounds)
            watch.round(gone, None, ledger.total_up + ledger.total_down)
            if len(points) % SAVED == 0:
                about = {"config": config.as_dict(), "points": points, "seconds": seconds()}
                checkpoint.save_state(saved, now, {}, about)
    finally:
        watch.end()
    checkpoint.remove(saved)
    ledger = state.ledger
    about = {"rounds": state.round, "bytes_up": ledger.total_up, "bytes_down": ledger.total_down}
    return points, about | {"seconds": seconds()}


def reached(points: Sequence[Mapping[str, Any]], goal: float, smooth: int) -> float | None:
    """Seconds of uplinks until the mean of so many points is as good; None: it never is."""
    worst, smooth = [point["test_worst"] for point in points], min(smooth, len(points))
    (there,) = np.nonzero(np.convolve(worst, np.full(smooth, 1 / smooth), "valid") >= goal)
    return float(points[there[0] + smooth - 1]["seconds_up"]) if len(there) else None


def smoothed(points: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Columns of the means of every five points."""
    parts = [points[k : k + 5] for k in range(0, len(points), 5)]
    return {
        name: [round(float(np.mean([point[name] for point in part])), 4) for part in parts]
        for name in ("seconds_up", *ACCURACIES)
    }


@dataclass(frozen=True)
class Reaching:
    """Seconds of uplinks until the worst class is classified so well; None: not within the budget."""

    goal: float
    budget: float = BUDGET

    def __call__(self, config: Config, folder: Path, watch: Watch | None) -> Measured:
        with held(folder):
            points, about = curve(config, self.budget, folder, watch)
            write_json(folder / "curve.json", points)
        first = {"first": reached(points, self.goal, 1)}
        last = {name: float(np.mean([point[name] for point in points[-SMOOTH:]])) for name in ACCURACIES}
        return Measured(
            reached(points, self.goal, SMOOTH), **about, more=first | last, curve=smoothed(points)
        )


def worst_on_validation(config: Config, folder: Path, watch: Watch | None) -> Measured:
    """The accuracy of the worst class on validation rows, on average over the time of a trial."""
    with held(folder):
        points, about = curve(config, TRIAL, folder, watch)
    return Measured(float(np.mean([point["valid_worst"] for point in points])), **about)
