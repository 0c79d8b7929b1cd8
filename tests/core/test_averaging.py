"""Which iterate is the output."""

from __future__ import annotations

import pytest
import torch

from fedauc.core import averaging

ITERATES = [3.0, -1.0, 4.0, 10.0, 2.0, 8.0]


def outputs(output, memory=1.0):
    """The output after each iterate."""
    state = averaging.start({"w": torch.tensor(100.0, dtype=torch.float64)})
    seen = []
    for value in ITERATES:
        state = averaging.follow(state, {"w": torch.tensor(value, dtype=torch.float64)}, output, memory)
        seen.append(state.z["w"].item())
    return seen


def test_last_is_the_iterate():
    assert outputs("last") == ITERATES


def test_average_is_the_mean_of_all_iterates_without_the_start():
    assert outputs("average") == pytest.approx([sum(ITERATES[:t]) / t for t in range(1, 7)])


def test_ema_is_the_mean_until_its_memory_is_full_and_then_forgets():
    """A memory of 3 rounds: ȳₜ = (1 - 1/3) ȳₜ₋₁ + 1/3 yₜ from the third iterate on."""
    expected = [sum(ITERATES[:t]) / t for t in range(1, 4)]
    for value in ITERATES[3:]:
        expected.append(expected[-1] * 2 / 3 + value / 3)
    assert outputs("ema", memory=3.0) == pytest.approx(expected)


def test_ema_with_a_memory_of_a_round_is_the_iterate():
    assert outputs("ema", memory=1.0) == ITERATES


def test_ema_with_a_shorter_memory_is_the_iterate_too():
    """An average never leaves the hull of what it averages."""
    assert outputs("ema", memory=0.5) == ITERATES
