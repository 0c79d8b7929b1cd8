"""LocalSGDA against naive transcriptions of FedAvg, of CODA+ (Alg. 1-2) and of CyCp-Minimax (Alg. 1-2)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from fedauc.core.loop import Federation, advance, begin
from fedauc.data.federated import Draws
from fedauc.methods import LocalSGDA
from fedauc.objectives import CrossEntropy, MinimaxAUC
from fedauc.participation import Cyclic, Full, Uniform
from fedauc.schedules import Stagewise

from . import naive

STEPS, BATCH, ETA, SEED = 3, 5, 0.2, 3
WEIGHTS = ("uniform", "sqrt", "examples")
BALANCES = ("aggregate", "local")


def federation(data, objective, model, participation, *, gamma=0.0, **settings) -> Federation:
    schedule = {"eta": ETA, "steps": STEPS, "cycles": 3} | settings.pop("schedule", {})
    return Federation(
        LocalSGDA(model.torch, objective, gamma=gamma),
        data,
        participation,
        Stagewise(**schedule),
        batch=BATCH,
        seed=SEED,
        **settings,
    )


def fast(fed, start, rounds):
    """The library: the iterate and the output after each round."""
    params = {name: torch.tensor(value) for name, value in start.items()}
    state, seen = begin(fed, params), []
    for _ in range(rounds):
        state, _ = advance(fed, state)
        seen.append((state.server.z, state.averaged.z))
    return seen


def local_rows(fed, round):
    """Inputs: who takes part, how likely that was, and the rows of each of their steps."""
    cohort = fed.cohort(None, round)
    draws = Draws(fed.data, cohort, fed.method.draw, STEPS, BATCH, SEED, round)
    return {int(i): rows for i, rows in zip(cohort.clients, draws.rows, strict=True)}


def osfm(fed, z, field, upload_weight, batch_weight, eta, gamma, cycles, round):
    """Algorithm 1 (one stage): every iterate (e, k), and the round after the last."""
    x, y = fed.data.x.numpy(), fed.data.y.numpy()
    anchor = dict(z)  # v₀ˢ of eq. (5); α is not pulled
    iterates = []
    for _ in range(cycles):
        for _ in range(fed.roster.cycle_length):
            step = naive.zeros(z)
            for client, rows in local_rows(fed, round).items():
                z_m = dict(z)
                for t in range(STEPS):
                    ys = y[rows[t]]
                    gradient = field(z=z_m, xs=x[rows[t]], ys=ys, weights=batch_weight(client, ys))
                    for name in z_m:
                        pull = 0.0 if name == "auc.alpha" else gamma * (z_m[name] - anchor[name])
                        gradient[name] = gradient[name] + pull
                    z_m = naive.plus(z_m, gradient, -eta)
                step = naive.plus(step, naive.plus(z_m, z, -1.0), upload_weight(client))
            z = naive.plus(z, step)
            iterates.append(z)
            round += 1
    return iterates, round


def mean(iterates):
    total = naive.zeros(iterates[0])
    for z in iterates:
        total = naive.plus(total, z, 1 / len(iterates))
    return total


def assert_equal(z, expected):
    assert z.keys() == expected.keys()
    for name in z:
        np.testing.assert_allclose(z[name].numpy(), expected[name], rtol=1e-10, atol=1e-10, err_msg=name)


def probability(fed, client):
    """K/π for each participation, from the sizes alone."""
    roster = fed.roster
    if isinstance(fed.participation, Full):
        return 1.0
    if isinstance(fed.participation, Uniform):
        return fed.data.clients / fed.participation.per_round
    (group,) = (group for group in roster.groups if client in group)
    m = len(group) if fed.participation.per_round is None else min(fed.participation.per_round, len(group))
    return len(roster.groups) * len(group) / m


PARTICIPATIONS = {
    "full": Full(),
    "cyclic, unequal groups": Cyclic(3),
    "cyclic, two of a group": Cyclic(3, per_round=2),
    "uniform": Uniform(3),
}


@pytest.mark.parametrize("participation", PARTICIPATIONS.values(), ids=PARTICIPATIONS.keys())
@pytest.mark.parametrize("client_weight", WEIGHTS)
def test_fedavg(data, participation, client_weight):
    """Natural batches, each row weighs 1/B; a client counts by its rows."""
    model = naive.Hidden()
    start = model.start(2)
    fed = federation(data, CrossEntropy(), model, participation, client_weight=client_weight)
    omega = naive.client_weights(data.counts.tolist(), client_weight)
    iterates, rounds = osfm(
        fed,
        start,
        partial(naive.cross_entropy_field, model),
        lambda client: omega[client] * probability(fed, client),
        lambda client, ys: [1 / BATCH] * len(ys),
        ETA,
        0.0,
        3,
        0,
    )
    assert rounds >= 3
    for (z, output), expected in zip(fast(fed, start, rounds), iterates, strict=True):
        assert_equal(z, expected)
        assert_equal(output, expected)


@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("client_weight", WEIGHTS)
def test_class_weighted_fedavg(data, client_weight, balance):
    model = naive.Linear()
    start = model.start(2)
    fed = federation(
        data, CrossEntropy("stratified"), model, Cyclic(3), client_weight=client_weight, balance=balance
    )
    omega, local = naive.class_weights(data.counts.tolist(), client_weight, balance)
    iterates, rounds = osfm(
        fed,
        start,
        partial(naive.cross_entropy_field, model),
        lambda client: omega[client] * probability(fed, client),
        lambda client, ys: naive.batch_weights(ys, local[client]),
        ETA,
        0.0,
        2,
        0,
    )
    for (z, _), expected in zip(fast(fed, start, rounds), iterates, strict=True):
        assert_equal(z, expected)


AUC_START = {"auc.a": np.array(0.0), "auc.b": np.array(0.0), "auc.alpha": np.array(0.0)}


@pytest.mark.parametrize("participation", PARTICIPATIONS.values(), ids=PARTICIPATIONS.keys())
@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("client_weight", WEIGHTS)
def test_stagewise_minimax_with_proximal_term_and_averaged_output(
    data, participation, client_weight, balance
):
    """Algorithm 2: stages of 1 and 2 cycles, η decays, each stage starts from the average of the last."""
    model, gamma, decay = naive.Linear(), 0.7, 0.5
    start = model.start(2)
    fed = federation(
        data,
        MinimaxAUC(),
        model,
        participation,
        gamma=gamma,
        client_weight=client_weight,
        balance=balance,
        output="average",
        schedule={"stage_cycles": 1, "growth": 2.0, "decay": decay, "cycles": 3},
    )
    omega, local = naive.class_weights(data.counts.tolist(), client_weight, balance)
    z, round, expected = start | AUC_START, 0, []
    for s, cycles in enumerate((1, 2)):
        iterates, round = osfm(
            fed,
            z,
            partial(naive.minimax_field, model),
            lambda client: omega[client] * probability(fed, client),
            lambda client, ys: naive.batch_weights(ys, local[client]),
            ETA * decay**s,
            gamma,
            cycles,
            round,
        )
        expected += [(iterates[i], mean(iterates[: i + 1])) for i in range(len(iterates))]
        z = mean(iterates)
    assert round >= 3
    for (z_fast, output), (z_naive, average) in zip(fast(fed, start, round), expected, strict=True):
        assert_equal(z_fast, z_naive)
        assert_equal(output, average)


@pytest.mark.parametrize("link", ["sigmoid", "identity"])
@pytest.mark.parametrize(
    ("form", "margin"), [("plain", 1.0), ("plain", 0.8), ("margin", 1.0), ("margin", 0.8)]
)
def test_minimax_forms_and_links(data, form, margin, link):
    """The margin form descends and ascends like the plain one, in α' = m + α."""
    model, eta = naive.Hidden(), 0.02  # short steps: α' stays above 0, where the forms are the same
    start = model.start(2)
    objective = MinimaxAUC(margin=margin, form=form, link=link)
    fed = federation(data, objective, model, Full(), schedule={"eta": eta, "cycles": 4})
    omega, local = naive.class_weights(data.counts.tolist(), "uniform", "aggregate")
    alpha = np.array(0.0 if form == "plain" else margin)
    iterates, rounds = osfm(
        fed,
        start | AUC_START | {"auc.alpha": alpha},
        partial(naive.minimax_field, model, form=form, margin=margin, h_link=link),
        lambda client: omega[client],
        lambda client, ys: naive.batch_weights(ys, local[client]),
        eta,
        0.0,
        4,
        0,
    )
    assert form == "plain" or min(float(z["auc.alpha"]) for z in iterates) > 0
    for (z, _), expected in zip(fast(fed, start, rounds), iterates, strict=True):
        assert_equal(z, expected)


