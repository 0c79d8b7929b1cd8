"""Who takes part: groups, cycles, and chances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from fedauc.errors import InputError
from fedauc.participation import Cyclic, Full, Uniform


@pytest.mark.parametrize("assign", ["random", "order"])
@pytest.mark.parametrize("clients", [1, 2, 3, 7, 10, 23, 100])
def test_groups_partition_the_clients_into_nearly_equal_parts(clients, assign):
    for groups in {1, 2, 3, clients // 2, clients - 1, clients} - {0}:
        if groups > clients:
            continue
        roster = Cyclic(groups, assign=assign).bind(clients, seed=4)
        assert len(roster.groups) == roster.cycle_length == groups
        assert sorted(np.concatenate(roster.groups)) == list(range(clients))
        sizes = [len(group) for group in roster.groups]
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1


def test_groups_in_order_are_neighbours():
    roster = Cyclic(3, assign="order").bind(7, seed=0)
    np.testing.assert_array_equal(np.concatenate(roster.groups), np.arange(7))


@pytest.mark.parametrize("participation", [Cyclic(3), Cyclic(7), Cyclic(1), Full()], ids=repr)
def test_everybody_takes_part_once_per_cycle(participation):
    roster = participation.bind(7, seed=1)
    for cycle in range(3):
        rounds = range(cycle * roster.cycle_length, (cycle + 1) * roster.cycle_length)
        taken = np.concatenate([roster.select(r)[0] for r in rounds])
        assert sorted(taken) == list(range(7))
        assert all((roster.select(r)[1] == 1).all() for r in rounds)


def test_groups_come_in_the_same_order_in_every_cycle():
    roster = Cyclic(3).bind(10, seed=1)
    for round in range(9):
        np.testing.assert_array_equal(roster.select(round)[0], roster.groups[round % 3])


def test_m_of_the_active_group_without_replacement():
    """Groups of 3, 4 and 3 (ten clients), M = 3: π = 1, 3/4, 1."""
    roster = Cyclic(3, per_round=3).bind(10, seed=1)
    seen = set()
    for round in range(60):
        group = roster.groups[round % 3]
        clients, expected = roster.select(round)
        assert len(clients) == 3
        assert len(set(clients)) == 3
        assert set(clients) <= set(group)
        np.testing.assert_allclose(expected, 3 / len(group))
        seen |= {tuple(clients)} if len(group) == 4 else set()
    assert len(seen) == 4  # all subsets of the larger group have come up


def test_m_is_cut_to_small_groups():
    roster = Cyclic(3, per_round=4).bind(10, seed=1)
    for round in range(3):
        clients, expected = roster.select(round)
        np.testing.assert_array_equal(clients, roster.groups[round])
        assert (expected == 1).all()


def test_uniform_draws_m_of_all_without_replacement():
    roster = Uniform(3).bind(10, seed=1)
    assert roster.cycle_length == 4  # ⌈10/3⌉ rounds
    for round in range(50):
        clients, expected = roster.select(round)
        assert len(set(clients)) == 3
        assert set(clients) <= set(range(10))
        np.testing.assert_allclose(expected, 4 * 3 / 10)  # 4 rounds with a chance of 3/10 each


CHANCES = [
    (Uniform(3), 10),
    (Cyclic(1, per_round=3), 10),
    (Cyclic(2, per_round=2), 10),
]


@pytest.mark.parametrize(("participation", "clients"), CHANCES, ids=repr)
def test_everybody_has_the_chance_that_the_weights_assume(participation, clients):
    """Over T rounds of a group of n, M draws without replacement give counts cᵢ with mean T·M/n, variance
    V = T·M/n·(1 - M/n) and correlation -1/(n-1), so (n-1)/n · Σ (cᵢ - T·M/n)²/V is χ² with n-1."""
    roster = participation.bind(clients, seed=6)
    times, groups = 2000, len(roster.groups)
    counts = np.zeros(clients)
    for turn in range(times):
        counts[roster.select(turn * groups)[0]] += 1
    group, m = roster.groups[0], len(roster.select(0)[0])
    n = len(group)
    mean, variance = times * m / n, times * m / n * (1 - m / n)
    statistic = ((counts[group] - mean) ** 2).sum() / variance * (n - 1) / n
    assert counts.sum() == counts[group].sum() == m * times
    assert chi2.sf(statistic, n - 1) > 1e-4, counts[group] / mean


@pytest.mark.parametrize("participation", [Cyclic(3), Cyclic(3, per_round=2), Uniform(4), Full()], ids=repr)
def test_a_cohort_is_a_function_of_seed_and_round(participation):
    a, b = participation.bind(12, seed=5), participation.bind(12, seed=5)
    late = [b.select(r) for r in reversed(range(20))][::-1]  # in any order
    for round in range(20):
        for mine, theirs in zip(a.select(round), late[round], strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert (np.diff(a.select(round)[0]) > 0).all()  # sorted, nobody twice


@pytest.mark.parametrize("participation", [Cyclic(3), Cyclic(3, per_round=2), Uniform(4)], ids=repr)
def test_another_seed_is_another_cohort(participation):
    cohorts = [[tuple(participation.bind(12, s).select(r)[0]) for r in range(6)] for s in range(3)]
    assert cohorts[0] != cohorts[1] != cohorts[2]


def test_rounds_of_a_cycle_draw_independently():
    cohorts = {tuple(Uniform(4).bind(30, seed=0).select(r)[0]) for r in range(30)}
    assert len(cohorts) == 30


def test_defaults_are_the_papers_hundred_clients_in_ten_groups():
    assert [len(group) for group in Cyclic().bind(100, 0).groups] == [10] * 10
    assert len(Uniform().bind(100, 0).select(0)[0]) == 10
    assert Cyclic().bind(1, 0).cycle_length == Uniform().bind(1, 0).cycle_length == 1


@pytest.mark.parametrize(
    ("participation", "named"),
    [
        (Cyclic(0), "groups=0"),
        (Cyclic(6), "groups=6"),
        (Cyclic(2, per_round=0), "per_round=0"),
        (Uniform(0), "per_round=0"),
        (Uniform(6), "per_round=6"),
    ],
)
def test_impossible_settings_are_refused_by_name(participation, named):
    with pytest.raises(InputError, match=named):
        participation.bind(5, seed=0)


@pytest.mark.parametrize("seed", [0, 1])
def test_groups_that_are_given_are_not_dealt(seed):
    roster = Cyclic(group_of=(1, 0, 1, 2, 0, 1)).bind(6, seed)
    assert [group.tolist() for group in roster.groups] == [[1, 4], [0, 2, 5], [3]]
    assert roster.cycle_length == 3
    for round in range(7):
        clients, expected = roster.select(round)
        np.testing.assert_array_equal(clients, roster.groups[round % 3])
        assert (expected == 1).all()


def test_m_of_a_group_that_is_given():
    roster = Cyclic(groups=2, per_round=2, group_of=(0, 1, 0, 0, 0)).bind(5, seed=1)
    seen = set()
    for turn in range(40):
        clients, expected = roster.select(2 * turn)
        assert set(clients) <= {0, 2, 3, 4}
        np.testing.assert_allclose(expected, 2 / 4)
        seen.add(tuple(clients))
        np.testing.assert_array_equal(roster.select(2 * turn + 1)[0], [1])
    assert len(seen) == 6
    assert roster.active == 1.5


def test_given_groups_in_the_order_of_names_are_those_of_assign_order():
    given, dealt = Cyclic(group_of=(0, 0, 1, 1, 1, 2, 2)).bind(7, 3), Cyclic(3, assign="order").bind(7, 3)
    for round in range(6):
        np.testing.assert_array_equal(given.select(round)[0], dealt.select(round)[0])


@pytest.mark.parametrize(
    ("participation", "named"),
    [
        (Cyclic(group_of=(0, 1, 0)), "groups of 3 clients, and there are 5"),
        (Cyclic(group_of=()), "groups of 0 clients, and there are 5"),
        (Cyclic(group_of=(0, 0, 2, 2, 0)), r"group_of=\[0, 0, 2, 2, 0\] must name every group"),
        (Cyclic(group_of=(1, 1, 1, 1, 1)), "must name every group"),
        (Cyclic(group_of=(0, -1, 0, 0, 0)), "must name every group"),
        (Cyclic(3, group_of=(0, 1, 0, 1, 0)), "as many as groups="),
        (Cyclic(per_round=0, group_of=(0, 0, 0, 0, 0)), "per_round=0"),
    ],
)
def test_impossible_groups_are_refused(participation, named):
    with pytest.raises(InputError, match=named):
        participation.bind(5, seed=0)
