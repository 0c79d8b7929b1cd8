"""PartialAUC inside ActivePassive against FedXL2 (Guo et al. 2023, Alg. 2), gradients by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedauc.core.loop import Federation
from fedauc.methods import ActivePassive
from fedauc.objectives import PartialAUC
from fedauc.participation import Cyclic, Full, Uniform
from fedauc.schedules import Stagewise

from . import naive, naive_more
from .naive import NEGATIVE, POSITIVE

STEPS, BATCH, PASSIVE, ETA, SEED, GROUPS = 2, 5, 3, 0.05, 3, 3


def rounds_of(fed):
    """A cycle that fills the pools, two that use them, and a round."""
    return 3 * fed.roster.cycle_length + 1


def federation(data, model, objective, refresh, participation, **settings):
    return Federation(
        ActivePassive(model.torch, objective.fitted(data.counts), refresh=refresh, passive=PASSIVE),
        data,
        participation,
        Stagewise(eta=ETA, steps=STEPS, cycles=20),
        batch=BATCH,
        seed=SEED,
        **settings,
    )


class FedXL2:
    """What a client computes; `table` holds u of every positive row that was ever trained on."""

    def __init__(self, model, objective, x):
        self.model, self.objective, self.x, self.table = model, objective, x, {}

    def risk(self, t):
        """exp(ψ(t)/τ), cut at e³⁰."""
        return math.exp(min(naive_more.surrogate(self.objective, t) / self.objective.temperature, 30.0))

    def bent(self, t):
        """τ ∂ exp(ψ(t)/τ)/∂t; 0 where the exponent is cut."""
        if naive_more.surrogate(self.objective, t) / self.objective.temperature > 30:
            return 0.0
        return self.risk(t) * naive.surrogate_slope(self.objective, t)

    def score(self, w, row, client):
        """h, and u of a tie for positives: what is sent while there is nothing to compare with."""
        h, _ = naive.link(self.objective.link, self.model.score(w, self.x[row]))
        return h, self.risk(0.0)

    def gradient(self, w, rows, ys, weights, passive, client):
        o, total, sent, new = self.objective, naive.zeros(w), [], {}
        for row, y, weight in zip(rows, ys, weights, strict=True):
            h, dh = naive.link(o.link, self.model.score(w, self.x[row]))
            slope = 0.0
            if y == POSITIVE:
                negatives = [other for other, _ in passive[NEGATIVE]]
                now = sum(self.risk(h - other) for other in negatives) / len(negatives)
                old = self.table.get((client, row))
                u = now if old is None else (1 - o.rate) * old + o.rate * now
                new[client, row] = u
                for other in negatives:
                    slope += self.bent(h - other) / u / len(negatives)
            else:
                u = 0.0
                for other, u_other in passive[POSITIVE]:
                    slope -= self.bent(other - h) / u_other / len(passive[POSITIVE])
            total = naive.plus(total, self.model.gradient(w, self.x[row]), weight * slope * dh)
            sent.append((h, u))
        self.table |= new  # a row that was drawn twice saw the same u
        return total, sent


def small(model):
    """Where exp(ψ/τ) is of the size of its value at a tie, which the first estimates are."""
    return {name: 0.3 * value for name, value in model.start(2).items()}


def compare(data, fed, model, client_weight="uniform", balance="aggregate"):
    counts, start = data.counts.tolist(), small(model)
    omega, local = naive.class_weights(counts, client_weight, balance)
    share = naive.class_shares(counts, client_weight)
    client_side = FedXL2(model, fed.method.objective, data.x.numpy())
    expected = naive_more.active_passive(
        fed,
        start,
        client_side.score,
        client_side.gradient,
        STEPS,
        PASSIVE,
        ETA,
        rounds_of(fed),
        omega,
        local,
        share,
    )
    seen = naive_more.states(fed, start, rounds_of(fed))
    for state, (w, pools) in zip(seen, expected, strict=True):
        server = state.server
        naive_more.assert_close(server.z, w)
        positives, estimates = server.passive["positives"], server.passive["estimates"]
        assert_pool(server.passive["negatives"], [(h, weight) for (h, _), weight in pools[NEGATIVE]])
        assert_pool(positives, [(h, weight) for (h, _), weight in pools[POSITIVE]])
        assert_pool(estimates, [(np.log(u), weight) for (_, u), weight in pools[POSITIVE]])
        assert torch.equal(positives.round, estimates.round)
        for client, memory in state.memory.items():
            np.testing.assert_allclose(
                memory["log_u"][:-1], kept(data, client_side.table, client), rtol=1e-10
            )
    assert 1e-3 < np.abs(w["u"] - start["u"]).max() < 10
    return seen, client_side.table


def assert_pool(pool, expected):
    np.testing.assert_allclose(pool.h, [value for value, _ in expected], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(pool.weight, [weight for _, weight in expected], rtol=1e-10)


def kept(data, table, client):
    """log u of the client's positives in the order of its rows; -1 for those not estimated yet."""
    first = data.start[client] + data.counts[client, 0]
    rows = data.order[first : data.start[client + 1]]
    known = [np.log(table[client, row]) if (client, row) in table else -1.0 for row in rows]
    return known + [-1.0] * (data.counts[:, 1].max() - len(rows))


