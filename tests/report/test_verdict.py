"""What the report says about differences, and how it writes numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedauc.report import text
from fedauc.report.load import Entry, Run, Study
from fedauc.report.svg import Scale, auc_limits, thin
from fedauc.report.verdict import difference, gap_closed, verdict


def entry(label: str, *aucs: float, half: float | None = None, yardstick: bool = False) -> Entry:
    """An entry with one AUC per seed; ``half`` is half the width of each run's test interval."""
    runs = []
    if half is not None:
        runs = [Run(Path(), {"test_auc_ci": [a - half, a + half]}, []) for a in aucs]
    return Entry(label, yardstick, sum(aucs) / len(aucs), by_seed=dict(enumerate(aucs)), runs=runs)


def study(*entries: Entry) -> Study:
    ranked = sorted(entries, key=lambda e: -(e.auc or 0))
    return Study(ranked, len(entries) > 1, {}, {}, {})


def test_spread_larger_than_the_gap_is_not_clear() -> None:
    d = difference(entry("a", 0.90, 0.93, 0.91), entry("b", 0.91, 0.90, 0.92))
    assert d.clear is False
    assert (d.wins, d.of) == (1, 3)
    assert d.interval is not None
    assert d.interval[0] < 0 < d.interval[1]


def test_steady_gap_is_clear_unless_test_intervals_overlap() -> None:
    a, b = (0.92, 0.921, 0.922), (0.90, 0.902, 0.901)
    assert difference(entry("a", *a), entry("b", *b)).clear is True
    assert difference(entry("a", *a, half=0.005), entry("b", *b, half=0.005)).clear is True
    wide = difference(entry("a", *a, half=0.03), entry("b", *b, half=0.03))
    assert wide.clear is False
    assert wide.lead() == "though it leads on 3 of 3 seeds"


def test_overlapping_spreads_are_not_clear_even_if_paired_seeds_agree() -> None:
    d = difference(entry("a", 0.90, 0.94, 0.92), entry("b", 0.89, 0.93, 0.91))
    assert d.interval is not None
    assert d.interval[0] > 0
    assert d.clear is False
    assert d.lead() == "though it leads on 3 of 3 seeds"


def test_one_seed_rests_on_the_test_intervals() -> None:
    assert difference(entry("a", 0.9), entry("b", 0.8)).clear is None
    assert difference(entry("a", 0.9, half=0.02), entry("b", 0.8, half=0.02)).clear is True
    assert difference(entry("a", 0.9, half=0.06), entry("b", 0.8, half=0.06)).clear is False
    assert "on one seed above b" in verdict(study(entry("a", 0.9, half=0.02), entry("b", 0.8, half=0.02)))


def test_interval_matches_students_t() -> None:
    from scipy import stats

    a, b = [0.91, 0.93, 0.92, 0.95], [0.90, 0.90, 0.91, 0.92]
    found = difference(entry("a", *a), entry("b", *b)).interval
    exact = stats.ttest_rel(a, b).confidence_interval()
    assert found == pytest.approx((exact.low, exact.high), abs=1e-5)


def test_difference_with_itself_is_not_clear() -> None:
    same = entry("a", 0.9, 0.9, 0.9)
    assert difference(same, same).clear is False


def test_verdict_is_one_sentence() -> None:
    said = verdict(
        study(
            entry("best", 0.92, 0.921, 0.922),
            entry("worse", 0.85, 0.851, 0.853),
            entry("close", 0.92, 0.919, 0.923),
            entry("central", 0.95, 0.951, 0.953, yardstick=True),
            entry("clients-alone", 0.80, 0.801, 0.803, yardstick=True),
        )
    )
    assert said == (
        "best has the highest test AUC of the federated methods (0.921): clearly above worse, "
        "no clear difference from close; against the yardsticks: clearly above clients-alone, "
        "clearly below central."
    )


