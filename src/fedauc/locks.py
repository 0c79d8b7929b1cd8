"""What one process at a time may write: a folder that others are refused, or a file that they wait for.

A lock is a file that the system frees when its process ends, however it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fedauc.errors import InputError

PATIENCE = 5.0
"""Seconds; the processes of a command that was just killed may take a moment to end."""


@contextmanager
def by_one(path: Path) -> Iterator[None]:
    """Whoever comes while another process writes this file waits until it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock(path.with_name(f"{path.name}.lock"), -1):
        yield


@contextmanager
def held(folder: Path, first: bool = True) -> Iterator[None]:
    """Whoever comes while another process writes into this folder is refused.

    Of several processes that train together the `first` one holds it for all of them.
    """
    if not first:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _lock(folder / ".lock", PATIENCE):
            yield
    except Timeout:
        raise InputError(
            f"Another process is writing into {folder}; wait until it is done, or choose another --out."
        ) from None


@contextmanager
def _lock(path: Path, patience: float) -> Iterator[None]:
    with FileLock(path, timeout=patience):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # (still ours: whoever waits opens it anew)