@pytest.mark.parametrize("client_weight", ["uniform", "sqrt"])
@pytest.mark.parametrize("refresh", ["cycle", "round", "rolling"])
def test_cyclic(data, refresh, client_weight):
    model, objective = naive.Hidden(), PartialAUC("squared-hinge", link="identity", temperature=4.0, rate=0.4)
    fed = federation(data, model, objective, refresh, Cyclic(GROUPS), client_weight=client_weight)
    seen, table = compare(data, fed, model, client_weight)
    # u survives absence: between a client's rounds nothing of it changes
    (group,) = (group for group in fed.roster.groups if 0 in group)
    turn = next(k for k, members in enumerate(fed.roster.groups) if members is group or 0 in members)
    for state in seen[2 * GROUPS :]:
        if (state.round - 1) % GROUPS != turn:
            assert torch.equal(state.memory[0]["log_u"], seen[state.round - 2].memory[0]["log_u"])
    assert any(client == 0 for client, _ in table)


@pytest.mark.parametrize(
    ("refresh", "participation"),
    [
        ("cycle", Uniform(3)),
        ("round", Uniform(3)),
        ("rolling", Uniform(3)),
        ("rolling", Cyclic(GROUPS, per_round=2)),
        ("round", Full()),
    ],
    ids=repr,
)
def test_other_participation(data, refresh, participation):
    model, objective = naive.Linear(), PartialAUC("logistic", link="identity", temperature=0.5, rate=0.7)
    compare(data, federation(data, model, objective, refresh, participation), model)


@pytest.mark.parametrize(
    ("surrogate", "link"),
    [
        ("square", "identity"),
        ("squared-hinge", "sigmoid"),
        ("logistic", "sigmoid"),
        ("sigmoid", "identity"),
        ("barrier-hinge", "identity"),
        ("q-norm-hinge", "sigmoid"),
    ],
)
def test_surrogates_and_links(data, surrogate, link):
    model = naive.Linear()
    objective = PartialAUC(surrogate, 0.7, 0.5, 1.7, 1.4, link, temperature=3.0, rate=0.5)
    compare(data, federation(data, model, objective, "rolling", Full()), model)


def test_rounds_without_positives():
    """Positives in the first group only: the last scores and estimates stay in the pool, in line."""
    data = naive_more.federated_data(((2, 3), (2, 2), (4, 0), (5, 0), (3, 0), (4, 0)))
    model, objective = naive.Linear(), PartialAUC(temperature=0.5)
    compare(data, federation(data, model, objective, "round", Cyclic(GROUPS, assign="order")), model)


def test_more_slots_than_positives(data):
    """A batch of 12 draws the three positives of a client twice in a step; they share one u."""
    model, objective = naive.Linear(), PartialAUC("logistic", temperature=0.2)
    fed = Federation(
        ActivePassive(model.torch, objective.fitted(data.counts), passive=PASSIVE),
        data,
        Full(),
        Stagewise(eta=ETA, steps=STEPS, cycles=20),
        batch=12,
        seed=SEED,
    )
    compare(data, fed, model)


def test_the_loss_is_the_kl_worst_case(data):
    """With u exact the gradient is that of E⁺ τ log E⁻ exp(ψ/τ): by finite differences over all pairs."""
    model, o = naive.Hidden(), PartialAUC("logistic", link="identity", temperature=0.3, positives=8)
    w, x, y = model.start(2), data.x.numpy(), data.y.numpy()
    client_side = FedXL2(model, o, x)
    rows = {label: np.flatnonzero(y == label) for label in (NEGATIVE, POSITIVE)}

    def value(w):
        h = {label: [model.score(w, x[row]) for row in rows[label]] for label in rows}
        total = 0.0
        for positive in h[POSITIVE]:
            risk = sum(client_side.risk(positive - negative) for negative in h[NEGATIVE])
            total += o.temperature * math.log(risk / len(h[NEGATIVE])) / len(h[POSITIVE])
        return total

    h = {label: torch.tensor([model.score(w, x[row]) for row in rows[label]]) for label in rows}
    t = h[POSITIVE][:, None] - h[NEGATIVE][None, :]
    u = torch.exp(torch.nn.functional.softplus(-t) / o.temperature).mean(dim=1)
    n, m = len(h[NEGATIVE]), len(h[POSITIVE])  # pools are as long as each other: everything n·m times
    passive = {
        "negatives": h[NEGATIVE].repeat(m),
        "positives": h[POSITIVE].repeat(n),
        "estimates": u.log().repeat(n),
    }

    def paired(z):
        label = torch.tensor(y)
        weight = torch.where(label > 0, 1 / len(rows[POSITIVE]), 1 / len(rows[NEGATIVE]))
        scores = o.score(model.torch(z, data.x))
        return o.paired(scores, label, weight, passive, -torch.ones_like(label))[0]

    slope = torch.func.grad(paired)({name: torch.tensor(v) for name, v in w.items()})
    for name in w:
        for index in np.ndindex(w[name].shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = {n: np.array(v) for n, v in w.items()}
                moved[name][index] += step
                ends.append(value(moved))
            np.testing.assert_allclose(slope[name][index], (ends[0] - ends[1]) / 2e-5, atol=1e-6)
