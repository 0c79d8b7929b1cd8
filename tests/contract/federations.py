"""A small heterogeneous federation in float64, for any preset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedauc import models
from fedauc.core.loop import Federation, RoundRecord, RunState, advance, begin
from fedauc.core.tree import Tree, flatten
from fedauc.data.federated import FederatedData
from fedauc.experiments.config import Config

# (negatives, positives) of each client: two without positives, one without negatives, one with a single one.
COUNTS = ((9, 4), (5, 0), (0, 6), (12, 1), (3, 3), (7, 0), (4, 8))
FEATURES = 3

SETTINGS: dict[str, Any] = {
    "model": "mlp",
    "model.hidden": (4,),
    "schedule.steps": 3,
    "schedule.cycles": 3,
    "train.batch": 6,
    "participation.groups": 3,  # 7 clients in groups of 2, 3 and 2
    "participation.per_round": None,
    "rule.passive": 5,
}


class Spy:
    """A method that is watched; everything is left to the method itself, in every phase of a round."""

    def __init__(self, method, log=None):
        self.method = method
        self.log = log if log is not None else {}

    def __getattr__(self, name):
        return getattr(self.method, name)

    def phases(self, new_stage):
        return tuple(p._replace(method=type(self)(p.method, self.log)) for p in self.method.phases(new_stage))


class Run(NamedTuple):
    """A federation and the parameters it starts from."""

    fed: Federation
    params: Tree

    def start(self) -> RunState:
        return begin(self.fed, self.params)

    def advance(self, state: RunState) -> tuple[RunState, RoundRecord]:
        return advance(self.fed, state)

    def after(self, rounds: int) -> RunState:
        """The state after so many rounds."""
        state = self.start()
        while state.round < rounds:
            state, _ = self.advance(state)
        return state

    def cohort(self, state: RunState) -> NDArray[np.int64]:
        """The clients of the round that comes next."""
        return self.fed.cohort(state.server, state.round).clients

    @property
    def long(self) -> int:
        """A cycle and a round: enough for pools to be filled and used."""
        return self.fed.roster.cycle_length + 1


def rows(counts: Any = COUNTS, seed: int = 0, features: int = FEATURES) -> FederatedData:
    """Rows whose features depend on the class and on the client."""
    generator = np.random.default_rng(seed)
    x, y, client = [], [], []
    for i, of_class in enumerate(counts):
        shift = generator.normal(size=features)
        for label, count in enumerate(of_class):
            x += [shift + label + generator.normal(size=features) for _ in range(count)]
            y += [label] * count
            client += [i] * count
    mixed = generator.permutation(len(y))  # clients' rows do not lie side by side
    return FederatedData.build(
        torch.tensor(np.array(x)[mixed]),
        torch.tensor(np.array(y)[mixed]),
        np.array(client)[mixed],
        [f"client-{i}" for i in range(len(counts))],
    )


def configured(name: str, overrides: Mapping[str, Any] | None = None) -> Config:
    """The preset with small settings; a setting that its components do not have is left out."""
    wanted = {key: value for key, value in (SETTINGS | dict(overrides or {})).items() if value is not None}
    parts = {key: value for key, value in wanted.items() if "." not in key}
    known = Config.resolve(name, parts).sections
    fields = {k: v for k, v in wanted.items() if "." in k and k.split(".")[1] in known[k.split(".")[0]]}
    if known["participation"]["name"] in ("optimal", "weighted"):  # at least two clients in every round
        fields = {"participation.per_round": 2} | fields
    return Config.resolve(name, parts | fields)


def built(name: str, overrides: Mapping[str, Any] | None = None, data: FederatedData | None = None) -> Run:
    """The preset on the small federation."""
    config = configured(name, overrides)
    data = rows() if data is None else data
    model, params = models.init(config.component("model"), tuple(data.x.shape[1:]), seed=1)
    double = {name: value.double() for name, value in params.items()}
    return Run(config.federation(data, model), double)


def tensors(state: RunState) -> Tree:
    """All tensors of a state, by name."""
    flat = flatten(state.server, "server") | flatten(state.averaged, "averaged")
    for client, memory in state.memory.items():
        flat |= flatten(memory, f"memory/{client}")
    return flat


def assert_same(a: RunState, b: RunState) -> None:
    """Bit for bit the same state, and the same ledger."""
    assert a.round == b.round
    assert a.ledger == b.ledger
    left, right = tensors(a), tensors(b)
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert value.dtype == right[name].dtype, name
        assert torch.equal(value, right[name]), name


def assert_close(a: RunState, b: RunState, rtol: float = 1e-12) -> None:
    """The same state up to rounding."""
    left, right = tensors(a), tensors(b)
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(
            value, right[name], rtol=rtol, atol=rtol, msg=lambda m, n=name: f"{n}: {m}"
        )
