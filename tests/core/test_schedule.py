"""Stages: η_s = η₀·decayˢ and E_s = E₀·growthˢ, from cycle to cycle."""

from __future__ import annotations

import pytest

from fedauc.errors import InputError
from fedauc.schedules import Stagewise


def stages(schedule):
    """(stage, η, I, first) of every cycle."""
    return [tuple(schedule.at(cycle)) for cycle in range(schedule.cycles)]


def test_without_stages_everything_is_one_stage():
    assert stages(Stagewise(eta=0.5, steps=7, cycles=3)) == [
        (0, 0.5, 7, True),
        (0, 0.5, 7, False),
        (0, 0.5, 7, False),
    ]


def test_boundaries_of_growing_stages():
    """E₀ = 2, growth 2: stages of 2, 4 and 8 cycles start at cycles 0, 2 and 6."""
    schedule = Stagewise(eta=1.0, steps=1, cycles=14, stage_cycles=2, decay=0.5, growth=2.0)
    seen = stages(schedule)
    assert [s for s, *_ in seen] == [0] * 2 + [1] * 4 + [2] * 8
    assert [eta for _, eta, *_ in seen] == [1.0] * 2 + [0.5] * 4 + [0.25] * 8
    assert [cycle for cycle, (*_, first) in enumerate(seen) if first] == [0, 2, 6]


def test_stages_of_equal_length_and_of_one_cycle():
    seen = stages(Stagewise(eta=1.0, steps=1, cycles=4, stage_cycles=1, decay=0.1))
    assert [s for s, *_ in seen] == [0, 1, 2, 3]
    assert all(first for *_, first in seen)
    assert [eta for _, eta, *_ in seen] == pytest.approx([1.0, 0.1, 0.01, 0.001])


def test_a_stage_has_at_least_one_cycle():
    """E₀ = 2, growth 0.3: 2, 0.6 → 1, 0.18 → 1."""
    seen = stages(Stagewise(eta=1.0, steps=1, cycles=4, stage_cycles=2, growth=0.3))
    assert [s for s, *_ in seen] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    "settings",
    [{"eta": 0.0}, {"decay": -1.0}, {"growth": 0.0}, {"steps": 0}, {"cycles": 0}, {"stage_cycles": 0}],
)
def test_impossible_settings_are_refused_by_name(settings):
    ((name, value),) = settings.items()
    with pytest.raises(InputError, match=f"{name}={value}"):
        Stagewise(**settings)
