"""Control variates, amplification, FedProx and the dual step of CODA in NumPy, listing by listing.

As in `naive`, nothing here calls the library except for the draws. Signs are those of the papers: the dual is
ascended, along ∇α F - c_k + c, and its control variate is a gradient like the primal one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from fedauc.core import rng
from fedauc.core.loop import advance, begin
from fedauc.data.federated import Draws, FederatedData
from fedauc.participation import Full, Uniform

from . import naive
from .naive import NEGATIVE, POSITIVE, plus, zeros

ALPHA = "auc.alpha"
AUC_START = {"auc.a": np.array(0.0), "auc.b": np.array(0.0)}


# ----------------------------------------------------------------------------------------------- inputs


def cohort(fed, round, steps):
    """The clients of a round and the rows of each of their steps."""
    drawn = fed.weighting.cohort(fed.roster, round, lambda clients: np.zeros(len(clients)))
    rows = Draws(fed.data, drawn, fed.method.draw, steps, fed.batch, fed.seed, round).rows
    return dict(zip(drawn.clients.tolist(), rows, strict=True))


def correction(fed, client):
    """K/π, from the sizes of the groups alone."""
    if isinstance(fed.participation, Full):
        return 1.0
    if isinstance(fed.participation, Uniform):
        return fed.data.clients / fed.participation.per_round
    (group,) = (group for group in fed.roster.groups if client in group)
    m = len(group) if fed.participation.per_round is None else min(fed.participation.per_round, len(group))
    return len(fed.roster.groups) * len(group) / m


class Task(NamedTuple):
    """What the clients have to learn: gradients of their own loss, and what a client counts for."""

    gradient: Callable[..., dict[str, Any]]
    """∂F(z; batch) for everything in z, primal and dual alike with its own sign."""
    omega: Any
    weights: Callable[[int, Any], list[float]]
    """What the examples of a client's batch weigh."""

    def at(self, z, data, client, rows):
        """∂F at z on a client's rows."""
        ys = data.y.numpy()[rows]
        return self.gradient(z=z, xs=data.x.numpy()[rows], ys=ys, weights=self.weights(client, ys))


def cross_entropy(model, data, client_weight="uniform"):
    """Rows as they come; a client counts by its rows, or like any other."""

    def gradient(z, xs, ys, weights):
        return naive.cross_entropy_field(model, z, xs, ys, weights)

    omega = naive.client_weights(data.counts.tolist(), client_weight)
    return Task(gradient, omega, lambda client, ys: [1 / len(ys)] * len(ys))


def minimax(model, data, client_weight="uniform", balance="aggregate", **settings):
    """The two class expectations, each over the clients that have the class."""
    omega, local = naive.class_weights(data.counts.tolist(), client_weight, balance)

    def gradient(z, xs, ys, weights):
        field = naive.minimax_field(model, z, xs, ys, weights, **settings)
        return field | {ALPHA: -field[ALPHA]}

    return Task(gradient, omega, lambda client, ys: naive.batch_weights(ys, local[client]))


def minimax_printed(model, data, p, client_weight="uniform"):
    """Eq. (3) with its p(1-p), on rows as they come."""

    def gradient(z, xs, ys, weights):
        field = naive.minimax_field(model, z, xs, ys, weights, curvature=p * (1 - p))
        return field | {ALPHA: -field[ALPHA]}

    omega = naive.client_weights(data.counts.tolist(), client_weight)
    return Task(gradient, omega, lambda client, ys: [((1 - p) if y else p) / len(ys) for y in ys])


def even_federation(data):
    """Six of the seven clients, so that three groups have two each."""
    owner = np.zeros(len(data.y), dtype=int)
    for i in range(data.clients):
        owner[data.order[data.start[i] : data.start[i + 1]]] = i
    whole = [i for i in range(data.clients) if i != 5]
    keep = np.isin(owner, whole)
    names = [data.names[i] for i in whole]
    return FederatedData.build(data.x[keep], data.y[keep], np.searchsorted(whole, owner[keep]), names)


# ------------------------------------------------------------------------------------------- the library


def states(fed, start, rounds):
    """The library: its state after every round."""
    state = begin(fed, {name: torch.tensor(value) for name, value in start.items()})
    for _ in range(rounds):
        state, _ = advance(fed, state)
        yield state


def under(prefix, tree):
    """The part of a client's memory under a prefix."""
    return {name[len(prefix) + 1 :]: value for name, value in tree.items() if name.startswith(f"{prefix}/")}


def assert_same(tree, expected, what=""):
    """The library's tree and a dictionary of arrays."""
    assert tree.keys() == expected.keys(), what
    for name, value in tree.items():
        np.testing.assert_allclose(
            value.numpy(), expected[name], rtol=1e-10, atol=1e-10, err_msg=f"{what} {name}"
        )


