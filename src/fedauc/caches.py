"""Where this package keeps what it can make again: compiled steps, choices that were measured."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """FEDAUC_CACHE, or a folder in the user's cache."""
    if named := os.environ.get("FEDAUC_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "fedauc"
