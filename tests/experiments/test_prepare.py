"""From settings to tensors: splits, clients, imbalance, files for validation and test."""

from __future__ import annotations

import numpy as np
import pytest

from fedauc.errors import InputError
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
