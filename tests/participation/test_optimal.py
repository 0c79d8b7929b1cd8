"""Problem P1, sampling by weight, and the Bernoulli draws that carry them out."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedauc.errors import InputError
from fedauc.participation.base import Situation
from fedauc.participation.optimal import Optimal, Weighted, solve_p1

PAPER_TIMES = np.array([0.01] * 5 + [0.001] * 5)  # section V: 10 ms for clients 1-5, 1 ms for clients 6-10


def general_solver(weight, times, kappa, m, floor):
    """P1 by sequential quadratic programming."""
    count = len(weight)
    solution = minimize(
        lambda q: (weight / q).sum() + kappa * (q * times).sum(),
        np.full(count, m / count),
        jac=lambda q: -weight / q**2 + kappa * times,
        bounds=[(floor, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda q: q.sum() - m, "jac": lambda q: np.ones(count)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 2000},
    )
    return solution.x


def instance(seed):
    """A random P1: some weights 0, some equal, few distinct times or many, small and large κ."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(2, 13))
    weight = draw.dirichlet(np.full(count, 0.7))
    if seed % 3 == 0:
        weight[draw.integers(count)] = 0.0
    if seed % 4 == 0:
        weight = np.round(weight, 1)  # ties, and more zeros
    times = draw.choice([0.01, 0.001], count) if seed % 2 else 0.01 * draw.lognormal(size=count)
    return weight, times, 10 ** draw.uniform(-1, 3), draw.uniform(0.02 * count, 0.98 * count), 0.01


@pytest.mark.parametrize("seed", range(80))
def test_p1_is_what_a_general_solver_finds(seed):
    weight, times, kappa, m, floor = instance(seed)
    q = solve_p1(weight, times, kappa, m, floor)
    other = general_solver(weight, times, kappa, m, floor)

    def cost(q):
        return (weight / q).sum() + kappa * (q * times).sum()

    assert cost(q) <= cost(other) + 1e-7
    if np.count_nonzero(weight == 0) < 2:  # with more of them the optimum need not be unique
        np.testing.assert_allclose(q, other, rtol=0, atol=1e-6)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 40),
    kappa=st.one_of(st.just(0.0), st.floats(-6, 14).map(lambda power: 10.0**power)),
    floor=st.sampled_from([1e-6, 1e-3, 0.02]),
    share=st.floats(0, 1),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_p1_meets_its_optimality_conditions(seed, count, kappa, floor, share, scale):
    """Σ q = m, the bounds, and nothing to win by moving chance from a client to another one."""
    draw = np.random.default_rng(seed)
    weight = scale * draw.dirichlet(np.full(count, draw.choice([0.05, 1.0]))) * draw.integers(0, 2, count)
    times = draw.choice([0.01, 0.001, 1.0], count) if seed % 2 else draw.lognormal(size=count)
    m = floor * count + share * (count - floor * count)
    q = solve_p1(weight, times, kappa, m, floor)
    assert abs(q.sum() - m) <= 1e-12 * max(m, 1e-3)
    assert (q >= floor * (1 - 1e-12)).all()
    assert (q <= 1).all()
    slope = weight / q**2
    gain = slope - kappa * (times - times.min())  # of one unit of q
    more, less = q < 1 - 1e-9, q > floor * (1 + 1e-9)
    if more.any() and less.any():
        best, worst = np.argmax(np.where(more, gain, -np.inf)), np.argmin(np.where(less, gain, np.inf))
        cost = kappa * abs(times[best] - times[worst])
        slack = 1e-6 * max(slope[best], slope[worst]) + 1e-9 * cost + 1e-12 * weight.max()
        assert gain[best] - gain[worst] <= slack


