"""What one process at a time may write: a folder that others are refused, or a file that they wait for.

A lock is a file that the system frees when its process ends, however it ends. Some network drives know no
locks; there nobody is refused, and who starts two processes in one folder has two.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from filelock import FileLock, Timeout

from fedauc.errors import InputError

PATIENCE = 5.0
"""Seconds; the processes of a command that was just killed may take a moment to end."""
UNKNOWN = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
"""What a drive without locks answers."""


@contextmanager
def by_one(path: Path) -> Iterator[None]:
    """Whoever comes while another process writes this file waits until it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _taken(path.with_name(f"{path.name}.lock"), -1):
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
        lock = _taken(folder / ".lock", PATIENCE)
    except Timeout:
        raise InputError(
            f"Another process is writing into {folder}; wait until it is done, or choose another --out."
        ) from None
    with lock:
        yield


def _taken(path: Path, patience: float) -> AbstractContextManager[None]:
    """A lock that is ours, until its block ends."""
    lock = FileLock(path, timeout=patience, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in UNKNOWN:
            raise
        return nullcontext()
    return _freed(lock, path)


@contextmanager
def _freed(lock: FileLock, path: Path) -> Iterator[None]:
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # (still ours: whoever waits opens it anew)
        lock.release()
