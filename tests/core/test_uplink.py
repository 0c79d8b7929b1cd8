"""How long clients need to send: known times, drawn times."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from fedauc.core.uplink import UPLINKS, Drawn, Fixed
from fedauc.errors import InputError


def all_of(uplink, total, round=0, seed=0):
    return uplink.times(np.arange(total), total, round, seed)


def test_the_papers_ten_clients():
    """10 ms for clients 1-5 and 1 ms for clients 6-10."""
    np.testing.assert_array_equal(all_of(Fixed(), 10), [0.01] * 5 + [0.001] * 5)


@pytest.mark.parametrize(("total", "expected"), [(3, [1, 2, 3]), (6, [1, 1, 2, 2, 3, 3]), (4, [1, 1, 2, 3])])
def test_one_time_per_client_or_equal_blocks(total, expected):
    np.testing.assert_array_equal(all_of(Fixed((1.0, 2.0, 3.0)), total), expected)


def test_blocks_differ_by_at_most_one_client():
    for total in range(7, 40):
        _, sizes = np.unique(all_of(Fixed(tuple(range(1, 8))), total), return_counts=True)
        assert len(sizes) == 7
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("uplink", [Fixed((1.0, 2.0)), Drawn(), Drawn(per="round")], ids=repr)
def test_only_the_clients_that_are_asked_for_in_their_order(uplink):
    everybody = all_of(uplink, 20, round=3, seed=1)
    asked = np.array([17, 2, 5])
    np.testing.assert_array_equal(uplink.times(asked, 20, 3, 1), everybody[asked])
    assert uplink.times(np.array([], dtype=np.int64), 20, 3, 1).shape == (0,)


def test_known_times_stay_as_they_are():
    np.testing.assert_array_equal(all_of(Fixed(), 10, round=7, seed=3), all_of(Fixed(), 10))


def test_drawn_times_are_log_normal():
    for per in ("client", "round"):
        times = all_of(Drawn(median=0.02, spread=0.7, per=per), 2000)
        assert kstest(np.log(times / 0.02) / 0.7, "norm").pvalue > 1e-3
    np.testing.assert_allclose(all_of(Drawn(median=0.02, spread=0.0), 5), 0.02)


def test_drawn_per_client_stays_and_per_round_changes():
    slow, fading = Drawn(per="client"), Drawn(per="round")
    np.testing.assert_array_equal(all_of(slow, 10, round=0), all_of(slow, 10, round=9))
    assert (all_of(fading, 10, round=0) != all_of(fading, 10, round=9)).all()
    np.testing.assert_array_equal(all_of(fading, 10, round=9), all_of(fading, 10, round=9))
    for uplink in (slow, fading):
        assert (all_of(uplink, 10, seed=0) != all_of(uplink, 10, seed=1)).all()


def test_rounds_and_clients_are_independent():
    times = np.stack([np.log(all_of(Drawn(per="round"), 50, round=r)) for r in range(200)])
    assert abs(np.corrcoef(times[:-1].ravel(), times[1:].ravel())[0, 1]) < 4 / np.sqrt(times[1:].size)
    assert abs(np.corrcoef(times[:, :-1].ravel(), times[:, 1:].ravel())[0, 1]) < 4 / np.sqrt(
        times[:, 1:].size
    )


def test_the_registry_and_how_times_are_combined():
    assert list(UPLINKS) == ["none", "fixed", "drawn"]
    assert [uplink().combine for uplink in (Fixed, Drawn)] == ["sum", "sum"]
    assert Fixed(combine="max").combine == "max"


@pytest.mark.parametrize(
    ("uplink", "settings"),
    [
        (Fixed, {"seconds": ()}),
        (Fixed, {"seconds": (0.1, -0.1)}),
        (Fixed, {"seconds": (float("nan"),)}),
        (Drawn, {"median": 0.0}),
        (Drawn, {"spread": -1.0}),
        (Drawn, {"spread": float("inf")}),
    ],
)
def test_impossible_settings_are_refused_by_name(uplink, settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        uplink(**settings)


def test_more_times_than_clients_are_refused():
    with pytest.raises(InputError, match="3 uplink times, but there are only 2 clients"):
        all_of(Fixed((1.0, 2.0, 3.0)), 2)
    assert all_of(Fixed(), 1).tolist() == [0.01]  # the default is for any number of clients