def test_the_papers_example_at_uniform_weights():
    """By hand: 5q + 5q' = 5 and λ/q² + κT = λ/q'² + κT' (nobody is at a bound)."""
    weight = np.full(10, 0.1)
    q = solve_p1(weight, PAPER_TIMES, 100.0, 5, 0.005)
    np.testing.assert_allclose(q, np.repeat([q[0], 1 - q[0]], 5))
    assert 0.1 / q[0] ** 2 - 100 * 0.01 == pytest.approx(0.1 / q[9] ** 2 - 100 * 0.001, rel=1e-9)
    assert q[0] == pytest.approx(0.30088, abs=1e-5)
    assert (q * PAPER_TIMES).sum() == pytest.approx(0.01854, abs=1e-5)  # 27.5 ms with q = 1/2
    # per second instead of per millisecond, the paper's κ of at most 1 would do nothing
    np.testing.assert_allclose(solve_p1(weight, PAPER_TIMES, 1.0, 5, 0.005), 0.5, atol=0.003)


def test_time_is_weighed_more_the_larger_kappa_is():
    weight, seconds = np.full(10, 0.1), []
    for kappa in (0.0, 1e-6, 1.0, 100.0, 1e3, 1e6, 1e12, 1e18):
        q = solve_p1(weight, PAPER_TIMES, kappa, 5, 0.005)
        assert q.sum() == pytest.approx(5, rel=1e-12)
        seconds.append((q * PAPER_TIMES).sum())
    assert seconds[0] == pytest.approx(0.0275)
    assert (np.diff(seconds) <= 1e-15).all()
    np.testing.assert_allclose(q, [0.005] * 5 + [0.995] * 5)


def test_without_time_q_goes_with_the_root_of_the_weight():
    weight = np.array([1.0, 4.0, 9.0, 16.0])
    np.testing.assert_allclose(solve_p1(weight, np.ones(4), 0.0, 1, 1e-3), np.sqrt(weight) / 10)
    np.testing.assert_allclose(
        solve_p1(weight, np.ones(4), 7.0, 1, 1e-3), np.sqrt(weight) / 10
    )  # equal times


def test_the_price_may_be_below_every_cost():
    """m = 1.9 of a fast and a slow client: the fast one is at 1, ν = λ/0.81 - 10κ < -κ."""
    np.testing.assert_allclose(solve_p1(np.ones(2), np.array([1.0, 10.0]), 5.0, 1.9, 0.01), [1.0, 0.9])


def test_digits_survive_a_large_kappa():
    """Costs of 1e14 beside weights of 1: among the slow clients q still goes with the root of the weight."""
    weight, times = np.array([1.0, 1.0, 1.0, 4.0]), np.array([1.0, 1.0, 100.0, 100.0])
    q = solve_p1(weight, times, 1e12, 2.6, 0.01)
    np.testing.assert_allclose(q, [1.0, 1.0, 0.2, 0.4], rtol=1e-9)


def test_everybody_where_m_is_all():
    np.testing.assert_array_equal(
        solve_p1(np.array([0.0, 0.3, 0.7]), np.arange(3.0), 5.0, 3, 0.1), np.ones(3)
    )


def test_everybody_at_the_floor_where_m_is_no_more():
    q = solve_p1(np.array([0.0, 0.3, 0.7]), np.arange(3.0), 5.0, 3 * 0.1, 0.1)
    np.testing.assert_allclose(q, 0.1)


def test_weights_of_zero_get_the_floor_and_take_only_what_is_left_over():
    times = np.full(4, 0.01)
    q = solve_p1(np.array([0.0, 0.0, 0.5, 0.5]), times, 1.0, 1.5, 0.05)
    np.testing.assert_allclose(q, [0.05, 0.05, 0.7, 0.7])
    q = solve_p1(np.array([0.0, 0.0, 0.5, 0.5]), times, 1.0, 2.6, 0.05)
    np.testing.assert_allclose(q, [0.3, 0.3, 1.0, 1.0])
    np.testing.assert_allclose(solve_p1(np.zeros(4), times, 1.0, 1.5, 0.05), 1.5 / 4)


