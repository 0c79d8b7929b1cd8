"""The scale benchmark: how growth is read off, and that the page has a place for every table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scale


def test_growth_of_a_power_law():
    rows = [
        {"value": n, "fastest_ms": 3 * n**1.5, "peak_gib": 0.5 + n * 100 / 2**30} for n in (10, 10**4, 10**8)
    ]
    growth = scale.growth(rows)
    assert growth["exponent"] == pytest.approx(1.5)
    assert growth["last_exponent"] == pytest.approx(1.5)
    assert growth["bytes_each"] == pytest.approx(100)
    assert scale.growth([row | {"peak_gib": 0.6} for row in rows])["bytes_each"] == 0


def test_a_case_is_measured():
    found = scale.measured(scale.Case(clients=50, per_round=5, steps=2, rows=400, hidden=(4,), keeps=True))
    assert found["parameters"] == scale.FEATURES * 4 + 4 + 5
    assert 0 < found["fastest_ms"] <= found["round_ms"]
    assert found["peak_gib"] >= found["start_gib"] > 0


def test_the_page_has_a_place_for_every_table():
    row = {"value": 1, "setup_s": 0.0, "round_ms": 1.0, "fastest_ms": 1.0, "ratio": 1.0, "peak_gib": 1.0}
    growth = {"exponent": 1.0, "last_exponent": 1.0, "bytes_each": 0.0}
    run = dict.fromkeys(
        ("prepare_s", "train_s", "summarise_s", "prepare_peak_gib", "peak_gib", "test_auc"), 0.125
    )
    run |= {"held": "somewhere", "own_gib": None}
    sweeps = [{"name": name, "rows": [row], "growth": growth} for name in scale.SWEEPS]
    text = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    page = scale.page(text, {"sweeps": sweeps, "tables": [run], "medicare": run})
    assert page.count("| 1 | 0.00 s | 1.0 ms | 1.0 ms | 1.00 | 1.00 GiB |") == len(scale.SWEEPS)
    assert page.count("| somewhere |") == 2
    with pytest.raises(ValueError, match="0 places"):
        scale.page("", {"sweeps": sweeps, "tables": [run], "medicare": run})
