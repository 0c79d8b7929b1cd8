"""Agnostic against Alg. 1 of CE-Minimax (eq. 3-7) and its benchmarks of section V."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedauc.core import rng
from fedauc.core.loop import Federation, advance, begin
from fedauc.core.uplink import Drawn, Fixed
from fedauc.methods import Agnostic, LocalSGDA, LocalSGDAM, LocalStatistics
from fedauc.objectives import CrossEntropy, MinimaxAUC
from fedauc.participation import Full, Optimal, Uniform, Weighted
from fedauc.schedules import Stagewise

from . import naive, naive_more
from .naive import NEGATIVE, POSITIVE

BATCH, ETA, SEED, ROUNDS, M = 5, 0.3, 3, 6, 3
SECONDS = (0.02, 0.004, 0.001)  # blocks of 3, 2 and 2 of the seven clients
TIMES = [0.02, 0.02, 0.02, 0.004, 0.004, 0.001, 0.001]
AUC_START = {"auc.a": np.array(0.0), "auc.b": np.array(0.0), "auc.alpha": np.array(0.0)}
ASCENT = {"eta_lambda": 0.12, "chi2": 0.2, "report": 4}  # λ reaches the boundary within a few rounds


class Loss:
    """f_n of a batch and its field, by hand."""

    def __init__(self, objective, data):
        self.objective, self.data = objective, data
        self.p = float(data.counts[:, 1].sum() / data.counts.sum())

    def weights(self, client, ys):
        if self.objective.draw == "natural":
            if isinstance(self.objective, CrossEntropy):
                return [1 / BATCH] * BATCH
            return [((1 - self.p) if label else self.p) / BATCH for label in ys]
        has = [1.0 if self.data.counts[client, label] else 0.0 for label in (NEGATIVE, POSITIVE)]
        return naive.batch_weights(ys, has)  # the client's own classes, a mean of each

    def start(self):
        return {} if isinstance(self.objective, CrossEntropy) else AUC_START

    @property
    def _curvature(self):
        return self.p * (1 - self.p) if self.objective.draw == "natural" else 1.0

    def value(self, model, z, xs, ys, weights):
        if isinstance(self.objective, CrossEntropy):
            return naive_more.cross_entropy(model, z, xs, ys, weights)
        return naive_more.minimax(model, z, xs, ys, weights, curvature=self._curvature)

    def field(self, model, z, xs, ys, weights):
        if isinstance(self.objective, CrossEntropy):
            return naive.cross_entropy_field(model, z, xs, ys, weights)
        return naive.minimax_field(model, z, xs, ys, weights, curvature=self._curvature)


OBJECTIVES = {
    "cross-entropy": CrossEntropy(),
    "balanced cross-entropy": CrossEntropy("stratified"),
    "minimax AUC": MinimaxAUC(),
    "minimax AUC as printed": MinimaxAUC(scale="printed"),
}
SAMPLINGS = {
    "ce-minimax": Optimal(M, kappa=30.0),
    "ce-minimax in groups": Optimal(1.5, kappa=30.0, groups=2),
    "minimax-uniform": Uniform(M),
    "minimax-weighted": Weighted(M),
    "minimax-all": Full(),
}


def federation(data, model, objective, participation, *, steps=1, uplink=None, **settings):
    method = LocalSGDA(model.torch, objective.fitted(data.counts))
    return Federation(
        Agnostic(method, **(ASCENT | settings)),
        data,
        participation,
        Stagewise(eta=ETA, steps=steps, cycles=40),
        uplink=Fixed(SECONDS) if uplink is None else uplink,
        batch=BATCH,
        seed=SEED,
    )


def sampled(participation, lam, times, round, roster):
    """S and q: client → its chance (times 1/K inside groups: only every K-th round is its own)."""
    n = len(lam)
    if isinstance(participation, Full):
        return dict.fromkeys(range(n), 1.0)
    if isinstance(participation, Uniform):
        return dict.fromkeys(roster.select(round, None)[0].tolist(), participation.per_round / n)
    groups = [list(range(n))]
    if participation.groups is not None:
        groups = [group.tolist() for group in roster.groups]
    group = groups[round % len(groups)]
    floor = participation.per_round / len(group) / 100
    weight = [lam[i] for i in group]
    if isinstance(participation, Optimal):
        q = naive_more.p1(
            weight, [times[i] for i in group], participation.kappa, participation.per_round, floor
        )
    else:
        q = naive_more.proportional(weight, participation.per_round, floor)
    hit = naive_more.bernoulli(q, group, SEED, round)
    return {client: chance / len(groups) for client, chance in hit.items()}


def ce_minimax(fed, model, start, steps, eta_lambda, chi2, report, low=0.0, high=1.0):
    """Algorithm 1: w, λ and the time of the uplinks after every round."""
    n, loss = fed.data.clients, Loss(fed.method.inner.objective, fed.data)
    data_x, data_y = fed.data.x.numpy(), fed.data.y.numpy()
    w, lam, seconds = start | loss.start(), np.full(n, 1 / n), 0.0
    able = np.arange(n)
    if not isinstance(fed.method.inner.objective, CrossEntropy):  # who has one class has no ranking
        able = np.array([i for i, of_class in enumerate(fed.data.counts) if of_class.all()])
        lam = np.zeros(n)
        lam[able] = 1 / len(able)
    seed_2 = int(rng.fold(SEED, rng.PHASE, 1)[0] >> np.uint64(1))
    floats = sum(np.size(value) for value in w.values())
    for t in range(ROUNDS):
        times = fed.uplink.times(np.arange(n), n, t, SEED)
        # Phase 1
        hit = sampled(fed.participation, lam, times, t, fed.roster)
        step = naive.zeros(w)
        for client, rows in naive_more.rows_of(fed, sorted(hit), t, steps).items():
            w_n = w
            for i in range(steps):
                xs, ys = data_x[rows[i]], data_y[rows[i]]
                w_n = naive.plus(w_n, loss.field(model, w_n, xs, ys, loss.weights(client, ys)), -ETA)
            step = naive.plus(step, naive.plus(w_n, w, -1.0), lam[client] / hit[client])  # eq. (4)
        # Phase 2, at the same w and λ
        asked = Uniform(report).bind(n, seed_2).select(t, None)[0].tolist()
        gradient = np.zeros(n)
        for client, rows in naive_more.rows_of(fed, asked, t, steps, seed_2).items():
            for i in range(steps):
                xs, ys = data_x[rows[i]], data_y[rows[i]]
                value = loss.value(model, w, xs, ys, loss.weights(client, ys))
                gradient[client] += n / report * value / steps  # eq. (6)
        for i in range(n):
            gradient[i] -= chi2 * 2 * len(able) * (lam[i] - 1 / len(able))  # of ϱ N Σ (λ - 1/N)²
        moved = (lam + eta_lambda * gradient)[able]
        plain = (low, high) == (0.0, 1.0)
        lam = np.zeros(n)
        lam[able] = (
            naive_more.on_simplex(moved) if plain else naive_more.on_box_simplex(moved, low, high)
        )  # eq. (7)
        w = naive.plus(w, step)  # eq. (5)
        first, second = [times[i] for i in hit], [times[i] / floats for i in asked]
        seconds += sum(first) + sum(second) if fed.uplink.combine == "sum" else max(first) + max(second)
        yield w, lam, seconds


def compare(fed, model, steps=1, **settings):
    settings = ASCENT | settings
    start = model.start(2)
    expected = list(ce_minimax(fed, model, start, steps, **settings))
    for state, (w, lam, seconds) in zip(naive_more.states(fed, start, ROUNDS), expected, strict=True):
        naive_more.assert_close(state.server.z, w)
        np.testing.assert_allclose(state.server.lam, lam, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(state.ledger.seconds_up, seconds, rtol=1e-10)
    return [lam for _, lam, _ in expected]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("loss", OBJECTIVES)
def test_agnostic(data, loss, sampling):
    model = naive.Linear()
    seen = np.array(compare(federation(data, model, OBJECTIVES[loss], SAMPLINGS[sampling]), model))
    if "printed" not in loss:  # p(1-p) makes those losses too small to get anywhere in a few rounds
        assert (seen == 0).any()
        assert (seen[-1] > 1 / data.clients + 0.01).any()


@pytest.mark.parametrize("sampling", ["ce-minimax", "minimax-all"])
@pytest.mark.parametrize("loss", ["cross-entropy", "minimax AUC"])
def test_weights_in_a_box(data, loss, sampling):
    few = "AUC" in loss  # four of the seven clients have both classes
    model, box = naive.Linear(), {"low": 0.16, "high": 0.3} if few else {"low": 0.08, "high": 0.22}
    seen = np.array(
        compare(federation(data, model, OBJECTIVES[loss], SAMPLINGS[sampling], **box), model, **box)
    )
    assert (seen == box["low"]).any()
    assert (seen == box["high"]).any()


@pytest.mark.parametrize("loss", ["cross-entropy", "minimax AUC"])
def test_local_steps(data, loss):
    """I > 1: a client's change of w counts λ/q, its loss at w⁽ᵗ⁾ is a mean over I batches."""
    model = naive.Hidden()
    fed = federation(data, model, OBJECTIVES[loss], SAMPLINGS["ce-minimax"], steps=3)
    compare(fed, model, steps=3)


