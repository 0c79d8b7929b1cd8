"""Chest X-rays of five organisations, with the five findings that their labels have in common.

Each is read as it is published (`chest-xrays` wants all five, `chexpert` the first alone), frontal views:

    CheXpert        Stanford Hospital         train.csv, valid.csv; -small, or batches moved to train/
    ChestX-ray14    NIH Clinical Center       Data_Entry_2017.csv, images in folders below it
    PadChest        Hospital San Juan         PADCHEST_chest_x_ray_images_labels_….csv, folders 0 to 54
    MIMIC-CXR-JPG   Beth Israel Deaconess     mimic-cxr-2.0.0-chexpert.csv.gz, -metadata.csv.gz, files/
    VinBigData      H108 and HMUH, Vietnam    train.csv of the Kaggle challenge, DICOM turned into PNG

All five together are those of Yuan et al. (ICML 2021), who split them into 16 groups by patients, each of one
organisation. They do not say how many groups an organisation has: here in proportion to its images, at least
one. Nor do they say what a label counts for that is "uncertain" (CheXpert, MIMIC-CXR): here edema and
atelectasis are then present and the others absent, as is usual for CheXpert. Their Table 2 counts lateral
views as well. An image of VinBigData shows what any of its three radiologists saw. Some images of PadChest
are published broken or not at all (lists of them name 20 to 50): up to a thousandth of them are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedauc.data.rows import Bundle
from fedauc.data.sources.files import find
from fedauc.data.sources.images import located, named, read_images, there
from fedauc.data.sources.labels import Part, bundle, choose, unit
from fedauc.data.sources.tables import read_columns
from fedauc.errors import InputError

FINDINGS = ("cardiomegaly", "edema", "consolidation", "atelectasis", "effusion")
CHEXPERT = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
"""What CheXpert's labeller calls them; MIMIC-CXR's labels are of the same one."""
PRESENT = ("Edema", "Atelectasis")
"""Where "uncertain" counts as present."""
GROUPS = 16
LABELLED = "mimic-cxr-2.0.0-chexpert.csv"
DESCRIBED = "mimic-cxr-2.0.0-metadata.csv"
PADCHEST = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv"
WORDS = {
    "cardiomegaly": "cardiomegaly",
    "edema": "pulmonary edema",
    "consolidation": "consolidation",
    "atelectasis": ".*atelectasis.*",
    "effusion": "(loculated )?(pleural|fissural) effusion|hydropneumothorax|empyema|hemothorax",
}
"""What PadChest calls them: its label, and those below it in its tree."""
SPARED = 0.001
"""Of PadChest's images, that may be missing, and that may be broken."""


@dataclass(frozen=True, eq=False)
class Listed:
    """Images, before they are read."""

    files: list[Path]
    patients: NDArray[np.str_]
    findings: NDArray[np.int8]  # [n, 5]


@dataclass(frozen=True)
class Organisation:
    """Where the files of one usually are, and how they are listed."""

    name: str
    folders: tuple[str, ...]
    tables: tuple[str, ...]
    listed: Callable[[Path], Listed]
    spared: float = 0.0

    @property
    def places(self) -> tuple[str, ...]:
        homes = (f"chest-xrays/{self.name}", self.name)
        return (*homes, *(f"{home}/{folder}" for home in homes for folder in self.folders), *self.folders)


def _marked(table: pd.DataFrame) -> NDArray[np.int8]:
    """CheXpert's labels: 1 present, -1 uncertain, 0 or nothing absent."""
    marks = [(table[name] == 1) | ((table[name] == -1) & (name in PRESENT)) for name in CHEXPERT]
    return np.stack(marks, axis=1).astype(np.int8)


def _chexpert(path: Path) -> Listed:
    table = read_columns(path, {"Path": str, "Frontal/Lateral": str, **dict.fromkeys(CHEXPERT, float)})
    table = table[table["Frontal/Lateral"] == "Frontal"]
    inside = table["Path"].str.split("/").str[1:].str.join("/")  # the first folder is the one of the table
    patients = table["Path"].str.extract(r"/(patient\d+)/", expand=False).fillna("").to_numpy(dtype=str)
    return Listed(there(path, [path.parent / each for each in inside]), patients, _marked(table))


def _chestxray14(path: Path) -> Listed:
    table = read_columns(path, {"Image Index": str, "Finding Labels": str, "Patient ID": str})
    words = [{word.strip().lower() for word in each.split("|")} for each in table["Finding Labels"]]
    findings = [[name in each for name in FINDINGS] for each in words]
    files = located(path, list(_stems(table["Image Index"])), named(path.parent))
    return Listed(files, _text(table["Patient ID"]), _matrix(findings))


def _padchest(path: Path) -> Listed:
    columns = dict.fromkeys(("ImageID", "PatientID", "Projection", "Labels"), str)
    table = read_columns(path, columns)
    table = table[table["Projection"].isin(("PA", "AP", "AP_horizontal")) & (table["Labels"] != "")]
    found = named(path.parent)
    present = _stems(table["ImageID"]).isin(found)
    if (~present).mean() <= SPARED:
        table = table[present]
    if len(odd := table["Labels"][~table["Labels"].str.startswith("[")]):
        raise InputError(f"The column 'Labels' of {path} has {odd.iloc[0]!r}, which is not a list of words.")
    words = [{word.strip() for word in re.findall("'([^']*)'", each)} for each in table["Labels"]]
    findings = [
        [any(re.fullmatch(WORDS[name], word) for word in each) for name in FINDINGS] for each in words
    ]
    files = located(path, list(_stems(table["ImageID"])), found)
    return Listed(files, _text(table["PatientID"]), _matrix(findings))