def as_field(tree):
    """A paper's control variate in the library's sign: F = (∂primal, -∂dual)."""
    return {name: -value if name == ALPHA else value for name, value in tree.items()}


def weighted_mean(omega, trees):
    """Σ_k ω_k c_k over all clients."""
    total = zeros(trees[0])
    for client, tree in trees.items():
        total = plus(total, tree, omega[client])
    return total


# ---------------------------------------------------------------------------------- FedAvg, FedProx, NPA


def fedprox(fed, task, w, eta, steps, mu, rounds):
    """FedProx: steps on F_k(w) + μ/2 ‖w - wᵗ‖². μ = 0 is FedAvg."""
    for round in range(rounds):
        total = zeros(w)
        for client, rows in cohort(fed, round, steps).items():
            w_k = dict(w)
            for t in range(steps):
                gradient = task.at(w_k, fed.data, client, rows[t])
                gradient = {name: gradient[name] + mu * (w_k[name] - w[name]) for name in w}
                w_k = plus(w_k, gradient, -eta)
            total = plus(total, plus(w_k, w, -1.0), task.omega[client] * correction(fed, client))
        w = plus(w, total)
        yield w


def naive_parallel(fed, task, z, eta, gamma, rounds):
    """NPA: the mean over all clients of one large batch's gradients, and one step of descent and ascent."""
    v_0 = dict(z)
    for round in range(rounds):
        gradient = zeros(z)
        for client, rows in cohort(fed, round, 1).items():
            gradient = plus(gradient, task.at(z, fed.data, client, rows[0]), task.omega[client])
        new = {}
        for name in z:
            if name == ALPHA:
                new[name] = z[name] + eta * gradient[name]
            else:
                new[name] = z[name] - eta * (gradient[name] + gamma * (z[name] - v_0[name]))
        z = new
        yield z


# ------------------------------------------------------------------------------------ SCAFFOLD, CODASCA


class Scaffold(NamedTuple):
    """The server's x and c, and c_k of every client."""

    x: Any
    c: Any
    c_k: Any


def scaffold(fed, task, x, eta, steps, eta_g, rounds):
    """Karimireddy et al., Alg. 1 with option II."""
    clients = range(fed.data.clients)
    c_k = {k: zeros(x) for k in clients}
    for round in range(rounds):
        c = weighted_mean(task.omega, c_k)  # over all clients, whoever is here
        step, learned = zeros(x), {}
        for client, rows in cohort(fed, round, steps).items():
            y = dict(x)
            for t in range(steps):
                g = task.at(y, fed.data, client, rows[t])
                y = {name: y[name] - eta * (g[name] - c_k[client][name] + c[name]) for name in y}
            learned[client] = {
                name: c_k[client][name] - c[name] + (x[name] - y[name]) / (steps * eta) for name in x
            }
            step = plus(step, plus(y, x, -1.0), task.omega[client] * correction(fed, client))
        x = plus(x, step, eta_g)
        c_k = c_k | learned
        yield Scaffold(x, weighted_mean(task.omega, c_k), c_k)


class Codasca(NamedTuple):
    v: Any
    alpha: float
    c_v: Any
    c_alpha: float
    ck_v: Any
    ck_alpha: Any
    v_0: Any
    """The stage's start."""


def codasca(fed, task, z, stages, eta_g, gamma, reset, output="last", least=-np.inf):
    """Alg. 3, and Alg. 4 for each of its stages (cycles, η_l, I). `least` bounds α (margin form)."""
    clients, round = range(fed.data.clients), 0
    v, alpha = {name: value for name, value in z.items() if name != ALPHA}, float(z[ALPHA])
    ck_v, ck_alpha = {k: zeros(v) for k in clients}, dict.fromkeys(clients, 0.0)
    for cycles, eta, steps in stages:
        v_0, iterates = dict(v), []
        if reset:
            ck_v, ck_alpha = {k: zeros(v) for k in clients}, dict.fromkeys(clients, 0.0)
        for _ in range(cycles * fed.roster.cycle_length):
            c_v = weighted_mean(task.omega, ck_v)
            c_alpha = sum(task.omega[k] * ck_alpha[k] for k in clients)
            step_v, step_alpha, new_v, new_alpha = zeros(v), 0.0, {}, {}
            for k, rows in cohort(fed, round, steps).items():
                v_k, alpha_k = dict(v), alpha
                for t in range(steps):
                    g = task.at(v_k | {ALPHA: alpha_k}, fed.data, k, rows[t])
                    g_alpha = float(g.pop(ALPHA))
                    direction = {
                        name: g[name] + gamma * (v_k[name] - v_0[name]) - ck_v[k][name] + c_v[name]
                        for name in v
                    }
                    v_k = plus(v_k, direction, -eta)
                    alpha_k = max(least, alpha_k + eta * (g_alpha - ck_alpha[k] + c_alpha))
                new_v[k] = plus(plus(ck_v[k], c_v, -1.0), plus(v, v_k, -1.0), 1 / (steps * eta))
                new_alpha[k] = ck_alpha[k] - c_alpha + (alpha_k - alpha) / (steps * eta)
                weight = task.omega[k] * correction(fed, k)
                step_v = plus(step_v, plus(v_k, v, -1.0), weight)
                step_alpha += weight * (alpha_k - alpha)
            v, alpha = plus(v, step_v, eta_g), max(least, alpha + eta_g * step_alpha)
            ck_v, ck_alpha = ck_v | new_v, ck_alpha | new_alpha
            iterates.append((v, alpha))
            round += 1
            c_v = weighted_mean(task.omega, ck_v)
            c_alpha = sum(task.omega[k] * ck_alpha[k] for k in clients)
            yield Codasca(v, alpha, c_v, c_alpha, ck_v, ck_alpha, v_0)
        if output == "average":
            v = {name: sum(v_r[name] for v_r, _ in iterates) / len(iterates) for name in v}
            alpha = sum(alpha_r for _, alpha_r in iterates) / len(iterates)


