"""The papers' pseudo-code in NumPy: loops over clients, steps and samples, gradients by hand.

Nothing here calls the library, except for the draws: which clients take part, which rows they draw and
the hash behind the draw of passive scores are inputs, so that both sides see the same data.
"""

from __future__ import annotations

import math

import numpy as np

from fedauc.core import rng

NEGATIVE, POSITIVE = 0, 1
TAU = {"uniform": 0.0, "sqrt": 0.5, "examples": 1.0}


def sigmoid(t):
    return 1 / (1 + math.exp(-t)) if t >= 0 else math.exp(t) / (1 + math.exp(t))


# ---------------------------------------------------------------------------------------------- vectors


def plus(a, b, scale=1.0):
    """a + scale · b, variable by variable."""
    return {name: a[name] + scale * b[name] for name in a}


def zeros(a):
    return {name: np.zeros_like(value) for name, value in a.items()}


# ----------------------------------------------------------------------------------------------- models


class Linear:
    """s = u·x + d."""

    def start(self, features):
        generator = np.random.default_rng(5)
        return {"u": generator.normal(size=features) / 2, "d": np.array(0.1)}

    def torch(self, z, x):
        """The same model for the library."""
        return x @ z["u"] + z["d"]

    def score(self, w, x):
        return float(np.dot(w["u"], x) + w["d"])

    def gradient(self, w, x):
        """∂s/∂w."""
        return {"u": x, "d": np.array(1.0)}


class Hidden:
    """s = u·tanh(Wx + c) + d, four hidden units."""

    def start(self, features):
        generator = np.random.default_rng(5)
        return {
            "W": generator.normal(size=(4, features)),
            "c": generator.normal(size=4) / 2,
            "u": generator.normal(size=4),
            "d": np.array(0.1),
        }

    def torch(self, z, x):
        return (x @ z["W"].T + z["c"]).tanh() @ z["u"] + z["d"]

    def score(self, w, x):
        return float(np.dot(w["u"], np.tanh(w["W"] @ x + w["c"])) + w["d"])

    def gradient(self, w, x):
        t = np.tanh(w["W"] @ x + w["c"])
        back = w["u"] * (1 - t**2)
        return {"W": np.outer(back, x), "c": back, "u": t, "d": np.array(1.0)}


# ---------------------------------------------------------------------------------------------- weights


def class_shares(counts, client_weight):
    """C [N, 2]: C ∝ n^τ over the clients that have the class."""
    shares = np.zeros((len(counts), 2))
    for label in (NEGATIVE, POSITIVE):
        total = 0.0
        for own in counts:
            total += own[label] ** TAU[client_weight] if own[label] else 0.0
        for i, own in enumerate(counts):
            shares[i, label] = own[label] ** TAU[client_weight] / total if own[label] else 0.0
    return shares


def class_weights(counts, client_weight, balance):
    """ω [N] and c [N, 2] with ω·c = C."""
    shares, n = class_shares(counts, client_weight), len(counts)
    omega, local = np.zeros(n), np.zeros((n, 2))
    for i in range(n):
        omega[i] = (shares[i, 0] + shares[i, 1]) / 2 if balance == "aggregate" else 1 / n
        for label in (NEGATIVE, POSITIVE):
            local[i, label] = shares[i, label] / omega[i]
    return omega, local


def client_weights(counts, client_weight):
    """ω [N] ∝ (rows)^τ."""
    powers = [(negatives + positives) ** TAU[client_weight] for negatives, positives in counts]
    return np.array([power / sum(powers) for power in powers])


# ------------------------------------------------------------------------------------------- objectives


def link(name, s):
    """h and dh/ds."""
    return (s, 1.0) if name == "identity" else (sigmoid(s), sigmoid(s) * (1 - sigmoid(s)))


def cross_entropy_field(model, z, xs, ys, weights):
    """Σ weight · (σ(s) - y) ∂s/∂w, for -y log σ(s) - (1-y) log(1 - σ(s))."""
    total = zeros(z)
    for x, y, weight in zip(xs, ys, weights, strict=True):
        total = plus(total, model.gradient(z, x), weight * (sigmoid(model.score(z, x)) - y))
    return total


