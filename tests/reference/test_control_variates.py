"""ControlVariates against naive transcriptions of SCAFFOLD, of CODASCA (Alg. 3-4) and, with the pools of
CyCp-Pairwise, of what a pairwise loss with control variates is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedauc.core.loop import Federation
from fedauc.data.federated import Draws
from fedauc.methods import ActivePassive, ControlVariates, LocalSGDA
from fedauc.objectives import CrossEntropy, MinimaxAUC, PairwiseAUC
from fedauc.participation import Cyclic, Full, Uniform
from fedauc.schedules import Stagewise
from fedauc.transports.local import LocalTransport

from . import naive, naive_control
from .naive import NEGATIVE, POSITIVE
from .naive_control import ALPHA, AUC_START, as_field, assert_same, states, under, weighted_mean
from .test_active_passive import POOLS

STEPS, BATCH, ETA, SEED = 3, 5, 0.2, 3
RECORDING = LocalTransport(record=True)
PARTICIPATIONS = {
    "full": Full(),
    "cyclic, unequal groups": Cyclic(3),
    "cyclic, two of a group": Cyclic(3, per_round=2),
    "uniform": Uniform(3),
}


def federation(method, data, participation, **settings):
    schedule = {"eta": ETA, "steps": STEPS, "cycles": 20} | settings.pop("schedule", {})
    settings = {"batch": BATCH, "seed": SEED} | settings
    return Federation(method, data, participation, Stagewise(**schedule), **settings)


def rounds_of(fed):
    """Two cycles and a round, and at least five rounds."""
    return max(5, 2 * fed.roster.cycle_length + 1)


def assert_control(state, c, c_k, omega):
    """The server's c and the clients' c_k, in the library's signs; c is the weighted mean of all c_k."""
    nothing = naive.zeros(c)
    assert_same(state.server.c, c, "c")
    assert state.server.following == {}
    own = {}
    for client, expected in c_k.items():
        memory = state.memory.get(client)
        if memory is None:  # never took part
            own[client] = nothing
            assert_same({name: torch.tensor(value) for name, value in nothing.items()}, expected)
            continue
        assert_same(under("c", memory), expected, f"c_{client}")
        own[client] = {name: value.numpy() for name, value in under("c", memory).items()}
    mean = weighted_mean(omega, own)
    for name, value in state.server.c.items():
        np.testing.assert_allclose(value.numpy(), mean[name], rtol=1e-13, atol=1e-14, err_msg=name)


# ---------------------------------------------------------------------------------------------- SCAFFOLD


@pytest.mark.parametrize("participation", PARTICIPATIONS.values(), ids=PARTICIPATIONS.keys())
@pytest.mark.parametrize(("client_weight", "eta_g"), [("uniform", 1.0), ("examples", 1.0), ("examples", 1.3)])
def test_scaffold(data, participation, client_weight, eta_g):
    model = naive.Hidden() if (client_weight, eta_g) == ("examples", 1.0) else naive.Linear()
    start = model.start(2)
    method = ControlVariates(LocalSGDA(model.torch, CrossEntropy()), eta_g=eta_g)
    transport = RECORDING if eta_g > 1 else LocalTransport()
    fed = federation(method, data, participation, client_weight=client_weight, transport=transport)
    task = naive_control.cross_entropy(model, data, client_weight)
    rounds = rounds_of(fed)
    expected = naive_control.scaffold(fed, task, start, ETA, STEPS, eta_g, rounds)
    seen, before = set(), {}
    for round, (state, now) in enumerate(zip(states(fed, start, rounds), expected, strict=True)):
        assert_same(state.server.z, now.x, "z")
        assert_control(state, now.c, now.c_k, task.omega)
        here = set(naive_control.cohort(fed, round, STEPS))
        seen |= here
        assert state.memory.keys() == seen
        for client in seen - here:  # who is absent keeps what it had, bit for bit
            for name, value in before[client].items():
                assert torch.equal(state.memory[client][name], value)
        before = state.memory
    assert np.ptp(task.omega) > 0.05 or client_weight == "uniform"


