"""STL-10's labelled images in the published binary layout: 96 x 96 pixels, 500 a class to train on and 800 to
test on. The unlabelled ones are not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedauc.data.rows import Bundle
from fedauc.data.sources.files import find
from fedauc.data.sources.labels import Part, bundle, unit
from fedauc.errors import InputError

NAMES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
SHAPE = (3, 96, 96)
FOLDERS = ("stl10/stl10_binary", "stl10_binary")


def load_stl10(source: str, root: Path, positive: str) -> Bundle:
    """STL-10 with its published test part."""
    train, test = (_part(source, root, part) for part in ("train", "test"))
    return bundle(source, positive, NAMES, train, None, test)


def _part(source: str, root: Path, part: str) -> Part:
    images, labels = (find(source, root, FOLDERS, (f"{part}_{kind}.bin",)) for kind in "Xy")
    pixels, codes = np.fromfile(images, dtype=np.uint8), np.fromfile(labels, dtype=np.uint8)
    if not len(codes) or len(pixels) != len(codes) * np.prod(SHAPE):
        raise InputError(
            f"{images} does not hold one image of 3 x 96 x 96 bytes for each of the {len(codes)} labels of"
            f" {labels.name}; fetch them again."
        )
    columns = pixels.reshape(len(codes), *SHAPE)  # published column by column
    return unit(columns.transpose(0, 1, 3, 2)), codes.astype(np.int64) - 1  # published as 1 to 10
