"""The worst mixture of clients: the duality gap falls like 1/√T, towards the equilibrium of a direct solver.

    min over w, max over λ in the simplex of  Σ λ_n f_n(w) + decay/2 ‖w‖²

Theorem 1 of "Client sampling for communication-efficient distributed minimax optimization" (its eq. 9) bounds
the gap of the averages ŵ and λ̂ by R²_λ/(2η_λT) + η_λG²_λ/2 + R²_w/(2ηT) + ηG²_w/2 with everybody in a round
and all rows in a batch, which is 1/√T for η, η_λ ∝ 1/√T. (It prints R_w where its proof has R²_w.)
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.optimize import minimize

from fedauc.core.loop import Federation, advance

from .problems import Array, Logistic, federation, slope, start

PROBLEM = Logistic()
CLIENTS = len(PROBLEM.rows)
FROM = np.ones(PROBLEM.size)
ETA, ETA_LAMBDA = 4.0, 8.0
"""Of T = 1."""


class Run(NamedTuple):
    w: Array
    """[T, d] iterates w⁽⁰⁾ to w⁽ᵀ⁻¹⁾."""
    lam: Array

    @property
    def averages(self) -> tuple[Array, Array]:
        return self.w.mean(axis=0), self.lam.mean(axis=0)


def value(w: Array, lam: Array) -> float:
    return float(lam @ PROBLEM.losses(w) + PROBLEM.decay / 2 * w @ w)


def response(lam: Array) -> Array:
    """The w that is best against a mixture, by Newton's method."""
    w = np.zeros(PROBLEM.size)
    for _ in range(20):
        w = w - np.linalg.solve(np.tensordot(lam, PROBLEM.jacobians(w), 1), lam @ PROBLEM.fields(w))
    return w


def gap(w: Array, lam: Array) -> float:
    """max over λ minus min over w."""
    worst = np.eye(CLIENTS)[np.argmax(PROBLEM.losses(w))]
    return value(w, worst) - value(response(lam), lam)


@cache
def equilibrium() -> tuple[Array, Array]:
    """w by a solver of min t, f_n(w) ≤ t; λ, the multipliers, from its stationarity."""
    d = PROBLEM.size
    found = minimize(
        lambda v: v[d] + PROBLEM.decay / 2 * v[:d] @ v[:d],
        np.append(PROBLEM.optimum, 1.0),
        constraints=[{"type": "ineq", "fun": lambda v: v[d] - PROBLEM.losses(v[:d])}],
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 500},
    )
    w = found.x[:d]
    worst = np.flatnonzero(PROBLEM.losses(w) > found.x[d] - 1e-6)
    slopes = PROBLEM.fields(w)[worst]
    lam = np.zeros(CLIENTS)
    lam[worst] = np.linalg.lstsq(np.vstack([slopes.T, np.ones(len(worst))]), np.eye(d + 1)[d], rcond=None)[0]
    return w, lam


def minimax(preset: str, rounds: int, more: dict[str, Any] | None = None) -> Federation:
    settings = {"server.eta_lambda": ETA_LAMBDA / rounds**0.5, "server.chi2": 0.0, "server.report": CLIENTS}
    return federation(PROBLEM, preset, ETA / rounds**0.5, 1, settings | (more or {}))


@cache
def run(preset: str, rounds: int, seed: int = 0) -> Run:
    more = {} if preset == "minimax-all" else {"participation.per_round": 3, "seed": seed}
    fed = minimax(preset, rounds, more)
    state, w, lam = start(fed, PROBLEM, FROM), [], []
    for _ in range(rounds):
        w.append(PROBLEM.vector(state.server.z))
        lam.append(state.server.lam.numpy())
        state, _ = advance(fed, state)
    return Run(np.array(w), np.array(lam))


def test_the_direct_solution_is_an_equilibrium() -> None:
    w, lam = equilibrium()
    assert lam.sum() == pytest.approx(1)
    assert (lam > 0.02).sum() == 3  # three clients share the largest loss, the others are better off
    assert (lam >= 0).all()
    assert gap(w, lam) < 1e-10
    assert gap(FROM, np.full(CLIENTS, 1 / CLIENTS)) > 0.1


@pytest.mark.slow
def test_duality_gap() -> None:
    """Falls with T^(-0.93), because f_n are strongly convex. A phase 1 that ignores λ stays above 0.03, a λ
    that does not move above 0.06."""
    lengths = (9, 36, 144)
    gaps = [gap(*run("minimax-all", t).averages) for t in lengths]
    assert slope(lengths, gaps) < -0.5
    for t, found in zip(lengths, gaps, strict=True):
        assert found < bound(run("minimax-all", t)), t
    assert gaps[-1] < 0.005


def bound(r: Run) -> float:
    """Theorem 1 with the constants of this run: W holds its iterates and the best response to λ̂."""
    t, w = len(r.w), np.vstack([r.w, response(r.averages[1])])
    eta, eta_lambda = ETA / t**0.5, ETA_LAMBDA / t**0.5
    width = np.linalg.norm(w[:, None] - w[None], axis=2).max()
    steep = max(np.linalg.norm(lam @ PROBLEM.fields(w)) for w, lam in zip(r.w, r.lam, strict=True))
    high = max(np.linalg.norm(PROBLEM.losses(w)) for w in r.w)
    return float(
        2 / (2 * eta_lambda * t) + eta_lambda * high**2 / 2 + width**2 / (2 * eta * t) + eta * steep**2 / 2
    )


@pytest.mark.slow
def test_iterates_lead_to_the_equilibrium() -> None:
    """f_n are strongly convex, so the last iterates get there as well, and geometrically."""
    w, lam = equilibrium()
    r = run("minimax-all", 144)
    mean_w, mean_lam = r.averages
    assert np.linalg.norm(mean_w - w) < 0.1  # from 1.7
    assert np.linalg.norm(mean_lam - lam) < 0.04  # from 0.8
    assert np.linalg.norm(r.w[-1] - w) < 1e-4
    assert np.linalg.norm(r.lam[-1] - lam) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["ce-minimax", "minimax-uniform"])
def test_sampled_clients(preset: str) -> None:
    """Half of the clients per round: unbiased, so it goes on towards the same equilibrium, with noise."""
    w, lam = equilibrium()
    gaps = [gap(*run(preset, t).averages) for t in (9, 100)]
    mean_w, mean_lam = run(preset, 100).averages
    assert slope((9, 100), gaps) < -0.5
    assert np.linalg.norm(mean_w - w) < 0.2
    assert np.linalg.norm(mean_lam - lam) < 0.08


def test_regularised_weights() -> None:
    """With -ϱN Σ(λ_n - 1/N)² and no client at the simplex' edge: λ_n = 1/N + (f_n - mean f)/(2ϱN)."""
    chi2 = 0.05
    fed = minimax("minimax-all", 16, {"server.chi2": chi2, "server.eta_lambda": 1.0})
    state = start(fed, PROBLEM, equilibrium()[0])
    for _ in range(90):
        state, _ = advance(fed, state)
    w, lam = PROBLEM.vector(state.server.z), state.server.lam.numpy()
    losses = PROBLEM.losses(w)
    np.testing.assert_allclose(lam, 1 / CLIENTS + (losses - losses.mean()) / (2 * chi2 * CLIENTS), atol=1e-10)
    np.testing.assert_allclose(w, response(lam), atol=1e-10)
    assert lam.min() > 0.05
    assert lam.max() > 0.18