def test_scaffold_as_printed(data):
    """Alg. 1 of SCAFFOLD word by word: means over the clients of the round, |S|/N for c; all weigh the same,
    groups are equal."""
    six = naive_control.even_federation(data)
    model, eta_g, n, s = naive.Linear(), 1.4, 6, 2
    x = start = model.start(2)
    method = ControlVariates(LocalSGDA(model.torch, CrossEntropy()), eta_g=eta_g)
    fed = federation(method, six, Cyclic(3))
    task = naive_control.cross_entropy(model, six)
    c, c_i = naive.zeros(x), {i: naive.zeros(x) for i in range(n)}
    for round, state in enumerate(states(fed, start, 7)):
        sum_dy, sum_dc = naive.zeros(x), naive.zeros(x)
        drawn = naive_control.cohort(fed, round, STEPS)
        assert len(drawn) == s
        for i, rows in drawn.items():
            y = dict(x)
            for k in range(STEPS):
                g = task.at(y, six, i, rows[k])
                y = {name: y[name] - ETA * (g[name] - c_i[i][name] + c[name]) for name in y}
            c_plus = {name: c_i[i][name] - c[name] + (x[name] - y[name]) / (STEPS * ETA) for name in y}
            sum_dy = naive.plus(sum_dy, naive.plus(y, x, -1.0))
            sum_dc = naive.plus(sum_dc, naive.plus(c_plus, c_i[i], -1.0))
            c_i[i] = c_plus
        x = naive.plus(x, sum_dy, eta_g / s)
        c = naive.plus(c, sum_dc, s / n / s)
        assert_same(state.server.z, x, "z")
        assert_control(state, c, c_i, task.omega)


def test_the_control_variate_is_the_mean_of_the_gradients(data):
    """SCAFFOLD's option II, eq. (6) of CODASCA, is its eq. (7): the mean of the round's local gradients."""
    model = naive.Hidden()
    start = model.start(2)
    fed = federation(ControlVariates(LocalSGDA(model.torch, CrossEntropy())), data, Cyclic(3))
    task = naive_control.cross_entropy(model, data)
    x, c = start, naive.zeros(start)
    c_k = {k: naive.zeros(start) for k in range(data.clients)}
    for round, state in enumerate(states(fed, start, 7)):
        for client, rows in naive_control.cohort(fed, round, STEPS).items():
            y, total = dict(x), naive.zeros(x)
            for t in range(STEPS):
                g = task.at(y, data, client, rows[t])
                total = naive.plus(total, g, 1 / STEPS)
                y = naive.plus(y, naive.plus(g, naive.plus(c, c_k[client], -1.0)), -ETA)
            assert_same(under("c", state.memory[client]), total, f"round {round}, client {client}")
        x = {name: value.numpy() for name, value in state.server.z.items()}
        c = {name: value.numpy() for name, value in state.server.c.items()}
        for client, memory in state.memory.items():
            c_k[client] = {name: value.numpy() for name, value in under("c", memory).items()}


# ----------------------------------------------------------------------------------------------- CODASCA


def stagewise(participation, growing, eta):
    """A schedule of two stages, the second of at least two passes over all, and its stages as (cycles, η, I);
    where I ∝ 1/√η grows, η falls to a quarter."""
    cycles = {"stage_cycles": 3, "cycles": 6} if participation == Full() else {"stage_cycles": 1, "cycles": 3}
    first, second = cycles["stage_cycles"], cycles["cycles"] - cycles["stage_cycles"]
    if growing:
        schedule = {"eta": eta, "steps": 2, "decay": 0.25, "growth": 2.0, "interval": "growing"} | cycles
        return schedule, [(first, eta, 2), (second, eta / 4, 4)]
    schedule = {"eta": eta, "steps": STEPS, "decay": 0.5, "growth": 2.0} | cycles
    return schedule, [(first, eta, STEPS), (second, eta / 2, STEPS)]


def compare_codasca(fed, task, start, stages, eta_g, gamma, output="last", least=-np.inf):
    reset = fed.method.reset
    expected = naive_control.codasca(fed, task, start, stages, eta_g, gamma, reset, output, least)
    params = {name: value for name, value in start.items() if not name.startswith("auc.")}
    alphas = []
    for state, now in zip(states(fed, params, fed.rounds), expected, strict=True):
        assert_same(state.server.z, now.v | {ALPHA: now.alpha}, "z")
        assert_same(state.server.inner.anchor, now.v_0 if gamma else {}, "anchor")
        c = as_field(now.c_v | {ALPHA: np.array(now.c_alpha)})
        c_k = {k: as_field(now.ck_v[k] | {ALPHA: np.array(now.ck_alpha[k])}) for k in now.ck_v}
        assert_control(state, c, c_k, task.omega)
        alphas.append(now.alpha)
    return alphas