@pytest.mark.parametrize(
    ("m", "floor", "kappa"), [(5.1, 0.01, 1.0), (0.4, 0.1, 1.0), (2, 0.0, 1.0), (2, 1.5, 1.0), (2, 0.1, -1.0)]
)
def test_impossible_problems_are_refused(m, floor, kappa):
    with pytest.raises(InputError):
        solve_p1(np.full(5, 0.2), np.ones(5), kappa, m, floor)


@pytest.mark.parametrize("weight", [[-0.1, 1.1], [np.nan, 1.0], [np.inf, 1.0]])
def test_weights_must_be_numbers_of_at_least_zero(weight):
    with pytest.raises(InputError, match="weights"):
        solve_p1(np.array(weight), np.ones(2), 1.0, 1, 0.1)


def water_filled(weight, m):
    """q = m·weight/Σ weight; whoever is above 1 is put to 1 and the rest is dealt again."""
    q, free = np.zeros(len(weight)), np.ones(len(weight), dtype=bool)
    while True:
        q[free] = (m - (~free).sum()) * weight[free] / weight[free].sum()
        if (q <= 1).all():
            return q
        q[q > 1], free = 1.0, free & (q <= 1)


@pytest.mark.parametrize("seed", range(20))
def test_weighted_is_proportional_with_the_excess_dealt_again(seed):
    draw = np.random.default_rng(seed)
    count = int(draw.integers(2, 30))
    weight, m = draw.dirichlet(np.full(count, 0.5)), draw.uniform(0.1, 0.95) * count
    q = Weighted().chances(weight, np.ones(count), m, 1e-12)
    expected = water_filled(weight, m)
    np.testing.assert_allclose(q, np.maximum(expected, 1e-12), rtol=1e-7)
    assert q.sum() == pytest.approx(m, rel=1e-12)


def situation(clients, seed=0, times=None):
    weight = np.random.default_rng(seed).dirichlet(np.full(clients, 1.0))
    known = np.resize(PAPER_TIMES, clients) if times is None else times
    return Situation(weight, lambda picked: known[picked])


SAMPLERS = [
    Optimal(5),
    Optimal(1),  # nobody is drawn in a third of the rounds: drawn again
    Optimal(2.5, kappa=1000.0, floor=0.02),
    Weighted(1.5),
    Optimal(groups=3),
    Optimal(1, groups=2),
    Weighted(2, groups=3, assign="order"),
]


@pytest.mark.parametrize("participation", SAMPLERS, ids=repr)
def test_importance_weights_are_unbiased(participation):
    """The mean over the rounds of a cycle of Σ_{n in cohort} (K ω_n/π_n) v_n has expectation Σ_n ω_n v_n."""
    now, roster = situation(10), participation.bind(10, seed=3)
    values = np.random.default_rng(1).normal(3.0, 1.0, 10)
    groups, rounds = len(roster.groups), 600
    estimates, sizes = np.zeros(rounds), []
    for round in range(rounds):
        clients, expected = roster.select(round, now)
        sizes.append(len(clients))
        estimates[round] = (roster.cycle_length / expected * now.weight[clients] * values[clients]).sum()
    cycles = estimates.reshape(-1, groups).mean(axis=1)
    error = cycles.mean() - (now.weight * values).sum()
    assert abs(error) < 4 * cycles.std() / np.sqrt(len(cycles))
    assert min(sizes) >= 1
    assert np.mean(sizes) >= roster.active * 0.95
    assert np.mean(sizes) <= roster.active / (1 - np.exp(-roster.active)) * 1.1


def test_the_chance_accounts_for_rounds_that_are_drawn_again():
    """N = 2 equal clients, m = 1: of {}, {0}, {1}, {0, 1} the first is drawn again; each is in with 2/3."""
    roster = Optimal(1).bind(2, seed=0)
    now = situation(2, times=np.ones(2))._replace(weight=np.full(2, 0.5))
    taken = np.zeros(2)
    for round in range(500):
        clients, expected = roster.select(round, now)
        taken[clients] += 1
        np.testing.assert_allclose(expected, roster.cycle_length * 2 / 3)
    assert roster.cycle_length == 2
    np.testing.assert_allclose(taken / 500, 2 / 3, atol=4 * np.sqrt(2 / 9 / 500))


