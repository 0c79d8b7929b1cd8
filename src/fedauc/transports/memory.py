"""Keep freed memory.

A vectorised step of a wide model allocates and frees tens of megabytes. By default the C library gives them
back to the operating system each time and gets them back page by page, which takes a third of the step.
"""

from __future__ import annotations

import ctypes
import functools

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h


@functools.cache
def keep_freed_memory() -> bool:
    """Tell glibc to hold on to freed memory, once per process; False where there is no glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1)) and bool(mallopt(_MMAP_THRESHOLD, 2**25))
