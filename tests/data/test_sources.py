import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedauc.data.rows import Bundle, Rows
from fedauc.data.sources import SOURCES, load_source
from fedauc.data.sources.files import default_root
from fedauc.errors import InputError


@pytest.mark.parametrize(
    ("name", "shape", "positives"),
    [("digits", (1797, 1, 8, 8), 174), ("breast-cancer", (569, 30), 212), ("wine", (178, 13), 48)],
)
def test_shipped(name: str, shape: tuple[int, ...], positives: int) -> None:
    bundle = load_source(name)
    assert bundle.train.x.shape == shape
    assert bundle.train.x.dtype == np.float32
    assert bundle.train.x.flags.c_contiguous
    assert bundle.train.y.dtype == np.int8
    assert bundle.train.classes.dtype == np.int64
    assert bundle.train.y.sum() == positives
    assert (bundle.valid, bundle.test) == (None, None)
    if name == "digits":
        assert (bundle.train.x.min(), bundle.train.x.max()) == (0.0, 1.0)
        assert set(bundle.train.classes) == set(range(10))
    if name == "breast-cancer":
        assert (bundle.train.classes == bundle.train.y).all()
        assert bundle.feature_names is not None
        assert len(bundle.feature_names) == 30


@pytest.mark.parametrize(
    ("positive", "chosen"), [("3", {3}), ("0-4", set(range(5))), ("1, 7,8-9", {1, 7, 8, 9}), (" 5 ", {5})]
)
def test_choice_of_positives(positive: str, chosen: set[int]) -> None:
    train = load_source("digits", positive=positive).train
    assert set(train.classes[train.y == 1]) == chosen
    assert set(train.classes[train.y == 0]) == set(range(10)) - chosen


def test_choice_by_name() -> None:
    assert load_source("wine", positive="CLASS_0").train.y.sum() == 59
    assert load_source("breast-cancer", positive="benign").train.y.sum() == 357


@pytest.mark.parametrize(
    ("positive", "words"),
    [
        ("10", "classes 0 to 9, so '10'"),
        ("5-2", "so '5-2'"),
        ("eight", "no class 'eight'"),
        ("", "no class ''"),
        ("0-9", "no negative training row"),
    ],
)
def test_bad_positives(positive: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_source("digits", positive=positive)


def test_names_and_options() -> None:
    with pytest.raises(InputError, match="Did you mean 'fashion-mnist'"):
        load_source("fashion_mnist")
    with pytest.raises(InputError, match="Did you mean 'rows'"):
        load_source("medicare-like", row=100)
    with pytest.raises(InputError, match=r"'digits' has no option 'rows'\. It has no options"):
        load_source("digits", rows=100)
    with pytest.raises(InputError, match="no other makes sense"):
        load_source("medicare-like", positive="0")


def test_medicare_like() -> None:
    bundle = load_source("medicare-like", rows=60_000, seed=5)
    other = load_source("medicare-like", rows=60_000, seed=6, positive="1")
    assert bundle.client_names is not None
    assert len(bundle.client_names) == 50
    assert len(bundle.train) == 40_000
    assert (bundle.train.y != other.train.y).any()


def test_missing_files_say_where_and_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in SOURCES.items():
        if not source.needs_files:
            continue
        which = rf"of '{name}(/\w+)?' is missing: it is neither in {tmp_path}"
        with pytest.raises(InputError, match=which) as error:
            load_source(name, root=tmp_path)
        assert "get it from https://" in str(error.value)
        assert str(tmp_path / name) in str(error.value)
    monkeypatch.setenv("FEDAUC_DATA", str(tmp_path / "named"))
    with pytest.raises(InputError, match="named"):
        load_source("mnist")
    monkeypatch.delenv("FEDAUC_DATA")
    assert "fedauc" in str(default_root())


def test_summaries_name_the_positive_class() -> None:
    for name, source in SOURCES.items():
        assert source.name == name
        assert f"positive: {source.positive}" in source.summary


def test_rows() -> None:
    rows = Rows(np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1], np.int8), np.arange(4), np.arange(4))
    part = rows.take(np.array([3, 1]))
    assert len(part) == 2
    assert part.client is not None
    assert list(part.client) == [3, 1]
    assert len(rows.take(slice(1, None))) == 3
    assert rows.with_(client=None).client is None
    assert rows.take(rows.y == 1).y.all()
    with pytest.raises(InputError, match="classes has shape"):
        rows.with_(classes=np.arange(3))
    assert Bundle("a", rows).test is None


def test_import_is_light() -> None:
    heavy = ("pooch", "requests", "sklearn")
    code = f"import sys, fedauc.data.sources; print([m for m in {heavy} if m in sys.modules])"
    environment = {**os.environ, "PYTHONWARNINGS": "error::DeprecationWarning:fedauc"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert run.stdout.strip() == "[]"
