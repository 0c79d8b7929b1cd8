"""From settings to tensors: splits, clients, imbalance, files for validation and test."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

from fedauc.data import mapped
from fedauc.errors import InputError
from fedauc.experiments import kept, runner
from fedauc.experiments import prepare as preparing
from fedauc.experiments.assembly import Prepared
from fedauc.experiments.config import Config
from fedauc.experiments.prepare import prepare
from tests.experiments.tables import claims, claims_csv


def prepared(path, seed=0, **settings):
    given = {"data.path": [str(path)], "data.label": "fraud", "data.client": "state"} | settings
    return prepare(Config.resolve("cycp-pairwise", given).data, seed)


def test_every_row_is_used_once_and_classes_are_shared_out(tmp_path):
    data = prepared(claims_csv(tmp_path))
    total = len(data.train.y) + len(data.valid.y) + len(data.test.y)
    positives = int(data.train.y.sum()) + int(data.valid.y.sum()) + int(data.test.y.sum())
    assert total == 600
    assert positives == int((claims().fraud == "yes").sum())
    assert abs(data.test.y.sum() - 0.25 * positives) <= 1
    assert data.names == tuple(f"S{i}" for i in range(6))


def test_the_same_seed_gives_the_same_rows_and_another_does_not(tmp_path):
    path = claims_csv(tmp_path)
    one, two, other = prepared(path), prepared(path), prepared(path, seed=1)
    assert np.array_equal(one.test.x, two.test.x)
    assert not np.array_equal(one.test.x, other.test.x)


def test_split_by_time_trains_on_the_past(tmp_path):
    data = prepared(claims_csv(tmp_path), **{"data.split_by": "year", "data.drop": ["amount"]})
    assert len(data.train.y) == 400  # four of the six years of 100 rows each are nearest to 60 %
    assert data.preprocessor is not None
    assert "year" not in data.preprocessor.columns


def test_files_for_validation_and_test_are_taken_as_they_are(tmp_path):
    paths = {}
    for name, seed in (("train", 0), ("valid", 1), ("test", 2)):
        paths[name] = tmp_path / f"{name}.csv"
        claims(rows=300, seed=seed).to_csv(paths[name], index=False)
    data = prepared(paths["train"], **{"data.valid": str(paths["valid"]), "data.test": str(paths["test"])})
    assert (len(data.train.y), len(data.valid.y), len(data.test.y)) == (300, 300, 300)
    assert data.test.y.sum() == (claims(rows=300, seed=2).fraud == "yes").sum()


def test_removed_positives_are_missing_from_training_only(tmp_path):
    path = claims_csv(tmp_path)
    full, rare = prepared(path), prepared(path, **{"data.remove_positives": 0.5})
    positives = full.train.counts[:, 1].sum()
    assert rare.train.counts[:, 1].sum() == positives - round(positives * 0.5)
    assert np.array_equal(rare.test.y, full.test.y)


def test_one_file_per_client_is_the_same_as_a_column(tmp_path):
    frame = claims()
    paths = []
    for name, part in frame.groupby("state"):
        paths.append(tmp_path / f"{name}.csv")
        part.drop(columns="state").to_csv(paths[-1], index=False)
    config = Config.resolve("cycp-pairwise", {"data.path": [str(p) for p in paths], "data.label": "fraud"})
    data = prepare(config.data, 0)
    assert data.names == tuple(sorted(frame.state.unique()))
    assert data.train.counts.sum() + len(data.valid.y) + len(data.test.y) == len(frame)


def test_a_partition_deals_rows_to_simulated_clients(tmp_path):
    data = prepared(claims_csv(tmp_path), **{"data.client": None, "partition": "iid", "clients": 7})
    assert data.train.clients == 7
    assert data.test.client is None


def test_clients_without_training_rows_are_named_and_left_out(tmp_path):
    frame = claims()
    frame.loc[:1, "state"] = "tiny"  # two rows: at 60 % for training they may both go elsewhere
    path = tmp_path / "claims.csv"
    frame.to_csv(path, index=False)
    for seed in range(40):
        data = prepared(path, seed)
        if "tiny" not in data.train.names:
            assert any("tiny" in note for note in data.notes)
            assert data.names[-1] == "tiny"
            return
    raise AssertionError("the two rows were in training for 40 seeds")


def test_no_data_and_no_label_are_said():
    with pytest.raises(InputError, match="--data"):
        prepare(Config.resolve("cycp-pairwise").data, 0)
    with pytest.raises(InputError, match="--label"):
        prepare(Config.resolve("cycp-pairwise", {"data.path": ["x.csv"]}).data, 0)


# ------------------------------------------------------------------------------------------------ mapped rows


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDAUC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def claims_parquet(folder, name="claims", **options):
    path = folder / f"{name}.parquet"
    frame = claims(**options)
    days = pd.Timestamp("2020-03-01") + pd.to_timedelta(np.arange(len(frame)) % 500, unit="D")
    frame.assign(day=days, odd=np.where(np.arange(len(frame)) % 3, "1.5", "NA")).to_parquet(path)
    return path


def assert_same_rows(one: Prepared, two: Prepared) -> None:
    """The same to the last bit; training rows may stand in another order."""
    assert torch.equal(one.train.x[one.train.order], two.train.x[two.train.order])
    assert torch.equal(one.train.y[one.train.order], two.train.y[two.train.order])
    assert np.array_equal(one.train.counts, two.train.counts)
    assert list(one.train.names) == list(two.train.names)
    for a, b in ((one.valid, two.valid), (one.test, two.test)):
        assert torch.equal(a.x, b.x)
        assert np.array_equal(a.y, b.y)
        assert (a.client is None) == (b.client is None)
        assert a.client is None or np.array_equal(a.client, b.client)
    assert (one.name, one.names, one.notes) == (two.name, two.names, two.notes)
    assert (one.setup_up, one.setup_down) == (two.setup_up, two.setup_down)
    assert one.preprocessor.to_json() == two.preprocessor.to_json()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"data.split_by": "year"},
        {"data.remove_positives": 0.4, "data.flip_positives": 0.1},
        {"data.client": None, "partition": "dirichlet", "clients": 30, "alpha": 0.1},
        {"data.drop": ["kind", "odd"], "data.positive": "no"},
        {"data.valid": "valid", "data.test": "test"},
        {"data.test": "test"},
    ],
)
def test_mapped_rows_are_the_rows_in_memory(tmp_path, cache, settings):
    path = claims_parquet(tmp_path, rows=900)
    for name, seed in (("valid", 1), ("test", 2)):
        other = claims_parquet(tmp_path, name, rows=300, clients=8, seed=seed)
        settings = {key: str(other) if value == name else value for key, value in settings.items()}
    in_memory = prepared(path, **settings, **{"data.memory_map": "off"})
    first = prepared(path, **settings, **{"data.memory_map": "on"})
    assert_same_rows(first, in_memory)
    again = prepared(path, **settings, **{"data.memory_map": "on"})
    assert_same_rows(again, in_memory)
    assert (again.train.order == np.arange(len(again.train.y))).all()  # a client's rows are together


def test_a_run_on_mapped_rows_is_the_run_in_memory(tmp_path, cache):
    path = claims_parquet(tmp_path)
    given = {"data.path": [str(path)], "data.label": "fraud", "data.client": "state", "schedule.cycles": 3}
    ends = []
    for where in ("off", "on", "on"):
        config = Config.resolve("cycp-pairwise", given | {"data.memory_map": where})
        ends.append(runner.train(config, prepare(config.data, config.seed)))
    for end in ends[1:]:
        assert end.best.auc == ends[0].best.auc
        assert all(torch.equal(value, ends[0].best.z[name]) for name, value in end.best.z.items())


def test_an_array_is_prepared_like_a_table(tmp_path, cache):
    rng = np.random.default_rng(0)
    x, y = rng.lognormal(size=(500, 3)).astype(np.float32), rng.random(500) < 0.3
    site = rng.integers(0, 5, 500)
    frame = pd.DataFrame(x, columns=["x0", "x1", "x2"]).assign(y=y.astype(int), site=site)
    frame.to_parquet(tmp_path / "table.parquet")
    table = prepared(tmp_path / "table.parquet", **{"data.label": "y", "data.client": "site"})
    for name, values in (("x", x), ("y", y), ("site", site)):
        np.save(tmp_path / f"{name}.npy", values)
    beside = {"data.label": str(tmp_path / "y.npy"), "data.client": str(tmp_path / "site.npy")}
    for where in ("off", "on", "on"):
        array = prepared(tmp_path / "x.npy", **beside, **{"data.memory_map": where})
        assert torch.equal(array.test.x, table.test.x)
        assert torch.equal(array.train.x[array.train.order], table.train.x[table.train.order])
        assert array.names == table.names


def test_the_second_time_nothing_is_read(tmp_path, cache, monkeypatch):
    path = claims_parquet(tmp_path)
    first = prepared(path, **{"data.memory_map": "on"})
    monkeypatch.setattr(preparing, "read_table", lambda *_, **__: pytest.fail("it was read again"))
    assert_same_rows(prepared(path, **{"data.memory_map": "on"}), first)
    monkeypatch.undo()
    monkeypatch.setenv("FEDAUC_CACHE", str(cache))
    claims_parquet(tmp_path, rows=500)  # another table under the same name
    assert len(prepared(path, **{"data.memory_map": "on"}).test.y) < len(first.test.y)
    assert len(list((cache / "rows").iterdir())) == 2


def test_large_tables_are_mapped_by_themselves(tmp_path, cache, monkeypatch):
    path = claims_parquet(tmp_path)
    prepared(path)
    assert not cache.exists()
    monkeypatch.setattr(kept, "LARGE", 600 * 8 * 4)  # 600 rows of 8 columns, exactly
    assert_same_rows(prepared(path), prepared(path, **{"data.memory_map": "off"}))
    assert len(list((cache / "rows").iterdir())) == 1
    csv = tmp_path / "claims.csv"
    pd.read_parquet(path).to_csv(csv, index=False)
    prepared(csv)  # a CSV file never is
    assert len(list((cache / "rows").iterdir())) == 1


def test_what_cannot_be_mapped_is_said(tmp_path, cache):
    with pytest.raises(InputError, match=r"memory_map=on: .*claims\.csv cannot be read column by column"):
        prepared(claims_csv(tmp_path), **{"data.memory_map": "on"})
    with pytest.raises(InputError, match="memory_map=on: digits is unpacked or generated as a whole"):
        prepare(Config.resolve("fedavg", {"data.source": "digits", "data.memory_map": "on"}).data, 0)
    with pytest.raises(InputError, match=r"nowhere\.parquet does not exist"):
        prepared(tmp_path / "nowhere.parquet", **{"data.memory_map": "on"})


def test_a_full_disk_is_said_or_gone_round(tmp_path, cache, monkeypatch):
    path = claims_parquet(tmp_path)
    in_memory = prepared(path, **{"data.memory_map": "off"})
    monkeypatch.setattr(mapped.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(InputError, match=r"cannot be kept in .*rows: .* GiB are needed.*FEDAUC_CACHE"):
        prepared(path, **{"data.memory_map": "on"})
    monkeypatch.setattr(kept, "LARGE", 0)
    held = prepared(path)
    assert "They are held in memory." in held.notes[-1]
    assert torch.equal(held.test.x, in_memory.test.x)
    assert list((cache / "rows").iterdir()) == []


def test_a_damaged_folder_is_named(tmp_path, cache):
    path = claims_parquet(tmp_path)
    prepared(path, **{"data.memory_map": "on"})
    (folder,) = (cache / "rows").iterdir()
    about = json.loads((folder / "about.json").read_text())
    (folder / "about.json").write_text(json.dumps(about | {"sizes": [1, 2, 3]}))
    with pytest.raises(InputError, match=f"{folder.name} are damaged .*remove that folder"):
        prepared(path, **{"data.memory_map": "on"})
    (folder / "x.npy").unlink()
    with pytest.raises(InputError, match=f"{folder.name} are damaged"):
        prepared(path, **{"data.memory_map": "on"})