def test_where_somebody_is_always_in_nothing_is_corrected():
    roster = Optimal(3).bind(4, seed=0)
    now = Situation(np.array([100.0, 1.0, 1.0, 1.0]), lambda picked: np.zeros(len(picked)))
    clients, expected = roster.select(0, now)
    assert clients[0] == 0
    np.testing.assert_allclose(expected, np.where(clients == 0, 1.0, 2 / 3) * roster.cycle_length)


@pytest.mark.parametrize("participation", SAMPLERS, ids=repr)
def test_a_cohort_is_a_function_of_seed_round_and_situation(participation):
    a, b = participation.bind(12, seed=5), pickle.loads(pickle.dumps(participation)).bind(12, seed=5)
    now = situation(12)
    late = [b.select(r, now) for r in reversed(range(20))][::-1]
    for round in range(20):
        for mine, theirs in zip(a.select(round, now), late[round], strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert (np.diff(a.select(round, now)[0]) > 0).all()
    other = participation.bind(12, seed=6)
    assert any(
        not np.array_equal(other.select(r, now)[0], cohort[0])
        for r, cohort in zip(range(20), late, strict=True)
    )


def test_only_the_active_group_is_asked_and_drawn():
    roster, asked = Optimal(groups=3).bind(10, seed=2), []

    def times(clients):
        asked.append(clients)
        return np.ones(len(clients))

    for round in range(9):
        clients, _ = roster.select(round, Situation(np.full(10, 0.1), times))
        np.testing.assert_array_equal(asked[-1], roster.groups[round % 3])
        assert set(clients) <= set(roster.groups[round % 3])


def test_how_many_where_nothing_is_said():
    assert Optimal().bind(100, 0).active == Weighted().bind(100, 0).active == 10
    assert Optimal().bind(100, 0).cycle_length == 10
    assert Optimal(groups=10).bind(100, 0).active == 5
    assert Optimal(groups=10).bind(100, 0).cycle_length == 10
    assert Optimal(groups=5).bind(5, 0).expected == (1.0,) * 5  # half of one client, but at least one
    assert Optimal(30, groups=10).bind(100, 0).active == 10  # cut to the group
    assert Optimal(2.5).bind(10, 0).cycle_length == 4
    assert Optimal().bind(1, 0).cycle_length == 1


def test_heavier_and_faster_clients_take_part_more_often():
    def shares(participation, weight, times):
        roster, taken = participation.bind(10, seed=0), np.zeros(10)
        for round in range(200):
            taken[roster.select(round, Situation(weight, lambda picked: times[picked]))[0]] += 1
        return taken[:5].sum() / taken.sum()

    equal, heavy = np.full(10, 0.1), np.repeat([0.19, 0.01], 5)
    assert shares(Optimal(3, kappa=1000.0), equal, PAPER_TIMES) < 0.35
    assert shares(Optimal(3), heavy, np.ones(10)) > 0.75
    assert shares(Weighted(3), heavy, PAPER_TIMES) > 0.9


@pytest.mark.parametrize(
    ("participation", "named"),
    [
        (Optimal(0), "per_round=0"),
        (Optimal(6), "per_round=6"),
        (Weighted(0.5, groups=2), "per_round=0.5"),
        (Optimal(groups=0), "groups=0"),
        (Weighted(groups=6), "groups=6"),
        (Optimal(2, floor=0.5), "floor=0.5"),
        (Weighted(2, floor=0.0), "floor=0.0"),
    ],
)
def test_impossible_settings_are_refused_by_name(participation, named):
    with pytest.raises(InputError, match=named):
        participation.bind(5, seed=0)


def test_a_negative_kappa_is_refused():
    with pytest.raises(InputError, match="kappa=-1"):
        Optimal(kappa=-1)
