"""Prepared rows, or images, in a file that is mapped into memory, and the folder where such files are kept.

The kernel reads the pages that are looked at and drops them again when memory is short, so a table may be
larger than memory. A table is prepared column by column and trained on row by row: the columns are written
one after the other and then turned, some thousand rows at a time.

A folder of the cache holds one prepared table, or the images of one set, and belongs to the files and
settings that it was made from. It is complete or not there; of many the least recently used are removed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.caches import cache_folder
from fedauc.version import installed

VERSION = 1
"""Of what the folders hold."""
KEPT = 8
"""Prepared tables that are kept, and sets of images."""
ABANDONED = 86_400
"""Seconds after which a folder that was never completed is removed."""
TURNED = 2**16
"""Rows that are turned at once."""


def place(files: Sequence[Path], settings: Mapping[str, Any], shelf: str = "rows") -> Path:
    """The folder for what these settings make of these files; another file of the same name is another."""
    stats = ((file.resolve(), file.stat()) for file in files)
    identity = [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    key = json.dumps([VERSION, installed("fedauc"), identity, settings], sort_keys=True)
    return cache_folder() / shelf / hashlib.sha256(key.encode()).hexdigest()[:32]


def used(folder: Path) -> None:
    """It is kept longer for that; where nothing can be written, it is not removed either."""
    with suppress(OSError):
        os.utime(folder)


@contextmanager
def written(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes its place when it is complete and is removed otherwise."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _tidy(folder.parent)
    beside = Path(mkdtemp(prefix=f"{folder.name}-", suffix=".part", dir=folder.parent))
    try:
        yield beside
        try:
            os.replace(beside, folder)
        except OSError:
            if not folder.exists():  # another process may have been faster
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _tidy(shelf: Path) -> None:
    """Remove what was given up and all but the latest that were used."""
    touched = {path: _touched(path) for path in shelf.iterdir() if path.is_dir()}  # (and there are locks)
    parts = [path for path in touched if path.suffix == ".part"]
    whole = sorted(touched.keys() - parts, key=touched.__getitem__)
    given_up = (path for path in parts if time.time() - touched[path] > ABANDONED)
    for path in (*given_up, *whole[: max(0, len(whole) - KEPT + 1)]):
        shutil.rmtree(path, ignore_errors=True)


def _touched(folder: Path) -> float:
    """When it was last used, or something was written into it."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except FileNotFoundError:  # another process has just completed or removed it
        return math.inf


def room_for(size: int, folder: Path) -> None:
    """What will not fit is better known before hours of work."""
    if (free := shutil.disk_usage(folder).free) < size:
        raise OSError(errno.ENOSPC, f"{size / 2**30:.1f} GiB are needed and {free / 2**30:.1f} GiB are free")


def write_blocks(
    path: Path, kind: type[np.generic], shape: tuple[int, ...], blocks: Iterable[NDArray[Any]]
) -> None:
    """Blocks of consecutive rows as a .npy file of that shape; holds a block at a time."""
    dtype = np.dtype(kind)
    room_for(dtype.itemsize * math.prod(shape), path.parent)
    with open(path, "wb") as file:
        header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype=dtype).data)


def write_columns(path: Path, columns: Iterable[NDArray[np.float32]], rows: int) -> None:
    """Blocks [k, rows] of columns as a .npy file [rows, columns]; holds a block at a time."""
    scratch, width, size = path.with_suffix(".columns"), 0, np.dtype(np.float32).itemsize
    with open(scratch, "wb") as file:
        for block in columns:
            file.write(np.ascontiguousarray(block, dtype=np.float32).data)
            width += len(block)

    def turned() -> Iterator[NDArray[np.float32]]:
        with open(scratch, "rb") as source:
            for start in range(0, rows, TURNED):
                part = np.empty((width, min(TURNED, rows - start)), dtype=np.float32)
                for j, column in enumerate(part):
                    source.seek(size * (j * rows + start))
                    source.readinto(column.data)
                yield part.T

    write_blocks(path, np.float32, (rows, width), turned())
    scratch.unlink()


def open_rows(path: Path) -> Tensor:
    """The array in a .npy file, mapped; nothing is read and nothing can be written."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(np.load(path, mmap_mode="r"))
