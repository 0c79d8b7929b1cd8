from __future__ import annotations

from pathlib import Path

import pytest
from tests.federation.sites import written


@pytest.fixture(scope="package")
def files(tmp_path_factory) -> dict[str, Path]:
    """A table for each site."""
    return written(tmp_path_factory.mktemp("sites"))
