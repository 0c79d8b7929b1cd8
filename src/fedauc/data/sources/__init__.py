"""Data sources by name: `load_source("fashion-mnist", root=folder)` delivers a `Bundle`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from fedauc.data.download import PUBLISHED, fetch
from fedauc.data.rows import Bundle
from fedauc.data.sources.cifar import load_cifar
from fedauc.data.sources.files import MissingFile, default_root
from fedauc.data.sources.idx import load_idx
from fedauc.data.sources.labels import choose_excluded
from fedauc.data.sources.medmnist import load_medmnist
from fedauc.data.sources.shipped import load_shipped
from fedauc.data.sources.stl10 import load_stl10
from fedauc.data.synthetic import medicare_like
from fedauc.errors import InputError, nearest

__all__ = ["SOURCES", "MissingFile", "Source", "default_root", "load_source"]


@dataclass(frozen=True)
class Source:
    """A data set by name; `positive` is the class that is positive unless the user says otherwise."""

    name: str
    summary: str
    load: Callable[..., Bundle]
    needs_files: bool
    positive: str
    options: tuple[str, ...] = ()
    listed: Callable[[Path], object] | None = None
    """Finds the files, where reading them takes long."""
    images: bool = False
    """Rather than a table."""


def _medicare_like(positive: str, seed: int, **options: Any) -> Bundle:
    choose_excluded("medicare-like", positive)
    return medicare_like(seed=seed, **options)


def _late(module: str, function: str) -> Callable[..., Any]:
    """A function whose module is imported when it is called: what reads tables and images takes a moment."""

    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(f"fedauc.data.sources.{module}"), function)(*args, **options)

    return call


def _files(name: str, positive: str, load: Callable[..., Bundle], summary: str) -> Source:
    return Source(name, f"{summary}; positive: {positive}", partial(load, name), True, positive, images=True)


def _listed(name: str, positive: str, module: str, functions: str, summary: str) -> Source:
    """Of many files, or of large ones: what `functions` names loads them, or finds them."""
    load, listed = (_late(module, f"{what}_{functions}") for what in ("load", "list"))
    return replace(_files(name, positive, load, summary), listed=partial(listed, name))


def _photos(name: str, positive: str, module: str, functions: str, summary: str) -> Source:
    """Images in files of their own."""
    return replace(_listed(name, positive, module, functions, summary), options=("image_size",))


def _shipped(name: str, positive: str, summary: str, images: bool = False) -> Source:
    about = f"{summary}; positive: {positive}"
    return Source(name, about, partial(load_shipped, name), False, positive, images=images)


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        _files("fashion-mnist", "Shirt", load_idx, "clothes, 28 x 28, ten classes"),
        _files("mnist", "8", load_idx, "handwritten digits, 28 x 28"),
        _files("emnist-digits", "8", load_idx, "280,000 handwritten digits, 28 x 28"),
        _files("cifar10", "airplane", load_cifar, "photographs, 3 x 32 x 32, ten classes"),
        _files("cifar100", "apple", load_cifar, "photographs, 3 x 32 x 32, a hundred classes"),
        _files("pneumoniamnist", "pneumonia", load_medmnist, "chest X-rays of children, 28 x 28"),
        _files("chestmnist", "mass", load_medmnist, "chest X-rays, 28 x 28, fourteen findings"),
        _files("stl10", "airplane", load_stl10, "photographs, 3 x 96 x 96, ten classes"),
        _photos("cats-vs-dogs", "cat", "photographs", "pets", "25,000 photographs of cats and dogs"),
        _photos("melanoma", "malignant", "photographs", "melanoma", "33,126 photographs of moles"),
        _photos("chexpert", "edema", "chest", "chexpert", "chest X-rays of a hospital, five findings"),
        _photos("chest-xrays", "edema", "chest", "chest", "chest X-rays of five organisations"),
        _files("breastmnist", "malignant", load_medmnist, "breast ultrasound, 28 x 28"),
        _shipped("digits", "8", "1,797 handwritten digits, 8 x 8", images=True),
        _shipped("breast-cancer", "malignant", "569 tumours, 30 measurements"),
        _shipped("wine", "class_2", "178 wines, 13 measurements"),
        replace(
            _listed(
                "medicare",
                "excluded",
                "medicare",
                "medicare",
                "insurance fraud: Medicare Part B, a million providers a year in 50 states",
            ),
            images=False,
        ),
        Source(
            "medicare-like",
            "generated: insurance fraud in 50 states, 0.07 % positives; positive: excluded",
            _medicare_like,
            False,
            "excluded",
            ("rows", "positive_rate", "shift"),
        ),
    )
}


def load_source(
    name: str,
    *,
    root: Path | str | None = None,
    positive: str | None = None,
    download: bool = False,
    seed: int = 0,
    **options: Any,
) -> Bundle:
    """Load a source by name.

    `root` is the data folder (default: FEDAUC_DATA, or a cache folder of this user); `positive` lists the
    positive classes by name, code or range of codes ("Shirt", "6", "0-4,9"); `download` fetches what is
    missing; `seed` is for generated sources, and the options are for those that have them.
    """
    if name not in SOURCES:
        raise InputError(f"There is no data source {name!r}.{nearest(name, SOURCES)}")
    source = SOURCES[name]
    for option in options:
        if option not in source.options:
            hint = nearest(option, source.options) or " It has no options."
            raise InputError(f"Data source {name!r} has no option {option!r}.{hint}")
    chosen = source.positive if positive is None else str(positive)
    if not source.needs_files:
        return source.load(positive=chosen, **({"seed": seed} if source.options else {}), **options)
    folder = default_root() if root is None else Path(root)
    try:
        return source.load(root=folder, positive=chosen, **options)
    except MissingFile:
        if not download or name not in PUBLISHED:
            raise
    fetch(name, folder)
    return source.load(root=folder, positive=chosen, **options)
