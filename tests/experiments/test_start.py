"""Warm starts: from a saved model, with or without its head, and from another method."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from fedauc import models
from fedauc.errors import InputError
from fedauc.experiments import runner, start
from fedauc.experiments.config import Config
from tests.experiments.tables import claims_csv


def config_for(path, method="coda+", **more):
    given = {"data.path": [str(path)], "data.label": "fraud", "data.client": "state", "cycles": 3}
    wanted = given | {"model": "mlp", "hidden": "6"} | more
    return Config.resolve(method, {key: value for key, value in wanted.items() if value is not None})


@pytest.fixture
def first(tmp_path):
    path = claims_csv(tmp_path)
    runner.run(config_for(path, "fedavg"), tmp_path / "first")
    return path, tmp_path / "first"


def begun(config, monkeypatch):
    """The parameters that training starts from."""
    seen = []
    begin = runner.begin

    def watched(fed, params):
        seen.append(params)
        return begin(fed, params)

    monkeypatch.setattr(runner, "begin", watched)
    prepared = runner.prepare(config.data, config.seed)
    runner.train(config, prepared)
    return seen[-1], models.init(config.component("model"), prepared.shape, config.seed)


@pytest.mark.parametrize("head", ["kept", "fresh", "zero"])
def test_a_saved_model_is_where_training_starts(first, monkeypatch, head):
    path, folder = first
    saved = load_file(folder / "model.safetensors")
    params, (model, fresh) = begun(config_for(path, init_from=str(folder), head=head), monkeypatch)
    assert params.keys() == saved.keys()
    assert model.head == ("3.weight", "3.bias")
    new = {"fresh": fresh, "zero": {name: torch.zeros_like(fresh[name]) for name in model.head}}
    for name, value in params.items():
        expected = new[head] if head in new and name in model.head else saved
        assert torch.equal(value, expected[name]), name


def test_a_warm_up_sees_the_same_views():
    config = Config.resolve("two-stage-codasca", {"train.augment": "crop-flip", "model": "cnn"})
    assert config.before().train.augment == "crop-flip"


def test_all_rows_begin_with_the_same_score(first, monkeypatch):
    path, _ = first
    params, (model, fresh) = begun(config_for(path, head="zero"), monkeypatch)
    rows = torch.randn(9, fresh["1.weight"].shape[1], generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.scores(params, rows), torch.zeros(9))
    assert all(torch.equal(params[name], fresh[name]) for name in fresh if name not in model.head)


def test_a_file_is_as_good_as_a_folder(first, monkeypatch):
    path, folder = first
    file = folder / "model.safetensors"
    params, _ = begun(config_for(path, init_from=str(file)), monkeypatch)
    assert all(torch.equal(params[name], value) for name, value in load_file(file).items())


def test_what_does_not_fit_is_named(first, tmp_path):
    path, folder = first
    unfit = r"does not fit this run's \(missing or of another shape: 1\.weight and 2 more\)"
    for wrong, sentence in (
        ({"init_from": str(tmp_path / "nothing")}, "does not exist"),
        ({"init_from": str(folder), "hidden": "7"}, unfit),
        ({"init_from": str(folder), "warmup": "fedavg"}, "choose one"),
        ({"init_from": str(path)}, "is not a safetensors file"),
        ({"head": "fresh"}, "needs a model to start from"),
        ({"init_from": str(folder), "head": "fresh", "model": "linear", "hidden": None}, "only a head"),
    ):
        with pytest.raises(InputError, match=sentence):
            runner.run(config_for(path, **wrong), tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_columns_in_another_order_are_refused(first, tmp_path):
    """Weights go by position: the same numbers under other names would start from the wrong ones."""
    path, folder = first
    table = pd.read_csv(path)
    features = [name for name in table if name not in ("fraud", "state")]
    moved = tmp_path / "moved.csv"
    table[[*reversed(features), "fraud", "state"]].to_csv(moved, index=False)
    with pytest.raises(InputError, match="other columns, or in another order"):
        runner.run(config_for(moved, init_from=str(folder)), tmp_path / "run")


def test_features_fit_where_the_head_does_not(tmp_path):
    """Another number of outputs: the error says how to go on, and it works."""
    model, params = models.init(models.MLP((6,)), (4,), 0)
    saved = params | {"3.weight": torch.ones(10, 6), "3.bias": torch.ones(10)}
    save_file(saved, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="head=fresh"):
        start.from_file(tmp_path / "other.safetensors", model, params, "kept")
    taken = start.from_file(tmp_path / "other.safetensors", model, params, "fresh")
    assert all(torch.equal(taken[name], params[name]) for name in params)


@pytest.mark.parametrize(
    ("model", "head", "lost"), [("linear", "fresh", True), ("linear", "kept", False), ("mlp", "fresh", False)]
)
def test_a_warm_up_that_leaves_nothing_behind_is_noted(tmp_path, model, head, lost):
    more = {"model": model, "hidden": "6" if model == "mlp" else None, "head": head, "warmup_cycles": 1}
    result = runner.run(config_for(claims_csv(tmp_path), "two-stage-codasca", **more), tmp_path / "run")
    assert any("Nothing is left of the warm-up" in note for note in result["data"]["notes"]) == lost


def test_two_stages_are_two_runs(tmp_path):
    """`two-stage-codasca` is fedavg, then codasca from its model with a fresh head; the ledger has both."""
    path = claims_csv(tmp_path)
    small = {"model": "mlp", "hidden": "6", "cycles": 3}
    both = runner.run(config_for(path, "two-stage-codasca", warmup_cycles=2), tmp_path / "both")
    first = runner.run(config_for(path, "fedavg", cycles=2), tmp_path / "first")
    assert (tmp_path / "both/warmup/model.safetensors").read_bytes() == (
        tmp_path / "first/model.safetensors"
    ).read_bytes()
    second = config_for(path, "codasca", init_from=str(tmp_path / "first"), head="fresh", **small)
    then = runner.run(second, tmp_path / "second")
    assert both["test_auc"] == then["test_auc"]
    setup = sum(size for name, size in first["ledger"]["up"].items() if name.startswith("setup: "))
    assert both["bytes_up"] == then["bytes_up"] + first["bytes_up"] - setup  # which happens once
    assert both["ledger"]["up"]["warm-up: model"] == first["ledger"]["up"]["model"]
    in_memory = runner.train(config_for(path, "two-stage-codasca", warmup_cycles=2), runner.prepare(
        config_for(path).data, 0))  # fmt: skip
    assert in_memory.best.auc == both["valid_auc"]
    assert in_memory.state.ledger.total_up == both["bytes_up"]
