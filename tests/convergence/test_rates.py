"""Errors fall geometrically, by 1 - ηIμ per round for small steps, μ the federation's slowest mode.

Two predictions for every method: that formula, at a small step, and the spectral radius of the method's round
as a linear map (`theory`), at a step where 1 - ηIμ is visibly off. The observed factor is that by which
changes shrink from round to round, so it does not matter where the method settles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedauc.core.loop import advance

from . import theory
from .problems import (
    Array,
    Auc,
    Logistic,
    Pairwise,
    Problem,
    contraction,
    distance,
    federation,
    iterates,
    start,
)

BETA = {"rule.beta_x": 0.3, "rule.beta_y": 0.3}
MU = 4.0


class Case(NamedTuple):
    preset: str
    problem: Problem
    eta: float
    steps: int
    round: Callable[[Any, float, int], Array]
    """The round as a linear map."""
    more: dict[str, Any] = {}  # noqa: RUF012 (never changed)

    def __str__(self) -> str:
        return f"{self.preset}-{'examples' if self.problem.examples else 'uniform'}"


def momentum(problem: Problem, eta: float, steps: int) -> Array:
    return theory.momentum(problem, eta, steps, BETA["rule.beta_x"])


CASES = [
    Case("coda+", Auc(), 0.03, 4, theory.local_steps),
    Case("coda+", Auc(examples=False), 0.03, 4, theory.local_steps),
    Case("coda", Auc(), 0.03, 4, theory.local_steps, {"schedule.stage_cycles": None}),
    Case("npa", Auc(), 0.1, 1, theory.local_steps),
    Case("codasca", Auc(), 0.04, 4, theory.control_variates),
    Case("local-sgdam", Auc(), 0.03, 4, momentum, BETA),
    Case("fedavg", Logistic(), 0.1, 4, theory.local_steps),
    Case("fedavg", Logistic(examples=False), 0.1, 4, theory.local_steps),
    Case("scaffold", Logistic(), 0.1, 4, theory.control_variates),
    Case("fedprox", Logistic(), 0.1, 8, lambda p, eta, i: theory.local_steps(p, eta, i, MU), {"rule.mu": MU}),
    Case("local-sgdm", Logistic(), 0.1, 4, momentum, BETA),
    Case("cycp-pairwise", Pairwise(), 0.1, 1, lambda p, eta, i: theory.delayed(p, eta),
         {"participation": "full"}),
]  # fmt: skip


def observed(case: Case, eta: float, rounds: int) -> float:
    """From far out along the slowest mode, so that no other is seen; not too far where F is not affine."""
    problem = case.problem
    far = 1e-2 if isinstance(problem, Logistic) else 10.0
    fed = federation(problem, case.preset, eta, case.steps, case.more)
    path = iterates(fed, problem, problem.optimum + far * problem.slowest[1], rounds)
    return contraction(path, rounds // 2)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rate_of_the_round(case: Case) -> None:
    """Within 0.5 %, and 2.2 % where other modes are close to the slowest. A momentum that starts anew in each
    round is slower by two thirds, FedProx without its pull three times as fast."""
    expected = theory.radius(case.round(case.problem, case.eta, case.steps))
    assert 1 - observed(case, case.eta, 32) == pytest.approx(1 - expected, rel=0.03)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rate_of_small_steps(case: Case) -> None:
    eta = case.eta / 40
    expected = eta * case.steps * case.problem.slowest[0]
    if case.preset == "fedprox":  # the pull shortens later steps
        expected *= (1 - (1 - eta * MU) ** case.steps) / (eta * MU * case.steps)
    assert 1 - observed(case, eta, 12) == pytest.approx(expected, rel=0.02)


# ------------------------------------------------------------------------------------- where they lead to


@pytest.mark.parametrize("steps", [1, 4])
def test_momentum_settles_where_theory_says(steps: int) -> None:
    problem, eta = Auc(), 0.2 / steps
    path = iterates(federation(problem, "local-sgdam", eta, steps, BETA), problem, problem.optimum, 110)
    rest = theory.momentum_rest(problem, eta, steps, BETA["rule.beta_x"])
    assert np.linalg.norm(path[-1] - rest) < 1e-8
    if steps == 1:
        assert distance(path[-1], problem) < 1e-8
    else:  # and not at the saddle: local momentum drifts as well
        assert distance(rest, problem) > 1e-2


def test_active_passive_settles_at_the_closed_form() -> None:
    """With one local step per round and all scores of the round before the only error is their age, which
    vanishes."""
    problem = Pairwise()
    fed = federation(problem, "cycp-pairwise", 0.1, 1, {"participation": "full"})
    assert distance(iterates(fed, problem, np.zeros(problem.size), 80)[-1], problem) < 1e-10


def test_stages_are_proximal_point_steps() -> None:
    """With γ > 0 a stage that is long enough ends where φ(v) + γ/2 ‖v - v₀‖² is least, φ(v) = max_α f(v, α):
    stages shrink the error by γ(H + γ)⁻¹, H the Hessian of φ. With an anchor that follows the iterate the
    first stage would end at the saddle; with one that stays at the run's start only that stage would move."""
    problem, gamma, rounds = Auc(), 3.0, 30
    more = {"rule.gamma": gamma, "schedule.stage_cycles": rounds, "schedule.decay": 1.0}
    fed = federation(problem, "coda+", 0.15, 1, more)
    a = problem.jacobian(problem.optimum)
    primal, dual = slice(0, problem.size - 1), problem.size - 1
    curvature = a[primal, primal] - np.outer(a[primal, dual], a[dual, primal]) / a[dual, dual]
    shrink = gamma * np.linalg.inv(curvature + gamma * np.eye(len(curvature)))
    state = start(fed, problem, np.zeros(problem.size))
    error = -problem.optimum[primal]
    for _ in range(4):
        for _ in range(rounds):
            state, _ = advance(fed, state)
        error = shrink @ error
        found = problem.vector(state.server.z)[primal] - problem.optimum[primal]
        np.testing.assert_allclose(found, error, atol=2e-6)
    assert np.linalg.norm(error) > 0.01
