"""A method's functions are pure: they change nothing they are given."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch

from .federations import Spy, built, configured, tensors

FUNCTIONS = {
    "server_init",
    "memory_init",
    "broadcast",
    "address",
    "client_init",
    "client_step",
    "client_finish",
    "server_update",
    "server_stage",
    "importance",
}


class Guarded(Spy):
    """A method that objects when one of its functions changes an argument."""

    def __getattr__(self, name):
        value = getattr(self.method, name)
        if name not in FUNCTIONS:
            return value

        def guarded(*args):
            before = copy.deepcopy(args)
            result = value(*args)
            assert same(before, args), f"{name} changed what it was given"
            self.log[name] = True
            return result

        return guarded


def same(a, b) -> bool:
    """Deep equality, bit for bit (a NaN equals itself)."""
    if isinstance(a, torch.Tensor):
        return (
            a.dtype == b.dtype
            and a.shape == b.shape
            and torch.equal(a.isnan(), b.isnan())
            and torch.equal(a.nan_to_num(), b.nan_to_num())
        )
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def test_same_notices_a_changed_tensor():
    """The guard itself can fail."""
    state = ({"w": torch.zeros(2)}, np.arange(3))
    before = copy.deepcopy(state)
    assert same(before, state)
    state[0]["w"][0] = 1
    assert not same(before, state)


def test_no_function_of_a_method_changes_its_arguments(preset):
    run = built(preset, {"train.mode": "loop", "schedule.stage_cycles": 1, "rule.gamma": 0.5})
    guarded = Guarded(run.fed.method)
    run = run._replace(fed=replace(run.fed, method=guarded))
    run.after(run.long)
    assert guarded.log.keys() == FUNCTIONS


def test_a_round_changes_nothing_in_the_state_it_starts_from(preset):
    run = built(preset, {"schedule.stage_cycles": 1})
    x, y = run.fed.data.x.clone(), run.fed.data.y.clone()
    state = run.start()
    for _ in range(run.long):
        before = copy.deepcopy(tensors(state))
        after, _ = run.advance(state)
        assert same(before, tensors(state))
        state = after
    assert torch.equal(x, run.fed.data.x)
    assert torch.equal(y, run.fed.data.y)


def test_a_preset_constructs_and_survives_being_written_down(preset):
    config = configured(preset)
    assert type(config).from_dict(config.as_dict()) == config
