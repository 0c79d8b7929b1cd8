"""LocalSCGDAM against Alg. 1 of "Federated compositional deep AUC maximization", the Hessian by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from fedauc.core.loop import Federation
from fedauc.core.method import Batch
from fedauc.errors import InputError
from fedauc.experiments.config import Config
from fedauc.methods import LocalSCGDAM
from fedauc.methods.compositional import halves
from fedauc.methods.momentum import State
from fedauc.objectives import MinimaxAUC
from fedauc.objectives.base import field
from fedauc.participation import Cyclic, Full
from fedauc.schedules import Stagewise

from . import naive, naive_more

STEPS, BATCH, ETA, SEED, RHO = 3, 5, 0.2, 3, 0.4
RULE = {"gamma_x": 0.7, "gamma_y": 1.3, "beta_x": 0.3, "beta_y": 0.6, "h_rate": 0.45}
SETTINGS = RULE | {"eta": ETA, "steps": STEPS}
AUC_START = {"auc.a": np.array(0.0), "auc.b": np.array(0.0), "auc.alpha": np.array(0.0)}
PARTICIPATIONS = {"full": (Full(), 4), "cyclic": (Cyclic(3), 6)}
MODELS = {"linear": naive.Linear(), "hidden": naive.Hidden()}


def federation(data, objective, model, participation, hessian, xi="own", **settings):
    return Federation(
        LocalSCGDAM(model.torch, objective, rho=RHO, hessian=hessian, xi=xi, **RULE),
        data,
        participation,
        Stagewise(eta=ETA, steps=STEPS, cycles=20),
        batch=BATCH,
        seed=SEED,
        **settings,
    )


def compare(fed, start, expected, rounds):
    for state, (z, momentum, h) in zip(naive_more.states(fed, start, rounds), expected, strict=True):
        naive_more.assert_close(state.server.z, z)
        naive_more.assert_close(state.server.momentum, momentum)
        naive_more.assert_close(state.server.h, h)
    assert np.abs(h["u"] - z["u"]).max() > 1e-3  # the inner step is one


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("hessian", ["exact", "first-order"])
@pytest.mark.parametrize("xi", ["own", "shared"])
@pytest.mark.parametrize("participation", PARTICIPATIONS)
def test_classes(data, name, hessian, xi, participation):
    """Stratified batches: f has the weights c±, L_CE half of them."""
    model = MODELS[name]
    client_weight, balance = ("sqrt", "aggregate") if name == "hidden" else ("examples", "local")
    start, (who, rounds) = model.start(2), PARTICIPATIONS[participation]
    settings = {"client_weight": client_weight, "balance": balance}
    fed = federation(data, MinimaxAUC(), model, who, hessian, xi, **settings)
    omega, local = naive.class_weights(data.counts.tolist(), client_weight, balance)

    def weights_of(client, ys):
        weights = naive.batch_weights(ys, local[client])
        return weights, [weight / 2 for weight in weights]

    expected = naive_more.momentum(
        fed,
        start | AUC_START,
        naive_more.Composed(
            model, partial(naive.minimax_field, model), RHO, hessian == "first-order", xi == "shared"
        ),
        weights_of,
        lambda client: omega[client] * naive_more.correction(fed, client),
        SETTINGS,
        rounds,
    )
    compare(fed, start, expected, rounds)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("hessian", ["exact", "first-order"])
@pytest.mark.parametrize("participation", PARTICIPATIONS)
def test_printed(data, name, hessian, participation):
    """Eq. (1)-(2) as printed: natural batches, p and 1-p in f, the plain mean in L_CE."""
    model = MODELS[name]
    start, (who, rounds) = model.start(2), PARTICIPATIONS[participation]
    p = float(data.counts[:, 1].sum() / data.counts.sum())
    objective = MinimaxAUC(scale="printed").fitted(data.counts)
    fed = federation(data, objective, model, who, hessian, client_weight="sqrt")
    omega = naive.client_weights(data.counts.tolist(), "sqrt")
    expected = naive_more.momentum(
        fed,
        start | AUC_START,
        naive_more.Composed(
            model, partial(naive.minimax_field, model, curvature=p * (1 - p)), RHO, hessian == "first-order"
        ),
        lambda client, ys: (
            [((1 - p) if label else p) / len(ys) for label in ys],
            [1 / len(ys)] * len(ys),
        ),
        lambda client: omega[client] * naive_more.correction(fed, client),
        SETTINGS,
        rounds,
    )
    compare(fed, start, expected, rounds)


def test_variants_differ(data):
    """The second derivative is not lost on the way."""
    model = naive.Hidden()
    ends = [
        naive_more.states(federation(data, MinimaxAUC(), model, Full(), hessian), model.start(2), 4)[-1]
        for hessian in ("exact", "first-order")
    ]
    assert max((ends[0].server.z[n] - ends[1].server.z[n]).abs().max() for n in ends[0].server.z) > 1e-2


@pytest.mark.parametrize("draw", ["stratified", "natural"])
@pytest.mark.parametrize("count", [4, 5, 6, 9, 32])
@pytest.mark.parametrize("classes", [(0, 1), (1,), (0,)])
def test_halves_weigh_what_the_batch_weighs(draw, count, classes):
    """ξ and ζ share no row and have all of them; a client may lack a class."""
    y = torch.tensor([classes[-1]] * (count // 2) + [classes[0]] * (count - count // 2), dtype=torch.float64)
    weight = torch.where(y == 1, 0.7 / (y == 1).sum(), 1.9 / (y == 0).sum())
    if draw == "natural":
        weight = torch.full_like(y, 1 / count)
    row = torch.arange(count)
    xi, zeta = halves(Batch(torch.randn(count, 2), y, weight, row), draw)
    assert sorted([*xi.row.tolist(), *zeta.row.tolist()]) == row.tolist()
    for part in (xi, zeta):
        assert torch.equal(part.y, y[part.row])
        assert part.weight.sum() == pytest.approx(weight.sum().item())
        if draw == "stratified":
            assert part.weight[part.y == 1].sum() == pytest.approx(weight[y == 1].sum().item())
        else:
            assert torch.all(part.weight == part.weight[0])


def test_a_batch_without_two_halves_is_refused():
    with pytest.raises(InputError, match=r"train\.batch=3 must be at least 4"):
        Config.resolve("local-scgdam", {"data.source": "digits", "train.batch": 3})
    Config.resolve("local-scgdam", {"data.source": "digits", "train.batch": 3, "rule.xi": "shared"})


def test_the_inner_step_is_not_judged_by_its_own_rows():
    """Labels that nothing can be learnt of: a step on the rows it is judged by looks as if it had learnt."""
    generator, losses = np.random.default_rng(5), {}
    model = naive.Linear()
    z = {n: torch.tensor(value) * 0 for n, value in (model.start(64) | AUC_START).items()}
    rows = torch.tensor(generator.normal(size=(400, 16, 64)))
    y = torch.tensor([1.0] * 8 + [0.0] * 8, dtype=torch.float64)
    weight, row = torch.full_like(y, 1 / 8), torch.arange(16)
    for xi in ("own", "shared"):
        method = LocalSCGDAM(model.torch, MinimaxAUC(), rho=0.2, h_rate=1.0, xi=xi)
        start = State(z, {}, method.offset_init(z), torch.ones((), dtype=torch.float64))
        each = [method.estimate(z, start, Batch(x, y, weight, row))[0].loss for x in rows]
        losses[xi] = torch.stack(each).mean().item()
    at_zero = field(model.torch, MinimaxAUC(), z, Batch(rows[0], y, weight, row)).loss.item()
    assert losses["shared"] < at_zero - 0.3
    assert at_zero <= losses["own"] < at_zero + 0.02


def examples(model, count=6):
    generator = np.random.default_rng(2)
    w = {n: value + 0.1 * generator.normal(size=value.shape) for n, value in model.start(2).items()}
    direction = {n: generator.normal(size=value.shape) for n, value in w.items()}
    xs, weights = generator.normal(size=(count, 2)), generator.uniform(0.1, 0.4, size=count)
    return w, direction, xs, np.array([1.0, 0.0] * (count // 2)), weights


@pytest.mark.parametrize("name", MODELS)
def test_curvature_by_hand_is_the_gradients_difference(name):
    model = MODELS[name]
    w, direction, xs, ys, weights = examples(model)
    bent, step = naive_more.cross_entropy_curvature(model, w, xs, ys, weights, direction), 1e-5
    right, left = (
        naive.cross_entropy_field(model, naive.plus(w, direction, sign * step), xs, ys, weights)
        for sign in (1, -1)
    )
    for n in w:
        np.testing.assert_allclose(bent[n], (right[n] - left[n]) / (2 * step), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_one_estimate_is_the_derivative_of_the_composed_loss(name):
    """α = 1: u is the total derivative of f(x - ρ∇L_CE(x), y) in x, by finite differences of the value."""
    model = MODELS[name]
    w, _, xs, ys, weights = examples(model)
    method = LocalSCGDAM(model.torch, MinimaxAUC(), rho=RHO, h_rate=1.0, xi="shared")
    x = w | {"auc.a": np.array(0.3), "auc.b": np.array(-0.2)}
    y = {"auc.alpha": np.array(-0.4)}

    def value(x):
        slope = naive.cross_entropy_field(model, naive_more.own(x), xs, ys, weights / 2)
        inner = {n: v - RHO * slope[n] if n in slope else v for n, v in x.items()}
        return naive_more.minimax(model, inner | y, xs, ys, weights)

    z = {n: torch.tensor(v) for n, v in (x | y).items()}
    h = {n: z[n] + 7.0 for n in x}  # α = 1 leaves nothing of it
    batch = Batch(torch.tensor(xs), torch.tensor(ys), torch.tensor(weights), torch.zeros(len(ys)).long())
    slope, _ = method.estimate(z, State(z, {}, h, torch.ones((), dtype=torch.float64)), batch)
    for n in x:
        for index in np.ndindex(x[n].shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = {name: np.array(v) for name, v in x.items()}
                moved[n][index] += step
                ends.append(value(moved))
            np.testing.assert_allclose(slope.gradient[n][index], (ends[0] - ends[1]) / 2e-5, atol=1e-8)
