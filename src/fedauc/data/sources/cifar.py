"""CIFAR-10 and CIFAR-100, in the published binary and in the published pickle layout."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedauc.data.rows import Bundle
from fedauc.data.sources.files import MissingFile, find
from fedauc.data.sources.labels import Part, bundle, unit
from fedauc.errors import InputError

PIXELS = 3 * 32 * 32
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_FINE = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
    can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
    dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
    lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree
    pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea
    seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
    telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman
    worm"""
CIFAR100 = tuple(_FINE.split())


@dataclass(frozen=True)
class Layout:
    """The files of one layout; a binary record is its label bytes (the last one counts) and the pixels."""

    folder: str
    train: tuple[str, ...]
    test: str
    label_bytes: int = 0  # 0: pickles
    key: str = ""  # of the labels in a pickle


_FIVE = tuple(f"data_batch_{i}" for i in range(1, 6))
LAYOUTS = {
    "cifar10": (
        Layout("cifar-10-batches-bin", tuple(f"{f}.bin" for f in _FIVE), "test_batch.bin", label_bytes=1),
        Layout("cifar-10-batches-py", _FIVE, "test_batch", key="labels"),
    ),
    "cifar100": (
        Layout("cifar-100-binary", ("train.bin",), "test.bin", label_bytes=2),
        Layout("cifar-100-python", ("train",), "test", key="fine_labels"),
    ),
}
NAMES = {"cifar10": CIFAR10, "cifar100": CIFAR100}


def load_cifar(source: str, root: Path, positive: str) -> Bundle:
    """CIFAR-10 or CIFAR-100 (fine labels), with its published test part."""
    layout = _present(source, root)
    train, test = (_part(source, root, layout, files) for files in (layout.train, (layout.test,)))
    return bundle(source, positive, NAMES[source], train, None, test)


def _find(source: str, root: Path, layout: Layout, file: str) -> Path:
    return find(source, root, (f"{source}/{layout.folder}", layout.folder), (file,))


def _present(source: str, root: Path) -> Layout:
    """The layout that is there, the binary one first."""
    binary, pickled = LAYOUTS[source]
    try:
        _find(source, root, binary, binary.train[0])
    except MissingFile:
        try:
            _find(source, root, pickled, pickled.train[0])
        except MissingFile:
            pass
        else:
            return pickled
    return binary


def _part(source: str, root: Path, layout: Layout, files: tuple[str, ...]) -> Part:
    paths = [_find(source, root, layout, file) for file in files]
    blocks = [
        _binary(path, layout.label_bytes) if layout.label_bytes else _pickled(path, layout.key)
        for path in paths
    ]
    x = np.empty((sum(len(pixels) for pixels, _ in blocks), 3, 32, 32), dtype=np.float32)
    at = 0
    for pixels, _ in blocks:
        unit(pixels.reshape(-1, 3, 32, 32), out=x[at : at + len(pixels)])
        at += len(pixels)
    return x, np.concatenate([labels for _, labels in blocks])


def _binary(path: Path, label_bytes: int) -> Part:
    raw = np.fromfile(path, dtype=np.uint8)
    if not len(raw) or len(raw) % (PIXELS + label_bytes):
        raise InputError(f"{path} is not a whole number of CIFAR records; fetch it again.")
    records = raw.reshape(-1, PIXELS + label_bytes)
    return records[:, label_bytes:], records[:, label_bytes - 1]


def _pickled(path: Path, key: str) -> Part:
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
        content = {k.decode() if isinstance(k, bytes) else k: v for k, v in content.items()}
        pixels, labels = content["data"], np.asarray(content[key], dtype=np.int64)
        if pixels.dtype != np.uint8 or pixels.shape != (len(labels), PIXELS):
            raise TypeError("not one image of bytes per label")
    except _Refused as error:
        raise InputError(f"{path} is refused because it would run {error}; fetch it again.") from error
    except Exception as error:  # a pickle can be broken in any way
        raise InputError(f"{path} is not a CIFAR batch ({type(error).__name__}); fetch it again.") from error
    return pixels, labels


def _empty_array(*_: Any) -> np.ndarray:
    return np.empty(0, dtype=np.int8)  # its shape, type and content follow in the pickle


def _bytes(text: str, _: str) -> bytes:
    return text.encode("latin1")  # how protocol 2 writes bytes


def _array(buffer: Any, dtype: np.dtype, shape: tuple[int, ...], order: Any) -> np.ndarray:
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order=order)


# What the names in a pickled array stand for, in NumPy 1 and 2.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _bytes,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _empty_array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _array for core in ("core", "_core")},
}


class _Refused(Exception):
    """A pickle asks for something that is neither an array nor a plain container."""


class _Unpickler(pickle.Unpickler):
    """Builds NumPy arrays and plain containers, and refuses everything else a pickle could run."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _Refused(f"{module}.{name}")
        return _ALLOWED[module, name]
