"""The laws of what a client counts for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedauc.core.weighting import by_class, by_client
from fedauc.participation import Cyclic, Full, Uniform

WEIGHTS = ("uniform", "sqrt", "examples")
BALANCES = ("aggregate", "local")
counts_of_clients = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 9)).filter(any), min_size=1, max_size=12
).map(np.array)


@given(counts_of_clients, st.sampled_from(WEIGHTS), st.sampled_from(BALANCES))
def test_class_weights_are_a_partition_of_each_class(counts, client_weight, balance):
    assume(counts.any(axis=0).all())
    w = by_class(counts, client_weight, balance)
    np.testing.assert_allclose(w.share.sum(axis=0), 1.0)  # E⁻ and E⁺ are expectations
    np.testing.assert_allclose(w.omega.sum(), 1.0)
    np.testing.assert_allclose(w.omega[:, None] * w.local, w.share, atol=1e-15)  # both balances carry out C
    assert ((w.share > 0) == (counts > 0)).all()  # only clients that have a class count in it


@given(counts_of_clients, st.sampled_from(WEIGHTS))
def test_aggregate_keeps_local_steps_bounded(counts, client_weight):
    """c± = C±/ω with ω = (C⁺ + C⁻)/2, so c⁺ + c⁻ = 2 and each lies in [0, 2]."""
    assume(counts.any(axis=0).all())
    w = by_class(counts, client_weight, "aggregate")
    np.testing.assert_allclose(w.local.sum(axis=1), 2.0)
    assert (w.local >= 0).all()
    assert (w.local <= 2 + 1e-12).all()
    np.testing.assert_allclose(w.omega, w.share.mean(axis=1))


@given(counts_of_clients, st.sampled_from(WEIGHTS))
def test_local_puts_everything_into_the_objective(counts, client_weight):
    assume(counts.any(axis=0).all())
    w = by_class(counts, client_weight, "local")
    np.testing.assert_allclose(w.omega, 1 / len(counts))
    np.testing.assert_allclose(w.local, len(counts) * w.share)


def no_times(clients):
    return np.zeros(len(clients))


def test_class_weights_by_hand():
    """Negatives 4, 0, 16; positives 1, 9, 0."""
    counts = np.array([[4, 1], [0, 9], [16, 0]])
    expected = {
        "uniform": [[1 / 2, 1 / 2], [0, 1 / 2], [1 / 2, 0]],
        "sqrt": [[2 / 6, 1 / 4], [0, 3 / 4], [4 / 6, 0]],
        "examples": [[4 / 20, 1 / 10], [0, 9 / 10], [16 / 20, 0]],
    }
    for client_weight, share in expected.items():
        np.testing.assert_allclose(by_class(counts, client_weight).share, share)


def test_client_weights_by_hand():
    """5, 9 and 16 rows: ω ∝ 1, √n, n."""
    counts = np.array([[4, 0], [0, 9], [15, 1]])
    np.testing.assert_allclose(by_client(counts, "uniform").omega, [1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(by_client(counts, "sqrt").omega, [2 / 9, 3 / 9, 4 / 9])
    np.testing.assert_allclose(by_client(counts, "examples").omega, [4 / 29, 9 / 29, 16 / 29])
    np.testing.assert_array_equal(by_client(counts).local, 1.0)


def test_a_client_without_rows_counts_for_nothing():
    counts = np.array([[4, 1], [0, 0], [2, 2]])
    for w in (by_client(counts, "uniform"), by_class(counts, "uniform", "aggregate")):
        assert w.omega[1] == 0
        assert (w.share[1] == 0).all()
        np.testing.assert_allclose(w.omega.sum(), 1.0)


COUNTS = np.array([(9, 4), (5, 0), (0, 6), (12, 1), (3, 3), (7, 0), (4, 8)])
EXACT = {"everybody": Full(), "groups of 2, 3 and 2": Cyclic(3), "one client at a time": Cyclic(7)}


@pytest.mark.parametrize("participation", EXACT.values(), ids=EXACT.keys())
@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("client_weight", WEIGHTS)
def test_a_cycle_moves_by_k_times_the_objective(participation, client_weight, balance):
    """Σ over a cycle of ŵᵢ·c±ᵢ = K·C±ᵢ: a cycle is K steps on Σ C± E±, whatever the groups."""
    w, roster = by_class(COUNTS, client_weight, balance), participation.bind(7, seed=2)
    for first in (0, roster.cycle_length):
        total = np.zeros((7, 2))
        for round in range(first, first + roster.cycle_length):
            cohort = w.cohort(roster, round, no_times)
            total[cohort.clients] += cohort.weight[:, None] * cohort.local
            np.testing.assert_allclose(cohort.share, cohort.weight[:, None] * cohort.local)
        np.testing.assert_allclose(total, roster.cycle_length * w.share, atol=1e-12)


RANDOM = {
    "two of a group": Cyclic(3, per_round=2),
    "one of a group": Cyclic(2, per_round=1),
    "uniform": Uniform(3),
}


@pytest.mark.parametrize("participation", RANDOM.values(), ids=RANDOM.keys())
def test_sampled_clients_move_by_k_times_the_objective_on_average(participation):
    """A client is in a cycle π times on average and counts K·ω/π when it is.

    Over T cycles the relative error of the mean is √((1-π)/(πT)) for M of a group, below 0.06 here.
    """
    cycles = 600
    w, roster = by_class(COUNTS, "sqrt"), participation.bind(7, seed=2)
    total = np.zeros((7, 2))
    for round in range(cycles * roster.cycle_length):
        cohort = w.cohort(roster, round, no_times)
        total[cohort.clients] += cohort.weight[:, None] * cohort.local / cycles
    np.testing.assert_allclose(total, roster.cycle_length * w.share, rtol=0.2)


def test_the_papers_case_is_the_plain_average():
    """Equal groups, uniform clients that all have both classes: ŵ = 1/M and c± = 1."""
    counts = np.full((12, 2), 5)
    for participation, m in ((Full(), 12), (Cyclic(3), 4), (Cyclic(3, per_round=2), 2), (Uniform(5), 5)):
        for balance in BALANCES:
            cohort = by_class(counts, "uniform", balance).cohort(participation.bind(12, 0), 1, no_times)
            np.testing.assert_allclose(cohort.weight, 1 / m)
            np.testing.assert_allclose(cohort.local, 1.0)
        np.testing.assert_allclose(
            by_client(counts).cohort(participation.bind(12, 0), 1, no_times).weight, 1 / m
        )
