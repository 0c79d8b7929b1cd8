"""More of the papers' pseudo-code in NumPy: momentum, composition, agnostic weights, partial AUC, embeddings.

As in `naive`, only the draws come from the library: who takes part (where that is a plain draw), which rows
they draw, and the hash behind Bernoulli draws and passive scores.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import brentq

from fedauc.core import rng
from fedauc.core.loop import advance, begin
from fedauc.core.method import Cohort
from fedauc.data.federated import Draws
from fedauc.participation import Cyclic, Full, Uniform

from ..contract.federations import COUNTS
from ..contract.federations import rows as federated_rows
from . import naive
from .naive import NEGATIVE, POSITIVE, plus, sigmoid, zeros

# ------------------------------------------------------------------------------------------- federations


def federated_data(counts=COUNTS, features=2, seed=11):
    """Clients without positives, without negatives, and with very different sizes."""
    return federated_rows(counts, seed, features)


def states(fed, start, rounds):
    """The library: its state after each round."""
    params = {name: torch.tensor(np.array(value)) for name, value in start.items()}
    state, seen = begin(fed, params), []
    for _ in range(rounds):
        state, _ = advance(fed, state)
        seen.append(state)
    return seen


def correction(fed, client):
    """K/π, from the sizes alone."""
    participation, roster = fed.participation, fed.roster
    if isinstance(participation, Full):
        return 1.0
    if isinstance(participation, Uniform):
        return fed.data.clients / participation.per_round
    assert isinstance(participation, Cyclic)
    (group,) = (group for group in roster.groups if client in group)
    m = len(group) if participation.per_round is None else min(participation.per_round, len(group))
    return len(roster.groups) * len(group) / m


def participants(fed, round):
    """Who takes part, where that does not depend on anything."""
    return fed.roster.select(round, None)[0].tolist()


def rows_of(fed, clients, round, steps, seed=None):
    """client → rows [I, B] of its local steps."""
    ones = np.ones(len(clients))
    cohort = Cohort(np.array(clients), ones, ones, np.ones((len(clients), 2)), np.ones((len(clients), 2)))
    seed = fed.seed if seed is None else seed
    draws = Draws(fed.data, cohort, fed.method.draw, steps, fed.batch, seed, round)
    return dict(zip(clients, draws.rows, strict=True))


def assert_close(fast, slow, tolerance=1e-10):
    assert fast.keys() == slow.keys()
    for name in fast:
        np.testing.assert_allclose(
            fast[name].numpy(), slow[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


# ------------------------------------------------------------------------------- losses and their curvature


def softplus(t):
    return math.log1p(math.exp(-abs(t))) + max(t, 0.0)


def cross_entropy(model, w, xs, ys, weights):
    """Σ weight · (-y log σ(s) - (1-y) log(1 - σ(s)))."""
    total = 0.0
    for x, y, weight in zip(xs, ys, weights, strict=True):
        s = model.score(w, x)
        total += weight * (softplus(-s) if y == POSITIVE else softplus(s))
    return total


def minimax(model, z, xs, ys, weights, *, curvature=1.0, h_link="sigmoid"):
    """Eq. (1) of LocalSCGDAM, eq. (3) of CyCp: `weights` carry (1-p) and p or the class means."""
    a, b, alpha = (float(z[f"auc.{name}"]) for name in ("a", "b", "alpha"))
    total = -curvature * alpha**2
    for x, y, weight in zip(xs, ys, weights, strict=True):
        h, _ = naive.link(h_link, model.score(z, x))
        if y == POSITIVE:
            total += weight * ((h - a) ** 2 - 2 * (1 + alpha) * h)
        else:
            total += weight * ((h - b) ** 2 + 2 * (1 + alpha) * h)
    return total


def dot(a, b):
    return sum(float(np.sum(a[name] * b[name])) for name in a)


def score_curvature(model, w, x, direction):
    """∂²s/∂w² · direction."""
    if isinstance(model, naive.Linear):
        return zeros(w)
    t = np.tanh(w["W"] @ x + w["c"])
    dt = (1 - t**2) * (direction["W"] @ x + direction["c"])
    back = direction["u"] * (1 - t**2) - 2 * w["u"] * t * dt
    return {"W": np.outer(back, x), "c": back, "u": dt, "d": np.array(0.0)}


def cross_entropy_curvature(model, w, xs, ys, weights, direction):
    """∇²L_CE(w)·direction = Σ weight · [σ(1-σ) (∂s·d) ∂s + (σ - y) ∂²s·d]."""
    total = zeros(w)
    for x, y, weight in zip(xs, ys, weights, strict=True):
        chance, slope = sigmoid(model.score(w, x)), model.gradient(w, x)
        total = plus(total, slope, weight * chance * (1 - chance) * dot(slope, direction))
        total = plus(total, score_curvature(model, w, x, direction), weight * (chance - y))
    return total


def surrogate(o, t):
    """ψ(t) of Table 10, for the library's objective `o`."""
    m, s = o.margin, 1 / o.lam
    if o.surrogate == "square":
        return (m - t) ** 2
    if o.surrogate == "squared-hinge":
        return max(m - t, 0.0) ** 2
    if o.surrogate == "logistic":
        return softplus(-s * t)
    if o.surrogate == "sigmoid":
        return sigmoid(-s * t)
    if o.surrogate == "q-norm-hinge":
        return max(m - t, 0.0) ** o.q
    return max(m - o.tau * (m + t), o.tau * (t - m), m - t)