def minimax_field(model, z, xs, ys, weights, *, curvature=1.0, margin=1.0, form="plain", h_link="sigmoid"):
    """(∂v, -∂α) of eq. (3), sample by sample; `weights` carry (1-p) and p or the class means.

    plain:  [+] (h-a)² - 2(m+α)h     [-] (h-b)² + 2(m+α)h     - curvature·α²
    margin: [+] (h-a)² - 2α'h        [-] (h-b)² + 2α'h        + 2·curvature·α'm - curvature·α'²
    """
    w = {name: value for name, value in z.items() if not name.startswith("auc.")}
    a, b, alpha = (float(z[f"auc.{name}"]) for name in ("a", "b", "alpha"))
    pull = margin + alpha if form == "plain" else alpha
    total_w, d_a, d_b, d_alpha = zeros(w), 0.0, 0.0, 0.0
    for x, y, weight in zip(xs, ys, weights, strict=True):
        h, dh = link(h_link, model.score(w, x))
        if y == POSITIVE:
            d_h = 2 * (h - a) - 2 * pull
            d_a += weight * -2 * (h - a)
            d_alpha += weight * -2 * h
        else:
            d_h = 2 * (h - b) + 2 * pull
            d_b += weight * -2 * (h - b)
            d_alpha += weight * 2 * h
        total_w = plus(total_w, model.gradient(w, x), weight * d_h * dh)
    d_alpha += -2 * curvature * alpha + (0.0 if form == "plain" else 2 * curvature * margin)
    return total_w | {"auc.a": np.array(d_a), "auc.b": np.array(d_b), "auc.alpha": np.array(-d_alpha)}


def surrogate_slope(o, t):
    """ψ'(t) of Table 10, for the library's objective `o`."""
    m, s = o.margin, 1 / o.lam
    if o.surrogate == "square":
        return -2 * (m - t)
    if o.surrogate == "squared-hinge":
        return -2 * max(m - t, 0.0)
    if o.surrogate == "logistic":
        return -s * sigmoid(-s * t)
    if o.surrogate == "sigmoid":
        return -s * sigmoid(s * t) * sigmoid(-s * t)
    if o.surrogate == "q-norm-hinge":
        return -o.q * max(m - t, 0.0) ** (o.q - 1)
    pieces = [(m - o.tau * (m + t), -o.tau), (o.tau * (t - m), o.tau), (m - t, -1.0)]
    return max(pieces)[1]


def pairwise_gradient(model, o, w, xs, ys, weights, passive):
    """Eq. (11) and (12): ∇₁ψ(h, passive⁻)∇h for positives, ∇₂ψ(passive⁺, h)∇h for negatives."""
    total = zeros(w)
    for x, y, weight in zip(xs, ys, weights, strict=True):
        h, dh = link(o.link, model.score(w, x))
        slope = 0.0
        if y == POSITIVE:
            for other in passive[NEGATIVE]:
                slope += surrogate_slope(o, h - other) / len(passive[NEGATIVE])
        else:
            for other in passive[POSITIVE]:
                slope += -surrogate_slope(o, other - h) / len(passive[POSITIVE])  # ∂/∂(second argument)
        total = plus(total, model.gradient(w, x), weight * slope * dh)
    return total


def batch_weights(ys, local):
    """A stratified batch: its positives weigh c⁺ together, its negatives c⁻."""
    counts = [sum(1 for y in ys if y == label) for label in (NEGATIVE, POSITIVE)]
    return [local[int(y)] / counts[int(y)] for y in ys]


# ---------------------------------------------------------------------------------------- passive scores


def systematic(pool, size, seed, label, round, client):
    """`size` scores of a pool [(score, weight)]: equidistant points on the cumulated weights, shuffled."""
    key = rng.fold(seed, rng.PASSIVE, label, round)
    offset = float(rng.uniform(key, client, 1)[0])
    places = [
        int(rng.permuted(rng.fold(key, client, 0), np.array([size]), np.array([j]))[0]) for j in range(size)
    ]
    total = 0.0
    for _, weight in pool:
        total += weight
    drawn = []
    for place in places:
        point = (place + offset) / size * total
        reached = 0.0
        for score, weight in pool:
            reached += weight
            if reached > point:
                drawn.append(score)
                break
    return drawn
