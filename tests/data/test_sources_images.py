"""Images in files of their own, as their publishers lay them out: tiny ones, written here."""

from __future__ import annotations

import errno
import gzip
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fedauc.cli import app
from fedauc.data.sources import MissingFile, load_source
from fedauc.data.sources.chest import FINDINGS, GROUPS, PADCHEST, grouped, shared_out
from fedauc.errors import InputError
from fedauc.experiments.config import Config
from fedauc.experiments.jobs import prepared
from fedauc.papers import PAPERS

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDAUC_CACHE", str(tmp_path / "cache"))


def paint(path: Path, shade: int | tuple[int, int, int], size: tuple[int, int] = (24, 20)) -> None:
    """An image of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(shade, int) else "RGB", size, shade).save(path)


def lines(path: Path, *rows: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{row}\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


# ----------------------------------------------------------------------------- STL-10


def stl10(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        images.transpose(0, 1, 3, 2).tofile(folder / f"{part}_X.bin")
        labels.tofile(folder / f"{part}_y.bin")


@pytest.mark.parametrize("place", ["stl10/stl10_binary", "stl10_binary", "stl10"])
def test_stl10(tmp_path, place):
    images, labels = RNG.integers(0, 256, (10, 3, 96, 96), np.uint8), np.arange(1, 11, dtype=np.uint8)
    stl10(tmp_path / place, images, labels)
    found = load_source("stl10", root=tmp_path, positive="0-4")
    assert found.test is not None
    for rows in (found.train, found.test):
        assert np.array_equal(rows.x, (images / 255).astype(np.float32))
        assert rows.x.flags.c_contiguous
        assert list(rows.classes) == list(range(10))
        assert list(rows.y) == [1] * 5 + [0] * 5
    (tmp_path / place / "train_y.bin").write_bytes(bytes((1, 2)))
    with pytest.raises(
        InputError, match="one image of 3 x 96 x 96 bytes for each of the 2 labels of train_y"
    ):
        load_source("stl10", root=tmp_path)
    (tmp_path / place / "train_y.bin").write_bytes(bytes(range(10)))
    with pytest.raises(InputError, match="label outside 0 to 9"):
        load_source("stl10", root=tmp_path)


# ----------------------------------------------------------------------------- photographs


def pets(folder: Path, count: int = 12) -> None:
    for i in range(count):
        paint(folder / f"cat.{i}.jpg", (250, 10 * i, 0), (40 + i, 60))
        paint(folder / f"dog.{i}.jpg", (0, 10 * i, 250), (60, 40 + i))


def test_cats_and_dogs(tmp_path):
    pets(tmp_path / "dogs-vs-cats/train")
    paint(tmp_path / "dogs-vs-cats/train/fox.0.jpg", (1, 1, 1))
    rows = load_source("cats-vs-dogs", root=tmp_path).train
    assert rows.x.shape == (24, 3, 32, 32)
    assert rows.x.dtype == np.float32
    assert list(rows.y) == [1] * 12 + [0] * 12
    assert list(load_source("cats-vs-dogs", root=tmp_path, positive="dog").train.y) == [0] * 12 + [1] * 12
    for i in range(12):  # (in the order of the numbers, not of their digits)
        assert rows.x[i].mean((1, 2)) == pytest.approx([250 / 255, 10 * i / 255, 0], abs=0.02)
        assert rows.x[12 + i].mean((1, 2)) == pytest.approx([0, 10 * i / 255, 250 / 255], abs=0.02)
    assert load_source("cats-vs-dogs", root=tmp_path, image_size=16).train.x.shape == (24, 3, 16, 16)


def test_images_are_read_once(tmp_path, monkeypatch):
    pets(tmp_path / "cats-vs-dogs/train")
    first = load_source("cats-vs-dogs", root=tmp_path).train.x
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "PIL", None)
        assert np.array_equal(load_source("cats-vs-dogs", root=tmp_path).train.x, first)
        with pytest.raises(InputError, match=r"need Pillow to read: pip install 'fedauc\[images\]'"):
            load_source("cats-vs-dogs", root=tmp_path, image_size=16)
    paint(tmp_path / "cats-vs-dogs/train/cat.0.jpg", (0, 0, 0))
    assert load_source("cats-vs-dogs", root=tmp_path).train.x[0].max() == 0


def test_images_are_read_once_by_all_who_begin_together(tmp_path, monkeypatch):
    pets(tmp_path / "cats-vs-dogs/train")
    opened, together, plain = [], Barrier(3), Image.open

    def counted(file):
        opened.append(file)
        return plain(file)

    def load(_):
        together.wait()
        return load_source("cats-vs-dogs", root=tmp_path).train.x

    monkeypatch.setattr(Image, "open", counted)
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(load, range(3)))
    assert len(opened) == len(set(opened)) == 24
    assert all(np.array_equal(x, found[0]) for x in found)
    assert not list((tmp_path / "cache/images").glob("*.lock"))


def test_what_is_wrong_with_images(tmp_path):
    pets(tmp_path / "cats-vs-dogs/train")
    with pytest.raises(InputError, match=r"data.image_size=4: images of fewer than 8"):
        load_source("cats-vs-dogs", root=tmp_path, image_size=4)
    with pytest.raises(InputError, match=r"'stl10' has no option 'image_size'\. It has no options"):
        load_source("stl10", root=tmp_path, image_size=4)
    broken = tmp_path / "cats-vs-dogs/train/dog.3.jpg"
    whole = broken.read_bytes()
    for content in (b"", b"<html>", whole[: len(whole) // 2]):
        broken.write_bytes(content)
        with pytest.raises(InputError, match=r"dog\.3\.jpg cannot be read as an image .*; fetch it again"):
            load_source("cats-vs-dogs", root=tmp_path)
    shelf = tmp_path / "cache/images"
    assert list(shelf.iterdir()) == []  # nothing half made


def test_a_class_that_is_not_there_is_said_before_anything_is_read(tmp_path):
    pets(tmp_path / "cats-vs-dogs/train")
    chest(tmp_path)
    for name in ("cats-vs-dogs", "chexpert", "chest-xrays"):
        with pytest.raises(InputError, match=f"'{name}' has no class 'catt'"):
            load_source(name, root=tmp_path, positive="catt")
    assert not (tmp_path / "cache").exists()


def test_what_was_kept_may_be_damaged_or_of_somebody_else(tmp_path, monkeypatch):
    pets(tmp_path / "cats-vs-dogs/train")
    first = load_source("cats-vs-dogs", root=tmp_path).train.x

    def refused(*_):
        raise PermissionError(1, "not yours")

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("os.utime", refused)
        assert np.array_equal(load_source("cats-vs-dogs", root=tmp_path).train.x, first)
    (kept,) = (tmp_path / "cache/images").iterdir()
    for content in (b"", (kept / "pixels.npy").read_bytes()[:-1]):
        (kept / "pixels.npy").write_bytes(content)
        with pytest.raises(InputError, match=f"images in .*{kept.name} are damaged .*; remove that folder"):
            load_source("cats-vs-dogs", root=tmp_path)


def test_a_disk_that_fills_up_is_said(tmp_path, monkeypatch):
    pets(tmp_path / "cats-vs-dogs/train")
    full = OSError(errno.ENOSPC, "No space left on device")

    def blocks(*_):
        yield np.zeros((1, 3, 32, 32), np.uint8)
        raise full

    monkeypatch.setattr("fedauc.data.sources.images._blocks", blocks)
    with pytest.raises(InputError, match=r"cannot be kept in .*: No space left on device\. Name a folder"):
        load_source("cats-vs-dogs", root=tmp_path)
    assert list((tmp_path / "cache/images").iterdir()) == []


def test_images_that_do_not_fit_are_said_before_they_are_read(tmp_path):
    pets(tmp_path / "cats-vs-dogs/train")
    with pytest.raises(InputError, match=r"cannot be kept in .* GiB are needed and .* GiB are free\. Name a"):
        load_source("cats-vs-dogs", root=tmp_path, image_size=10**7)


def melanoma(folder: Path, table: str, images: str) -> None:
    rows = [f"ISIC_{i},IP_1,male,45.0,torso,unknown,benign,{int(i % 3 == 0)}" for i in range(9)]
    lines(folder / table, "image_name,patient_id,sex,age_approx,anatom_site,diagnosis,word,target", *rows)
    for i in range(9):
        paint(folder / images / f"ISIC_{i}.jpg", (20 * i, 0, 0))


@pytest.mark.parametrize(
    ("home", "table", "images"),
    [
        ("melanoma", "train.csv", "jpeg/train"),
        ("siim-isic-melanoma-classification", "train.csv", "jpeg/train"),
        ("isic-2020", "ISIC_2020_Training_GroundTruth_v2.csv", "ISIC_2020_Training_JPEG/train"),
        ("melanoma", "ISIC_2020_Training_GroundTruth.csv", "train"),
    ],
)
def test_melanoma(tmp_path, home, table, images):
    melanoma(tmp_path / home, table, images)
    rows = load_source("melanoma", root=tmp_path).train
    assert rows.x.shape == (9, 3, 64, 64)
    assert list(rows.y) == [1, 0, 0] * 3
    assert rows.x[:, 0].mean((1, 2)) == pytest.approx([20 * i / 255 for i in range(9)], abs=0.02)


def test_what_is_wrong_with_a_table(tmp_path):
    melanoma(tmp_path / "melanoma", "train.csv", "train")
    table = tmp_path / "melanoma/train.csv"
    for content, words in (
        (
            "image_name,target\nISIC_0,0\nISIC_77,1\n",
            "names 2 images, of which 1 are missing, .*ISIC_77 first",
        ),
        ("image_name,target\nISIC_0,0\nISIC_1,2\n", "'target' of .* has 2, and should have 0 and 1"),
        ("image_name,target\nISIC_0,\nISIC_1,1\n", "'target' of .* is empty in some rows"),
        ("image_name,target\nISIC_0,no\n", "cannot be read as the published table"),
        ("name,target\nISIC_0,0\n", "cannot be read as the published table .*image_name"),
        ("image_name,target\n", "has no rows"),
        ("", "cannot be read as the published table"),
    ):
        table.write_text(content)
        with pytest.raises(InputError, match=words):
            load_source("melanoma", root=tmp_path)


# ----------------------------------------------------------------------------- chest X-rays

MARKS = "Cardiomegaly,Edema,Consolidation,Atelectasis,Pleural Effusion"


def chexpert(home: Path) -> None:
    head = f"Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,{MARKS},Fracture"
    rows = []
    for i in range(1, 9):
        name = f"CheXpert-v1.0-small/train/patient{i:05d}/study1"
        marks = ("1.0,,0.0,,", "-1.0,-1.0,-1.0,-1.0,-1.0", ",1.0,,,1.0")[i % 3]
        rows += [f"{name}/view1_frontal.jpg,Male,60,Frontal,AP,,{marks},"]
        rows += [f"{name}/view2_lateral.jpg,Male,60,Lateral,,,{marks},"] * (i == 1)
        paint(home / f"train/patient{i:05d}/study1/view1_frontal.jpg", 10 * i)
    lines(home / "train.csv", head, *rows)
    name = "CheXpert-v1.0-small/valid/patient64541/study1/view1_frontal.jpg"
    lines(home / "valid.csv", head, f"{name},Male,73,Frontal,AP,0.0,1.0,0.0,0.0,0.0,1.0,0.0")
    paint(home / name.split("/", 1)[1], 99)


def chestxray14(home: Path) -> None:
    said = ("Cardiomegaly|Effusion", "No Finding", "Emphysema|Atelectasis", "Edema|Consolidation")
    rows = [f"{i:08d}_000.png,{said[i % 4]},0,{i},58,M,PA,2682,2749,0.143,0.143," for i in range(8)]
    head = "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position"
    more = "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],"
    lines(home / "Data_Entry_2017.csv", f"{head},{more}", *rows)
    for i in range(8):
        paint(home / f"images_{i % 2 + 1:03d}/images/{i:08d}_000.png", 100 + i)


def padchest(home: Path) -> None:
    said = ("['cardiomegaly', ' lobar atelectasis']", "['normal']", "['pulmonary edema', 'pleural effusion']")
    views = ("PA", "L", "AP_horizontal", "AP")
    rows = [f'{i}.png,{i % 2},2014,S{i},P{i},{views[i % 4]},"{said[i % 3]}"' for i in range(12)]
    rows += ["99.png,0,2014,S9,P9,PA,"]  # without labels
    lines(home / PADCHEST, "ImageID,ImageDir,StudyDate_DICOM,StudyID,PatientID,Projection,Labels", *rows)
    for i in range(12):
        deep = np.full((20, 24), 100 * i, np.uint16)
        deep[0, 0] = 4000  # the brightest pixel of 12 bits
        (home / f"{i % 2}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(deep).save(home / f"{i % 2}/{i}.png")


def mimic(home: Path) -> None:
    marks = ("1.0,0.0,,,", ",,-1.0,-1.0,", "")
    labels = [f"1000003{i},5041{i},{marks[i % 3] or ',,,,1.0'}" for i in range(6)]
    lines(home / "mimic-cxr-2.0.0-chexpert.csv.gz", f"subject_id,study_id,{MARKS}", *labels)
    views = [f"a{i}-b,1000003{i},5041{i},CHEST,{'AP' if i % 2 else 'PA'},2544" for i in range(6)]
    views += ["lateral,10000030,50410,CHEST,LATERAL,2544", "unlabelled,10000039,50419,CHEST,PA,2544"]
    head = "dicom_id,subject_id,study_id,PerformedProcedureStepDescription,ViewPosition,Rows"
    lines(home / "mimic-cxr-2.0.0-metadata.csv.gz", head, *views)
    for i in range(6):
        paint(home / f"files/p10/p1000003{i}/s5041{i}/a{i}-b.jpg", 200 + i)


def vinbigdata(home: Path) -> None:
    rows = []
    for i in range(4):
        rows += [f"{i}f,No finding,14,R{rad},,,," for rad in range(2)]
        rows += [f"{i}f,{('Cardiomegaly', 'Pleural effusion')[i % 2]},3,R9,1,1,9,9"] * (i < 3)
        paint(home / f"train/{i}f.png", 240 + i)
    lines(home / "train.csv", "image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max", *rows)


def chest(root: Path) -> None:
    chexpert(root / "CheXpert-v1.0-small")
    chestxray14(root / "chest-xrays/chestxray14")
    padchest(root / "padchest")
    mimic(root / "mimic-cxr-jpg")
    vinbigdata(root / "vinbigdata")


def test_chexpert(tmp_path):
    chexpert(tmp_path / "chexpert/CheXpert-v1.0-small")
    found = load_source("chexpert", root=tmp_path, image_size=8)
    assert found.train.x.shape == (8, 1, 8, 8)  # (without the lateral view)
    assert found.train.x.mean((1, 2, 3)) == pytest.approx([10 * i / 255 for i in range(1, 9)], abs=0.01)
    present = {
        "cardiomegaly": [0, 0, 1, 0, 0, 1, 0, 0],
        "edema": [1, 1, 0, 1, 1, 0, 1, 1],  # "uncertain" counts
        "atelectasis": [1, 0, 0, 1, 0, 0, 1, 0],
        "effusion": [0, 1, 0, 0, 1, 0, 0, 1],
    }
    for name, marks in present.items():
        assert load_source("chexpert", root=tmp_path, positive=name).train.y.tolist() == marks
    assert found.test is not None
    assert len(found.test) == 1
    with pytest.raises(InputError, match="no positive training row when positive is 'consolidation'"):
        load_source("chexpert", root=tmp_path, positive="consolidation")


def test_five_organisations(tmp_path):
    chest(tmp_path)
    found = load_source("chest-xrays", root=tmp_path, image_size=8)
    rows, names = found.train, found.client_names
    assert names is not None
    assert rows.client is not None
    assert rows.x.shape == (8 + 8 + 9 + 6 + 4, 1, 8, 8)
    assert len(names) == GROUPS
    homes = [names[code].rsplit("-", 1)[0] for code in rows.client]
    counts = (("chexpert", 8), ("chestxray14", 8), ("padchest", 9), ("mimic-cxr-jpg", 6), ("vinbigdata", 4))
    assert homes == [name for name, count in counts for _ in range(count)]
    assert set(rows.client) == set(range(GROUPS))
    found_by = {
        name: load_source("chest-xrays", root=tmp_path, positive=name).train.y.tolist() for name in FINDINGS
    }
    nih, pad, mim, vin = slice(8, 16), slice(16, 25), slice(25, 31), slice(31, 35)
    assert found_by["cardiomegaly"][nih] == found_by["effusion"][nih] == [1, 0, 0, 0] * 2
    assert found_by["edema"][nih] == found_by["consolidation"][nih] == [0, 0, 0, 1] * 2
    assert found_by["atelectasis"][nih] == [0, 0, 1, 0] * 2
    frontal = [i for i in range(12) if i % 4 != 1]
    assert found_by["atelectasis"][pad] == [int(i % 3 == 0) for i in frontal]
    assert found_by["effusion"][pad] == found_by["edema"][pad] == [int(i % 3 == 2) for i in frontal]
    assert found_by["cardiomegaly"][mim] == [1, 0, 0] * 2
    assert found_by["atelectasis"][mim] == [0, 1, 0] * 2
    assert found_by["consolidation"][mim] == [0] * 6
    assert found_by["effusion"][mim] == [0, 0, 1] * 2
    assert found_by["cardiomegaly"][vin] == [1, 0, 1, 0]
    assert found_by["effusion"][vin] == [0, 1, 0, 0]
    bright = rows.x[pad].reshape(9, -1).min(1)
    assert bright == pytest.approx([100 * i / 4000 for i in frontal], abs=0.005)  # of 16 bits


def test_what_is_wrong_with_chest_x_rays(tmp_path):
    with pytest.raises(MissingFile, match=r"train.csv of 'chest-xrays/chexpert' is missing.*put it into"):
        load_source("chest-xrays", root=tmp_path)
    chest(tmp_path)
    for i in range(4):
        (tmp_path / f"vinbigdata/train/{i}f.png").rename(tmp_path / f"vinbigdata/train/{i}f.dicom")
    with pytest.raises(InputError, match=r"vinbigdata/train.csv are DICOM files: write them as PNG"):
        load_source("chest-xrays", root=tmp_path)
    (tmp_path / "mimic-cxr-jpg/mimic-cxr-2.0.0-metadata.csv.gz").unlink()
    with pytest.raises(InputError, match=r"metadata.csv.gz is missing, which says which images .* frontal"):
        load_source("chest-xrays", root=tmp_path)
    table = tmp_path / "padchest" / PADCHEST
    table.write_text(table.read_text().replace("['normal']", "normal"))
    with pytest.raises(InputError, match=r"'Labels' of .* has 'normal', which is not a list of words"):
        load_source("chest-xrays", root=tmp_path)
    (tmp_path / "CheXpert-v1.0-small/train/patient00003/study1/view1_frontal.jpg").unlink()
    with pytest.raises(InputError, match=r"train.csv names 8 images, of which 1 are missing, .*patient00003"):
        load_source("chexpert", root=tmp_path)
    (tmp_path / "CheXpert-v1.0-small/valid.csv").unlink()
    chexpert(tmp_path / "CheXpert-v1.0-small")
    (tmp_path / "CheXpert-v1.0-small/valid.csv").unlink()
    with pytest.raises(MissingFile, match=r"valid.csv of 'chexpert' is missing"):
        load_source("chexpert", root=tmp_path, download=True)


def test_some_images_of_padchest_are_published_broken(tmp_path):
    chest(tmp_path)
    home = tmp_path / "padchest"
    rows = [
        f"""{i}.png,0,2014,S{i},P{i},PA,"['cardiomegaly', nan, 'pericardial effusion']\""""
        for i in range(1200)
    ]
    lines(home / PADCHEST, "ImageID,ImageDir,StudyDate_DICOM,StudyID,PatientID,Projection,Labels", *rows)
    for i in range(1200):
        paint(home / f"0/{i}.png", i % 200, (9, 9))
    (home / "1/1.png").unlink()
    with pytest.raises(InputError, match=r"0/3.png and .*1/3.png are both the image"):
        load_source("chest-xrays", root=tmp_path)
    shutil.rmtree(home / "1")
    (home / "0/7.png").unlink()
    (home / "0/20.png").write_bytes(b"")
    found = load_source("chest-xrays", root=tmp_path, positive="effusion", image_size=8).train
    assert found.client is not None
    assert len(found) == len(found.client) == 8 + 8 + 1198 + 6 + 4
    assert not found.y[16 : 16 + 1198].any()  # the heart's is another one
    shades = [i % 200 / 255 for i in range(1200) if i not in (7, 20)]
    assert found.x[16 : 16 + 1198].mean((1, 2, 3)) == pytest.approx(shades, abs=0.001)
    (home / "0/30.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"30.png cannot be read as an image"):
        load_source("chest-xrays", root=tmp_path, image_size=8)
    (home / "0/40.png").unlink()
    with pytest.raises(InputError, match=r"names 1200 images, of which 2 are missing, .*/7 first"):
        load_source("chest-xrays", root=tmp_path, image_size=8)


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ((191, 112, 110, 243, 15), [4, 3, 3, 5, 1]),
        ((1, 1, 1, 1, 1), [4, 3, 3, 3, 3]),
        ((1000, 1, 1, 1, 1), [12, 1, 1, 1, 1]),
    ],
)
def test_groups_are_shared_out(sizes: Sequence[int], counts: list[int]):
    assert shared_out(GROUPS, list(sizes)) == counts


