"""Rows in files: read by column, turned into rows, and kept for the next run on the same files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedauc.data import mapped
from fedauc.data.files import ArrayColumns, ParquetColumns, Stacked, open_columns, read_frame
from fedauc.data.table import read_table
from fedauc.errors import InputError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDAUC_CACHE", str(tmp_path / "cache"))


def kinds(rows: int = 50) -> pd.DataFrame:
    """Columns of every type that a Parquet file brings."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "whole": rng.integers(0, 9, rows),
            "small": rng.integers(0, 9, rows).astype(np.int8),
            "gaps": pd.array([None if i % 7 == 0 else i for i in range(rows)], dtype="Int64"),
            "flag": rng.random(rows) < 0.5,
            "maybe": pd.array([None if i % 5 == 0 else i % 2 == 0 for i in range(rows)], dtype="boolean"),
            "real": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(size=rows)),
            "text": [None if i % 9 == 0 else f"t{i % 4}" for i in range(rows)],
            "level": pd.Categorical([f"l{i % 3}" for i in range(rows)]),
            "day": pd.date_range("2024-01-01", periods=rows),
            "wait": pd.to_timedelta(np.arange(rows), unit="h"),
        }
    )


@pytest.mark.parametrize("index", ["range", "stepped", "unnamed", "named", "several"])
def test_a_parquet_file_by_columns_is_the_file_as_a_whole(tmp_path, index):
    frame = kinds()
    if index == "stepped":
        frame.index = pd.RangeIndex(10, 10 + 2 * len(frame), 2)
    elif index != "range":
        frame.index = pd.Index(
            [f"r{i}" for i in range(len(frame))], name=None if index == "unnamed" else "id"
        )
    if index == "several":
        frame = frame.set_index("whole", append=True)
    path = tmp_path / "table.parquet"
    frame.to_parquet(path)
    whole, columns = read_frame(path), open_columns(path)
    assert isinstance(columns, ParquetColumns)
    assert list(columns.columns) == list(whole.columns)
    assert len(columns) == len(whole)
    for name in whole.columns:
        pd.testing.assert_series_equal(columns[name], whole[name])


def test_a_long_parquet_file_is_read_the_same(tmp_path, monkeypatch):
    path = tmp_path / "table.parquet"
    kinds().to_parquet(path)
    whole = read_frame(path)
    monkeypatch.setattr("fedauc.data.files.MANY", 1)
    pd.testing.assert_frame_equal(read_frame(path), whole)


def test_files_one_under_the_other_are_their_concatenation(tmp_path):
    one, two = kinds(20), kinds(30).assign(whole=0.5)
    for name, frame in (("one", one), ("two", two)):
        frame.to_parquet(tmp_path / f"{name}.parquet")
    stacked = Stacked([open_columns(tmp_path / "one.parquet"), open_columns(tmp_path / "two.parquet")])
    expected = pd.concat([one, two], ignore_index=True)
    assert len(stacked) == 50
    for name in ("whole", "real", "day", "flag"):
        pd.testing.assert_series_equal(stacked[name], expected[name])


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int64, bool])
def test_an_array_is_read_by_columns(tmp_path, monkeypatch, layout, dtype):
    monkeypatch.setattr("fedauc.data.files.AT_ONCE", 7)
    x = (np.random.default_rng(0).random((50, 4)) * 3).astype(dtype)
    np.save(tmp_path / "x.npy", np.asarray(x, order=layout))
    columns = ArrayColumns(tmp_path / "x.npy")
    assert columns.columns == ["x0", "x1", "x2", "x3"]
    for i in range(4):
        assert columns[f"x{i}"].dtype == dtype
        assert (columns[f"x{i}"].to_numpy() == x[:, i]).all()
    assert (read_frame(tmp_path / "x.npy").to_numpy() == x).all()


def arrays(folder, rows=40) -> dict[str, str]:
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.normal(size=(rows, 3)).astype(np.float32))
    np.save(folder / "y.npy", np.arange(rows) % 2)
    np.save(folder / "site.npy", np.array(["b", "a"])[np.arange(rows) % 2])
    return {name: str(folder / f"{name}.npy") for name in ("x", "y", "site")}


