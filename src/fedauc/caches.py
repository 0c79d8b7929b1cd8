"""Where this package keeps what it can make again: compiled steps, choices that were measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock


def cache_folder() -> Path:
    """FEDAUC_CACHE, or a folder in the user's cache."""
    if named := os.environ.get("FEDAUC_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "fedauc"


@contextmanager
def by_one(path: Path) -> Iterator[None]:
    """Whoever comes while another process makes this file waits until it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        yield
