"""Ratio weights: R_q from last-layer gradients by hand, weights 1 + β R_q, one round of delay."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedauc.core.loop import Federation, begin
from fedauc.errors import InputError
from fedauc.methods import LocalSGDA, LocalSGDAM, LocalStatistics, RatioWeights
from fedauc.methods.ratio_weights import MOST
from fedauc.objectives import CrossEntropy, MinimaxAUC
from fedauc.participation import Cyclic, Full, Uniform
from fedauc.schedules import Stagewise

from ..reference import naive, naive_more
from ..reference.naive import NEGATIVE, POSITIVE, sigmoid

STEPS, BATCH, ETA, SEED, BETA = 3, 5, 0.2, 3, 0.4
MOMENTUM = {"gamma_x": 0.8, "beta_x": 0.3}
PARTICIPATIONS = {"full": (Full(), 4), "cyclic": (Cyclic(3), 7), "uniform": (Uniform(3), 7)}


class Net:
    """s = u·tanh(Wx + c) + d under a module's names: two layers, the last of which makes the score."""

    def __init__(self):
        self.plain = naive.Hidden()
        self.names = {"W": "hidden.weight", "c": "hidden.bias", "u": "out.weight", "d": "out.bias"}

    def start(self):
        return {self.names[n]: value for n, value in self.plain.start(2).items()}

    def torch(self, z, x):
        return self.plain.torch({n: z[name] for n, name in self.names.items()}, x)

    def _short(self, w):
        return {n: w[name] for n, name in self.names.items()}

    def score(self, w, x):
        return self.plain.score(self._short(w), x)

    def gradient(self, w, x):
        return {self.names[n]: value for n, value in self.plain.gradient(self._short(w), x).items()}


def last_layer(model, w, xs, ys, weights, label):
    """G_q: Σ over the examples of class q of weight · (σ - y) ∂s/∂(out.weight, out.bias)."""
    total = np.zeros(5)
    for x, y, weight in zip(xs, ys, weights, strict=True):
        if y == label:
            hidden = np.tanh(w["hidden.weight"] @ x + w["hidden.bias"])
            total = total + weight * (sigmoid(model.score(w, x)) - y) * np.append(hidden, 1.0)
    return total


def ratios(size):
    """R₋, R₊: the size of the other class's gradient by the size of its own; 1 until both are known."""
    norm = {label: math.sqrt(float(size[label] @ size[label])) for label in size}
    if not (norm[NEGATIVE] > 0 and norm[POSITIVE] > 0):
        return {NEGATIVE: 1.0, POSITIVE: 1.0}
    return {label: min(MOST, norm[1 - label] / norm[label]) for label in size}


def naive_rounds(fed, model, rounds, omega, with_momentum):
    """w, G and the R that the next round will use, after every round."""
    x, y, w = fed.data.x.numpy(), fed.data.y.numpy(), model.start()
    u, begun = naive.zeros(w), False
    size = {NEGATIVE: np.zeros(5), POSITIVE: np.zeros(5)}
    for round in range(rounds):
        ratio = ratios(size)  # of the rounds before
        seen = {NEGATIVE: np.zeros(5), POSITIVE: np.zeros(5)}
        left = (1 - MOMENTUM["beta_x"]) ** STEPS if begun else 0.0  # of the server's momentum
        old_u = {n: left * value for n, value in u.items()}
        new_w, new_u = dict(w), dict(old_u)
        for client, rows in naive_more.rows_of(
            fed, naive_more.participants(fed, round), round, STEPS
        ).items():
            weight = omega[client] * naive_more.correction(fed, client)
            w_m, u_m = w, u
            for t in range(STEPS):
                xs, ys = x[rows[t]], y[rows[t]]
                for label in seen:
                    own = last_layer(model, w_m, xs, ys, [1 / BATCH] * BATCH, label)
                    seen[label] = seen[label] + weight * own / STEPS
                weights = [(1 + BETA * ratio[int(label)]) / BATCH for label in ys]
                if with_momentum:
                    share = MOMENTUM["beta_x"] if begun or t > 0 else 1.0
                    w_m = naive.plus(w_m, u_m, -ETA * MOMENTUM["gamma_x"])
                    g = naive.cross_entropy_field(model, w_m, xs, ys, weights)
                    u_m = {n: (1 - share) * u_m[n] + share * g[n] for n in g}
                else:
                    w_m = naive.plus(w_m, naive.cross_entropy_field(model, w_m, xs, ys, weights), -ETA)
            new_w = naive.plus(new_w, naive.plus(w_m, w, -1.0), weight)
            new_u = naive.plus(new_u, naive.plus(u_m, old_u, -1.0), weight)
        share = 1 / min(round + 1, fed.roster.cycle_length)
        size = {label: (1 - share) * size[label] + share * seen[label] for label in size}
        w, u, begun = new_w, new_u, True
        yield w, size, ratios(size)