# ---------------------------------------------------------------------------- momentum, with composition


def parts(z):
    """x and y of the paper: what is descended and what is ascended."""
    y = {name: value for name, value in z.items() if name == "auc.alpha"}
    return {name: value for name, value in z.items() if name not in y}, y


def own(z):
    """The model's part."""
    return {name: value for name, value in z.items() if not name.startswith("auc.")}


class Plain:
    """∇_x f, ∇_y f at (x, y): LocalSGDAM, LocalSGDM."""

    def __init__(self, field, decay=0.0):
        self.field, self.decay = field, decay

    def samples(self, rows):
        """ξ, which nothing depends on, and ζ."""
        return rows, rows

    def gradients(self, x, y, h, xi, zeta):
        z = x | y
        field = self.field(z, *zeta)
        for name, value in own(z).items():
            field[name] = field[name] + self.decay * value
        g_x, g_y = parts(field)
        return g_x, {name: -value for name, value in g_y.items()}  # the field has -∂y

    def inner(self, x, xs, ys, weights):
        return x


class Composed(Plain):
    """∇g(x; ξ)ᵀ∇_h f(h, y; ζ) and g(x; ξ) = x - ρ ∇L_CE(w; ξ): eq. (2)-(4), (11), (12) of LocalSCGDAM."""

    def __init__(self, model, field, rho, first_order=False, shared=False):
        super().__init__(field)
        self.model, self.rho, self.first_order, self.shared = model, rho, first_order, shared

    def samples(self, rows):
        return (rows, rows) if self.shared else (rows[0::2], rows[1::2])

    def inner(self, x, xs, ys, weights):
        slope = naive.cross_entropy_field(self.model, own(x), xs, ys, weights)
        return {n: value - self.rho * slope[n] if n in slope else value for n, value in x.items()}

    def gradients(self, x, y, h, xi, zeta):
        g_h, g_y = super().gradients(h, y, h, xi, zeta)
        if not self.first_order:
            bent = cross_entropy_curvature(self.model, own(x), *xi, own(g_h))
            g_h = {n: value - self.rho * bent[n] if n in bent else value for n, value in g_h.items()}
        return g_h, g_y