@pytest.mark.parametrize(
    ("uplink", "combine", "sampling"),
    [
        ("fixed", "max", "ce-minimax"),
        ("fixed", "sum", "minimax-uniform"),
        ("client", "sum", "ce-minimax"),
        ("client", "max", "minimax-uniform"),
        ("round", "sum", "ce-minimax"),
        ("round", "max", "ce-minimax"),
    ],
)
def test_time_of_the_uplinks(data, uplink, combine, sampling):
    """One after another or at the same time; phase 2 costs one float of what a model costs. Times that change
    from round to round are seen by P1 in their round."""
    kind = Fixed(SECONDS, combine) if uplink == "fixed" else Drawn(0.01, 1.0, uplink, combine)
    fed = federation(data, naive.Linear(), CrossEntropy(), SAMPLINGS[sampling], uplink=kind)
    if uplink == "fixed":
        assert kind.times(np.arange(7), 7, 0, SEED).tolist() == TIMES
    compare(fed, naive.Linear())


@pytest.mark.parametrize("combine", ["sum", "max"])
def test_min_uniform_is_federated_sgd(data, combine):
    """w ← w - η/m Σ ∇f_n over m clients drawn uniformly; nobody reports a loss."""
    model, loss = naive.Linear(), Loss(CrossEntropy(), data)
    fed = Federation(
        LocalSGDA(model.torch, CrossEntropy()),
        data,
        Uniform(M),
        Stagewise(eta=ETA, steps=1, cycles=40),
        uplink=Fixed(SECONDS, combine),
        batch=BATCH,
        seed=SEED,
    )
    w, seconds, x, y = model.start(2), 0.0, data.x.numpy(), data.y.numpy()
    for t, state in enumerate(naive_more.states(fed, w, ROUNDS)):
        clients, total = naive_more.participants(fed, t), naive.zeros(w)
        for client, rows in naive_more.rows_of(fed, clients, t, 1).items():
            ys = y[rows[0]]
            total = naive.plus(total, loss.field(model, w, x[rows[0]], ys, loss.weights(client, ys)), 1 / M)
        w = naive.plus(w, total, -ETA)
        own = [TIMES[i] for i in clients]
        seconds += sum(own) if combine == "sum" else max(own)
        naive_more.assert_close(state.server.z, w)
        np.testing.assert_allclose(state.ledger.seconds_up, seconds, rtol=1e-10)


