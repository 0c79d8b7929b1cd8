"""Which rows a client trains on is a function of (seed, round, client), whoever else takes part."""

from __future__ import annotations

import numpy as np
import pytest

from fedauc.core.method import Cohort
from fedauc.data.federated import Draws

from .federations import COUNTS, built
from .federations import rows as rows_of

STEPS, BATCH = 4, 6


def drawn(run, clients, seed=0, round=0, steps=STEPS, batch=BATCH):
    """Rows [M, I, B] and weights [M, B] of a cohort."""
    clients = np.asarray(clients)
    ones = np.ones(len(clients))
    cohort = Cohort(clients, ones, ones, run.fed.weighting.local[clients], run.fed.weighting.share[clients])
    draws = Draws(run.fed.data, cohort, run.fed.method.draw, steps, batch, seed, round)
    return draws.rows, draws.weight


@pytest.fixture
def run(preset):
    return built(preset)


def test_a_clients_rows_do_not_depend_on_the_others(run):
    everybody = np.arange(len(COUNTS))
    rows, weight = drawn(run, everybody)
    for cohort in ([3], [6, 0], [2, 5, 3, 1]):
        some, some_weight = drawn(run, cohort)
        np.testing.assert_array_equal(some, rows[cohort])
        np.testing.assert_array_equal(some_weight, weight[cohort])


def test_seed_round_and_client_each_change_the_rows(preset):
    twins = built(
        preset, {"participation.groups": 1}, rows_of(((6, 4), (6, 4)))
    )  # two clients with equally many rows
    data = twins.fed.data
    (a, b), _ = drawn(twins, [0, 1])
    # Rows as positions among the client's own, so that clients can be compared.
    positions = [np.argsort(data.order)[rows] - data.start[client] for client, rows in enumerate((a, b))]
    assert not np.array_equal(*positions)
    for other in ({"seed": 1}, {"round": 1}):
        (changed, _), _ = drawn(twins, [0, 1], **other)
        assert not np.array_equal(a, changed)


def test_fewer_steps_are_the_first_steps(run):
    """Draws of step t do not depend on how many steps follow."""
    long, _ = drawn(run, [0, 3])
    short, _ = drawn(run, [0, 3], steps=2)
    np.testing.assert_array_equal(short, long[:, :2])


def test_a_client_draws_its_own_rows_and_all_of_them_before_one_comes_back(run):
    data, label = run.fed.data, run.fed.data.y.numpy()
    rows, _ = drawn(run, np.arange(len(COUNTS)), steps=30)
    for client, counts in enumerate(COUNTS):
        own = data.order[data.start[client] : data.start[client + 1]]
        np.testing.assert_array_equal(np.bincount(label[own].astype(int), minlength=2), counts)
        drawn_rows = rows[client].ravel()
        assert set(drawn_rows) == set(own)
        # Stratified draws walk through each class, natural ones through everything.
        walks = [drawn_rows]
        if run.fed.method.draw == "stratified":
            walks = [drawn_rows[label[drawn_rows] == c] for c in (0, 1)]
        for walk in walks:
            n = len(set(walk))
            passes = [walk[first : first + n] for first in range(0, len(walk) - n, max(n, 1))]
            assert all(len(set(one)) == n for one in passes)


def test_the_weights_of_a_batch_sum_to_what_the_client_counts_for(run):
    """c⁻ and c⁺ over the two classes of a stratified batch, 1 over a natural one."""
    clients = np.arange(len(COUNTS))
    rows, weight = drawn(run, clients)
    label = run.fed.data.y.numpy()[rows]
    for i in clients:
        for t in range(STEPS):
            if run.fed.method.draw == "natural":
                np.testing.assert_allclose(weight[i].sum(), 1.0)
                continue
            for c in (0, 1):
                np.testing.assert_allclose(weight[i][label[i, t] == c].sum(), run.fed.weighting.local[i, c])
