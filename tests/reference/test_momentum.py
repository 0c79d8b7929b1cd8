"""LocalSGDAM and LocalSGDM against Alg. 1 of LocalSCGDAM without its inner function."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from fedauc.core.loop import Federation
from fedauc.methods import LocalSGDAM
from fedauc.objectives import CrossEntropy, MinimaxAUC
from fedauc.participation import Cyclic, Full, Uniform
from fedauc.schedules import Stagewise

from . import naive, naive_more

STEPS, BATCH, ETA, SEED = 3, 5, 0.2, 3
RULE = {"gamma_x": 0.7, "gamma_y": 1.3, "beta_x": 0.3, "beta_y": 0.6}
SETTINGS = RULE | {"eta": ETA, "steps": STEPS, "h_rate": 1.0}
AUC_START = {"auc.a": np.array(0.0), "auc.b": np.array(0.0), "auc.alpha": np.array(0.0)}
PARTICIPATIONS = {
    "full": (Full(), 4),
    "cyclic, unequal groups": (Cyclic(3), 6),
    "cyclic, two of a group": (Cyclic(3, per_round=2), 6),
    "uniform": (Uniform(3), 6),
}


def federation(data, objective, model, participation, *, rule=RULE, **settings):
    return Federation(
        LocalSGDAM(model.torch, objective, **rule),
        data,
        participation,
        Stagewise(eta=ETA, steps=STEPS, cycles=20),
        batch=BATCH,
        seed=SEED,
        **settings,
    )


def compare(fed, start, expected, rounds):
    seen = naive_more.states(fed, start, rounds)
    for state, (z, momentum, h) in zip(seen, expected, strict=True):
        naive_more.assert_close(state.server.z, z)
        naive_more.assert_close(state.server.momentum, momentum)
        assert state.server.h == h == {}
    assert max(np.abs(value).max() for value in momentum.values()) > 1e-2  # still on its way


@pytest.mark.parametrize("participation", PARTICIPATIONS)
@pytest.mark.parametrize(("client_weight", "balance"), [("examples", "aggregate"), ("sqrt", "local")])
def test_local_sgdam(data, participation, client_weight, balance):
    model = naive.Hidden()
    start, (who, rounds) = model.start(2), PARTICIPATIONS[participation]
    fed = federation(data, MinimaxAUC(), model, who, client_weight=client_weight, balance=balance)
    omega, local = naive.class_weights(data.counts.tolist(), client_weight, balance)
    assert balance == "local" or len(set(np.round(omega, 6))) > 3
    expected = naive_more.momentum(
        fed,
        start | AUC_START,
        naive_more.Plain(partial(naive.minimax_field, model)),
        lambda client, ys: (naive.batch_weights(ys, local[client]), None),
        lambda client: omega[client] * naive_more.correction(fed, client),
        SETTINGS,
        rounds,
    )
    compare(fed, start, expected, rounds)


@pytest.mark.parametrize("participation", PARTICIPATIONS)
def test_local_sgdm(data, participation):
    """Cross-entropy has no dual: u alone. With weight decay, which is part of the gradient."""
    model, decay = naive.Hidden(), 0.1
    start, (who, rounds) = model.start(2), PARTICIPATIONS[participation]
    rule = RULE | {"weight_decay": decay}
    fed = federation(data, CrossEntropy(), model, who, rule=rule, client_weight="examples")
    omega = naive.client_weights(data.counts.tolist(), "examples")
    expected = naive_more.momentum(
        fed,
        start,
        naive_more.Plain(partial(naive.cross_entropy_field, model), decay),
        lambda client, ys: ([1 / BATCH] * BATCH, None),
        lambda client: omega[client] * naive_more.correction(fed, client),
        SETTINGS,
        rounds,
    )
    compare(fed, start, expected, rounds)


def test_as_printed(data):
    """Eq. (1) with its p, natural batches, everybody counts the same: the printed mean 1/K Σ_k of each of
    x, y, u, v, written out once more without anything in common with the other transcription."""
    model = naive.Linear()
    start = model.start(2)
    p = float(data.counts[:, 1].sum() / data.counts.sum())
    fed = federation(data, MinimaxAUC(scale="printed", positive_rate=p), model, Full())
    data_x, data_y, clients = data.x.numpy(), data.y.numpy(), list(range(data.clients))

    def gradients(z, rows):
        """∇_x f and ∇_y f, in one tree."""
        ys = data_y[rows]
        weights = [((1 - p) if label else p) / BATCH for label in ys]
        field = naive.minimax_field(model, z, data_x[rows], ys, weights, curvature=p * (1 - p))
        return field | {"auc.alpha": -field["auc.alpha"]}

    z_k = dict.fromkeys(clients, start | AUC_START)
    first = naive_more.rows_of(fed, clients, 0, STEPS)
    u_k = {k: gradients(z_k[k], first[k][0]) for k in clients}  # before the loop
    t = 0
    for round, state in enumerate(naive_more.states(fed, start, 4)):
        rows = naive_more.rows_of(fed, clients, round, STEPS)
        while t + 1 < (round + 1) * STEPS:
            for k in clients:
                z, u = dict(z_k[k]), dict(u_k[k])
                for name in z:
                    dual = name == "auc.alpha"
                    z[name] = z[name] + (ETA * 1.3 * u[name] if dual else -ETA * 0.7 * u[name])
                g = gradients(z, rows[k][(t + 1) % STEPS])
                for name in u:
                    beta = 0.6 if name == "auc.alpha" else 0.3
                    u[name] = (1 - beta) * u[name] + beta * g[name]
                z_k[k], u_k[k] = z, u
            t += 1
        z = {name: sum(z_k[k][name] for k in clients) / len(clients) for name in z_k[0]}
        u = {name: sum(u_k[k][name] for k in clients) / len(clients) for name in u_k[0]}
        z_k, u_k = dict.fromkeys(clients, z), dict.fromkeys(clients, u)
        naive_more.assert_close(state.server.z, z)
        naive_more.assert_close(state.server.momentum, u | {"auc.alpha": -u["auc.alpha"]})


def test_the_dual_of_the_margin_form_stays_above_zero(data):
    """α' = m + α ≥ 0 bounds the iterate, after every step and after the average, and not the momentum."""
    model, start = (
        naive.Linear(),
        {"u": np.array([2.0, 2.0]), "d": np.array(0.0)},
    )  # far apart: α' < 0 is best
    fed = federation(data, MinimaxAUC(form="margin", link="identity"), model, Cyclic(3))
    omega, local = naive.class_weights(data.counts.tolist(), "uniform", "aggregate")
    cut = []

    def bounded(y):
        cut.append(float(y["auc.alpha"]) < 0)
        return {"auc.alpha": np.maximum(y["auc.alpha"], 0.0)}

    expected = naive_more.momentum(
        fed,
        start | AUC_START | {"auc.alpha": np.array(1.0)},
        naive_more.Plain(partial(naive.minimax_field, model, form="margin", h_link="identity")),
        lambda client, ys: (naive.batch_weights(ys, local[client]), None),
        lambda client: omega[client] * naive_more.correction(fed, client),
        SETTINGS,
        6,
        bounded,
    )
    compare(fed, start, expected, 6)
    assert 0 < sum(cut) < len(cut)