def test_phases_are_drawn_independently(data):
    """Who reports, and on which rows, is not who trains on which."""
    model = naive.Linear()
    fed = federation(data, model, CrossEntropy(), Uniform(M), report=M)
    seed_2 = int(rng.fold(SEED, rng.PHASE, 1)[0] >> np.uint64(1))
    reporting = Uniform(M).bind(7, seed_2)
    same = sum(naive_more.participants(fed, t) == reporting.select(t, None)[0].tolist() for t in range(100))
    assert same < 15  # one in 35 by chance


def at_vertex(fed, start, client):
    """A state whose λ is one client alone."""
    state = begin(fed, {name: torch.tensor(value) for name, value in start.items()})
    lam = torch.zeros(7, dtype=torch.float64)
    lam[client] = 1.0
    return state._replace(server=state.server._replace(lam=lam, following=lam))


def test_a_round_of_clients_that_count_for_nothing_moves_nothing(data):
    """λ at a vertex, as at the solution of eq. (2): eq. (4) is then zero whenever that client is absent."""
    model = naive.Linear()
    fed = federation(data, model, CrossEntropy(), Uniform(M), eta_lambda=0.0)
    away = next(i for i in range(7) if i not in naive_more.participants(fed, 0))
    state = at_vertex(fed, model.start(2), away)
    after, _ = advance(fed, state)
    assert all(torch.equal(after.server.z[n], state.server.z[n]) for n in state.server.z)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_vertex_can_be_sampled(data, sampling):
    """λ_n = 0 for all but one client: q has its floor, and rounds (groups) without that client do nothing."""
    model = naive.Linear()
    fed = federation(data, model, CrossEntropy(), SAMPLINGS[sampling], eta_lambda=0.0)
    state = at_vertex(fed, model.start(2), 6)
    for _ in range(5):
        state, _ = advance(fed, state)
        assert all(torch.isfinite(value).all() for value in state.server.z.values())


