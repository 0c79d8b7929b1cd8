"""How a round is carried out does not change what comes out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedauc.core.tree import flatten

from .federations import COUNTS, assert_close, built, rows, tensors

TOLERANCE = 1e-12


def test_one_client_after_another_is_all_at_once(preset):
    at_once, one_by_one = built(preset, {"train.mode": "vmap"}), built(preset, {"train.mode": "loop"})
    a, b = at_once.start(), one_by_one.start()
    for _ in range(at_once.long):
        (a, seen), (b, looped) = at_once.advance(a), one_by_one.advance(b)
        assert_close(a, b, TOLERANCE)
        np.testing.assert_allclose(seen.loss, looped.loss, rtol=TOLERANCE)  # NaN where nothing was trained
    assert a.ledger == b.ledger


def test_clients_in_chunks_are_all_clients_at_once(preset):
    whole = built(preset)
    expected = whole.after(whole.long)
    for chunk in (1, 2):
        state = built(preset, {"train.chunk": chunk}).after(whole.long)
        assert_close(state, expected, TOLERANCE)
        assert state.ledger == expected.ledger


@dataclass(frozen=True)
class Reversed:
    """A participation whose cohorts come in the opposite order."""

    inner: Any

    def bind(self, clients, seed):
        return ReversedRoster(self.inner.bind(clients, seed))


@dataclass(frozen=True)
class ReversedRoster:
    inner: Any

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def select(self, round, now=None):
        clients, expected = self.inner.select(round, now)
        return clients[::-1].copy(), expected[::-1].copy()


def test_the_order_of_the_cohort_does_not_matter(preset):
    run = built(preset)
    backwards = run._replace(fed=replace(run.fed, participation=Reversed(run.fed.participation)))
    state = run.after(run.long)
    sizes = set()
    for _ in range(run.fed.roster.cycle_length):
        (a, _), (b, _) = run.advance(state), backwards.advance(state)
        sizes.add(len(run.cohort(state)))
        for name, value in flatten(a.server).items():
            # Gathered rows lie client after client: the same rows, in another order.
            pooled = "passive/" in name or "fresh/" in name
            left, right = (
                t.sort().values if pooled and t.dim() == 1 else t for t in (value, flatten(b.server)[name])
            )
            torch.testing.assert_close(left, right, rtol=TOLERANCE, atol=TOLERANCE)
        state = a
    assert max(sizes) > 1  # reversing one client would prove nothing


def test_every_number_stays_finite_where_clients_lack_a_class(preset):
    run = built(preset)
    state, took_part = run.start(), set()
    while state.round < run.fed.rounds:
        took_part |= set(run.cohort(state).tolist())
        state, _ = run.advance(state)
        for name, value in tensors(state).items():
            assert value.isfinite().all(), name
    lacking = {i for i, counts in enumerate(COUNTS) if 0 in counts}
    if (weight := run.fed.method.importance(state.server)) is not None:
        lacking &= set(weight.nonzero().flatten().tolist())
    assert lacking <= took_part
    moved = [not torch.equal(value, state.server.z[name]) for name, value in run.params.items()]
    assert all(moved)


def test_a_round_of_clients_without_positives_is_finite(preset):
    """A whole cohort can lack a class: groups in the order of the clients, all positives in the last."""
    data = rows(((4, 0), (6, 0), (5, 0), (3, 0), (0, 2), (2, 3)))
    run = built(preset, {"participation.assign": "order"}, data)
    state = run.start()
    while state.round < run.fed.rounds:
        state, _ = run.advance(state)
        for name, value in tensors(state).items():
            assert value.isfinite().all(), name