def test_labels_and_clients_of_an_array_stand_in_files_of_their_own(tmp_path):
    at = arrays(tmp_path)
    table = read_table(at["x"], label=at["y"], client=at["site"])
    assert list(table.features.columns) == ["x0", "x1", "x2"]
    assert table.client_names == ("a", "b")
    assert (table.y == np.arange(40) % 2).all()
    lazy = read_table(at["x"], label=at["y"], client=at["site"], by_column=True)
    assert (lazy.features["x1"].to_numpy() == table.features["x1"].to_numpy()).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"label": "fraud"},
            r"x\.npy is an array without named columns: --label takes a \.npy file.*'fraud'",
        ),
        ({"client": "state"}, r"--client takes a \.npy file"),
        ({"paths": ["x", "x"]}, "only one can be given"),
        ({"x": np.zeros((2, 3, 4))}, r"x\.npy has shape \[2, 3, 4\], and \[rows, features\] is needed"),
        ({"x": np.array([["a", "b"]])}, r"x\.npy holds <U1 values, and numbers are needed"),
        ({"y": np.zeros(39)}, r"y\.npy has shape \[39\], and one value for each of the 40 rows of .*x\.npy"),
        ({"y": None}, r"The file .*y\.npy does not exist"),
        ({"x": b"not an array"}, r"The file .*x\.npy cannot be read"),
    ],
)
def test_a_wrong_array_is_named(tmp_path, change, message):
    at = arrays(tmp_path)
    for name in ("x", "y"):
        if name in change:
            if change[name] is None:
                os.unlink(at[name])
            elif isinstance(change[name], bytes):
                (tmp_path / "x.npy").write_bytes(change[name])
            else:
                np.save(at[name], change[name])
    paths = [at[name] for name in change.get("paths", ["x"])]
    with pytest.raises(InputError, match=message):
        read_table(paths, label=change.get("label", at["y"]), client=change.get("client"))


def test_packed_arrays_cannot_be_mapped(tmp_path):
    at = arrays(tmp_path)
    with open(at["x"], "wb") as file:
        np.savez(file, x=np.zeros((40, 3)))
    os.link(at["x"], tmp_path / "x.npz")
    for path in (at["x"], tmp_path / "x.npz"):
        with pytest.raises(InputError, match=r"holds packed arrays \(\.npz\), which cannot be mapped"):
            read_table(path, label=at["y"])


@pytest.mark.parametrize("rows", [1, 10, 64, 65, 200])
def test_columns_become_rows(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(mapped, "TURNED", 64)
    x = np.random.default_rng(0).random((rows, 7)).astype(np.float32)
    blocks = [x.T[:3], x.T[3:3], x.T[3:4], x.T[4:]]
    mapped.write_columns(tmp_path / "x.npy", blocks, rows)
    read = mapped.open_rows(tmp_path / "x.npy")
    assert read.dtype == torch.float32
    assert read.is_contiguous()
    assert (read.numpy() == x).all()
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_a_place_belongs_to_the_files_and_the_settings(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"1")
    os.utime(path, ns=(0, 10**9))
    first = mapped.place([path], {"seed": 0})
    assert mapped.place([path], {"seed": 0}) == first
    assert mapped.place([path], {"seed": 1}) != first
    os.utime(path, ns=(0, 2 * 10**9))
    assert mapped.place([path], {"seed": 0}) != first
    assert first.is_relative_to(tmp_path / "cache")


def test_a_folder_is_complete_or_not_there(tmp_path):
    folder = tmp_path / "shelf" / "one"

    def crash() -> None:
        with mapped.written(folder) as beside:
            (beside / "x").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        crash()
    assert list(folder.parent.iterdir()) == []
    with mapped.written(folder) as beside:
        (beside / "x").write_text("whole")
        with mapped.written(folder) as slower:  # another process writes the same at the same time
            (slower / "x").write_text("the same")
    assert (folder / "x").read_text() == "the same"
    assert [path.name for path in folder.parent.iterdir()] == ["one"]


def test_the_least_recently_used_are_removed(tmp_path, monkeypatch):
    shelf = tmp_path / "shelf"
    for i in range(mapped.KEPT + 3):
        with mapped.written(shelf / f"{i}"):
            pass
        os.utime(shelf / f"{i}", (i, i))
        if i == 2:
            (shelf / "crashed.part").mkdir()
            (shelf / "long.part").mkdir()
            (shelf / "long.part/pixels.npy").touch()  # somebody has been writing it for days
            for name in ("crashed", "long"):
                os.utime(shelf / f"{name}.part", (0, time.time() - 2 * mapped.ABANDONED))
    (shelf / "long.part/pixels.npy").unlink()
    (shelf / "long.part").rmdir()
    left = {int(path.name) for path in shelf.iterdir()}
    assert left == set(range(3, mapped.KEPT + 3))
    for i in range(mapped.KEPT):
        (shelf / f"{i}.lock").touch()  # (who waits for a folder)
    (shelf / "another.part").mkdir()
    plain = Path.iterdir

    def completed(folder):
        if folder.suffix == ".part":
            folder.rename(folder.with_suffix(""))
        return plain(folder)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Path, "iterdir", completed)
        with mapped.written(shelf / "new"):
            pass
    assert {path.name for path in shelf.iterdir() if path.is_dir()} == {
        "another", "new", *map(str, range(4, mapped.KEPT + 3))
    }  # fmt: skip