@pytest.mark.parametrize("participation", PARTICIPATIONS.values(), ids=PARTICIPATIONS.keys())
@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("eta_g", [1.0, math.sqrt(7)])
def test_codasca(data, participation, reset, eta_g):
    model, gamma = naive.Linear(), 0.7
    eta = ETA if eta_g == 1 else ETA / 4  # η̃ = η_l·η_g·I is what has to be small
    schedule, stages = stagewise(participation, eta_g > 1, eta)
    method = ControlVariates(LocalSGDA(model.torch, MinimaxAUC(), gamma=gamma), eta_g=eta_g, reset=reset)
    weight = "examples" if reset else "uniform"
    fed = federation(method, data, participation, schedule=schedule, client_weight=weight)
    task = naive_control.minimax(model, data, weight)
    start = model.start(2) | AUC_START | {ALPHA: np.array(0.0)}
    compare_codasca(fed, task, start, stages, eta_g, gamma)


@pytest.mark.parametrize(
    ("participation", "balance"), [(Full(), "local"), (Cyclic(3), "aggregate")], ids=["full", "cyclic"]
)
@pytest.mark.parametrize("form", ["plain", "margin"])
def test_codasca_forms(data, participation, balance, form):
    """A hidden layer, either form, a margin other than 1; short steps, so α' stays above 0."""
    model, margin, eta_g = naive.Hidden(), 0.8, 1.5
    gamma = 0.3 if balance == "local" else 0.0
    schedule, stages = stagewise(participation, False, ETA / 10)
    method = ControlVariates(LocalSGDA(model.torch, MinimaxAUC(margin, form), gamma=gamma), eta_g=eta_g)
    fed = federation(method, data, participation, schedule=schedule, balance=balance)
    task = naive_control.minimax(model, data, "uniform", balance, form=form, margin=margin)
    alpha = np.array(margin if form == "margin" else 0.0)
    start = model.start(2) | AUC_START | {ALPHA: alpha}
    alphas = compare_codasca(fed, task, start, stages, eta_g, gamma)
    assert form == "plain" or min(alphas) > 0


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("participation", [Full(), Cyclic(3)], ids=["full", "cyclic"])
def test_codasca_with_averaged_stages(data, participation, reset):
    """A stage starts from the average of the last one, with or without its control variates."""
    model = naive.Linear()
    schedule, stages = stagewise(participation, False, ETA)
    method = ControlVariates(LocalSGDA(model.torch, MinimaxAUC(), gamma=0.7), reset=reset)
    fed = federation(method, data, participation, schedule=schedule, output="average", transport=RECORDING)
    task = naive_control.minimax(model, data)
    start = model.start(2) | AUC_START | {ALPHA: np.array(0.0)}
    compare_codasca(fed, task, start, stages, 1.0, 0.7, output="average")