def test_a_patient_is_in_one_group():
    patients = np.repeat([f"p{i}" for i in range(40)], 3)
    groups = grouped(patients, 4).reshape(40, 3)
    assert (groups == groups[:, :1]).all()
    assert np.bincount(groups[:, 0]).tolist() == [10] * 4
    with pytest.raises(InputError, match="3 patients cannot be dealt to 4 groups"):
        grouped(patients[:9], 4)


# ----------------------------------------------------------------------------- what is done with them


def test_a_run_on_image_files(tmp_path):
    chest(tmp_path)
    args = ["train", "--data", "chest-xrays", "--data-root", str(tmp_path), "--model", "linear"]
    args += ["--method", "coda+", "--set", "cycles=2", "--set", "image_size=8", "--set", "small_clients=keep"]
    done = CliRunner().invoke(app, [*args, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "test AUC" in done.output


def test_cells_can_be_run_where_the_files_are(tmp_path):
    chest(tmp_path)
    pets(tmp_path / "cats-vs-dogs/train")
    melanoma(tmp_path / "melanoma", "train.csv", "train")
    stl10(tmp_path / "stl10", np.zeros((10, 3, 96, 96), np.uint8), np.arange(1, 11, dtype=np.uint8))
    cells = [*PAPERS["001"].chosen("table-3", []), *PAPERS["004"].chosen("table-1", [])]
    here = {cell.dataset for cell in cells if not cell.absent(str(tmp_path))}
    assert here == {"ChestXray-IH", "CATvsDOG", "Melanoma", "STL10"}
    assert not (tmp_path / "cache").exists()  # to look for files is not to read them
    (pet,) = PAPERS["004"].chosen("figure-4", ["CoDA/CATvsDOG/positives=0.2"])
    config = pet.config(0, "cpu", str(tmp_path)).changed({"data.valid_fraction": 0.25})
    assert isinstance(config, Config)
    rows = prepared(config)
    assert rows.train.x.shape[1:] == (3, 32, 32)