def test_cycp_minimax_as_printed(data):
    """Eq. (3) with its p(1-p), natural batches, equal groups: the server takes the plain average 1/M."""
    p = data.counts[:, 1].sum() / data.counts.sum()
    whole = [i for i in range(7) if i != 5]  # six clients, three groups of two
    keep = np.isin(client_of(data), whole)
    code = np.searchsorted(whole, client_of(data)[keep])
    six = type(data).build(data.x[keep], data.y[keep], code, [data.names[i] for i in whole])
    model, eta = naive.Linear(), 0.5
    start = model.start(2)
    objective = MinimaxAUC(scale="printed", positive_rate=float(p))
    fed = federation(six, objective, model, Cyclic(3), gamma=0.3, schedule={"eta": eta})
    x, y = six.x.numpy(), six.y.numpy()

    z = start | AUC_START
    v_0 = dict(z)
    for round, (z_fast, _) in enumerate(fast(fed, start, 9)):
        received = []
        for rows in local_rows(fed, round).values():
            z_m = dict(z)
            for t in range(STEPS):
                ys = y[rows[t]]
                weights = [((1 - p) if label else p) / BATCH for label in ys]
                gradient = naive.minimax_field(model, z_m, x[rows[t]], ys, weights, curvature=p * (1 - p))
                for name in set(z_m) - {"auc.alpha"}:
                    gradient[name] = gradient[name] + 0.3 * (z_m[name] - v_0[name])
                z_m = naive.plus(z_m, gradient, -eta)
            received.append(z_m)
        assert len(received) == 2
        z = {name: sum(z_m[name] for z_m in received) / len(received) for name in z}
        assert_equal(z_fast, z)


