"""Fetch the published files of a source, checked against their published checksums."""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedauc.errors import InputError


@dataclass(frozen=True)
class Published:
    """One published file; a tar archive is unpacked beside itself."""

    url: str
    md5: str

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1]


def _idx(base: str, *md5: str) -> tuple[Published, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(Published(f"{base}/{n}-ubyte.gz", m) for n, m in zip(names, md5, strict=True))


_FASHION = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_CIFAR = "https://www.cs.toronto.edu/~kriz"
_STANFORD = "https://ai.stanford.edu/~acoates/stl10"
_ZENODO = "https://zenodo.org/records/10519652/files"

PUBLISHED: dict[str, tuple[Published, ...]] = {
    "fashion-mnist": _idx(
        _FASHION,
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    "mnist": _idx(
        _MNIST,
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    "cifar10": (Published(f"{_CIFAR}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
    "cifar100": (Published(f"{_CIFAR}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
    "pneumoniamnist": (Published(f"{_ZENODO}/pneumoniamnist.npz", "28209eda62fecd6e6a2d98b1501bb15f"),),
    "stl10": (Published(f"{_STANFORD}/stl10_binary.tar.gz", "91f7769df0f17e558f3565bffb0c7dfb"),),
    "chestmnist": (Published(f"{_ZENODO}/chestmnist.npz", "02c8a6516a18b556561a56cbdd36c4a8"),),
    "breastmnist": (Published(f"{_ZENODO}/breastmnist.npz", "750601b1f35ba3300ea97c75c52ff8f6"),),
}

# Where a person finds the files of a source that is not fetched from here.
HOMEPAGES = {
    "medicare": "https://data.cms.gov/provider-summary-by-type-of-service/medicare-physician-other-practitioners",
    "medicare/UPDATED.csv": "https://oig.hhs.gov/exclusions/exclusions_list.asp",
    "emnist-digits": "https://www.nist.gov/itl/products-and-services/emnist-dataset",
    "cats-vs-dogs": "https://www.kaggle.com/c/dogs-vs-cats",
    "melanoma": "https://challenge2020.isic-archive.com",
    "chexpert": "https://stanfordmlgroup.github.io/competitions/chexpert/",
    "chest-xrays/chexpert": "https://stanfordmlgroup.github.io/competitions/chexpert/",
    "chest-xrays/chestxray14": "https://nihcc.app.box.com/v/ChestXray-NIHCC",
    "chest-xrays/padchest": "https://bimcv.cipf.es/bimcv-projects/padchest/",
    "chest-xrays/mimic-cxr-jpg": "https://physionet.org/content/mimic-cxr-jpg/",
    "chest-xrays/vinbigdata": "https://www.kaggle.com/c/vinbigdata-chest-xray-abnormalities-detection",
}


def where_to_get(source: str, file: str = "") -> str:
    """Where a file of a source is published, alone or in an archive, for a message."""
    items = PUBLISHED.get(source, ())
    urls = [item.url for item in items if item.file == file] or [item.url for item in items]
    return urls[0] if urls else HOMEPAGES.get(f"{source}/{file}", HOMEPAGES.get(source, "its publisher"))


class _Bar:
    """The progress bar of one file, in the form that pooch expects."""

    def __init__(self, file: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task(file, total=None)
        self._progress.start()

    @property
    def total(self) -> float | None:
        return self._progress.tasks[0].total

    @total.setter
    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size or None)

    def update(self, size: int) -> None:
        self._progress.update(self._task, advance=size)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop()


def fetch(source: str, root: Path, *, progress: bool | None = None) -> Path:
    """Download what is published of a source into `root/source`, and return that folder.

    A file that is there already with the right checksum is kept. The progress bar shows on a terminal
    unless `progress` says otherwise.
    """
    folder = root / source
    if source not in PUBLISHED:
        raise InputError(
            f"The files of {source!r} are not fetched from here: get them from {where_to_get(source)} "
            f"and put them into {folder}."
        )
    for item in PUBLISHED[source]:
        path = fetch_file(
            source, item, folder, progress=sys.stderr.isatty() if progress is None else progress
        )
        if item.file.endswith(".tar.gz"):
            unpack(path, folder)
    return folder


def fetch_file(source: str, item: Published, folder: Path, *, progress: bool = False) -> Path:
    """Download one file into `folder`; nothing is left there unless its checksum is right."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    bar: Any = _Bar(item.file) if progress else False
    downloader = pooch.HTTPDownloader(progressbar=bar, timeout=30)
    try:
        path = pooch.retrieve(
            item.url, known_hash=f"md5:{item.md5}", fname=item.file, path=folder, downloader=downloader
        )
    except OSError as error:  # no network, an HTTP status, a full or read-only disk
        raise InputError(
            f"{item.file} of {source!r} is missing in {folder} and could not be downloaded from {item.url} "
            f"({type(error).__name__}): check the network, or copy the file into that folder yourself."
        ) from error
    except ValueError as error:
        raise InputError(
            f"{item.file} of {source!r}, downloaded from {item.url}, does not have the published checksum "
            f"md5:{item.md5} and was not kept: try again, or copy the right file into {folder} yourself."
        ) from error
    finally:
        if bar:
            bar.close()
    return Path(path)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """One file of an archive (`extractall` has a filter for this from Python 3.11.4 on only)."""
    target = (folder / member.name).resolve()
    source = tar.extractfile(member) if member.isfile() else None
    if not target.is_relative_to(folder) or (source is None and not member.isdir()):
        raise tarfile.TarError(f"{member.name} is no file inside it")
    if source is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with source, open(target, "wb") as out:
            shutil.copyfileobj(source, out)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive into `folder`, refusing members that would leave it."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            with tarfile.open(archive) as tar:
                for member in tar:
                    _extract(tar, member, Path(scratch).resolve())
        except (tarfile.TarError, EOFError, OSError) as error:
            raise InputError(
                f"{archive} cannot be unpacked ({error}): delete it and fetch it again."
            ) from error
        for file in sorted(path for path in Path(scratch).rglob("*") if path.is_file()):
            target = folder / file.relative_to(scratch)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)
