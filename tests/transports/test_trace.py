"""A recorded step gives the same bits as the step itself."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

from fedauc.core.loop import advance, begin
from fedauc.core.tree import flatten
from fedauc.experiments.presets import PRESETS
from fedauc.transports import LocalTransport
from fedauc.transports.trace import Replay
from tests.contract.federations import built


@pytest.mark.parametrize("preset", PRESETS)
def test_recorded_and_not_recorded_runs_are_the_same_bit_for_bit(preset):
    run = built(preset)
    states = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a step that cannot be recorded would only be slower, and unnoticed
        for after in (0, 10**9):
            fed = replace(run.fed, transport=LocalTransport(record_after=after))
            state = begin(fed, run.params)
            while state.round < run.long:
                state, _ = advance(fed, state)
            states.append(flatten(state.server))
    recorded, plain = states
    assert recorded.keys() == plain.keys()
    assert all(torch.equal(recorded[name], plain[name]) for name in plain)


def test_every_shape_has_its_own_recording():
    replay = Replay(lambda x: {"double": x * 2}, after=0)
    for n in (3, 4, 3):
        x = torch.arange(float(n))
        assert torch.equal(replay(x)["double"], x * 2)
    assert len(replay.recordings) == 2


def test_a_step_that_depends_on_values_is_said_and_still_run():
    replay = Replay(lambda x: x * 2 if x.sum() > 0 else x, after=0)
    with pytest.warns(UserWarning, match="cannot be recorded"):
        assert torch.equal(replay(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(replay(-torch.ones(2)), -torch.ones(2))
