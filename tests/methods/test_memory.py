"""A method with a memory: what a client keeps survives absence, vectorising and a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch

from fedauc.core import checkpoint, tree
from fedauc.core.loop import Federation, advance, begin
from fedauc.core.method import Gathered, Method, Upload
from fedauc.data.federated import Draws, FederatedData
from fedauc.methods.base import Rule
from fedauc.participation import Cyclic, Full, Uniform
from fedauc.schedules import Stagewise
from fedauc.transports import LocalTransport

COUNTS = ((4, 2), (5, 0), (0, 6), (7, 1), (3, 3), (6, 0), (4, 8))
STEPS, BATCH, SEED = 2, 3, 9


class Server(NamedTuple):
    z: dict
    answers: torch.Tensor
    """What every participation so far answered: times, and the client's sum of features."""


class Local(NamedTuple):
    total: torch.Tensor


@dataclass(frozen=True)
class RollCall(Rule):
    """Clients count how often they took part and add up the features they drew."""

    draw: str = "natural"

    def server_init(self, params, clients):
        return Server(params, torch.zeros(0, 3, dtype=torch.float64))

    def memory_init(self, z):
        return {"times": torch.zeros((), dtype=torch.int64), "total": torch.zeros(2, dtype=torch.float64)}

    def broadcast(self, s):
        return {"z": s.z}

    def client_init(self, d, own, c):
        return Local(c["total"])

    def client_step(self, l, batch, eta):
        return Local(l.total + batch.x.sum(dim=0)), {"loss": batch.y.sum()}

    def client_finish(self, d, l, c, outs, knobs):
        times = c["times"] + 1
        answer = torch.cat([times.double()[None], l.total])
        rows = Gathered(torch.stack([answer, answer + 1000]), torch.tensor([True, False]))
        return Upload({"times": times.double()}, {"answers": rows}), {"times": times, "total": l.total}

    def server_update(self, s, aggregate, cohort, knobs):
        answers = torch.cat([s.answers, aggregate.gather["answers"].values])
        return Server(tree.add(s.z, aggregate.mean), answers)


def data():
    generator = np.random.default_rng(0)
    y = np.concatenate([[0] * n + [1] * p for n, p in COUNTS])
    client = np.repeat(np.arange(len(COUNTS)), [n + p for n, p in COUNTS])
    x = torch.tensor(generator.normal(size=(len(y), 2)))
    return FederatedData.build(x, torch.tensor(y), client, [str(i) for i in range(len(COUNTS))])


def federation(participation=None, **transport):
    return Federation(
        RollCall(),
        data(),
        participation or Cyclic(3),
        Stagewise(eta=1.0, steps=STEPS, cycles=4),
        LocalTransport(**transport),
        batch=BATCH,
        seed=SEED,
    )


START = {"times": torch.zeros((), dtype=torch.float64)}
EVERY = [Cyclic(3), Cyclic(3, per_round=1), Uniform(2), Full()]


def run(fed, state=None, until=None):
    state = begin(fed, START) if state is None else state
    while state.round < (until or fed.rounds):
        state, _ = advance(fed, state)
    return state


def expected(fed):
    """The same book-keeping with dictionaries: memory, answers in order, and Σ over rounds of Σ ŵ·times."""
    times, total, answers, mean = {}, {}, [], 0.0
    for round in range(fed.rounds):
        cohort = fed.cohort(None, round)
        rows = Draws(fed.data, cohort, "natural", STEPS, BATCH, SEED, round).rows
        for i, client in enumerate(cohort.clients.tolist()):
            times[client] = times.get(client, 0) + 1
            total[client] = total.get(client, 0) + fed.data.x.numpy()[rows[i].ravel()].sum(axis=0)
            answers.append([times[client], *total[client]])
            mean += cohort.weight[i] * times[client]
    return times, total, answers, mean


def test_the_toy_is_a_method():
    assert isinstance(RollCall(), Method)


@pytest.mark.parametrize("participation", EVERY, ids=repr)
@pytest.mark.parametrize("transport", [{"mode": "loop"}, {"mode": "vmap"}, {"chunk": 2}], ids=str)
def test_memory_survives_absence(participation, transport):
    fed = federation(participation, **transport)
    state = run(fed)
    times, total, answers, mean = expected(fed)
    assert max(times.values()) > 1
    assert state.memory.keys() == times.keys()  # who never took part keeps nothing
    for client, memory in state.memory.items():
        assert memory["times"].item() == times[client]
        np.testing.assert_allclose(memory["total"].numpy(), total[client], rtol=1e-12)
    np.testing.assert_allclose(state.server.answers.numpy(), answers, rtol=1e-12)  # client after client
    assert state.server.z["times"].item() == pytest.approx(mean)


def test_only_rows_that_are_kept_travel():
    """Per participation: 8 bytes of mean, and one of two rows of three numbers; memory never travels."""
    for transport in ({"mode": "loop"}, {"mode": "vmap"}, {"chunk": 2}):
        fed = federation(**transport)
        state = run(fed)
        took_part = len(state.server.answers)
        assert took_part == 4 * 7
        assert state.ledger.bytes_up["model"] == took_part * 8
        assert state.ledger.bytes_up["answers"] == took_part * 3 * 8
        assert state.ledger.bytes_down["z"] == took_part * 8


@pytest.mark.parametrize("participation", EVERY[:2], ids=repr)
def test_memory_survives_a_checkpoint_at_any_round(participation, tmp_path):
    fed = federation(participation)
    whole = run(fed)
    for stop in range(1, fed.rounds):
        checkpoint.save_state(tmp_path / "c", run(fed, until=stop), {}, {})
        loaded, _, _ = checkpoint.load_state(tmp_path / "c", begin(fed, START), "cpu")
        resumed = run(fed, loaded)
        assert torch.equal(resumed.server.answers, whole.server.answers)
        assert resumed.memory.keys() == whole.memory.keys()
        for client, memory in whole.memory.items():
            assert resumed.memory[client]["times"].dtype == torch.int64
            assert all(torch.equal(resumed.memory[client][name], value) for name, value in memory.items())


def test_a_round_changes_nobody_elses_memory():
    fed = federation()
    state = run(fed, until=4)
    after, _ = advance(fed, state)
    active = set(fed.roster.select(4)[0].tolist())
    for client, memory in state.memory.items():
        same = torch.equal(memory["total"], after.memory[client]["total"])
        assert same == (client not in active)
