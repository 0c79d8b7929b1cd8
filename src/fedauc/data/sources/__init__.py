"""Data sources by name: `load_source("fashion-mnist", root=folder)` delivers a `Bundle`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedauc.data.download import fetch
from fedauc.data.rows import Bundle
from fedauc.data.sources.cifar import load_cifar
from fedauc.data.sources.files import MissingFile, default_root
from fedauc.data.sources.idx import load_idx
from fedauc.data.sources.labels import choose
from fedauc.data.sources.medmnist import load_medmnist
from fedauc.data.sources.shipped import load_shipped
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


def _medicare_like(positive: str, seed: int, **options: Any) -> Bundle:
    if choose("medicare-like", positive, ("ordinary", "excluded")) != [1]:
        raise InputError("In 'medicare-like' the positive class is 'excluded' (1), and no other makes sense.")
    return medicare_like(seed=seed, **options)


def _files(name: str, positive: str, load: Callable[..., Bundle], summary: str) -> Source:
    return Source(name, f"{summary}; positive: {positive}", partial(load, name), True, positive)


def _shipped(name: str, positive: str, summary: str) -> Source:
    return Source(name, f"{summary}; positive: {positive}", partial(load_shipped, name), False, positive)


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
        _files("breastmnist", "malignant", load_medmnist, "breast ultrasound, 28 x 28"),
        _shipped("digits", "8", "1,797 handwritten digits, 8 x 8"),
        _shipped("breast-cancer", "malignant", "569 tumours, 30 measurements"),
        _shipped("wine", "class_2", "178 wines, 13 measurements"),
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
    missing; `seed` and the options are for generated sources.
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
        return source.load(root=folder, positive=chosen)
    except MissingFile:
        if not download:
            raise
    fetch(name, folder)
    return source.load(root=folder, positive=chosen)
