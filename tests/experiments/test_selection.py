"""The latest round that validation cannot tell from the best."""

from __future__ import annotations

import numpy as np

from fedauc import metrics
from fedauc.experiments.assembly import Scored
from fedauc.experiments.selection import Candidate, first


def candidate(scores, y, round):
    return Candidate({}, metrics.auc(scores, y), round)


def select(curve, y):
    selection = None
    for round, scores in enumerate(curve, start=1):
        now = candidate(scores, y, round)
        scored = Scored(scores, y, None)
        selection = first(now, scored) if selection is None else selection.after(now, scored)
    return selection


def test_a_higher_auc_is_always_taken():
    y = np.array([0, 0, 1, 1])
    worse, better = np.array([0.1, 0.4, 0.3, 0.5]), np.array([0.1, 0.2, 0.3, 0.4])
    assert select([worse, better], y).choice.round == 2


def test_an_early_lucky_peak_gives_way_to_a_later_round_that_is_as_good():
    rng = np.random.default_rng(0)
    y = (np.arange(200) < 8).astype(np.int8)
    noisy = [y + rng.normal(0, 1.0, 200) for _ in range(12)]  # eight positives: the AUCs differ by luck alone
    aucs = [metrics.auc(scores, y) for scores in noisy]
    order = [int(np.argmax(aucs)), *(i for i in range(12) if i != int(np.argmax(aucs)))]
    selection = select([noisy[i] for i in order], y)
    assert selection.peak.round == 1
    assert selection.choice.round > 6


def test_a_run_that_gets_worse_is_not_followed():
    rng = np.random.default_rng(0)
    y = (np.arange(2000) < 400).astype(np.int8)
    good = y + rng.normal(0, 0.5, 2000)
    curve = [good, good + rng.normal(0, 1.0, 2000), rng.normal(0, 1, 2000)]
    assert select(curve, y).choice.round == 1


def test_ranks_that_are_the_same_are_followed_to_the_last():
    y = np.array([0, 1, 0, 1])
    scores = np.array([0.1, 0.2, 0.3, 0.4])
    assert select([scores, scores * 2, scores * 3], y).choice.round == 3


def test_rounds_are_compared_on_the_rows_that_both_have():
    """A site that was away in one of them leaves the others to decide."""
    y = np.array([0, 0, 1, 1, 0, 0, 1, 1], dtype=np.int8)
    good = np.array([0, 1, 2, 3, 0, 1, 2, 3], dtype=np.float32)
    bad = np.array([0, 1, 2, 3, 3, 2, 1, 0], dtype=np.float32)
    here = np.arange(4)
    start = first(Candidate({}, 1.0, 1), Scored(good, y, None))
    part = Scored(bad[here], y[here], None, here)  # wrong only where the site is away
    assert start.after(Candidate({}, 0.99, 2), part).choice.round == 2
    nobody = Scored(bad[:0], y[:0], None, here[:0])
    assert start.after(Candidate({}, 0.99, 3), nobody).choice.round == 1


def test_rows_without_a_counterpart_are_compared_as_if_they_were_others():
    """Of histograms only counts are known: sorted alike, rows would look paired that are not."""
    generator = np.random.default_rng(0)
    y = np.repeat(np.array([0, 1], dtype=np.int8), 200)
    good = np.sort(generator.normal(size=(2, 200)), axis=1).astype(np.float32).reshape(-1) + y
    worse = good.copy()
    worse[y == 1] -= 0.02
    peak = Candidate({}, metrics.auc(good, y), 1)
    later = Candidate({}, metrics.auc(worse, y), 2)
    assert 0 < peak.auc - later.auc < 0.02
    paired = first(peak, Scored(good, y, None)).after(later, Scored(worse, y, None))
    assert paired.choice.round == 1
    apart = first(peak, Scored(good, y, None, paired=False)).after(
        later, Scored(worse, y, None, paired=False)
    )
    assert apart.choice.round == 2
