"""Images in files of their own (JPEG, PNG): brought to one size, and kept as bytes in the cache.

Each is scaled to `size` x `size` pixels, whatever its sides were. Reading hundreds of thousands of them takes
its time, so what comes of them is kept, and found again as long as the files are the same.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedauc.data import mapped
from fedauc.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg")
DICOM = (".dicom", ".dcm")
AT_ONCE = 1024
"""Images that are read before what came of them is written."""


def named(folder: Path) -> dict[str, Path]:
    """The images in a folder and below it by their names without ending."""
    files = (folder / name for name in sorted(_below(folder)))
    return {file.stem: file for file in files if file.suffix.lower() in SUFFIXES}


def _below(folder: Path) -> list[str]:
    found = []
    for at, _, names in os.walk(folder, followlinks=True):
        where = os.path.relpath(at, folder)
        found += [os.path.join(where, name) for name in names]
    return found


def located(table: Path, names: Sequence[str], found: dict[str, Path]) -> list[Path]:
    """The files of the images that a table lists."""
    if lost := [name for name in names if name not in found]:
        raw = any((table.parent / "train" / f"{lost[0]}{ending}").exists() for ending in DICOM)
        more = " (as DICOM it cannot be read: write these files as PNG)" if raw else ""
        raise InputError(
            f"{table} lists {len(names)} images, of which {len(lost)} are not beside it or below it,"
            f" {lost[0]!r} first{more}."
        )
    return [found[name] for name in names]


def read_images(source: str, files: Sequence[Path], size: int, channels: int) -> NDArray[np.uint8]:
    """Images as bytes [n, channels, size, size], mapped from the cache."""
    if size < 8:
        raise InputError(f"data.image_size={size}: images of fewer than 8 pixels show nothing.")
    try:
        folder = mapped.place(files, {"image_size": size, "channels": channels})
    except FileNotFoundError as error:
        raise InputError(f"{error.filename}, an image of {source!r}, is missing.") from error
    if not folder.exists():
        shape = (len(files), channels, size, size)
        try:
            with mapped.written(folder) as beside:
                mapped.room_for(math.prod(shape), beside)
                images = np.lib.format.open_memmap(beside / "images.npy", "w+", np.uint8, shape)
                _fill(images, files, source)
                images.flush()
        except OSError as error:
            raise InputError(
                f"The images of {source!r} cannot be kept in {folder.parent}: {error.strerror or error}."
                " Name a folder with more room (FEDAUC_CACHE)."
            ) from error
    os.utime(folder)  # used now: it is kept longer
    return np.load(folder / "images.npy", mmap_mode="r")


def _fill(images: NDArray[np.uint8], files: Sequence[Path], source: str) -> None:
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError(
            f"The images of {source!r} are in files that need Pillow to read: pip install 'fedauc[images]'."
        ) from error
    from rich.console import Console
    from rich.progress import track

    channels, size = images.shape[1:3]
    mode = "RGB" if channels == 3 else "L"

    def read(file: Path) -> NDArray[np.uint8]:
        try:
            with Image.open(file) as opened:
                opened.draft(mode, (size, size))  # (JPEG: decodes no more than that)
                deep = opened.mode.startswith(("I", "F"))  # more than a byte a pixel
                image = Image.fromarray(_bytes(np.asarray(opened))) if deep else opened
                # (an average over what a pixel covers, where an image shrinks)
                scaled = image.convert(mode).resize((size, size), Image.Resampling.BILINEAR)
        except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises for broken files
            raise InputError(f"{file} cannot be read as an image ({error}); fetch it again.") from error
        pixels = np.asarray(scaled)
        return pixels.transpose(2, 0, 1) if channels == 3 else pixels[None]

    starts = range(0, len(files), AT_ONCE)
    shown = track(
        starts,
        f"reading {len(files):,} images",
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for start in shown:
            for i, pixels in enumerate(threads.map(read, files[start : start + AT_ONCE]), start):
                images[i] = pixels


def _bytes(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """From black to the brightest pixel: the range of such files is seldom used."""
    top = float(pixels.max())
    return np.clip(pixels * (255 / top) if top > 0 else pixels, 0, 255).astype(np.uint8)
