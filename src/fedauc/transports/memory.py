"""Keep freed memory, and say what needs less where it does not suffice.

A vectorised step of a wide model allocates and frees tens of megabytes. By default the C library gives them
back to the operating system each time and gets them back page by page, which takes a third of the step.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedauc.errors import OutOfMemory

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h


@functools.cache
def keep_freed_memory() -> bool:
    """Tell glibc to hold on to freed memory, once per process; False where there is no glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1)) and bool(mallopt(_MMAP_THRESHOLD, 2**25))


@contextmanager
def sufficing(device: str) -> Iterator[None]:
    """Whoever runs out of memory is told what needs less."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise OutOfMemory(
            f"The memory of {device} does not suffice: fewer runs at the same time (--jobs), fewer clients at"
            " once (train.chunk) or smaller batches (train.batch) need less."
        ) from error
