"""ActivePassive against a naive transcription of CyCp-Pairwise (Alg. 3) and of FedXL."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedauc.core.loop import Federation, advance, begin
from fedauc.data.federated import Draws
from fedauc.methods import ActivePassive
from fedauc.objectives import PairwiseAUC
from fedauc.participation import Cyclic, Full, Uniform
from fedauc.schedules import Stagewise

from . import naive
from .naive import NEGATIVE, POSITIVE

STEPS, BATCH, PASSIVE, ETA, SEED = 2, 5, 4, 0.3, 3
GROUPS = 3
ROUNDS = 3 * GROUPS + 1  # a cycle that fills the pools, two that use them, and a round


def federation(data, model, objective, refresh, participation, client_weight="uniform", balance="aggregate"):
    return Federation(
        ActivePassive(model.torch, objective, refresh=refresh, passive=PASSIVE),
        data,
        participation,
        Stagewise(eta=ETA, steps=STEPS, cycles=20),
        batch=BATCH,
        client_weight=client_weight,
        balance=balance,
        seed=SEED,
    )


def fast(fed, start):
    params = {name: torch.tensor(value) for name, value in start.items()}
    state, seen = begin(fed, params), []
    for _ in range(ROUNDS):
        state, _ = advance(fed, state)
        seen.append(state.server)
    return seen


class CyclePools:
    """H₁, H₂ of the previous cycle; the current one fills H₁', H₂'."""

    def __init__(self, groups):
        self.groups = groups
        self.now, self.next = {NEGATIVE: [], POSITIVE: []}, {NEGATIVE: [], POSITIVE: []}

    def add(self, round, scores):
        for label in (NEGATIVE, POSITIVE):
            self.next[label] = self.next[label] + scores[label]
        if round % self.groups == self.groups - 1:
            self.now, self.next = self.next, {NEGATIVE: [], POSITIVE: []}


class RoundPools:
    """H₁, H₂ of the previous round; a class that nobody had stays as it was."""

    def __init__(self, groups):
        self.now = {NEGATIVE: [], POSITIVE: []}

    def add(self, round, scores):
        for label in (NEGATIVE, POSITIVE):
            self.now[label] = scores[label] or self.now[label]


class RollingPools:
    """Each group's latest scores, the oldest first."""

    def __init__(self, groups):
        self.groups, self.latest = groups, []

    def add(self, round, scores):
        self.latest = [*self.latest, scores][-self.groups :]

    @property
    def now(self):
        return {label: [s for scores in self.latest for s in scores[label]] for label in (NEGATIVE, POSITIVE)}


POOLS = {"cycle": CyclePools, "round": RoundPools, "rolling": RollingPools}


def osfp(fed, model, start, omega, local, share, correction):
    """Algorithm 3: w and the pools after every round."""
    x, y, objective = fed.data.x.numpy(), fed.data.y.numpy(), fed.method.objective
    w, pools = start, POOLS[fed.method.refresh](fed.roster.cycle_length)
    for round in range(ROUNDS):
        cohort = fed.cohort(None, round)
        draws = Draws(fed.data, cohort, "stratified", STEPS, BATCH, SEED, round).rows
        ready = all(pools.now[label] for label in (NEGATIVE, POSITIVE))
        step, scores = naive.zeros(w), {NEGATIVE: [], POSITIVE: []}
        for i, client in enumerate(cohort.clients.tolist()):
            buffers = {}
            for label in (NEGATIVE, POSITIVE):
                size = STEPS * PASSIVE if ready else 0
                buffers[label] = naive.systematic(pools.now[label], size, SEED, label, round, client)
            w_m, own = w, {NEGATIVE: [], POSITIVE: []}
            for t in range(STEPS):
                xs, ys = x[draws[i, t]], y[draws[i, t]]
                for x_j, y_j in zip(xs, ys, strict=True):
                    own[int(y_j)].append(naive.link(objective.link, model.score(w_m, x_j))[0])
                if not ready:
                    continue
                passive = {label: buffers[label][t * PASSIVE : (t + 1) * PASSIVE] for label in buffers}
                weights = naive.batch_weights(ys, local[client])
                gradient = naive.pairwise_gradient(model, objective, w_m, xs, ys, weights, passive)
                w_m = naive.plus(w_m, gradient, -ETA)
            step = naive.plus(step, naive.plus(w_m, w, -1.0), omega[client] * correction(client))
            for label in (NEGATIVE, POSITIVE):
                for h in own[label]:  # together they weigh what the client counts for in this class
                    each = share[client, label] * correction(client) / len(own[label])
                    scores[label].append((h, each))
        w = naive.plus(w, step)
        pools.add(round, scores)
        yield w, pools.now


