"""Stochastic batches and clients that are alike: what is left is noise, η/M times a constant.

Linear speed-up is the last term of Lemma 1 (Yuan et al. 2021), 3ησ²/M: twice the clients, half the error.
Clients have the same rows, of 30 features, so that a few hundred rounds are enough to see the constant.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from . import theory
from .problems import Array, Auc, Logistic, Problem, Rows, distance, federation, groups, iterates

STEPS, BATCH, ROUNDS, WARM_UP = 4, 8, 210, 50
pytestmark = pytest.mark.slow
BASE = {"coda+": 0.02, "codasca": 0.02, "fedavg": 0.2}


def problem_of(preset: str, clients: int) -> Auc | Logistic:
    rows = Rows.alike(clients, 240, 30)
    return Logistic(rows) if preset == "fedavg" else Auc(rows)


@cache
def trembling(preset: str, eta: float, clients: int) -> Array:
    """Iterates around the optimum."""
    problem = problem_of(preset, clients)
    fed = federation(problem, preset, eta, STEPS, {"train.batch": BATCH})
    return iterates(fed, problem, problem.optimum, ROUNDS)[WARM_UP:]


def floor(preset: str, eta: float, clients: int) -> float:
    return float(np.mean(distance(trembling(preset, eta, clients), problem_of(preset, clients)) ** 2))


@pytest.mark.parametrize("preset", ["coda+", "fedavg"])
def test_noise_floor(preset: str) -> None:
    """Within 15 %. Batches that all clients share leave no trace of M (a ratio of 1, 2.5 times the floor);
    the same batches in every round make a bias, not noise (a ratio of 1 for η, and 9 times the floor)."""
    eta = BASE[preset]
    cases = {"base": (eta, 2), "short": (eta / 4, 2), "many": (eta, 8)}
    found = {name: floor(preset, *case) for name, case in cases.items()}
    for name, (e, m) in cases.items():
        expected = theory.trembling(problem_of(preset, m), e, STEPS, BATCH)
        assert found[name] == pytest.approx(expected, rel=0.25), name
    assert 3 < found["base"] / found["short"] < 5.5
    assert 3 < found["base"] / found["many"] < 5.5


def test_control_variates_do_not_add_noise() -> None:
    """With everybody in every round c = Σ ω c_k exactly, so what is random in c_k cancels in the mean: the
    term 10ησ²/η_g of Lemma 2, which has no 1/M, is not sharp here."""
    assert floor("codasca", 0.02, 2) == pytest.approx(floor("coda+", 0.02, 2), rel=0.1)


def test_duality_gap_at_the_noise_floor() -> None:
    """Of single iterates, which is more than that of their average: about ησ²/(4M), and 3ησ²/M by Lemma 1."""
    problem, eta = problem_of("coda+", 2), BASE["coda+"]
    a, last = problem.jacobian(problem.optimum), problem.size - 1
    primal = a[:last, :last] - np.outer(a[:last, last], a[last, :last]) / a[last, last]
    dual = a[last, last] - a[last, :last] @ np.linalg.solve(a[:last, :last], a[:last, last])
    away = trembling("coda+", eta, 2) - problem.optimum
    gap = np.einsum("ti,ij,tj->t", away[:, :last], primal, away[:, :last]) / 2 + dual * away[:, last] ** 2 / 2
    unit = eta * theory.variance(problem, BATCH) / 2
    assert 0.1 < gap.mean() / unit < 1


def test_what_cycles_and_noise_leave() -> None:
    """Different clients in cycles: control variates leave the noise, K times as much as with everybody in
    a round, because a round has a K-th of the clients; without them the bias of the order comes on top."""
    problem: Problem = Auc(Rows.different(((48, 48),) * 6))
    left = {}
    for preset, more in (("codasca", {}), ("cycp-codasca", groups(3)), ("cycp-minimax", groups(3))):
        fed = federation(problem, preset, 0.01, 8, {"train.batch": 8} | more)
        path = iterates(fed, problem, problem.optimum, 60 if more else 110)[20:]
        left[preset] = np.mean(distance(path, problem) ** 2), distance(path.mean(axis=0), problem) ** 2
    assert 1.5 < left["cycp-codasca"][0] / left["codasca"][0] < 6
    assert left["cycp-minimax"][0] > 3 * left["cycp-codasca"][0]
    assert left["cycp-minimax"][1] > 30 * left["cycp-codasca"][1]  # bias: the mean over time is off
