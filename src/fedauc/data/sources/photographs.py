"""Kaggle's Dogs vs. Cats, and the melanomas of the ISIC 2020 challenge, as they are published.

Neither has a test part with labels, so one is split off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedauc.data.rows import Bundle
from fedauc.data.sources.files import find
from fedauc.data.sources.images import located, named, read_images
from fedauc.data.sources.labels import bundle, choose, unit
from fedauc.data.sources.tables import read_columns
from fedauc.errors import InputError

Listed = tuple[list[Path], np.ndarray]  # files, and their classes

PETS = ("cat", "dog")
PETS_FOLDERS = ("cats-vs-dogs/train", "dogs-vs-cats/train", "dogs-vs-cats", "train")
SKIN = ("benign", "malignant")
SKIN_FOLDERS = ("siim-isic-melanoma-classification", "isic-2020", "ISIC_2020")
SKIN_TABLES = ("train.csv", "ISIC_2020_Training_GroundTruth_v2.csv", "ISIC_2020_Training_GroundTruth.csv")


def load_pets(source: str, root: Path, positive: str, image_size: int = 32) -> Bundle:
    """25,000 photographs, half of them of cats."""
    return _read(source, positive, PETS, list_pets(source, root), image_size)


def list_pets(source: str, root: Path) -> Listed:
    """The files, cats first, each in the order of their numbers."""
    folder = find(source, root, PETS_FOLDERS, ("cat.0.jpg",)).parent
    found = [
        (m, file) for file in folder.iterdir() if (m := re.fullmatch(r"(cat|dog)\.(\d+)\.jpg", file.name))
    ]
    found.sort(key=lambda each: (PETS.index(each[0][1]), int(each[0][2])))
    return [file for _, file in found], np.array([PETS.index(m[1]) for m, _ in found])


def load_melanoma(source: str, root: Path, positive: str, image_size: int = 64) -> Bundle:
    """33,126 photographs of moles, 584 of them malignant."""
    return _read(source, positive, SKIN, list_melanoma(source, root), image_size)


def list_melanoma(source: str, root: Path) -> Listed:
    """The files in the order of the table."""
    table = find(source, root, SKIN_FOLDERS, SKIN_TABLES)
    listed = read_columns(table, {"image_name": str, "target": int})
    if bad := sorted(set(listed["target"]) - {0, 1}):
        raise InputError(f"The column 'target' of {table} has {bad[0]}, and should have 0 and 1 alone.")
    return located(table, list(listed["image_name"]), named(table.parent)), listed["target"].to_numpy()


def _read(source: str, positive: str, names: Sequence[str], listed: Listed, size: int) -> Bundle:
    files, classes = listed
    choose(source, positive, names)  # (before hours of reading)
    return bundle(source, positive, names, (unit(read_images(source, files, size, 3).pixels), classes))
