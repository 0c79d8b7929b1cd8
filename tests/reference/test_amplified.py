"""Amplified FedAvg (Wang & Ji) and amplified SCAFFOLD (Crawshaw & Liu) against naive transcriptions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedauc.core.loop import Federation
from fedauc.methods import Amplified, ControlVariates, LocalSGDA
from fedauc.objectives import CrossEntropy, MinimaxAUC
from fedauc.participation import Cyclic, Full, Uniform
from fedauc.schedules import Stagewise
from fedauc.transports.local import LocalTransport

from . import naive, naive_control
from .naive_control import ALPHA, AUC_START, as_field, assert_same, states, under, weighted_mean

STEPS, BATCH, ETA, SEED, CYCLES = 2, 5, 0.15, 3, 4
PARTICIPATIONS = {
    "full": Full(),
    "cyclic, unequal groups": Cyclic(3),
    "cyclic, one of a group": Cyclic(3, per_round=1),
    "uniform": Uniform(3),
}


def federation(method, data, participation, **settings):
    schedule = Stagewise(**({"eta": ETA, "steps": STEPS, "cycles": CYCLES} | settings.pop("schedule", {})))
    return Federation(method, data, participation, schedule, batch=BATCH, seed=SEED, **settings)


@pytest.mark.parametrize("participation", PARTICIPATIONS.values(), ids=PARTICIPATIONS.keys())
@pytest.mark.parametrize("client_weight", ["uniform", "examples"])
def test_amplified_fedavg(data, participation, client_weight):
    model, factor = naive.Hidden(), 1.7
    start = model.start(2)
    method = Amplified(LocalSGDA(model.torch, CrossEntropy()), amplify=factor)
    fed = federation(method, data, participation, client_weight=client_weight)
    task = naive_control.cross_entropy(model, data, client_weight)
    expected = naive_control.amplified(fed, task, start, ETA, STEPS, factor, fed.rounds, control=False)
    for state, now in zip(states(fed, start, fed.rounds), expected, strict=True):
        assert_same(state.server.z, now.x, "z")
        assert_same(state.server.anchor, now.anchor, "anchor")
        assert state.memory == {}


def test_amplified_fedavg_as_printed(data):
    """Wang & Ji's listing: plain means of equal groups, η x-differences added up over P rounds."""
    six = naive_control.even_federation(data)
    model, factor, window = naive.Linear(), 2.0, 3
    x = x_0 = start = model.start(2)
    fed = federation(Amplified(LocalSGDA(model.torch, CrossEntropy()), amplify=factor), six, Cyclic(window))
    task = naive_control.cross_entropy(model, six)
    u = naive.zeros(x)
    for t, state in enumerate(states(fed, start, fed.rounds)):
        ends = []
        for client, rows in naive_control.cohort(fed, t, STEPS).items():
            y = dict(x)
            for i in range(STEPS):
                y = naive.plus(y, task.at(y, six, client, rows[i]), -ETA)
            ends.append(y)
        delta = {name: sum(y[name] - x[name] for y in ends) / len(ends) for name in x}
        u = naive.plus(u, delta)
        x = naive.plus(x, delta)
        if (t + 1) % window == 0:
            x = naive.plus(x_0, u, factor)
            x_0, u = dict(x), naive.zeros(x)
        assert_same(state.server.z, x, "z")


def in_force(memory, cycle):
    """c_k as a client has it in a cycle, and what follows it."""
    return under("c" if memory["cycle"].item() == cycle else "following", memory)


def assert_frozen(state, now, omega, cycle, window):
    """c, c_k and what will replace them; `cycle` is that of the round that has just ended."""
    server = state.server.inner
    assert_same(server.c, now.c, "c")
    ends = state.round % window == 0
    following, following_k = {}, {}
    for client, c_k in now.c_k.items():
        memory = state.memory.get(client)
        if memory is None:  # never took part
            assert client not in now.mean
            assert all(not np.any(value) for value in c_k.values())
            following[client] = following_k[client] = c_k
            continue
        assert_same(in_force(memory, cycle + ends), c_k, f"c_{client}")
        if client in now.mean:  # took part in this cycle
            assert memory["cycle"].item() == cycle
            assert memory["rounds"].item() == now.times[client]
            assert_same(under("following", memory), now.mean[client], f"next c_{client}")
        else:
            assert memory["cycle"].item() < cycle
        following_k[client] = {name: value.numpy() for name, value in under("following", memory).items()}
        following[client] = now.mean.get(client, c_k)
    assert_same(server.following, weighted_mean(omega, following), "next c")
    mean = weighted_mean(omega, following_k)
    for name, value in server.following.items():  # exactly the mean of what the clients keep
        np.testing.assert_allclose(value.numpy(), mean[name], rtol=1e-13, atol=1e-14)
    if ends:
        assert all(torch.equal(server.c[name], server.following[name]) for name in server.c)