def momentum(fed, z, method, weights_of, upload_weight, settings, rounds, bounded=dict):
    """Algorithm 1 of LocalSCGDAM. `weights_of(client, ys)` are the weights of f and those of L_CE. The
    server adds Σ weight · (received - sent), which is the printed mean where the weights are 1/K; the last of
    what it yields is h - x. `bounded` brings y into its bounds."""
    data_x, data_y, eta, steps = fed.data.x.numpy(), fed.data.y.numpy(), settings["eta"], settings["steps"]
    x, y = parts(z)
    h, u, v = dict(x), zeros(x), zeros(y)
    composed, begun = isinstance(method, Composed), False
    for round in range(rounds):
        clients = participants(fed, round)
        received = []
        for client, rows in rows_of(fed, clients, round, steps).items():
            x_k, y_k, h_k, u_k, v_k = x, y, h, u, v
            for t in range(steps):
                xi, zeta = (
                    (data_x[each], data_y[each], weights_of(client, data_y[each])[which])
                    for each, which in zip(method.samples(rows[t]), (1, 0), strict=True)
                )
                if begun or t > 0:
                    x_k = plus(x_k, u_k, -settings["gamma_x"] * eta)  # line 2
                    y_k = bounded(plus(y_k, v_k, settings["gamma_y"] * eta))
                    share_h, share_x, share_y = settings["h_rate"], settings["beta_x"], settings["beta_y"]
                else:  # the lines before the loop: h₀, u₀, v₀
                    share_h = share_x = share_y = 1.0
                g = method.inner(x_k, *xi)
                h_k = {n: (1 - share_h) * h_k[n] + share_h * g[n] for n in g}  # line 3
                g_x, g_y = method.gradients(x_k, y_k, h_k, xi, zeta)
                u_k = {n: (1 - share_x) * u_k[n] + share_x * g_x[n] for n in u_k}  # line 4
                v_k = {n: (1 - share_y) * v_k[n] + share_y * g_y[n] for n in v_k}
            received.append((upload_weight(client), (x_k, y_k, h_k, u_k, v_k)))
        total = sum(weight for weight, _ in received)
        h = zeros(x)  # h - x is averaged with weights that sum to one
        for weight, (x_k, _, h_k, _, _) in received:
            h = plus(h, plus(h_k, x_k, -1.0), weight / total)
        x, y = (averaged(old, [(w, got[i]) for w, got in received]) for i, old in enumerate((x, y)))
        h = plus(x, h)
        # of the server's momentum (1-β)^I is left, and what the steps added counts what the client counts for
        left = [(1 - settings[name]) ** steps if begun else 0.0 for name in ("beta_x", "beta_y")]
        u, v = (
            averaged({n: share * old[n] for n in old}, [(w, got[i]) for w, got in received])
            for share, old, i in ((left[0], u, 3), (left[1], v, 4))
        )
        begun = True
        y = bounded(y)
        yield x | y, u | {name: -value for name, value in v.items()}, plus(h, x, -1.0) if composed else {}


def averaged(old, received):
    """old + Σ weight · (new - old)."""
    total = dict(old)
    for weight, new in received:
        total = plus(total, plus(new, old, -1.0), weight)
    return total


# ----------------------------------------------------------------------------------- who is sampled (P1)


def p1(weight, times, kappa, m, floor):
    """min Σ λ/q + κ Σ qT with Σ q = m: q = √(λ/(κT + ν)) inside its bounds, ν by root finding. Clients with
    λ = 0 are at the floor where κT + ν > 0 and at 1 where it is below 0; at 0 they share what is left."""
    if m >= len(weight):
        return np.ones(len(weight))
    cost = kappa * np.asarray(times)

    def chances(nu):
        q = []
        for each, price in zip(weight, cost + nu, strict=True):
            q.append(1.0 if price <= 0 else min(1.0, max(floor, math.sqrt(each / price))))
        return np.array(q)

    for corner in sorted({-price for price, each in zip(cost, weight, strict=True) if each == 0}):
        q = chances(corner)
        free = [i for i, each in enumerate(weight) if each == 0 and cost[i] + corner == 0]
        most, least = q.sum(), q.sum() - len(free) * (1 - floor)
        if least <= m <= most:
            q[free] = floor + (m - least) / len(free)
            return q
    low, high = -cost.max() - 1.0, max(weight) / floor**2 + 1.0
    return chances(brentq(lambda nu: chances(nu).sum() - m, low, high, xtol=1e-15, rtol=1e-15, maxiter=1000))


def proportional(weight, m, floor):
    """q = λ/s inside its bounds, Σ q = m."""

    def chances(s):
        return np.array([min(1.0, max(floor, each / s)) for each in weight])

    s = brentq(lambda s: chances(s).sum() - m, 1e-9, max(weight) / floor, xtol=1e-16, rtol=1e-15)
    return chances(s)


def bernoulli(q, clients, seed, round):
    """Independent draws, again where nobody was drawn; and the chance of each given that somebody was."""
    nobody = 1.0
    for each in q:
        nobody *= 1 - each
    turn = 0
    while True:
        hit = [
            i
            for i, client in enumerate(clients)
            if float(rng.uniform(seed, rng.COHORT, round, turn, client)[0]) < q[i]
        ]
        if hit:
            return {clients[i]: q[i] / (1 - nobody) for i in hit}
        turn += 1


