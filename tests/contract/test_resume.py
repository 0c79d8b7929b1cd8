"""A run that was stopped anywhere and resumed is the run that was never stopped."""

from __future__ import annotations

import torch

from fedauc.core import checkpoint

from .federations import assert_same, built

# Everything a state can hold is in play: stages, their average, an anchor, half-filled pools.
SETTINGS = {
    "schedule.cycles": 2,
    "schedule.stage_cycles": 1,
    "train.output": "average",
    "rule.gamma": 0.5,
    "participation.per_round": 2,
}


def test_a_state_comes_back_from_its_file_bit_for_bit(preset, tmp_path):
    run = built(preset, SETTINGS)
    state = run.after(run.long)
    best = {name: value + 1 for name, value in run.params.items()}
    checkpoint.save_state(tmp_path / "c.safetensors", state, best, {"valid_auc": 0.75})
    loaded, loaded_best, extra = checkpoint.load_state(tmp_path / "c.safetensors", run.start(), "cpu")
    assert_same(loaded, state)
    assert loaded_best.keys() == best.keys()
    assert all(torch.equal(best[name], loaded_best[name]) for name in best)
    assert extra["valid_auc"] == 0.75


def test_resuming_at_any_round_gives_the_run_that_was_never_stopped(preset, tmp_path):
    run = built(preset, SETTINGS)
    state = run.start()
    for done in range(run.fed.rounds):
        checkpoint.save_state(tmp_path / str(done), state, {}, {})
        state, _ = run.advance(state)
    for done in range(run.fed.rounds):
        again = built(preset, SETTINGS)  # a new process knows nothing but the configuration and the file
        resumed, _, _ = checkpoint.load_state(tmp_path / str(done), again.start(), "cpu")
        assert resumed.round == done
        while resumed.round < again.fed.rounds:
            resumed, _ = again.advance(resumed)
        assert_same(resumed, state)


def test_two_runs_of_one_configuration_are_the_same_and_another_seed_is_another_run(preset):
    a, b = built(preset), built(preset)
    assert_same(a.after(a.long), b.after(b.long))
    other = built(preset, {"seed": 1}).after(a.long)
    assert any(
        not torch.equal(other.server.z[name], value) for name, value in a.after(a.long).server.z.items()
    )