def client_of(data):
    """The client of each row."""
    owner = np.zeros(len(data.y), dtype=int)
    for i in range(data.clients):
        owner[data.order[data.start[i] : data.start[i + 1]]] = i
    return owner


def test_weight_decay_pulls_the_model_and_not_the_auc_variables(data):
    """One step: z₁ = z₀ - η(F + λw), with λ only on the model; Σ ω = 1, so the mean pull is the pull."""
    model, decay = naive.Linear(), 0.25
    start = {name: torch.tensor(value) for name, value in model.start(2).items()}
    ends = []
    for weight_decay in (0.0, decay):
        method = LocalSGDA(model.torch, MinimaxAUC(), weight_decay=weight_decay)
        fed = Federation(method, data, Full(), Stagewise(eta=ETA, steps=1, cycles=1), batch=BATCH, seed=SEED)
        state = begin(fed, start)
        away = {name: value + 0.5 for name, value in state.server.z.items()}  # no variable at 0
        state, _ = advance(fed, state._replace(server=state.server._replace(z=away)))
        ends.append(state.server.z)
    plain, decayed = ends
    for name in plain:
        pull = 0.0 if name.startswith("auc.") else -ETA * decay * (start[name] + 0.5)
        np.testing.assert_allclose(decayed[name] - plain[name], pull, rtol=1e-10, atol=1e-14)
