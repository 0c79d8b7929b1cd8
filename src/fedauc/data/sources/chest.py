"""Chest X-rays of five organisations, with the five findings that their labels have in common.

Each is read as it is published (`chest-xrays` wants all five, `chexpert` the first alone), frontal views:

    CheXpert        Stanford Hospital         train.csv, valid.csv; CheXpert-v1.0 or -small
    ChestX-ray14    NIH Clinical Center       Data_Entry_2017.csv, images in folders below it
    PadChest        Hospital San Juan         PADCHEST_chest_x_ray_images_labels_….csv, folders 0 to 54
    MIMIC-CXR-JPG   Beth Israel Deaconess     mimic-cxr-2.0.0-chexpert.csv.gz, -metadata.csv.gz, files/
    VinBigData      H108 and HMUH, Vietnam    train.csv of the Kaggle challenge, images as PNG or JPEG

All five together are those of Yuan et al. (ICML 2021), who split them into 16 groups by patients, each of one
organisation. They do not say how many groups an organisation has (here in proportion to its images, at least
one) nor what a label counts for that says "uncertain" (CheXpert, MIMIC-CXR): here edema and atelectasis are
then present and the others absent, as is usual for CheXpert. An image of VinBigData shows what any of its
three radiologists saw.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedauc.data.rows import Bundle
from fedauc.data.sources.files import find
from fedauc.data.sources.images import located, named, read_images
from fedauc.data.sources.labels import bundle, unit
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


def _marked(table: pd.DataFrame) -> NDArray[np.int8]:
    """CheXpert's labels: 1 present, -1 uncertain, 0 or nothing absent."""
    marks = [(table[name] == 1) | ((table[name] == -1) & (name in PRESENT)) for name in CHEXPERT]
    return np.stack(marks, axis=1).astype(np.int8)


def _chexpert(path: Path) -> Listed:
    table = read_columns(path, {"Path": str, "Frontal/Lateral": str, **dict.fromkeys(CHEXPERT, float)})
    table = table[table["Frontal/Lateral"] == "Frontal"]
    inside = table["Path"].str.split("/").str[1:].str.join("/")  # the first folder is the one of the table
    patients = table["Path"].str.extract(r"/(patient\d+)/", expand=False).fillna("").to_numpy(dtype=str)
    return Listed([path.parent / each for each in inside], patients, _marked(table))


def _chestxray14(path: Path) -> Listed:
    table = read_columns(path, {"Image Index": str, "Finding Labels": str, "Patient ID": str})
    words = [{word.strip().lower() for word in each.split("|")} for each in table["Finding Labels"]]
    findings = [[name in each for name in FINDINGS] for each in words]
    return Listed(_files(path, table["Image Index"]), _text(table["Patient ID"]), _matrix(findings))


def _padchest(path: Path) -> Listed:
    columns = dict.fromkeys(("ImageID", "PatientID", "Projection", "Labels"), str)
    table = read_columns(path, columns)
    table = table[table["Projection"].isin(("PA", "AP", "AP_horizontal")) & (table["Labels"] != "")]
    try:
        words = [" | ".join(map(str, ast.literal_eval(each))) for each in table["Labels"]]
    except (ValueError, SyntaxError, TypeError) as error:
        raise InputError(
            f"The column 'Labels' of {path} has something that is not a list of words."
        ) from error
    findings = [[name in each for name in FINDINGS] for each in words]  # ("lobar atelectasis" is one as well)
    return Listed(_files(path, table["ImageID"]), _text(table["PatientID"]), _matrix(findings))


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
    return Listed(files, _text(table["subject_id"]), _marked(table))


def _vinbigdata(path: Path) -> Listed:
    table = read_columns(path, {"image_id": str, "class_name": str})
    words = table["class_name"].str.lower()
    seen = (
        pd.DataFrame({name: words.str.contains(name) for name in FINDINGS}).groupby(table["image_id"]).any()
    )
    return Listed(_files(path, seen.index), _text(seen.index), seen.to_numpy(dtype=np.int8))


def _files(table: Path, names: pd.Series | pd.Index) -> list[Path]:
    return located(table, [re.sub(r"\.(png|jpg)$", "", name) for name in names], named(table.parent))


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
    Organisation("padchest", ("PadChest",), (PADCHEST, f"{PADCHEST}.gz"), _padchest),
    Organisation("mimic-cxr-jpg", ("mimic-cxr",), (f"{LABELLED}.gz", LABELLED), _mimic),
    Organisation(
        "vinbigdata", ("vinbigdata-chest-xray-abnormalities-detection",), ("train.csv",), _vinbigdata
    ),
)


def load_chexpert(source: str, root: Path, positive: str, image_size: int = 64) -> Bundle:
    """CheXpert; the images that radiologists have labelled (valid.csv) are for the test."""
    parts = list_chexpert(source, root)
    images = read_images(source, [file for part in parts for file in part.files], image_size, channels=1)
    train, test = np.split(images, [len(parts[0].files)])
    return bundle(
        source, positive, FINDINGS, (unit(train), parts[0].findings), None, (unit(test), parts[1].findings)
    )


def list_chexpert(source: str, root: Path) -> tuple[Listed, Listed]:
    first = ORGANISATIONS[0]
    folders = tuple(f"{source}/{folder}" for folder in first.folders)
    train = find(source, root, (*folders, *first.folders), first.tables)
    return first.listed(train), first.listed(train.with_name("valid.csv"))


def load_chest(source: str, root: Path, positive: str, image_size: int = 64) -> Bundle:
    """All five, in 16 groups of patients; no part is published as the test's."""
    parts = list_chest(source, root)
    files = [file for part in parts for file in part.files]
    images = read_images(source, files, image_size, channels=1)
    found = bundle(source, positive, FINDINGS, (unit(images), np.concatenate([p.findings for p in parts])))
    counts = shared_out(GROUPS, [len(part.files) for part in parts])
    starts = np.cumsum([0, *counts])
    codes = [start + grouped(p.patients, n) for p, start, n in zip(parts, starts, counts, strict=False)]
    names = tuple(f"{o.name}-{i}" for o, n in zip(ORGANISATIONS, counts, strict=True) for i in range(n))
    return Bundle(source, found.train.with_(client=np.concatenate(codes)), client_names=names)


def list_chest(source: str, root: Path) -> list[Listed]:
    return [
        one.listed(find(f"{source}/{one.name}", root, (one.name, *one.folders), one.tables))
        for one in ORGANISATIONS
    ]


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
