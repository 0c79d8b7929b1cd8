"""docs/methods.md is what the registry and the ledger say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedauc.experiments import catalogue
from fedauc.experiments.presets import PRESETS

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


@pytest.mark.slow
def test_the_page_is_up_to_date():
    assert PAGE.read_text() == catalogue.markdown(), "fedauc methods --markdown > docs/methods.md"


def test_the_page_names_every_method():
    text = PAGE.read_text()
    assert all(f"**`{name}`**" in text for name in PRESETS)


def test_a_formula_is_solved_from_measurements():
    numbers = np.random.default_rng(0).integers(1, 40, (6, 5))
    sizes = [(*map(int, row), 1) for row in numbers]
    measured = [(values, 2 * values[0] + 1.5 * values[2] + 6) for values in sizes]
    assert catalogue.formula(measured) == "2d + 3/2·I·B + 6"
    assert catalogue.formula([(values, 0.0) for values in sizes]) == "0"
    with pytest.raises(ValueError, match="not a sum"):
        catalogue.formula([(values, values[0] * 0.3137) for values in sizes])