def _mimic(path: Path) -> Listed:
    ids = {"subject_id": int, "study_id": int}
    beside = [path.with_name(f"{DESCRIBED}{ending}") for ending in (".gz", "")]
    if not any(each.is_file() for each in beside):
        raise InputError(f"{beside[0]} is missing, which says which images of {path.name} are frontal.")
    described = next(each for each in beside if each.is_file())
    views = read_columns(described, {"dicom_id": str, **ids, "ViewPosition": str})
    labels = read_columns(path, {**ids, **dict.fromkeys(CHEXPERT, float)})
    table = views[views["ViewPosition"].isin(("AP", "PA"))].merge(labels, on=list(ids))
    files = [
        path.parent / f"files/p{str(subject)[:2]}/p{subject}/s{study}/{image}.jpg"
        for image, subject, study in zip(table["dicom_id"], *(table[name] for name in ids), strict=True)
    ]
    return Listed(there(path, files), _text(table["subject_id"]), _marked(table))


def _vinbigdata(path: Path) -> Listed:
    table = read_columns(path, {"image_id": str, "class_name": str})
    words = table["class_name"].str.lower()
    seen = (
        pd.DataFrame({name: words.str.contains(name) for name in FINDINGS}).groupby(table["image_id"]).any()
    )
    found = named(path.parent)
    if not found and any((path.parent / "train").glob("*.d*m")):
        raise InputError(f"The images of {path} are DICOM files: write them as PNG, under the same names.")
    files = located(path, list(seen.index), found)
    return Listed(files, _text(seen.index), seen.to_numpy(dtype=np.int8))


def _stems(names: pd.Series) -> pd.Series:
    return names.str.replace(r"\.(png|jpg)$", "", regex=True)


def _text(column: pd.Series | pd.Index) -> NDArray[np.str_]:
    return column.to_numpy().astype(str)


def _matrix(findings: list[list[bool]]) -> NDArray[np.int8]:
    return np.array(findings, dtype=np.int8).reshape(len(findings), len(FINDINGS))


ORGANISATIONS = (
    Organisation("chexpert", ("CheXpert-v1.0-small", "CheXpert-v1.0"), ("train.csv",), _chexpert),
    Organisation(
        "chestxray14",
        ("ChestX-ray14", "NIH"),
        ("Data_Entry_2017.csv", "Data_Entry_2017_v2020.csv"),
        _chestxray14,
    ),
    Organisation("padchest", ("PadChest",), (PADCHEST, f"{PADCHEST}.gz"), _padchest, SPARED),
    Organisation("mimic-cxr-jpg", ("mimic-cxr",), (f"{LABELLED}.gz", LABELLED), _mimic),
    Organisation(
        "vinbigdata", ("vinbigdata-chest-xray-abnormalities-detection",), ("train.csv",), _vinbigdata
    ),
)


def load_chexpert(source: str, root: Path, positive: str, image_size: int = 64) -> Bundle:
    """CheXpert; the images that radiologists have labelled (valid.csv) are for the test."""
    choose(source, positive, FINDINGS)  # (before hours of reading)
    train, test = (_part(source, each, image_size) for each in list_chexpert(source, root))
    return bundle(source, positive, FINDINGS, train, None, test)


def list_chexpert(source: str, root: Path) -> list[Listed]:
    one = ORGANISATIONS[0]
    return [one.listed(find(source, root, one.places, (name,))) for name in ("train.csv", "valid.csv")]


def load_chest(source: str, root: Path, positive: str, image_size: int = 64) -> Bundle:
    """All five, in 16 groups of patients; no part is published as the test's."""
    choose(source, positive, FINDINGS)
    parts = list_chest(source, root)
    counts = shared_out(GROUPS, [len(part.files) for part in parts])
    starts = np.cumsum([0, *counts])[:-1]
    codes = [start + grouped(p.patients, n) for p, start, n in zip(parts, starts, counts, strict=True)]
    read = [
        read_images(source, part.files, image_size, 1, one.spared)
        for one, part in zip(ORGANISATIONS, parts, strict=True)
    ]
    x = np.concatenate([unit(images.pixels[images.whole]) for images in read])
    findings = [part.findings[images.whole] for part, images in zip(parts, read, strict=True)]
    client = [code[images.whole] for code, images in zip(codes, read, strict=True)]
    found = bundle(source, positive, FINDINGS, (x, np.concatenate(findings)))
    names = tuple(f"{o.name}-{i}" for o, n in zip(ORGANISATIONS, counts, strict=True) for i in range(n))
    return Bundle(source, found.train.with_(client=np.concatenate(client)), client_names=names)


def list_chest(source: str, root: Path) -> list[Listed]:
    return [one.listed(find(f"{source}/{one.name}", root, one.places, one.tables)) for one in ORGANISATIONS]


def _part(source: str, listed: Listed, size: int) -> Part:
    return unit(read_images(source, listed.files, size, 1).pixels), listed.findings


def shared_out(groups: int, sizes: list[int]) -> list[int]:
    """Groups in proportion to sizes, at least one each: the largest remainders are rounded up."""
    left = groups - len(sizes)
    exact = np.array(sizes) / sum(sizes) * groups - 1
    exact = np.maximum(exact, 0) * left / np.maximum(exact, 0).sum()
    whole = np.floor(exact).astype(int)
    whole[np.argsort(whole - exact, kind="stable")[: left - whole.sum()]] += 1
    return [int(count) + 1 for count in whole]


def grouped(patients: NDArray[np.str_], groups: int) -> NDArray[np.int64]:
    """A group for every image: as many patients in each, dealt at random but always alike."""
    names, which = np.unique(patients, return_inverse=True)
    if len(names) < groups:
        raise InputError(f"{len(names)} patients cannot be dealt to {groups} groups.")
    return (np.random.default_rng(0).permutation(len(names)) % groups)[which].astype(np.int64)
