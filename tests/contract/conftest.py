"""Every test here that asks for `preset` runs once per registered preset."""

from __future__ import annotations

import pytest

from fedauc.experiments.presets import PRESETS


@pytest.fixture(params=PRESETS)
def preset(request: pytest.FixtureRequest) -> str:
    """The name of a preset."""
    return str(request.param)