# ---------------------------------------------------------------------------------------- the simplex


def on_simplex(v):
    """Sort, find how many stay positive, shift (Held, Wolfe & Crowder 1974)."""
    ordered, total = sorted(v, reverse=True), 0.0
    theta = 0.0
    for count, value in enumerate(ordered, start=1):
        total += value
        if value - (total - 1) / count > 0:
            theta = (total - 1) / count
    return np.array([max(value - theta, 0.0) for value in v])


def on_box_simplex(v, low, high):
    """clip(v - θ) sums to a piecewise linear function of θ: sort its knots, solve the piece across 1."""

    def total(theta):
        return sum(min(max(value - theta, low), high) for value in v)

    knots = sorted([value - low for value in v] + [value - high for value in v])
    left = knots[0]
    for right in knots[1:]:
        if total(right) <= 1 <= total(left):
            break
        left = right
    fall = total(left) - total(right)
    theta = left if fall == 0 else left + (right - left) * (total(left) - 1) / fall
    return np.array([min(max(value - theta, low), high) for value in v])


# ------------------------------------------------------------------------------------- pools of passives


class Pools:
    """H₁, H₂: class → [(what travels, weight)]; of the previous cycle, of the previous round, or rolling."""

    def __init__(self, refresh, cycle):
        self.refresh, self.cycle = refresh, cycle
        self.history, self.of_cycle = {NEGATIVE: [], POSITIVE: []}, {NEGATIVE: [], POSITIVE: []}

    def add(self, round, scores):
        for label in (NEGATIVE, POSITIVE):
            self.history[label].append((round, scores[label]))
            if self.refresh == "cycle" and (round + 1) % self.cycle == 0:
                first = round + 1 - self.cycle
                new = [s for r, scores in self.history[label] if r >= first for s in scores]
                self.of_cycle[label] = new or self.of_cycle[label]

    @property
    def now(self):
        if self.refresh == "cycle":
            return self.of_cycle
        window = 1 if self.refresh == "round" else self.cycle
        return {label: self._recent(self.history[label], window) for label in (NEGATIVE, POSITIVE)}

    @staticmethod
    def _recent(history, window):
        """The last `window` rounds; the last one that had the class, where none of them had."""
        if not history:
            return []
        first = history[-1][0] + 1 - window
        recent = [s for r, scores in history if r >= first for s in scores]
        if recent:
            return recent
        filled = [scores for _, scores in history if scores]
        return filled[-1] if filled else []


def active_passive(fed, w, score, gradient, steps, passive, eta, rounds, omega, local, share):
    """Algorithm 3 of CyCp for anything that travels. `score(w, row, client)` is what an example sends before
    anything can be compared; `gradient(w, rows, ys, weights, passive, client)` gives the gradient and what
    each example sends. w and the pools after every round."""
    y, pools = fed.data.y.numpy(), Pools(fed.method.refresh, fed.roster.cycle_length)
    for round in range(rounds):
        clients = participants(fed, round)
        ready = all(pools.now[label] for label in (NEGATIVE, POSITIVE))
        step, scores = zeros(w), {NEGATIVE: [], POSITIVE: []}
        for client, rows in rows_of(fed, clients, round, steps).items():
            size = steps * passive if ready else 0
            buffers = {
                label: naive.systematic(pools.now[label], size, fed.seed, label, round, client)
                for label in (NEGATIVE, POSITIVE)
            }
            w_m, mine = w, {NEGATIVE: [], POSITIVE: []}
            for t in range(steps):
                ys = y[rows[t]]
                if ready:
                    others = {label: buffers[label][t * passive : (t + 1) * passive] for label in buffers}
                    weights = naive.batch_weights(ys, local[client])
                    slope, sent = gradient(w_m, rows[t], ys, weights, others, client)
                    w_m = plus(w_m, slope, -eta)
                else:
                    sent = [score(w_m, row, client) for row in rows[t]]
                for label, what in zip(ys, sent, strict=True):
                    mine[int(label)].append(what)
            step = plus(step, plus(w_m, w, -1.0), omega[client] * correction(fed, client))
            for label in (NEGATIVE, POSITIVE):
                for what in mine[label]:
                    each = share[client, label] * correction(fed, client) / len(mine[label])
                    scores[label].append((what, each))
        w = plus(w, step)
        pools.add(round, scores)
        yield w, pools.now
