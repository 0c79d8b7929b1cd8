"""FedProx, NPA and the dual step of CODA against naive transcriptions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedauc.core import tree
from fedauc.core.loop import Federation
from fedauc.core.method import Aggregate
from fedauc.data.federated import FederatedData
from fedauc.errors import InputError
from fedauc.methods import Amplified, ControlVariates, LocalSGDA
from fedauc.objectives import CrossEntropy, MinimaxAUC
from fedauc.participation import Cyclic, Full, Uniform
from fedauc.schedules import Stagewise

from . import naive, naive_control
from .naive_control import ALPHA, AUC_START, assert_same, states

STEPS, BATCH, ETA, SEED = 3, 5, 0.2, 3


def federation(method, data, participation, **settings):
    schedule = Stagewise(**({"eta": ETA, "steps": STEPS, "cycles": 6} | settings.pop("schedule", {})))
    settings = {"batch": BATCH, "seed": SEED} | settings
    return Federation(method, data, participation, schedule, **settings)


# ----------------------------------------------------------------------------------------- FedProx, NPA


@pytest.mark.parametrize("participation", [Full(), Cyclic(3), Uniform(3)], ids=repr)
@pytest.mark.parametrize(("client_weight", "mu"), [("uniform", 3.0), ("examples", 0.4)])
def test_fedprox(data, participation, client_weight, mu):
    model = naive.Hidden() if mu < 1 else naive.Linear()
    start = model.start(2)
    method = LocalSGDA(model.torch, CrossEntropy(), mu=mu)
    fed = federation(method, data, participation, client_weight=client_weight)
    task, rounds = naive_control.cross_entropy(model, data, client_weight), 6
    expected = naive_control.fedprox(fed, task, start, ETA, STEPS, mu, rounds)
    for state, w in zip(states(fed, start, rounds), expected, strict=True):
        assert_same(state.server.z, w, "w")
        assert state.server.anchor == {}  # the round's start is known, nothing more has to travel


def test_both_proximal_terms_pull_the_primal_only(data):
    """∇v F + γ(v - v₀ˢ) + μ(v - v_{m,0}); α is pulled by neither."""
    model, gamma, mu = naive.Linear(), 0.7, 0.4
    start = model.start(2)
    method = LocalSGDA(model.torch, MinimaxAUC(), gamma=gamma, mu=mu)
    fed = federation(method, data, Cyclic(3), schedule={"stage_cycles": 1, "decay": 0.5, "cycles": 3})
    task = naive_control.minimax(model, data)
    z = start | AUC_START | {ALPHA: np.array(0.0)}
    for round, state in enumerate(states(fed, start, fed.rounds)):
        if round % 3 == 0:
            v_0, eta = dict(z), ETA * 0.5 ** (round // 3)
        step = naive.zeros(z)
        for client, rows in naive_control.cohort(fed, round, STEPS).items():
            z_m = dict(z)
            for t in range(STEPS):
                g = task.at(z_m, data, client, rows[t])
                new = {ALPHA: z_m[ALPHA] + eta * g[ALPHA]}
                for name in set(z) - {ALPHA}:
                    pull = gamma * (z_m[name] - v_0[name]) + mu * (z_m[name] - z[name])
                    new[name] = z_m[name] - eta * (g[name] + pull)
                z_m = new
            weight = task.omega[client] * naive_control.correction(fed, client)
            step = naive.plus(step, {name: z_m[name] - z[name] for name in z}, weight)
        z = naive.plus(z, step)
        assert_same(state.server.z, z, "z")


@pytest.mark.parametrize("client_weight", ["uniform", "examples"])
@pytest.mark.parametrize("balance", ["aggregate", "local"])
def test_npa(data, client_weight, balance):
    """One large batch at all clients, one step along the mean gradient."""
    model, gamma = naive.Hidden(), 0.3
    start = model.start(2)
    method = LocalSGDA(model.torch, MinimaxAUC(), gamma=gamma)
    fed = federation(
        method, data, Full(), schedule={"steps": 1}, batch=24, client_weight=client_weight, balance=balance
    )
    task = naive_control.minimax(model, data, client_weight, balance)
    z = start | AUC_START | {ALPHA: np.array(0.0)}
    expected = naive_control.naive_parallel(fed, task, z, ETA, gamma, 5)
    for state, now in zip(states(fed, start, 5), expected, strict=True):
        assert_same(state.server.z, now, "z")


def test_npa_as_printed(data):
    """The same for eq. (3) with its p(1-p)."""
    model, p = naive.Linear(), float(data.counts[:, 1].sum() / data.counts.sum())
    start = model.start(2)
    method = LocalSGDA(model.torch, MinimaxAUC(scale="printed", positive_rate=p))
    fed = federation(method, data, Full(), schedule={"steps": 1, "eta": 1.0}, batch=24)
    task = naive_control.minimax_printed(model, data, p)
    z = start | AUC_START | {ALPHA: np.array(0.0)}
    expected = naive_control.naive_parallel(fed, task, z, 1.0, 0.0, 5)
    for state, now in zip(states(fed, start, 5), expected, strict=True):
        assert_same(state.server.z, now, "z")


# -------------------------------------------------------------------------------------------------- CODA


def coda(fed, model, task, z, stages, gamma, margin, weight, link, output):
    """CODA: stages of local SGDA with a proximal term; α anew before every stage but the first."""
    round = 0
    for s, (cycles, eta, steps) in enumerate(stages):
        estimated = None
        if s:
            w = {name: value for name, value in z.items() if not name.startswith("auc.")}
            alpha = naive_control.estimated_dual(fed, model, w, round, steps, weight, link)
            estimated = alpha if margin is None else max(0.0, margin + alpha)
            z = z | {ALPHA: np.array(estimated)}
        v_0, iterates = dict(z), []
        for _ in range(cycles * fed.roster.cycle_length):
            step = naive.zeros(z)
            for client, rows in naive_control.cohort(fed, round, steps).items():
                z_m = dict(z)
                for t in range(steps):
                    g = task.at(z_m, fed.data, client, rows[t])
                    new = {ALPHA: z_m[ALPHA] + eta * g[ALPHA]}
                    for name in set(z) - {ALPHA}:
                        new[name] = z_m[name] - eta * (g[name] + gamma * (z_m[name] - v_0[name]))
                    z_m = new
                each = task.omega[client] * naive_control.correction(fed, client)
                step = naive.plus(step, {name: z_m[name] - z[name] for name in z}, each)
            z = naive.plus(z, step)
            iterates.append(z)
            round += 1
            yield z, estimated
        if output == "average":
            z = {name: sum(each[name] for each in iterates) / len(iterates) for name in z}


STAGES = [(2, 0.05, 2), (2, 0.05 / 4, 4), (1, 0.05 / 16, 8)]
SCHEDULE = {"eta": 0.05, "steps": 2, "stage_cycles": 2, "decay": 0.25, "interval": "growing", "cycles": 5}


def class_weight(data, client_weight):
    return naive.class_shares(data.counts.tolist(), client_weight)


def compare_coda(fed, model, task, weight, *, gamma=0.3, margin=None, link="sigmoid", output="last"):
    start = model.start(2)
    z = start | AUC_START | {ALPHA: np.array(0.0 if margin is None else margin)}
    expected = coda(fed, model, task, z, STAGES, gamma, margin, weight, link, output)
    jumps = []
    for state, (now, estimated) in zip(states(fed, start, fed.rounds), expected, strict=True):
        assert_same(state.server.z, now, "z")
        jumps.append(estimated)
        assert float(now[ALPHA]) > 0 or margin is None
    assert len(set(jumps)) == 3


@pytest.mark.parametrize("form", ["plain", "margin"])
@pytest.mark.parametrize(
    ("participation", "client_weight"), [(Full(), "examples"), (Cyclic(3), "uniform")], ids=["full", "cyclic"]
)
def test_coda(data, client_weight, form, participation):
    """All clients answer, whoever is active; the classes are weighed like those of the objective."""
    model = naive.Hidden()
    objective = MinimaxAUC(form=form, margin=0.9)
    method = LocalSGDA(model.torch, objective, gamma=0.3, reestimate=True)
    fed = federation(method, data, participation, schedule=SCHEDULE, client_weight=client_weight)
    task = naive_control.minimax(model, data, client_weight, form=form, margin=0.9)
    weight = class_weight(data, client_weight)
    compare_coda(fed, model, task, weight, margin=0.9 if form == "margin" else None)


@pytest.mark.parametrize("balance", ["aggregate", "local"])
def test_coda_of_averages_and_logits(data, balance):
    model = naive.Linear()
    objective = MinimaxAUC(link="identity")
    method = LocalSGDA(model.torch, objective, gamma=0.3, reestimate=True)
    fed = federation(method, data, Full(), schedule=SCHEDULE, balance=balance, output="average")
    task = naive_control.minimax(model, data, balance=balance, h_link="identity")
    compare_coda(fed, model, task, class_weight(data, "uniform"), link="identity", output="average")


@pytest.mark.parametrize("client_weight", ["uniform", "examples"])
def test_coda_as_printed(data, client_weight):
    """Eq. (3) with its p(1-p): its own draws are natural, those of the dual step go by class, and a client
    counts in a class mean as it counts in the federation."""
    model, p = naive.Linear(), float(data.counts[:, 1].sum() / data.counts.sum())
    objective = MinimaxAUC(scale="printed", positive_rate=p)
    method = LocalSGDA(model.torch, objective, gamma=0.3, reestimate=True)
    fed = federation(method, data, Full(), schedule=SCHEDULE, client_weight=client_weight)
    task = naive_control.minimax_printed(model, data, p, client_weight)
    weight = np.stack([task.omega, task.omega], axis=1)
    compare_coda(fed, model, task, weight)


@pytest.mark.parametrize("form", ["plain", "margin"])
def test_the_estimate_of_whole_clients_is_the_saddle(form):
    """With every row of every client in the draw, α is where the objective's ∂α vanishes."""
    generator = np.random.default_rng(4)
    counts = np.array([(4, 2), (2, 0), (0, 4), (4, 1)])  # four steps of two rows: whole passes over all
    y = np.concatenate([[0] * negatives + [1] * positives for negatives, positives in counts])
    x, client = generator.normal(size=(len(y), 2)) + y[:, None] / 4, np.repeat(range(4), counts.sum(axis=1))
    data = FederatedData.build(torch.tensor(x), torch.tensor(y), client, list("abcd"))
    model = naive.Linear()
    start = model.start(2)
    method = LocalSGDA(model.torch, MinimaxAUC(form=form, link="identity"), reestimate=True)
    schedule = {"stage_cycles": 1, "eta": 1e-10, "decay": 1.0, "steps": 4}
    fed = federation(method, data, Full(), schedule=schedule, batch=2, client_weight="examples")
    *_, state = states(fed, start, 2)
    scores = np.array([model.score(start, row) for row in x])
    gap = scores[y == 0].mean() - scores[y == 1].mean()
    expected = 1 + gap if form == "margin" else gap
    assert expected > 0 or form == "plain"
    assert state.server.z[ALPHA].item() == pytest.approx(expected, abs=1e-8)


