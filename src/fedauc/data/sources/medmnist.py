"""MedMNIST's npz files, with their published training, validation and test parts."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from fedauc.data.rows import Bundle
from fedauc.data.sources.files import MissingFile, find
from fedauc.data.sources.labels import Part, bundle, unit
from fedauc.errors import InputError

NAMES = {
    "pneumoniamnist": ("normal", "pneumonia"),
    "breastmnist": ("malignant", "normal-or-benign"),
    "chestmnist": (
        "atelectasis",
        "cardiomegaly",
        "effusion",
        "infiltration",
        "mass",
        "nodule",
        "pneumonia",
        "pneumothorax",
        "consolidation",
        "edema",
        "emphysema",
        "fibrosis",
        "pleural",
        "hernia",
    ),
}
FOLDERS = ("medmnist", "MedMNIST", ".medmnist")


def load_medmnist(source: str, root: Path, positive: str) -> Bundle:
    """One of the MedMNIST sources; ChestMNIST's rows can show several findings, or none."""
    path = _path(source, root)
    several = len(NAMES[source]) if source == "chestmnist" else 0
    try:
        with np.load(path, allow_pickle=False) as file:
            train, valid, test = (_part(path, file, part, several) for part in ("train", "val", "test"))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a whole npz file; fetch it again.") from error
    return bundle(source, positive, NAMES[source], train, valid, test)


def _path(source: str, root: Path) -> Path:
    """The published name, or the only npz file whose name starts with the source's."""
    try:
        return find(source, root, FOLDERS, (f"{source}.npz",))
    except MissingFile:
        for folder in (root / source, *(root / f for f in FOLDERS), root):
            others = sorted(folder.glob(f"{source}*.npz"))
            if len(others) > 1:
                found = ", ".join(p.name for p in others)
                raise InputError(f"{folder} has {found}: rename the one to use to {source}.npz.") from None
            if others:
                return others[0]
        raise


def _part(path: Path, file: np.lib.npyio.NpzFile, part: str, several: int) -> Part:
    for key in (f"{part}_images", f"{part}_labels"):
        if key not in file.files:
            raise InputError(f"{path} has no array {key!r}, which MedMNIST's files have.")
    images, labels = file[f"{part}_images"], file[f"{part}_labels"]
    if images.ndim not in (3, 4) or images.dtype != np.uint8 or len(images) != len(labels):
        raise InputError(f"{part}_images in {path} is not one image of bytes per row of {part}_labels.")
    if labels.shape[1:] != ((several,) if several else (1,)):
        raise InputError(f"{part}_labels in {path} has shape {labels.shape}, not [rows, {several or 1}].")
    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    return unit(images), labels if several else labels[:, 0]