# ----------------------------------------------------------------------------------------- amplification


class Amplified(NamedTuple):
    x: Any
    anchor: Any
    c: Any
    c_k: Any
    mean: Any
    """Of the clients that took part in the cycle so far: the mean of their gradients in it."""
    times: Any
    """How many rounds of the cycle they took part in."""


def amplified(fed, task, x, eta, steps, factor, rounds, control):
    """Wang & Ji (x only) and Crawshaw & Liu (`control`): a window of P rounds with one c and one c_k each;
    at its end x ← x₀ + γ(x - x₀), and c_k is the mean of the gradients that the client took in the window."""
    clients, window = range(fed.data.clients), fed.roster.cycle_length
    anchor = dict(x)
    c, c_k = zeros(x), {k: zeros(x) for k in clients}
    taken = {k: [] for k in clients}
    for round in range(rounds):
        step = zeros(x)
        for client, rows in cohort(fed, round, steps).items():
            x_k, gradients = dict(x), []
            for t in range(steps):
                g = task.at(x_k, fed.data, client, rows[t])
                gradients.append(g)
                if control:
                    g = {name: g[name] - c_k[client][name] + c[name] for name in g}
                x_k = plus(x_k, g, -eta)
            taken[client].append(gradients)
            step = plus(step, plus(x_k, x, -1.0), task.omega[client] * correction(fed, client))
        x = plus(x, step)
        mean = {k: mean_gradient(taken[k]) for k in clients if taken[k]}
        times = {k: len(taken[k]) for k in clients if taken[k]}
        if (round + 1) % window == 0:
            x = plus(anchor, plus(x, anchor, -1.0), factor)
            anchor = dict(x)
            if control:
                c_k = c_k | mean
                c = weighted_mean(task.omega, c_k)
            taken = {k: [] for k in clients}
        yield Amplified(x, anchor, c, c_k, mean, times)


def mean_gradient(rounds):
    """The mean over all steps of all rounds."""
    total, count = zeros(rounds[0][0]), 0
    for gradients in rounds:
        for g in gradients:
            total, count = plus(total, g), count + 1
    return {name: value / count for name, value in total.items()}


# --------------------------------------------------------------------------------------------------- CODA


def estimated_dual(fed, model, w, round, steps, weight, h_link="sigmoid"):
    """Mean negative score minus mean positive score of all clients, each over those that have the class.

    `weight[client, label]` is what a client counts for; it is looked at for clients that have the class.
    """
    seed = int(rng.fold(fed.seed, rng.PHASE, 1)[0] >> np.uint64(1))  # an input: the draws of this phase
    everybody = fed.weighting.cohort(Full().bind(fed.data.clients, seed), round, lambda c: np.zeros(len(c)))
    rows = Draws(fed.data, everybody, "stratified", steps, fed.batch, seed, round).rows
    x, y = fed.data.x.numpy(), fed.data.y.numpy()
    means = {}
    for label in (NEGATIVE, POSITIVE):
        total = counted = 0.0
        for client in range(fed.data.clients):
            scores = [
                naive.link(h_link, model.score(w, x[row]))[0]
                for row in rows[client].ravel()
                if y[row] == label
            ]
            if scores:
                total += weight[client, label] * sum(scores) / len(scores)
                counted += weight[client, label]
        means[label] = total / counted
    return means[NEGATIVE] - means[POSITIVE]
