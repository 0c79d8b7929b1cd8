"""Everybody in every round and no noise: what is left is client drift.

CODA+ and FedAvg settle η(I-1) times a constant of theory away (the term η²I²D² of Lemma 1, Yuan et al.
2021); CODASCA and SCAFFOLD settle at the optimum itself whatever I is (Lemma 2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedauc.core.loop import Federation
from fedauc.core.tree import Tree
from fedauc.methods import ControlVariates

from . import theory
from .problems import Auc, Logistic, Problem, distance, federation, iterates, settled, slope

STEPS = (2, 4, 8, 16, 32)
PAIRS = [
    pytest.param(Auc(), "coda+", "codasca", id="minimax-auc"),
    pytest.param(Logistic(), "fedavg", "scaffold", id="cross-entropy"),
]
ETA = {Auc: 1e-3, Logistic: 1e-2}
"""Small: ηI times the largest curvature is 0.4 at I = 32."""


@pytest.mark.parametrize(("problem", "plain", "_"), PAIRS)
def test_local_steps_settle_where_theory_says(problem: Problem, plain: str, _: str) -> None:
    eta = ETA[type(problem)]
    found = {i: settled(federation(problem, plain, eta, i), problem) - problem.optimum for i in (1, *STEPS)}
    assert np.linalg.norm(found[1]) < 1e-13  # one step per round is gradient descent on the federation
    squared = [found[i] @ found[i] for i in STEPS]
    assert slope(np.array(STEPS) - 1, squared) == pytest.approx(2, abs=0.1)
    # Second order in ηI: 0.1 % at I = 2, 8 % at I = 32. A drift that were not averaged with ω, or of one step
    # more or less, is off by tens of per cent.
    for i in STEPS:
        expected = theory.drift(problem, eta, i)
        error = np.linalg.norm(found[i] - expected) / np.linalg.norm(expected)
        assert error < 0.003 * i, f"I={i}: {error:.4f}"


@pytest.mark.parametrize(("problem", "plain", "_"), PAIRS)
def test_drift_is_proportional_to_the_step_size(problem: Problem, plain: str, _: str) -> None:
    etas = ETA[type(problem)] * np.array([0.5, 1, 2])
    found = [distance(settled(federation(problem, plain, eta, 4), problem), problem) ** 2 for eta in etas]
    assert slope(etas, found) == pytest.approx(2, abs=0.03)


def test_npa_settles_at_the_saddle() -> None:
    problem = Auc()
    path = distance(
        iterates(federation(problem, "npa", 0.2, 1), problem, np.zeros(problem.size), 120), problem
    )
    assert path[-1] < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "plain", "corrected"), PAIRS)
def test_control_variates_settle_at_the_optimum_whatever_I_is(
    problem: Problem, plain: str, corrected: str
) -> None:
    eta = 0.02 if isinstance(problem, Auc) else 0.1
    ends, floors = [], []
    for i, rounds in ((4, 130), (16, 90)):
        path = iterates(federation(problem, corrected, eta, i), problem, np.zeros(problem.size), rounds)
        ends.append(distance(path[-1], problem))
        floors.append(distance(settled(federation(problem, plain, eta, i), problem), problem))
    assert ends[1] < 1e-12
    assert min(floors) > 1e5 * max(ends)
    assert floors[1] > 3 * floors[0]  # (16 - 1)/(4 - 1) = 5 to first order


# ------------------------------------------------------------------- the tests above notice what they should


class Zeroed(ControlVariates):
    """No correction at all: CODA+."""

    def client_init(self, d: Any, own: Tree, c: Tree) -> Any:
        l = super().client_init(d, own, c)
        return l._replace(shift={n: 0 * v for n, v in l.shift.items()})


class Flipped(ControlVariates):
    """c_k - c instead of c - c_k."""

    def client_init(self, d: Any, own: Tree, c: Tree) -> Any:
        l = super().client_init(d, own, c)
        return l._replace(shift={n: -v for n, v in l.shift.items()})


class PrimalOnly(ControlVariates):
    """The dual variable is left alone."""

    def client_init(self, d: Any, own: Tree, c: Tree) -> Any:
        l = super().client_init(d, own, c)
        return l._replace(shift={n: 0 * v if n == "auc.alpha" else v for n, v in l.shift.items()})


class Unscaled(ControlVariates):
    """(z - z_I)/η instead of (z - z_I)/(Iη)."""

    def client_finish(self, d: Any, l: Any, c: Tree, outs: Tree, knobs: Any) -> Any:
        return super().client_finish(d, l, c, outs, knobs._replace(eta=knobs.eta / knobs.steps))


class NoServer(ControlVariates):
    """The server's c stays zero."""

    def server_update(self, s: Any, aggregate: Any, cohort: Any, knobs: Any) -> Any:
        return super().server_update(s, aggregate, cohort, knobs)._replace(c=s.c)


def unweighted(fed: Federation) -> None:
    """c as the plain mean of c_k, whatever clients count for."""
    weighting = fed.weighting

    class Plain(type(weighting)):  # type: ignore[misc]
        def cohort(self, *args: Any) -> Any:
            right = super().cohort(*args)
            return right._replace(omega=np.full_like(right.omega, 1 / len(right.omega)))

    wrong = Plain(weighting.omega, weighting.local, weighting.share)
    object.__setattr__(fed, "weighting", wrong)


@pytest.mark.parametrize(
    ("broken", "at_least"),
    [(Zeroed, 1e-2), (Flipped, 1e-2), (PrimalOnly, 1e-3), (Unscaled, 1e-2), (NoServer, 1e-2), (None, 1e-3)],
)
def test_a_broken_control_variate_is_noticed(broken: type[ControlVariates] | None, at_least: float) -> None:
    problem = Auc()
    fed = federation(problem, "codasca", 0.02, 8)
    if broken is None:
        unweighted(fed)
    else:
        fed = replace(fed, method=broken(fed.method.inner))
    with np.errstate(over="ignore", invalid="ignore"):
        end = distance(iterates(fed, problem, np.zeros(problem.size), 30)[-1], problem)
    assert not end < at_least
