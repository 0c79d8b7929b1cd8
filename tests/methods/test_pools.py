"""Pools of passive scores: what is in them, how old it is, and how it is drawn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from fedauc.core import rng
from fedauc.core.loop import Federation, advance, begin
from fedauc.core.method import Cohort
from fedauc.data.federated import FederatedData
from fedauc.methods import ActivePassive
from fedauc.methods.active_passive import Scores, drawn
from fedauc.objectives import PairwiseAUC
from fedauc.participation import Cyclic, Full
from fedauc.schedules import Stagewise

COUNTS = ((9, 4), (5, 0), (0, 6), (12, 1), (3, 3), (7, 0), (4, 8))
START = {"w": torch.tensor([0.3, -0.2], dtype=torch.float64)}
STEPS, BATCH, CYCLES = 2, 4, 8


CLASSES = ("negatives", "positives")


def apply(z, x):
    return x @ z["w"]


def federation(refresh, participation, counts=COUNTS, **settings):
    generator = np.random.default_rng(0)
    y = np.concatenate([[0] * n + [1] * p for n, p in counts])
    client = np.repeat(np.arange(len(counts)), [n + p for n, p in counts])
    x = torch.tensor(generator.normal(size=(len(y), 2)) + y[:, None])
    data = FederatedData.build(x, torch.tensor(y), client, [str(i) for i in range(len(counts))])
    method = ActivePassive(apply, PairwiseAUC(), refresh=refresh, passive=3)
    return Federation(
        method, data, participation, Stagewise(eta=0.5, steps=STEPS, cycles=CYCLES), batch=BATCH, **settings
    )


def states(fed):
    state, seen = begin(fed, START), []
    while state.round < fed.rounds:
        state, _ = advance(fed, state)
        seen.append(state)
    return seen


@pytest.mark.parametrize("client_weight", ["uniform", "sqrt", "examples"])
def test_a_client_weighs_in_the_pool_what_it_counts_for(client_weight):
    """A cycle's pool: client i has share K·C±ᵢ of the total K, whatever the number of its scores."""
    fed = federation("cycle", Cyclic(3), client_weight=client_weight)
    server = states(fed)[2].server
    for column, name in enumerate(CLASSES):
        pool = server.passive[name]
        assert pool.weight.sum().item() == pytest.approx(3.0)
        by_round = torch.zeros(3, dtype=torch.float64).index_add(0, pool.round, pool.weight)
        expected = [3 * fed.weighting.share[group, column].sum() for group in fed.roster.groups]
        np.testing.assert_allclose(by_round.numpy(), expected, atol=1e-12)


def test_pools_hold_the_scores_of_their_class_and_no_others():
    """Before anything is trained the scores are x·w₀ of the class's own rows."""
    fed = federation("cycle", Cyclic(3))
    server = states(fed)[2].server
    h, y = apply(START, fed.data.x), fed.data.y
    for label, name in enumerate(CLASSES):
        possible = set(h[y == label].tolist())
        assert len(server.passive[name].h)
        assert set(server.passive[name].h.tolist()) <= possible
    # 7 clients answer I·B scores each
    assert sum(len(server.passive[name].h) for name in CLASSES) == 7 * STEPS * BATCH


@pytest.mark.parametrize(("refresh", "age"), [("cycle", 5), ("rolling", 3), ("round", 1)])
def test_how_old_passive_scores_can_be(refresh, age):
    """K = 3: of the previous cycle they are up to 2K-1 rounds old when used, rolling up to K."""
    fed = federation(refresh, Cyclic(3))
    oldest = 0
    for state in states(fed)[3:]:
        pool = state.server.passive["negatives"]  # every group has negatives; used in round `state.round`
        oldest = max(oldest, state.round - int(pool.round.min()))
    assert oldest == age


def test_with_one_group_a_cycle_is_a_round():
    a, b, c = (states(federation(refresh, Full()))[-1] for refresh in ("cycle", "round", "rolling"))
    assert torch.equal(a.server.z["w"], b.server.z["w"])
    assert torch.equal(a.server.z["w"], c.server.z["w"])


