"""Images in files of their own (JPEG, PNG): brought to one size, and kept as bytes in the cache.

Each is scaled to `size` x `size` pixels, whatever its sides were. Reading hundreds of thousands of them takes
its time, so what comes of them is kept, and found again as long as the files are the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedauc.data import mapped
from fedauc.errors import InputError
from fedauc.locks import by_one

SUFFIXES = (".png", ".jpg", ".jpeg")
AT_ONCE = 1024
"""Images that are read before what came of them is written."""


class Images(NamedTuple):
    """What came of files, in their order."""

    pixels: NDArray[np.uint8]  # [n, channels, size, size], mapped
    whole: NDArray[np.bool_]  # [n]; False: could not be read, and is black


def named(folder: Path) -> dict[str, list[Path]]:
    """The images in a folder and below it, by their names without ending."""
    found: dict[str, list[Path]] = {}
    for at, _, names in os.walk(folder, followlinks=True):
        for name in names:
            if (file := Path(at, name)).suffix.lower() in SUFFIXES:
                found.setdefault(file.stem, []).append(file)
    return found


def located(table: Path, names: Sequence[str], found: Mapping[str, Sequence[Path]]) -> list[Path]:
    """The files of the images that a table names."""
    if twice := next((found[name] for name in names if len(found.get(name, ())) > 1), None):
        one, other = sorted(twice)[:2]
        raise InputError(
            f"{one} and {other} are both the image that {table} names: leave only the one to use."
        )
    return there(table, [found[name][0] if name in found else table.parent / name for name in names])


def there(table: Path, files: Sequence[Path]) -> list[Path]:
    """The same files, none of which is missing."""
    if lost := [file for file in files if not file.is_file()]:
        raise InputError(
            f"{table} names {len(files)} images, of which {len(lost)} are missing, {lost[0]} first."
        )
    return list(files)


def read_images(source: str, files: Sequence[Path], size: int, channels: int, spared: float = 0.0) -> Images:
    """Images as bytes, from the cache where they have been read before.

    The share of files that is `spared` may be broken; one more is an error.
    """
    if size < 8:
        raise InputError(f"data.image_size={size}: images of fewer than 8 pixels show nothing.")
    try:
        about = {"image_size": size, "channels": channels, "spared": spared}
        folder = mapped.place(files, about, shelf="images")
    except (OSError, RuntimeError) as error:  # (a circle of links)
        raise InputError(f"The images of {source!r} cannot be read: {error}.") from error
    if not folder.exists():
        try:
            with by_one(folder):
                if not folder.exists():  # another process may have been faster
                    _keep(folder, source, files, size, channels, int(spared * len(files)))
        except OSError as error:
            raise InputError(
                f"The images of {source!r} cannot be kept in {folder.parent}: {error.strerror or error}."
                " Name a folder with more room (FEDAUC_CACHE)."
            ) from error
    mapped.used(folder)
    try:
        return Images(np.load(folder / "pixels.npy", mmap_mode="r"), np.load(folder / "whole.npy"))
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"The images in {folder} are damaged ({error}); remove that folder.") from error


def _keep(folder: Path, source: str, files: Sequence[Path], size: int, channels: int, spared: int) -> None:
    with mapped.written(folder) as beside:
        whole = np.ones(len(files), dtype=np.bool_)
        blocks = _blocks(source, files, size, channels, whole, spared)
        mapped.write_blocks(beside / "pixels.npy", np.uint8, (len(files), channels, size, size), blocks)
        np.save(beside / "whole.npy", whole)


def _blocks(
    source: str, files: Sequence[Path], size: int, channels: int, whole: NDArray[np.bool_], spared: int
) -> Iterator[NDArray[np.uint8]]:
    """Consecutive images; `whole` learns which could not be read."""
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError(
            f"The images of {source!r} are in files that need Pillow to read: pip install 'fedauc[images]'."
        ) from error
    from rich.console import Console
    from rich.progress import track

    mode = "RGB" if channels == 3 else "L"

    def read(file: Path) -> NDArray[np.uint8] | Exception:
        try:
            with Image.open(file) as opened:
                opened.draft(mode, (size, size))  # (JPEG: decodes no more than that)
                deep = opened.mode.startswith(("I", "F"))  # more than a byte a pixel
                image = Image.fromarray(_bytes(np.asarray(opened))) if deep else opened
                # (an average over what a pixel covers, where an image shrinks)
                scaled = image.convert(mode).resize((size, size), Image.Resampling.BILINEAR)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            return error  # (what Pillow raises for broken files)
        pixels = np.asarray(scaled)
        return pixels.transpose(2, 0, 1) if channels == 3 else pixels[None]

    shown = track(
        range(0, len(files), AT_ONCE),
        f"reading {len(files):,} images",
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for start in shown:
            some = files[start : start + AT_ONCE]
            block = np.zeros((len(some), channels, size, size), dtype=np.uint8)
            for i, (file, made) in enumerate(zip(some, threads.map(read, some), strict=True)):
                if isinstance(made, np.ndarray):
                    block[i] = made
                    continue
                whole[start + i] = False
                if (~whole).sum() > spared:
                    raise InputError(f"{file} cannot be read as an image ({made}); fetch it again.") from made
            yield block


def _bytes(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """From black to the brightest pixel: the range of such files is seldom used."""
    top = float(pixels.max())
    return np.clip(pixels * (255 / top) if top > 0 else pixels, 0, 255).astype(np.uint8)
