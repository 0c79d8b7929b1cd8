"""Which layout of a step is the fastest, where other runs use the GPU as well."""

from __future__ import annotations

import numpy as np
import pytest

from fedauc.transports.cuda import TURNS, _fastest

SECONDS = {"vmap": 3.0, "streams": 1.5, "streams-channels-last": 2.0}


class Crowded:
    """A clock for steps on a GPU that more and more others use, each moment more or less of it."""

    def __init__(self, growth: float, seed: int) -> None:
        self.now, self.growth, self.rng = 0, growth, np.random.default_rng(seed)

    def __call__(self, layout: str) -> float:
        self.now += 1
        others = 1 + self.growth * self.now / TURNS
        return SECONDS[layout] * others * float(self.rng.uniform(0.8, 1.2))


def built(layout: str) -> str:
    if layout not in SECONDS:
        raise RuntimeError(f"{layout} cannot be vectorised")
    return layout


@pytest.mark.parametrize("growth", [0.0, 1.0, -0.15])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("order", [list(SECONDS), list(SECONDS)[::-1]])
def test_others_on_the_gpu_do_not_decide(growth, seed, order):
    """With a growth of 1 a step takes several times as long by the time the last layout is measured."""
    best, seconds = _fastest(order, built, Crowded(growth, seed))
    assert best == "streams"
    for layout, expected in SECONDS.items():
        assert seconds[layout] / seconds["streams"] == pytest.approx(expected / 1.5, rel=0.25)


def test_of_two_that_are_as_fast_the_first_is_taken_and_kept():
    best, seconds = _fastest(["vmap", "streams"], built, lambda layout: 1.0)
    assert best == min(seconds, key=seconds.__getitem__) == "vmap"


def test_a_layout_that_cannot_be_built_is_left_out():
    best, seconds = _fastest(["none", "vmap"], built, Crowded(0, 0))
    assert best == "vmap"
    assert list(seconds) == ["vmap"]


def test_without_any_layout_the_last_error_is_raised():
    with pytest.raises(RuntimeError, match="other cannot be vectorised"):
        _fastest(["none", "other"], built, Crowded(0, 0))
