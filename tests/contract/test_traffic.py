"""The ledger's bytes are the bytes of what travelled."""

from __future__ import annotations

from dataclasses import replace

import torch

from .federations import COUNTS, built


class Recorder:
    """A method that weighs what each client receives and sends, by writing it out."""

    def __init__(self, method):
        self.method = method
        self.down = self.up = self.received = self.sent = 0

    def __getattr__(self, name):
        return getattr(self.method, name)

    def client_init(self, d, own, c):
        self.down += len(written(d)) + len(written(own))
        self.received += 1
        return self.method.client_init(d, own, c)

    def client_finish(self, d, l, c, outs, knobs):
        upload, memory = self.method.client_finish(d, l, c, outs, knobs)
        self.up += len(written(upload.mean))
        for rows in upload.gather.values():
            self.up += sum(
                len(written(value)) for value, keep in zip(rows.values, rows.keep, strict=True) if keep
            )
        self.sent += 1
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
    took_part = 0
    for _ in range(run.fed.rounds):
        took_part += len(run.fed.roster.select(state.round)[0])
        state, _ = run.advance(state)
        assert state.ledger.total_down == down + recorder.down
        assert state.ledger.total_up == up + recorder.up
    assert recorder.sent == recorder.received == took_part
    assert state.ledger.messages_up == len(COUNTS) + took_part
    assert state.ledger.messages_down == told + took_part


def test_a_round_costs_at_least_a_model_both_ways(preset):
    run = built(preset)
    before, after = run.start(), run.after(1)
    model = sum(value.numel() * 8 for value in run.params.values())
    took_part = len(run.fed.roster.select(0)[0])
    assert after.ledger.total_up - before.ledger.total_up >= took_part * model
    assert after.ledger.total_down - before.ledger.total_down >= took_part * model