def test_codasca_as_printed(data):
    """Alg. 4 word by word: eq. (3) with its p(1-p), all K machines, plain means, control variates from 0."""
    model, gamma, k = naive.Linear(), 0.3, data.clients
    p, eta_l, eta_g = float(data.counts[:, 1].sum() / data.counts.sum()), 0.3, math.sqrt(k)
    start = model.start(2)
    objective = MinimaxAUC(scale="printed", positive_rate=p)
    method = ControlVariates(LocalSGDA(model.torch, objective, gamma=gamma), eta_g=eta_g, reset=True)
    schedule = {"eta": eta_l, "stage_cycles": 3, "decay": 0.5, "cycles": 6}
    fed = federation(method, data, Full(), schedule=schedule)
    task = naive_control.minimax_printed(model, data, p)
    assert np.allclose(task.omega, 1 / k)
    v, alpha = start | AUC_START, 0.0
    for r, state in enumerate(states(fed, start, 6)):
        if r % 3 == 0:  # a call of DSGSCA+
            v_0, eta = dict(v), eta_l * 0.5 ** (r // 3)
            ck_v, ck_alpha = [naive.zeros(v) for _ in range(k)], [0.0] * k
            c_v, c_alpha = naive.zeros(v), 0.0
        ends_v, ends_alpha = [], []
        for i, rows in naive_control.cohort(fed, r, STEPS).items():
            v_k, alpha_k = dict(v), alpha
            for t in range(STEPS):
                g = task.at(v_k | {ALPHA: alpha_k}, data, i, rows[t])
                g_alpha = float(g.pop(ALPHA))
                g = {name: g[name] + gamma * (v_k[name] - v_0[name]) for name in g}
                v_k = {name: v_k[name] - eta * (g[name] - ck_v[i][name] + c_v[name]) for name in v}
                alpha_k = alpha_k + eta * (g_alpha - ck_alpha[i] + c_alpha)
            ends_v.append(v_k)
            ends_alpha.append(alpha_k)
        for i in range(k):
            for name in v:
                change = (v[name] - ends_v[i][name]) / (STEPS * eta)
                ck_v[i][name] = ck_v[i][name] - c_v[name] + change
            ck_alpha[i] = ck_alpha[i] - c_alpha + (ends_alpha[i] - alpha) / (STEPS * eta)
        c_v = {name: sum(c[name] for c in ck_v) / k for name in v}
        c_alpha = sum(ck_alpha) / k
        mean_v = {name: sum(end[name] for end in ends_v) / k for name in v}
        mean_alpha = sum(ends_alpha) / k
        v = {name: v[name] + eta_g * (mean_v[name] - v[name]) for name in v}
        alpha = alpha + eta_g * (mean_alpha - alpha)
        assert_same(state.server.z, v | {ALPHA: alpha}, "z")
        c_k = {i: as_field(ck_v[i] | {ALPHA: np.array(ck_alpha[i])}) for i in range(k)}
        assert_control(state, as_field(c_v | {ALPHA: np.array(c_alpha)}), c_k, task.omega)


def test_a_bounded_dual_is_projected_once_per_step(data):
    """α' ≥ 0: a local step is max(0, α' + η(∇α' - c_k + c)), also where the client's own gradient alone would
    have gone below 0."""
    model = naive.Linear()
    start, eta = model.start(2) | {"d": np.array(2.0)}, 0.2  # high scores: who has positives wants α' < 0
    objective = MinimaxAUC(form="margin")
    method = ControlVariates(LocalSGDA(model.torch, objective))
    fed = federation(method, data, Full())
    task = naive_control.minimax(model, data, form="margin")
    params = {name: torch.tensor(value) for name, value in start.items()}
    server = method.server_init(params, data.clients)
    alpha = 0.01
    z = server.z | {ALPHA: torch.tensor(alpha, dtype=torch.float64)}
    inner = server.inner._replace(z=z)
    cohort = fed.cohort(server, 0)
    draws = Draws(data, cohort, "stratified", 1, BATCH, SEED, 0)
    below = 0
    for shift in (-6.0, -2.0, 0.0, 2.0):  # c - c_k of the dual, as gradients
        c = server.c | {ALPHA: torch.tensor(-shift, dtype=torch.float64)}
        down = method.broadcast(server._replace(inner=inner, c=c))
        for i, client in enumerate(cohort.clients.tolist()):
            local = method.client_init(down, {}, method.memory_init(z))
            batch = draws.step(0)
            one = type(batch)(*(part[i] for part in batch))
            local, _ = method.client_step(local, one, torch.tensor(eta, dtype=torch.float64))
            at = {name: value.numpy() for name, value in z.items()}
            own = float(task.at(at, data, client, draws.rows[i, 0])[ALPHA])
            below += alpha + eta * own < 0
            expected = max(0.0, alpha + eta * (own + shift))
            np.testing.assert_allclose(local.z[ALPHA].item(), expected, rtol=1e-10, err_msg=str(shift))
    assert below


# ---------------------------------------------------------------------------------------------- pairwise


def pairwise_scaffold(fed, model, w, steps, passive, eta, eta_g, client_weight, rounds):
    """Alg. 3 of CyCp with SCAFFOLD's local direction: w, c, c_k and the pools after every round."""
    counts = fed.data.counts.tolist()
    omega, local = naive.class_weights(counts, client_weight, "aggregate")
    share = naive.class_shares(counts, client_weight)
    x, y, rule = fed.data.x.numpy(), fed.data.y.numpy(), fed.method.inner
    pools = POOLS[rule.refresh](fed.roster.cycle_length)
    c_k = {k: naive.zeros(w) for k in range(fed.data.clients)}
    for round in range(rounds):
        c = weighted_mean(omega, c_k)
        ready = all(pools.now[label] for label in (NEGATIVE, POSITIVE))
        step, learned, scores = naive.zeros(w), {}, {NEGATIVE: [], POSITIVE: []}
        for client, rows in naive_control.cohort(fed, round, steps).items():
            size = steps * passive if ready else 0
            buffers = {
                label: naive.systematic(pools.now[label], size, fed.seed, label, round, client)
                for label in (NEGATIVE, POSITIVE)
            }
            w_m, own = dict(w), {NEGATIVE: [], POSITIVE: []}
            for t in range(steps):
                xs, ys = x[rows[t]], y[rows[t]]
                for x_j, y_j in zip(xs, ys, strict=True):
                    own[int(y_j)].append(naive.link(rule.objective.link, model.score(w_m, x_j))[0])
                gradient = naive.zeros(w)
                if ready:
                    others = {label: buffers[label][t * passive : (t + 1) * passive] for label in buffers}
                    weights = naive.batch_weights(ys, local[client])
                    gradient = naive.pairwise_gradient(model, rule.objective, w_m, xs, ys, weights, others)
                w_m = {name: w_m[name] - eta * (gradient[name] - c_k[client][name] + c[name]) for name in w}
            learned[client] = {
                name: c_k[client][name] - c[name] + (w[name] - w_m[name]) / (steps * eta) for name in w
            }
            factor = naive_control.correction(fed, client)
            step = naive.plus(step, naive.plus(w_m, w, -1.0), omega[client] * factor)
            for label in (NEGATIVE, POSITIVE):
                each = share[client, label] * factor / max(len(own[label]), 1)
                scores[label] += [(h, each) for h in own[label]]
        w = naive.plus(w, step, eta_g)
        c_k = c_k | learned
        pools.add(round, scores)
        yield w, weighted_mean(omega, c_k), c_k, pools.now, ready


@pytest.mark.parametrize("refresh", ["cycle", "round", "rolling"])
@pytest.mark.parametrize(
    ("participation", "client_weight"),
    [(Cyclic(3), "examples"), (Cyclic(3, per_round=1), "uniform")],
    ids=["all", "one"],
)
def test_pairwise_with_control_variates(data, refresh, client_weight, participation):
    model, steps, passive, eta, eta_g = naive.Hidden(), 2, 4, 0.3, 1.2
    start = model.start(2)
    rule = ActivePassive(model.torch, PairwiseAUC("sigmoid", lam=0.5), refresh=refresh, passive=passive)
    schedule = {"eta": eta, "steps": steps}
    fed = federation(
        ControlVariates(rule, eta_g=eta_g),
        data,
        participation,
        schedule=schedule,
        client_weight=client_weight,
    )
    omega, _ = naive.class_weights(data.counts.tolist(), client_weight, "aggregate")
    rounds, trained = 10, 0
    expected = pairwise_scaffold(fed, model, start, steps, passive, eta, eta_g, client_weight, rounds)
    for state, (w, c, c_k, pools, ready) in zip(states(fed, start, rounds), expected, strict=True):
        assert_same(state.server.z, w, "z")
        assert_control(state, c, c_k, omega)
        trained += ready
        for label, name in enumerate(("negatives", "positives")):
            pool = state.server.inner.passive[name]
            np.testing.assert_allclose(pool.h.numpy(), [h for h, _ in pools[label]], rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(pool.weight.numpy(), [each for _, each in pools[label]], rtol=1e-10)
    assert trained >= 6  # two cycles with control variates that are not zero


def test_transports_agree(data):
    """One client after another and many at once: the same state and the same memories."""
    model = naive.Linear()
    start = model.start(2)
    method = ControlVariates(LocalSGDA(model.torch, MinimaxAUC(), gamma=0.2), eta_g=1.5, refresh="cycle")
    ends = []
    for transport in (LocalTransport("loop"), LocalTransport(), LocalTransport(chunk=2)):
        fed = replace(federation(method, data, Uniform(3)), transport=transport)
        *_, state = states(fed, start, 7)
        ends.append(state)
    for other in ends[1:]:
        for tree, same in [
            (ends[0].server.z, other.server.z),
            (ends[0].server.c, other.server.c),
            (ends[0].server.following, other.server.following),
            *((ends[0].memory[k], other.memory[k]) for k in ends[0].memory),
        ]:
            assert_same(tree, {name: value.numpy() for name, value in same.items()})