@pytest.mark.parametrize("participation", PARTICIPATIONS.values(), ids=PARTICIPATIONS.keys())
@pytest.mark.parametrize("client_weight", ["uniform", "examples"])
def test_amplified_scaffold(data, participation, client_weight):
    model, factor = naive.Hidden(), 1.5
    start = model.start(2)
    method = Amplified(
        ControlVariates(LocalSGDA(model.torch, CrossEntropy()), refresh="cycle"), amplify=factor
    )
    transport = LocalTransport(record=client_weight == "examples")
    fed = federation(method, data, participation, client_weight=client_weight, transport=transport)
    task, window = naive_control.cross_entropy(model, data, client_weight), fed.roster.cycle_length
    expected = naive_control.amplified(fed, task, start, ETA, STEPS, factor, fed.rounds, control=True)
    missed, again = set(), set()
    for round, (state, now) in enumerate(zip(states(fed, start, fed.rounds), expected, strict=True)):
        assert_same(state.server.z, now.x, "z")
        assert_same(state.server.anchor, now.anchor, "anchor")
        assert_frozen(state, now, task.omega, round // window, window)
        if (round + 1) % window == 0:
            missed |= {k for k in range(data.clients) if k not in now.mean}
            again |= {k for k, times in now.times.items() if times > 1}
    assert bool(missed) == (participation in (Cyclic(3, per_round=1), Uniform(3)))
    assert bool(again) == (participation == Uniform(3))


def test_amplified_scaffold_as_in_the_authors_experiments(data):
    """Crawshaw & Liu: sums of gradients and how many there were, all clients alike, equal groups of which one
    client answers; P is one pass over the groups."""
    six = naive_control.even_federation(data)
    model, factor, n = naive.Linear(), 1.5, 6
    x = anchor = start = model.start(2)
    method = Amplified(
        ControlVariates(LocalSGDA(model.torch, CrossEntropy()), refresh="cycle"), amplify=factor
    )
    fed = federation(method, six, Cyclic(3, per_round=1), schedule={"cycles": 5})
    task = naive_control.cross_entropy(model, six)
    local = [naive.zeros(x) for _ in range(n)]
    total, sums, count = naive.zeros(x), [naive.zeros(x) for _ in range(n)], [0] * n
    for r, state in enumerate(states(fed, start, fed.rounds)):
        trained = []
        for client, rows in naive_control.cohort(fed, r, STEPS).items():
            y = dict(x)
            for i in range(STEPS):
                g = task.at(y, six, client, rows[i])
                sums[client], count[client] = naive.plus(sums[client], g), count[client] + 1
                y = {name: y[name] - ETA * (g[name] - local[client][name] + total[name]) for name in y}
            trained.append(y)
        x = {name: np.mean([y[name] for y in trained], axis=0) for name in x}
        if (r + 1) % 3 == 0:
            x = naive.plus(anchor, naive.plus(x, anchor, -1.0), factor)
            anchor = dict(x)
            for k in range(n):
                if count[k]:
                    total = naive.plus(total, local[k], -1 / n)
                    local[k] = {name: value / count[k] for name, value in sums[k].items()}
                    total = naive.plus(total, local[k], 1 / n)
                    sums[k], count[k] = naive.zeros(x), 0
        assert_same(state.server.z, x, "z")
        assert_same(state.server.inner.c, total, "c")


@pytest.mark.parametrize("output", ["last", "average"])
@pytest.mark.parametrize("reset", [True, False])
def test_frozen_control_variates_of_a_dual_across_stages(data, reset, output):
    """CODASCA with one c per cycle and amplified cycles (ours): stages of one and two cycles; η and, as they
    may start from zero, the control variates change with the stage, which may start from an average."""
    model, factor = naive.Linear(), 1.3
    start = model.start(2)
    method = Amplified(
        ControlVariates(LocalSGDA(model.torch, MinimaxAUC()), refresh="cycle", reset=reset), amplify=factor
    )
    schedule = {"stage_cycles": 1, "growth": 2.0, "decay": 0.5, "cycles": 3}
    fed = federation(method, data, Cyclic(3), schedule=schedule, output=output)
    task = naive_control.minimax(model, data)
    omega, clients, window = task.omega, range(data.clients), 3
    z = start | AUC_START | {ALPHA: np.array(0.0)}
    anchor, c = dict(z), naive.zeros(z)
    c_k, learned, iterates = {k: naive.zeros(z) for k in clients}, {}, []
    for round, state in enumerate(states(fed, start, fed.rounds)):
        if round == window and output == "average":
            z = {name: sum(each[name] for each in iterates) / window for name in z}
            anchor = dict(z)
        if round == window and reset:
            c, c_k = naive.zeros(z), {k: naive.zeros(z) for k in clients}
        eta = ETA if round < window else ETA / 2
        step = naive.zeros(z)
        for client, rows in naive_control.cohort(fed, round, STEPS).items():
            z_k, taken = dict(z), naive.zeros(z)
            for t in range(STEPS):
                g = task.at(z_k, data, client, rows[t])
                taken = naive.plus(taken, g, 1 / STEPS)
                for name in z_k:
                    sign = 1 if name == ALPHA else -1
                    z_k[name] = z_k[name] + sign * eta * (g[name] - c_k[client][name] + c[name])
            learned[client] = taken
            weight = omega[client] * naive_control.correction(fed, client)
            step = naive.plus(step, naive.plus(z_k, z, -1.0), weight)
        z = naive.plus(z, step)
        if (round + 1) % window == 0:
            z = naive.plus(anchor, naive.plus(z, anchor, -1.0), factor)
            anchor, c_k, learned = dict(z), c_k | learned, {}
            c = weighted_mean(omega, c_k)
        iterates.append(z)
        assert_same(state.server.z, z, "z")
        assert_same(state.server.anchor, anchor, "anchor")
        assert_same(state.server.inner.c, as_field(c), "c")