def correction_of(fed):
    """K/π, from the sizes alone."""
    participation, roster = fed.participation, fed.roster
    if isinstance(participation, Full):
        return lambda client: 1.0
    if isinstance(participation, Uniform):
        return lambda client: fed.data.clients / participation.per_round

    def cyclic(client):
        (group,) = (group for group in roster.groups if client in group)
        m = len(group) if participation.per_round is None else min(participation.per_round, len(group))
        return len(roster.groups) * len(group) / m

    return cyclic


def compare(data, fed, model, client_weight="uniform", balance="aggregate"):
    counts = data.counts.tolist()
    omega, local = naive.class_weights(counts, client_weight, balance)
    share = naive.class_shares(counts, client_weight)
    start = model.start(2)
    expected = osfp(fed, model, start, omega, local, share, correction_of(fed))
    trained = 0
    for server, (w, pools) in zip(fast(fed, start), expected, strict=True):
        for name in w:
            np.testing.assert_allclose(server.z[name].numpy(), w[name], rtol=1e-10, atol=1e-10, err_msg=name)
        trained += not np.array_equal(w["u"], start["u"])
        for label, name in enumerate(("negatives", "positives")):
            pool = server.passive[name]
            np.testing.assert_allclose(pool.h.numpy(), [h for h, _ in pools[label]], rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(pool.weight.numpy(), [each for _, each in pools[label]], rtol=1e-10)
    assert trained
    return trained


@pytest.mark.parametrize("balance", ["aggregate", "local"])
@pytest.mark.parametrize("client_weight", ["uniform", "sqrt", "examples"])
@pytest.mark.parametrize("refresh", ["cycle", "round", "rolling"])
def test_cyclic_pairwise(data, refresh, client_weight, balance):
    model = naive.Hidden()
    objective = PairwiseAUC("sigmoid", lam=0.5)
    fed = federation(data, model, objective, refresh, Cyclic(GROUPS), client_weight, balance)
    assert {len(group) for group in fed.roster.groups} == {2, 3}
    trained = compare(data, fed, model, client_weight, balance)
    if refresh == "cycle":
        assert trained == ROUNDS - GROUPS  # the first cycle only fills the pools


@pytest.mark.parametrize("participation", [Cyclic(GROUPS, per_round=2), Uniform(3), Full()], ids=repr)
@pytest.mark.parametrize("refresh", ["cycle", "round", "rolling"])
def test_pairwise_under_other_participation(data, refresh, participation):
    model = naive.Linear()
    fed = federation(data, model, PairwiseAUC("logistic"), refresh, participation, "sqrt")
    compare(data, fed, model, "sqrt")


@pytest.mark.parametrize("link", ["identity", "sigmoid"])
@pytest.mark.parametrize(
    "surrogate", ["square", "squared-hinge", "logistic", "sigmoid", "barrier-hinge", "q-norm-hinge"]
)
def test_every_surrogate_and_link(data, surrogate, link):
    model = naive.Linear()
    objective = PairwiseAUC(surrogate, margin=0.7, lam=0.5, tau=1.7, q=1.4, link=link)
    compare(data, federation(data, model, objective, "rolling", Cyclic(GROUPS)), model)


def test_weight_decay_pulls_the_model(data):
    """A round of one step: w₁ = w₀ - η(∇ + λw₀), summed with Σ ŵ over the cohort."""
    model, decay, ends = naive.Linear(), 0.25, []
    start = {name: torch.tensor(value) for name, value in model.start(2).items()}
    for weight_decay in (0.0, decay):
        method = ActivePassive(model.torch, PairwiseAUC(), passive=PASSIVE, weight_decay=weight_decay)
        fed = Federation(method, data, Full(), Stagewise(eta=ETA, steps=1, cycles=2), batch=BATCH, seed=SEED)
        state = begin(fed, start)
        for _ in range(2):  # the first only fills the pools
            state, _ = advance(fed, state)
        ends.append(state.server.z)
    for name, value in start.items():
        np.testing.assert_allclose(ends[1][name] - ends[0][name], -ETA * decay * value, rtol=1e-10)