def test_a_class_that_nobody_had_stays_in_the_pool_of_the_last_round():
    """Groups in order, positives in the first group only: rounds 2 and 3 of a cycle bring none."""
    counts = ((2, 3), (2, 2), (4, 0), (5, 0), (3, 0), (4, 0))
    seen = states(federation("round", Cyclic(3, assign="order"), counts))
    for state in seen[3:]:
        last = (state.round - 1) // 3 * 3  # the last round of the first group
        assert set(state.server.passive["positives"].round.tolist()) == {last}
        assert set(state.server.passive["negatives"].round.tolist()) == {state.round - 1}


@pytest.mark.parametrize("refresh", ["cycle", "round", "rolling"])
def test_training_goes_on_when_a_cycle_brought_no_positives(refresh):
    """One client of a group of four has all positives, one of the four is drawn: most cycles see none."""
    fed = federation(refresh, Cyclic(2, per_round=1), ((4, 4), *((4, 0),) * 7), seed=2)
    with_positives = [r // 2 for r in range(fed.rounds) if 0 in fed.roster.select(r)[0]]
    first = min(with_positives)
    assert set(range(first, CYCLES)) - set(with_positives)  # a cycle without any, after the first with some
    iterates = [state.server.z["w"] for state in states(fed)]
    for before, after in zip(iterates[2 * (first + 1) - 1 :], iterates[2 * (first + 1) :], strict=False):
        assert not torch.equal(before, after)


def pool(weights):
    n = len(weights)
    return Scores(torch.arange(n).double(), torch.tensor(weights, dtype=torch.float64), torch.zeros(n).long())


def cohort(*clients):
    ones = np.ones(len(clients))
    return Cohort(np.array(clients), ones, ones, np.ones((len(clients), 2)), np.ones((len(clients), 2)))


def test_with_equal_weights_nothing_is_drawn_twice_before_everything_was_drawn_once():
    for size in (7, 20, 21, 59, 60):
        for row in drawn(pool([0.3] * 20), cohort(0, 4, 9), size, rng.fold(1)):
            counts = Counter(dict.fromkeys(range(20), 0))
            counts.update(row.long().tolist())
            assert max(counts.values()) - min(counts.values()) <= 1


def test_scores_are_drawn_in_proportion_to_their_weights():
    """Systematic sampling: of `size` draws a score with share s gets ⌊s·size⌋ or ⌈s·size⌉."""
    weights = np.random.default_rng(3).uniform(0.1, 2, size=15)
    size = 40
    for row in drawn(pool(weights.tolist()), cohort(*range(10)), size, rng.fold(2)):
        counts = np.bincount(row.long().numpy(), minlength=15)
        wanted = weights / weights.sum() * size
        assert (counts >= np.floor(wanted)).all()
        assert (counts <= np.ceil(wanted)).all()


def test_scores_are_drawn_without_bias():
    """Mean count over many clients = share·size; each count varies by less than 1, so the error of the mean
    of 4000 is below 4·0.5/√4000 ≈ 0.03."""
    weights = np.array([0.05, 1.0, 0.3, 2.0, 0.7])
    rows = drawn(pool(weights.tolist()), cohort(*range(4000)), 3, rng.fold(5))
    mean = np.bincount(rows.long().flatten().numpy(), minlength=5) / 4000
    np.testing.assert_allclose(mean, weights / weights.sum() * 3, atol=0.03)


def test_the_draw_is_shuffled():
    """Every place of the buffer sees every part of the pool alike: place and value are uncorrelated."""
    rows = drawn(pool([1.0] * 50), cohort(*range(500)), 50, rng.fold(5)).numpy()
    np.testing.assert_allclose(rows.mean(axis=0), 24.5, atol=5 * 14.4 / np.sqrt(500))


def test_a_clients_draw_does_not_depend_on_the_cohort():
    weights = [0.5, 1.0, 0.25, 2.0]
    together = drawn(pool(weights), cohort(0, 3, 8), 10, rng.fold(1))
    for i, client in enumerate((0, 3, 8)):
        assert torch.equal(together[i], drawn(pool(weights), cohort(client), 10, rng.fold(1))[0])
    assert not torch.equal(together[0], together[1])


def test_nothing_is_sent_before_both_pools_are_filled():
    fed = federation("cycle", Cyclic(3))
    seen = states(fed)
    # The ledger is one book for the run; the bytes of a round are I·P scores of 8 bytes per client and class.
    answered = sum(len(fed.roster.select(r)[0]) for r in range(3, fed.rounds))
    for name in CLASSES:
        assert seen[-1].ledger.bytes_down[name] == answered * STEPS * 3 * 8