def test_verdict_warns_of_chance() -> None:
    said = verdict(study(entry("a", 0.61, 0.62, half=0.2), entry("b", 0.6, 0.6, half=0.2)))
    assert said.endswith("includes 0.5, so it is not clearly better than chance.")


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.45, 0.62, "no clear difference from chance"),
        (0.6, 0.7, "clearly better"),
        (0.2, 0.4, "clearly worse"),
    ],
)
def test_verdict_on_one_run(low: float, high: float, says: str) -> None:
    middle, half = (low + high) / 2, (high - low) / 2
    assert says in verdict(study(entry("a", middle, half=half)))


def test_gap_closed_only_where_there_is_a_gap() -> None:
    best = entry("best", 0.89, 0.891, 0.892)
    alone = entry("clients-alone", 0.80, 0.801, 0.803, yardstick=True)
    central = entry("central", 0.90, 0.901, 0.903, yardstick=True)
    assert gap_closed(study(best, alone, central)) == "90 % of the way from clients alone to pooled data"
    noisy = entry("central", 0.70, 0.99, 0.80, yardstick=True)
    assert gap_closed(study(best, alone, noisy)) == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (123_456, "123 kB"),
        (999_600, "1 MB"),
        (5e15, "5000 TB"),
    ],
)
def test_size(value: float | None, shown: str) -> None:
    assert text.size(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.5, "0.5 s"), (59.9, "60 s"), (61, "1 min 1 s"), (7260, "2 h 1 min")]
)
def test_duration(value: float, shown: str) -> None:
    assert text.duration(value) == shown


def test_short_keeps_both_ends() -> None:
    assert text.short("hospital-of-the-north-17", 13) == "hospit…rth-17"
    assert len(text.short("x" * 99, 20)) == 20


def test_signed_has_no_minus_zero() -> None:
    assert text.signed(-0.0001) == "0.000"
    assert text.signed(-0.02) == "−0.020"


def test_scales() -> None:
    assert Scale(0, 10, 0, 100)(5) == 50
    assert Scale(1, 100, 0, 100, log=True)(10) == pytest.approx(50)
    assert Scale(3, 3, 0, 100)(3) == 50
    assert Scale(1, 1000, 0, 1, log=True).ticks(5) == [1, 10, 100, 1000]
    assert Scale(3, 3, 0, 1).ticks(5, whole=True) == [3]
    assert auc_limits([]) == (0.5, 1.0)
    for values in ([0.9], [0.0], [1.0], [0.1, 0.99]):
        low, high = auc_limits(values)
        assert 0 <= low < high <= 1
        assert low <= min(values) <= max(values) <= high


@pytest.mark.parametrize("most", [1, 4, 5, 8, 10])
@pytest.mark.parametrize("log", [False, True])
def test_whole_ticks_are_integers_within_the_ends_and_come_once(most: int, log: bool) -> None:
    for low in (0.9, 1, 2.7):
        for high in (1.0, 1.1, 2, 3, 3.3, 5, 7, 12, 40, 400, 12345):
            if high <= low:
                continue
            ticks = Scale(low, high, 0, 100, log).ticks(most, whole=True)
            assert ticks
            assert sorted(set(ticks)) == ticks
            assert all(t == round(t) and low <= t <= high for t in ticks) or ticks == [low]


def test_few_rounds_have_one_tick_each() -> None:
    assert Scale(0, 1, 0, 100).ticks(8, whole=True) == [0, 1]
    assert Scale(0, 3, 0, 100).ticks(8, whole=True) == [0, 1, 2, 3]
    assert Scale(0, 36, 0, 100).ticks(8, whole=True) == [0, 5, 10, 15, 20, 25, 30, 35]


def test_thin_keeps_extremes() -> None:
    points = [(float(n), float(n == 777)) for n in range(5000)]
    kept = thin(points, 200)
    assert len(kept) <= 200
    assert (777.0, 1.0) in kept
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
