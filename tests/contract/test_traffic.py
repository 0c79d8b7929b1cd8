"""The ledger's bytes are the bytes of what travelled."""

from __future__ import annotations

from dataclasses import replace

import torch

from .federations import COUNTS, Spy, built


class Recorder(Spy):
    """A method that weighs what each client receives and sends, by writing it out."""

    def __init__(self, method, log=None):
        super().__init__(method, log if log is not None else {"down": 0, "up": 0, "received": 0, "sent": 0})

    def client_init(self, d, own, c):
        self.log["down"] += len(written(d)) + len(written(own))
        self.log["received"] += 1
        return self.method.client_init(d, own, c)

    def client_finish(self, d, l, c, outs, knobs):
        upload, memory = self.method.client_finish(d, l, c, outs, knobs)
        self.log["up"] += len(written(upload.mean)) + len(written(upload.sum))
        for rows in upload.gather.values():
            self.log["up"] += sum(
                len(written(value)) for value, keep in zip(rows.values, rows.keep, strict=True) if keep
            )
        self.log["sent"] += 1
        return upload, memory


def written(state) -> bytes:
    """All tensors of a message, one after another."""
    if isinstance(state, torch.Tensor):
        return state.contiguous().numpy().tobytes()
    values = state.values() if isinstance(state, dict) else state
    return b"".join(written(value) for value in values)


def test_the_ledger_counts_every_byte_that_travels(preset):
    run = built(preset, {"train.mode": "loop", "rule.gamma": 0.5})
    recorder = Recorder(run.fed.method)
    run = run._replace(fed=replace(run.fed, method=recorder))
    state = run.start()
    # Before the first round: two counts up per client and, for class-stratified methods, two weights down,
    # 8 bytes each.
    up, told = 16 * len(COUNTS), len(COUNTS) if recorder.draw == "stratified" else 0
    down = 16 * told
    assert (state.ledger.total_up, state.ledger.total_down) == (up, down)
    assert (state.ledger.messages_up, state.ledger.messages_down) == (len(COUNTS), told)
    log = recorder.log
    for _ in range(run.fed.rounds):
        state, _ = run.advance(state)
        assert state.ledger.total_down == down + log["down"]
        assert state.ledger.total_up == up + log["up"]
        assert state.ledger.messages_up == len(COUNTS) + log["sent"]
        assert state.ledger.messages_down == told + log["received"]
    assert log["sent"] == log["received"] >= run.fed.rounds


def test_a_round_costs_at_least_a_model_both_ways(preset):
    run = built(preset)
    before, after = run.start(), run.after(1)
    model = sum(value.numel() * 8 for value in run.params.values())
    took_part = len(run.cohort(before))
    assert after.ledger.total_up - before.ledger.total_up >= took_part * model
    assert after.ledger.total_down - before.ledger.total_down >= took_part * model