@pytest.mark.parametrize("rule", ["sgd", "momentum"])
@pytest.mark.parametrize("participation", PARTICIPATIONS)
def test_against_the_loop(rule, participation):
    data, model, (who, rounds) = naive_more.federated_data(), Net(), PARTICIPATIONS[participation]
    inner = LocalSGDA(model.torch, CrossEntropy())
    if rule == "momentum":
        inner = LocalSGDAM(model.torch, CrossEntropy(), **MOMENTUM)
    fed = Federation(
        RatioWeights(inner, beta=BETA),
        data,
        who,
        Stagewise(eta=ETA, steps=STEPS, cycles=20),
        batch=BATCH,
        client_weight="examples",
        seed=SEED,
    )
    omega = naive.client_weights(data.counts.tolist(), "examples")
    expected = naive_rounds(fed, model, rounds, omega, rule == "momentum")
    for state, (w, size, ratio) in zip(naive_more.states(fed, model.start(), rounds), expected, strict=True):
        naive_more.assert_close(state.server.z, w)
        for label, sign in enumerate("-+"):
            kept = state.server.size
            assert {n for n in kept if n.startswith(sign)} == {f"{sign}/out.weight", f"{sign}/out.bias"}
            np.testing.assert_allclose(kept[f"{sign}/out.weight"], size[label][:4], rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(kept[f"{sign}/out.bias"], size[label][4], rtol=1e-10, atol=1e-12)
        sent = fed.method.broadcast(state.server).ratio
        np.testing.assert_allclose(sent, [ratio[NEGATIVE], ratio[POSITIVE]], rtol=1e-10)
    assert abs(ratio[NEGATIVE] - 1) > 1e-2  # not what it was before anything was seen
    assert ratio[NEGATIVE] * ratio[POSITIVE] == pytest.approx(1.0)


def federation(beta, **settings):
    model, data = Net(), naive_more.federated_data()
    method = LocalSGDA(model.torch, CrossEntropy())
    if beta is not None:
        method = RatioWeights(method, beta=beta)
    return Federation(
        method, data, Full(), Stagewise(eta=ETA, steps=1, cycles=20), batch=BATCH, seed=SEED, **settings
    )


def test_without_beta_it_is_what_it_wraps():
    plain, wrapped = (naive_more.states(federation(beta), Net().start(), 3)[-1] for beta in (None, 0.0))
    for n, value in plain.server.z.items():
        np.testing.assert_allclose(wrapped.server.z[n], value, rtol=1e-12)


def test_the_first_round_weighs_both_classes_the_same():
    """R = 1 before anything is known: a step of η(1 + β)."""
    plain, wrapped = (naive_more.states(federation(beta), Net().start(), 1)[-1] for beta in (None, BETA))
    for n, value in plain.server.z.items():
        start = torch.tensor(Net().start()[n])
        np.testing.assert_allclose(wrapped.server.z[n] - start, (1 + BETA) * (value - start), rtol=1e-9)


def test_a_ratio_has_a_bound_and_needs_both_classes():
    fed = federation(BETA)
    state = begin(fed, {n: torch.tensor(v) for n, v in Net().start().items()})
    sizes = state.server.size
    assert all((value == 0).all() for value in sizes.values())
    assert fed.method.broadcast(state.server).ratio.tolist() == [1.0, 1.0]
    one = sizes | {"-/out.bias": torch.tensor(3.0, dtype=torch.float64)}
    assert fed.method.broadcast(state.server._replace(size=one)).ratio.tolist() == [1.0, 1.0]
    both = one | {"+/out.bias": torch.tensor(-0.003, dtype=torch.float64)}
    ratio = fed.method.broadcast(state.server._replace(size=both)).ratio
    np.testing.assert_allclose(ratio, [0.001, MOST], rtol=1e-12)


@pytest.mark.parametrize(
    ("objective", "why"),
    [
        (CrossEntropy("stratified"), "stratified batches are balanced already"),
        (MinimaxAUC(), "compares the classes"),
        (MinimaxAUC(scale="printed"), "compares the classes"),
    ],
)
def test_where_there_is_nothing_to_make_up_for(objective, why):
    with pytest.raises(InputError, match=why):
        RatioWeights(LocalSGDA(Net().torch, objective))


def test_beta_must_not_be_negative():
    with pytest.raises(InputError, match=r"beta=-0\.1"):
        RatioWeights(LocalSGDA(Net().torch, CrossEntropy()), beta=-0.1)


class Normalised(Net):
    """The same on inputs normalised by the batch (training) or by running statistics."""

    def __call__(self, z, x):
        return self.torch(z, x - z["stats.mean"])

    def observe(self, z, x):
        mean = x.mean(dim=0)
        return self.torch(z, x - mean), {"stats.mean": 0.9 * z["stats.mean"] + 0.1 * mean}


def test_statistics_may_stay_at_the_clients():
    """server(correction(rule)) is what the settings build, with LocalStatistics around the rule."""
    model = Normalised()
    method = RatioWeights(LocalStatistics(LocalSGDA(model, CrossEntropy())))
    fed = Federation(
        method,
        naive_more.federated_data(),
        Full(),
        Stagewise(eta=ETA, steps=1, cycles=20),
        batch=BATCH,
        seed=SEED,
    )
    state = naive_more.states(fed, model.start() | {"stats.mean": np.zeros(2)}, 2)[-1]
    assert all(torch.isfinite(value).all() for value in state.server.z.values())
