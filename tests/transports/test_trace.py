"""A recorded step gives the same bits as the step itself."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.contract.federations import built

from fedauc import models
from fedauc.core.loop import Federation, advance, begin, rounds
from fedauc.core.tree import flatten
from fedauc.data.federated import FederatedData
from fedauc.experiments.presets import PRESETS
from fedauc.methods import LocalSGDA
from fedauc.objectives import MinimaxAUC
from fedauc.participation import Cyclic
from fedauc.schedules import Stagewise
from fedauc.transports import LocalTransport
from fedauc.transports.trace import Replay


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


def test_strides_are_told_apart():
    replay = Replay(lambda x: {"flat": x.reshape(-1) + 1}, after=0)
    x = torch.arange(6.0).reshape(2, 3)
    for case in (x, x.T.contiguous().T, x[:1].expand(2, 3), x):
        assert torch.equal(replay(case)["flat"], case.reshape(-1) + 1)
    assert len(replay.recordings) == 3


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_recording_in_the_middle_of_a_run_changes_nothing(name):
    """Recorded from the fifth step on: steps with broadcast weights are seen before and after."""
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(120, 1, 8, 8)), dtype=torch.float32)
    y = torch.tensor(rng.integers(0, 2, 120))
    data = FederatedData.build(x, y, np.arange(120) % 6, [str(i) for i in range(6)])
    model, params = models.init(models.MODELS[name](), (1, 8, 8), 0)
    finals = []
    for after in (4, 10**9):
        fed = Federation(
            LocalSGDA(model, MinimaxAUC()), data, Cyclic(groups=2), Stagewise(steps=3, cycles=6),
            LocalTransport(record_after=after), batch=8,
        )  # fmt: skip
        *_, (state, _) = rounds(fed, begin(fed, params))
        finals.append(state.server.z)
    assert all(torch.equal(finals[0][key], finals[1][key]) for key in finals[1])


def test_a_step_that_depends_on_values_is_said_and_still_run():
    replay = Replay(lambda x: x * 2 if x.sum() > 0 else x, after=0)
    with pytest.warns(UserWarning, match="cannot be recorded"):
        assert torch.equal(replay(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(replay(-torch.ones(2)), -torch.ones(2))
