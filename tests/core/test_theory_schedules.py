"""The theorems' schedules: step sizes, local steps and lengths of stages, by hand."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest

from fedauc.errors import InputError
from fedauc.schedules.theory import CodascaTheory, MinimaxTheory, PairwiseTheory, grown_steps

ALL = [
    MinimaxTheory(length=2.0),
    PairwiseTheory(length=0.5),
    PairwiseTheory(length=0.5, variant="proof"),
    CodascaTheory(length=0.5),
]


def test_minimax_by_hand():
    """L = 1, ℓ = 2: L̂ = 5, μ/L̂ = 1/5, c = 0.2/5.2 = 1/26. min(ℓ, μ₂) = 1/2, η₀ = 0.01: T_1 = 42400.
    K = 4, M = 25, a = 40: I_1 = 40/(4·√0.25) = 20; E_1 = 42400/(4·20) = 530."""
    schedule = MinimaxTheory(eta=0.01, L=1.0, l=2.0, mu=1.0, mu2=0.5, interval=40.0).bind(4, 25.0)
    assert schedule.plan(1) == (0.01, 20, 530)
    for s in (2, 3):
        eta = 0.01 * math.exp(-(s - 1) / 26)
        steps = round(40 / (4 * math.sqrt(25 * eta)))  # 20.39 → 20, 20.78 → 21
        assert steps == {2: 20, 3: 21}[s]
        assert schedule.plan(s).eta == pytest.approx(eta)
        assert schedule.plan(s).steps == steps
        assert schedule.plan(s).cycles == math.ceil(212 / (eta * 0.5) / (4 * steps))
    assert schedule.gamma == 4.0
    assert schedule.eta_max == pytest.approx(1 / (6 + 12 / 0.5))


def test_minimax_with_everybody_in_every_round_is_coda_plus():
    """K = 1: I_s = a/√(Mη_s); with equal distributions I_s = a/(Mη_s)."""
    schedule = MinimaxTheory(eta=0.04, interval=10.0)
    assert schedule.bind(1, 25.0).plan(1).steps == 10
    assert dataclasses.replace(schedule, homogeneous=True, interval=7.0).bind(1, 25.0).plan(1).steps == 7
    ratio = 1 / (4 + 2 * 2)
    decayed = schedule.bind(1, 25.0).plan(3).eta / schedule.bind(1, 25.0).plan(1).eta
    assert decayed == pytest.approx(math.exp(-2 * ratio / (5 + ratio)))


def test_homogeneous_needs_everybody_in_every_round():
    with pytest.raises(InputError, match="3 rounds"):
        MinimaxTheory(homogeneous=True).bind(3, 5.0)


def test_pairwise_by_hand():
    """η_s = 0.08/2^(s-1); K = 2, a = 4: I_s = 4/√(2η_s) = 10, 14.1, 20; μ = 0.5: T_s = 3/(0.5·0.5·η_s) = 150,
    300, 600; E_s = ⌈T_s/(2 I_s)⌉ = 8, 11, 15."""
    schedule = PairwiseTheory(eta=0.08, mu=0.5, interval=4.0).bind(2, 9.0)
    assert [schedule.plan(s) for s in (1, 2, 3)] == [
        pytest.approx((0.08, 10, 8)),
        pytest.approx((0.04, 14, 11)),
        pytest.approx((0.02, 20, 15)),
    ]
    assert schedule.gamma == 0.0


def test_pairwise_as_its_proof_has_it():
    """I_s = a/(K√(Mη_s)), smaller by √(KM)."""
    schedule = PairwiseTheory(eta=0.04, interval=60.0, variant="proof").bind(2, 9.0)
    assert schedule.plan(1).steps == 50  # 60/(2·√0.36)
    assert schedule.plan(1).cycles == math.ceil(3 / (0.5 * 0.04) / (2 * 50))
    printed = dataclasses.replace(schedule, variant="theorem").bind(2, 9.0)
    assert printed.plan(1).steps == round(50 * math.sqrt(18))


def test_codasca_by_hand():
    """L = ℓ = μ = 1: L̂ = 3, C = 4 + 744/53 = 18.038, 2μ/(C + 2μ) = 0.09981, I_s = 100, 110.5, 122.1.
    η̃ = 0.01, μ₂ = 0.5: R = 200000 rounds. 16 clients: η_g = 4."""
    schedule = CodascaTheory(eta=0.01, steps=100, L=1.0, l=1.0, mu=1.0, mu2=0.5).bind(1, 16.0)
    assert schedule.eta_g == 4.0
    assert schedule.gamma == 2.0
    assert schedule.eta_max == pytest.approx(0.5 / 40)
    for s, steps in ((1, 100), (2, 110), (3, 122)):
        assert schedule.plan(s).steps == steps
        assert schedule.plan(s).cycles == 200000
        assert schedule.plan(s).eta * schedule.eta_g * steps == pytest.approx(0.01)  # η̃ stays as it is


def test_codasca_counts_rounds_in_cycles():
    schedule = CodascaTheory(eta=0.01, mu2=2.0, length=1.0)
    assert [schedule.bind(k, 4.0).plan(5).cycles for k in (1, 10, 15, 100)] == [50, 5, 4, 1]


@pytest.mark.parametrize("schedule", ALL, ids=repr)
def test_cycles_follow_the_plan(schedule):
    """Each stage lasts its cycles, `first` marks where it starts, and stages count from 0."""
    bound = schedule.bind(3, 5.0)
    expected = []
    for s in range(1, 6):
        plan = bound.plan(s)
        assert plan.cycles >= 1
        expected += [(s - 1, plan.eta, plan.steps, e == 0) for e in range(plan.cycles)]
    assert [tuple(bound.at(cycle)) for cycle in range(len(expected))] == expected
    assert bound.at(len(expected)).first


@pytest.mark.parametrize("schedule", ALL, ids=repr)
def test_step_sizes_fall_and_local_steps_grow(schedule):
    plans = [schedule.bind(2, 6.0).plan(s) for s in range(1, 60)]
    for before, after in itertools.pairwise(plans):
        assert after.eta <= before.eta
        assert after.steps >= before.steps >= 1
    assert plans[-1].eta < plans[0].eta
    assert plans[-1].steps > plans[0].steps


@pytest.mark.parametrize("schedule", ALL[:3], ids=repr)
def test_a_stage_has_the_local_steps_of_the_theorem(schedule):
    """T_s η_s is the same in all stages; whole cycles are at most one cycle more."""
    bound = schedule.bind(4, 3.0)
    wanted = schedule.length / (2.0 if isinstance(schedule, MinimaxTheory) else 0.5)
    for s in (1, 2, 3, 10):
        plan = bound.plan(s)
        taken = plan.cycles * 4 * plan.steps
        assert wanted / plan.eta * (1 - 1e-9) <= taken < wanted / plan.eta + 4 * plan.steps + 1e-9


@pytest.mark.parametrize("schedule", ALL, ids=repr)
def test_binding_fills_in_the_participation_and_nothing_else(schedule):
    bound = schedule.bind(7, 3.5)
    assert (bound.cycle_length, bound.active) == (7, 3.5)
    assert (schedule.cycle_length, schedule.active) == (1, 1.0)
    assert bound.bind(2, 4.0) == schedule.bind(2, 4.0)  # the last participation counts
    assert bound.bind(1, 1.0) == schedule
    settings = [field.name for field in dataclasses.fields(schedule) if field.init]
    assert not {"cycle_length", "active"} & set(settings)  # not the user's
    assert all(getattr(bound, name) == getattr(schedule, name) for name in settings)


def test_more_rounds_a_cycle_and_more_clients_mean_fewer_local_steps():
    schedule = MinimaxTheory(eta=0.001, interval=100.0)
    steps = {(k, m): schedule.bind(k, m).plan(1).steps for k in (1, 4) for m in (1.0, 4.0)}
    assert steps[1, 1.0] == pytest.approx(4 * steps[4, 1.0], abs=4)
    assert steps[1, 1.0] == pytest.approx(2 * steps[1, 4.0], abs=2)


def test_the_defaults_are_within_what_the_theorems_cover():
    for schedule in (MinimaxTheory(), CodascaTheory()):
        assert schedule.eta <= schedule.eta_max


def test_grown_steps_go_with_one_over_the_root_of_the_step_size():
    assert [grown_steps(10, 0.1, eta) for eta in (0.1, 0.025, 0.001)] == [10, 20, 100]
    assert grown_steps(1, 0.1, 1.0) == 1  # never none
    assert grown_steps(7, 0.1, 0.03) == 13  # 12.78


@pytest.mark.parametrize(
    ("schedule", "settings"),
    [
        (MinimaxTheory, {"eta": 0.0}),
        (MinimaxTheory, {"length": -1.0}),
        (MinimaxTheory, {"interval": 0.0}),
        (MinimaxTheory, {"cycles": 0}),
        (MinimaxTheory, {"mu": 9.0}),
        (MinimaxTheory, {"mu2": 3.0}),
        (PairwiseTheory, {"mu": 0.0}),
        (PairwiseTheory, {"decay": 1.0}),
        (CodascaTheory, {"steps": 0}),
        (CodascaTheory, {"mu2": 3.0}),
        (CodascaTheory, {"L": float("inf")}),
    ],
)
def test_impossible_settings_are_refused_by_name(schedule, settings):
    ((name, value),) = settings.items()
    with pytest.raises(InputError, match=f"{name}={value}"):
        schedule(**settings)