def test_losses_are_those_at_the_rounds_start_whatever_the_rule(data):
    """Eq. (6): ℓ_n(w⁽ᵗ⁾). A rule whose step moves before it looks must not report the loss where it moved."""
    model, start, eta_lambda = naive.Linear(), naive.Linear().start(2), 0.01
    fed = Federation(
        Agnostic(LocalSGDAM(model.torch, CrossEntropy()), eta_lambda=eta_lambda, chi2=0.0, report=7),
        data,
        Full(),
        Stagewise(eta=1.0, steps=1, cycles=40),
        batch=BATCH,
        seed=SEED,
    )
    x, y = data.x.numpy(), data.y.numpy()
    seed_2 = int(rng.fold(SEED, rng.PHASE, 1)[0] >> np.uint64(1))
    state = begin(fed, {name: torch.tensor(value) for name, value in start.items()})
    for t in range(3):
        w = {name: value.numpy() for name, value in state.server.z.items()}
        moved = state.server.lam.numpy().copy()
        for client, rows in naive_more.rows_of(fed, list(range(7)), t, 1, seed_2).items():
            value = naive_more.cross_entropy(model, w, x[rows[0]], y[rows[0]], [1 / BATCH] * BATCH)
            moved[client] += eta_lambda * value
        state, _ = advance(fed, state)
        np.testing.assert_allclose(state.server.lam, naive_more.on_simplex(moved), rtol=1e-10, atol=1e-12)


class Normalised:
    """A score of inputs normalised by the batch (training) or by running statistics (evaluation)."""

    def __call__(self, z, x):
        return (x - z["stats.mean"]) @ z["w"]

    def observe(self, z, x):
        mean = x.mean(dim=0)
        return (x - mean) @ z["w"], {"stats.mean": 0.9 * z["stats.mean"] + 0.1 * mean}


def test_statistics_may_stay_at_the_clients(data):
    """server(correction(rule)) is what the settings build, with LocalStatistics around the rule."""
    method = Agnostic(LocalStatistics(LocalSGDA(Normalised(), CrossEntropy())), report=M)
    fed = Federation(method, data, Uniform(M), Stagewise(eta=ETA, steps=1, cycles=40), batch=BATCH, seed=SEED)
    start = {"w": np.array([0.3, -0.2]), "stats.mean": np.zeros(2)}
    for state in naive_more.states(fed, start, 3):
        assert float(state.server.lam.sum()) == pytest.approx(1.0)
        assert torch.equal(state.server.z["stats.mean"], torch.zeros(2, dtype=torch.float64))