def test_a_negative_estimate_of_the_margin_form_is_zero(data):
    """α' = m + α ≥ 0: scores that are further apart than the margin."""
    model = naive.Linear()
    start = {"u": np.array([3.0, 3.0]), "d": np.array(0.0)}
    method = LocalSGDA(model.torch, MinimaxAUC(form="margin", link="identity"), reestimate=True)
    fed = federation(method, data, Full(), schedule={"stage_cycles": 1, "eta": 1e-12})
    first, second = states(fed, start, 2)
    assert first.server.z[ALPHA].item() == pytest.approx(1.0)
    assert second.server.z[ALPHA].item() == pytest.approx(0.0, abs=1e-9)


def test_the_dual_step_travels_and_touches_nothing_else(data):
    """Every client receives z and sends four numbers; all of the server's state but α stays, and so does what
    clients keep."""
    model = naive.Linear()
    start = model.start(2)
    ledgers, schedule = [], {"stage_cycles": 1, "decay": 1.0}
    for reestimate in (False, True):
        inner = LocalSGDA(model.torch, MinimaxAUC(), gamma=0.2, reestimate=reestimate)
        method = Amplified(ControlVariates(inner), amplify=1.5)
        fed = federation(method, data, Cyclic(3), schedule=schedule)
        *_, before, after = states(fed, start, 4)
        ledgers.append(after.ledger)
    assert ledgers[1].total_down - ledgers[0].total_down == data.clients * 8 * (3 + 3)
    assert ledgers[1].total_up - ledgers[0].total_up == data.clients * 8 * 4
    assert ledgers[1].messages_up - ledgers[0].messages_up == data.clients
    estimate, _ = method.phases(True)
    assert len(method.phases(False)) == 1
    assert estimate.method.memory_init(before.server.z) == {}
    sums = {
        f"dual/{name}": torch.tensor(value)
        for name, value in (("h-", 0.2), ("w-", 1.0), ("h+", 1.8), ("w+", 2.0))
    }
    changed = estimate.method.server_update(before.server, Aggregate(sums, {}), None, None)
    assert type(changed) is type(before.server)
    old, new = tree.flatten(before.server), tree.flatten(changed)
    assert old.keys() == new.keys()
    for name, value in new.items():
        if name == "inner/inner/z/auc.alpha":
            assert value.item() == pytest.approx(0.2 - 0.9)
        elif name != "anchor/auc.alpha":  # where a cycle starts, which may well follow
            assert torch.equal(value, old[name]), name


def test_amplification_multiplies_what_the_cycle_did_and_not_the_dual_step(data):
    """The dual step sets α; what a cycle's rounds change from there is amplified. Where nobody moves, α is
    the estimate for any factor."""
    model = naive.Linear()
    start = model.start(2)
    ends = []
    for factor in (1.0, 2.0):
        inner = LocalSGDA(model.torch, MinimaxAUC(), reestimate=True)
        schedule = {"stage_cycles": 1, "eta": 1e-12, "decay": 1.0}
        fed = federation(Amplified(inner, amplify=factor), data, Cyclic(3), schedule=schedule)
        *_, state = states(fed, start, 6)  # the end of the first cycle after an estimate
        ends.append(state.server.z[ALPHA].item())
    assert abs(ends[0]) > 1e-3
    assert ends[1] == pytest.approx(ends[0], rel=1e-6)


def test_only_an_objective_with_a_dual_can_have_it_estimated():
    with pytest.raises(InputError, match="dual"):
        LocalSGDA(naive.Linear().torch, CrossEntropy(), reestimate=True)
