"""Images in the IDX format: MNIST, Fashion-MNIST and EMNIST digits, packed (gz) or not."""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedauc.data.rows import Bundle
from fedauc.data.sources.files import find
from fedauc.data.sources.labels import Part, bundle, unit
from fedauc.errors import InputError

DIGITS = tuple(str(d) for d in range(10))
FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


@dataclass(frozen=True)
class Idx:
    """What the files of one source are called, and where they usually are."""

    names: tuple[str, ...]
    folders: tuple[str, ...]
    train: str = "train"
    test: str = "t10k"
    sideways: bool = False  # EMNIST is published with rows and columns exchanged


IDX = {
    "mnist": Idx(DIGITS, ("mnist/raw", "MNIST/raw", "MNIST", "raw")),
    "fashion-mnist": Idx(
        FASHION, ("fashion-mnist/raw", "FashionMNIST/raw", "fashion_mnist", "data/fashion", "raw")
    ),
    "emnist-digits": Idx(
        DIGITS,
        ("emnist-digits/gzip", "EMNIST/raw", "EMNIST/raw/gzip", "emnist", "emnist/gzip", "gzip", "raw"),
        "emnist-digits-train",
        "emnist-digits-test",
        sideways=True,
    ),
}


def load_idx(source: str, root: Path, positive: str) -> Bundle:
    """One of the IDX sources, with its published test part."""
    spec = IDX[source]
    train, test = (_part(source, spec, root, stem) for stem in (spec.train, spec.test))
    return bundle(source, positive, spec.names, train, None, test)


def _part(source: str, spec: Idx, root: Path, stem: str) -> Part:
    paths = [
        find(source, root, spec.folders, [f"{stem}-{kind}{suffix}" for suffix in (".gz", "")])
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ]
    images, labels = read_idx(paths[0], 3), read_idx(paths[1], 1)
    if len(images) != len(labels):
        raise InputError(
            f"{paths[1]} has {len(labels)} labels for the {len(images)} images of {paths[0].name}."
        )
    if spec.sideways:
        images = images.transpose(0, 2, 1)
    return unit(images[:, None]), labels


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The bytes of an IDX file in their shape."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise InputError(f"{path} is not a whole gzip file ({error}); fetch it again.") from error
    if raw[:4] != bytes((0, 0, 8, dimensions)):
        raise InputError(f"{path} is not an IDX file of bytes with {dimensions} dimension(s).")
    start = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(raw[i : i + 4], "big") for i in range(4, start, 4))
    if len(raw) != start + math.prod(shape):
        raise InputError(f"{path} is not as long as its header says; fetch it again.")
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)
