"""A run's folder, and that a killed run resumes to the very same numbers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file, save_file

from fedauc import metrics
from fedauc.core import checkpoint
from fedauc.core.loop import RunState
from fedauc.errors import InputError
from fedauc.experiments import records, runner
from fedauc.experiments.config import Config
from fedauc.experiments.predict import Predictor
from fedauc.experiments.prepare import prepare
from tests.experiments.tables import claims_csv


def config_for(path, method="cycp-pairwise", **more):
    given = {"data.path": [str(path)], "data.label": "fraud", "data.client": "state", "cycles": 6}
    return Config.resolve(method, given | more)


@pytest.fixture
def finished(tmp_path):
    config = config_for(claims_csv(tmp_path))
    return config, tmp_path / "run", runner.run(config, tmp_path / "run")


def test_the_folder_holds_what_is_promised(finished):
    _, folder, result = finished
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "config.json", "metrics.jsonl", "result.json", "model.safetensors", "preprocess.json", "report.html"
    }  # fmt: skip
    for key in (
        "test_auc", "valid_auc", "test_auc_ci", "per_client", "rounds", "bytes_up", "bytes_down", "seconds",
        "seed", "method", "config", "versions",
    ):  # fmt: skip
        assert key in result
    assert result == json.loads((folder / "result.json").read_text())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == list(range(1, result["rounds"] + 1))
    assert {"valid_auc", "loss", "bytes_up", "bytes_down", "seconds"} <= rows[-1].keys()
    assert rows[-1]["bytes_up"] == result["bytes_up"]


def test_the_model_is_chosen_on_validation(finished):
    _, folder, result = finished
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    validated = {row["round"]: row["valid_auc"] for row in rows if row["valid_auc"] is not None}
    assert validated[result["best_round"]] == result["valid_auc"] == rows[-1]["chosen_auc"]
    peak = max(validated, key=lambda round: (validated[round], -round))
    assert result["best_round"] >= peak  # never an earlier round than the best


def test_the_saved_model_gives_the_reported_auc(finished):
    config, folder, result = finished
    data = prepare(config.data, config.seed)
    scores = Predictor.load(folder).scores(data.test.x.numpy())
    assert metrics.auc(scores, data.test.y) == result["test_auc"]
    low, high = result["test_auc_ci"]
    assert low < result["test_auc"] < high


def test_per_client_rows_add_up(finished):
    config, _, result = finished
    data = prepare(config.data, config.seed)
    assert sum(row["rows"] for row in result["per_client"]) == len(data.test.y)
    assert sum(row["train_positives"] for row in result["per_client"]) == data.train.counts[:, 1].sum()
    assert all((row["auc"] is None) == (row["why"] is not None) for row in result["per_client"])


def test_a_finished_run_is_not_overwritten(finished):
    config, folder, result = finished
    with pytest.raises(InputError, match="already holds a run"):
        runner.run(config, folder)
    assert runner.run(config, folder, resume=True) == result


def test_another_configuration_is_not_resumed(finished):
    config, folder, _ = finished
    with pytest.raises(InputError, match=r"another configuration \(schedule.eta\)"):
        runner.run(config.changed({"eta": 0.01}), folder, resume=True)


def test_a_step_size_that_explodes_is_named(tmp_path):
    config = config_for(claims_csv(tmp_path), "cycp-minimax", eta=1e4, link="identity")
    with pytest.raises(InputError, match=r"no longer finite.*schedule\.eta"):
        runner.run(config, tmp_path / "run")


def test_a_damaged_checkpoint_is_named(tmp_path):
    config = config_for(claims_csv(tmp_path))
    folder = tmp_path / "run"
    folder.mkdir()
    records.write_json(folder / "config.json", config.as_dict())
    (folder / "checkpoint.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(InputError, match=r"checkpoint\.safetensors is damaged"):
        runner.run(config, folder, resume=True)


@pytest.mark.parametrize("file", ["config.json", "result.json"])
@pytest.mark.parametrize("content", [b"[]", b"{}", b"\xff"])
def test_a_damaged_file_of_a_finished_run_is_named(finished, tmp_path, file, content):
    config, folder, _ = finished
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / file).write_bytes(content)
    with pytest.raises(InputError, match=rf"{file} (is damaged: .* choose another folder|cannot be read)"):
        runner.run(config, tmp_path / "copy", resume=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["cycp-fedavg", "cycp-pairwise", "cycp-pauc", "a-scaffold", "two-stage-codasca"]
)
def test_killed_and_resumed_is_never_stopped_bit_for_bit(tmp_path, method):
    path = claims_csv(tmp_path)
    more = {"cycles": 120, "seed": 3, "stage_cycles": 25}  # it must not end before it is killed
    undisturbed = runner.run(config_for(path, method, **more), tmp_path / "undisturbed")
    killed = tmp_path / "killed"
    command = [
        sys.executable, "-m", "fedauc", "train", "--data", str(path), "--label", "fraud", "--client", "state",
        "--method", method, "--seed", "3", "--out", str(killed),
        "--set", "cycles=120", "--set", "stage_cycles=25",
    ]  # fmt: skip
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 120
        while not (killed / "checkpoint.safetensors").exists():
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(0.05)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (killed / "result.json").exists()
    subprocess.run([*command, "--resume"], check=True, capture_output=True)
    resumed = json.loads((killed / "result.json").read_text())
    for key in (
        "test_auc",
        "valid_auc",
        "best_round",
        "rounds",
        "bytes_up",
        "bytes_down",
        "ledger",
        "per_client",
    ):
        assert resumed[key] == undisturbed[key], key
    a, b = load_file(tmp_path / "undisturbed/model.safetensors"), load_file(killed / "model.safetensors")
    assert all(np.array_equal(a[name].numpy(), b[name].numpy()) for name in a)

    def curve(folder):
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]

    assert curve(killed) == curve(tmp_path / "undisturbed")


def test_a_run_with_few_checkpoints_pauses_and_resumes_bit_for_bit(tmp_path, monkeypatch):
    """As if they took so long that only the first is written, and one where the run pauses."""

    class Stops(runner.Silent):
        def round(self, record, auc, traffic):
            if record.round == stop:
                raise KeyboardInterrupt

    path, folder = claims_csv(tmp_path), tmp_path / "run"
    undisturbed = runner.run(config_for(path), tmp_path / "undisturbed")
    monkeypatch.setattr(checkpoint, "QUICK", -1.0)
    monkeypatch.setattr(checkpoint, "SHARE", 1e-9)
    cycle, stop = undisturbed["rounds"] // 6, undisturbed["rounds"] // 2 + 1
    with pytest.raises(KeyboardInterrupt):
        runner.run(config_for(path), folder, watch=Stops())
    saved = folder / "checkpoint.safetensors"
    assert checkpoint.read_tensors(saved)[1]["round"] == cycle
    with pytest.raises(runner.Paused):
        runner.run(config_for(path), folder, resume=True, until=5 * cycle)
    assert checkpoint.read_tensors(saved)[1]["round"] == 5 * cycle
    resumed = runner.run(config_for(path), folder, resume=True)
    same = undisturbed.keys() - {"seconds", "started", "finished"}
    assert {key: resumed[key] for key in same} == {key: undisturbed[key] for key in same}


@pytest.mark.parametrize("change", ["other values", "a column more"])
def test_a_run_does_not_go_on_with_rows_that_have_changed(tmp_path, change):
    path, folder = claims_csv(tmp_path), tmp_path / "run"
    with pytest.raises(runner.Paused):
        runner.run(config_for(path), folder, until=4)
    table = pd.read_csv(path)
    table["amount" if change == "other values" else "more"] = table["amount"].to_numpy()[::-1]
    table.to_csv(path, index=False)
    with pytest.raises(InputError, match=r"The rows have changed since the run in .*run was interrupted"):
        runner.run(config_for(path), folder, resume=True)


def test_a_run_goes_on_where_its_rows_have_moved_to(tmp_path):
    path, folder = claims_csv(tmp_path), tmp_path / "run"
    with pytest.raises(runner.Paused):
        runner.run(config_for(path), folder, until=4)
    moved = path.rename(tmp_path / "moved.csv")
    result = runner.run(config_for(moved), folder, resume=True)
    assert result["test_auc"] == runner.run(config_for(moved), tmp_path / "undisturbed")["test_auc"]
    again = config_for(claims_csv(tmp_path))
    with pytest.raises(InputError, match=r"another configuration \(data.path\)"):
        runner.run(again, folder, resume=True)  # (finished, of whatever rows)
    rows = prepare(again.data, again.seed, again.device)
    assert runner.run(again, folder, resume=True, prepared=rows) == result
    claims_csv(tmp_path, seed=1)
    rows = prepare(again.data, again.seed, again.device)
    with pytest.raises(InputError, match=r"The rows have changed since the run in .*run ended"):
        runner.run(again, folder, resume=True, prepared=rows)


def test_a_run_goes_on_from_its_warm_up_where_a_folder_has_moved_to(tmp_path):
    home, folder = tmp_path / "home", tmp_path / "run"
    home.mkdir()
    path = claims_csv(home)
    (home / "valid.csv").write_text(path.read_text())

    def config(home):
        more = {"warmup": "cycp-fedavg", "warmup_cycles": 2, "head": "fresh", "model": "mlp", "hidden": "4"}
        return config_for(home / path.name, valid=str(home / "valid.csv"), **more)

    with pytest.raises(runner.Paused):
        runner.run(config(home), folder, until=4)
    assert (folder / "warmup/result.json").exists()
    whole = runner.run(config(home), tmp_path / "undisturbed")
    moved = home.rename(tmp_path / "elsewhere")
    assert runner.run(config(moved), folder, resume=True)["test_auc"] == whole["test_auc"]


def test_rounds_that_wait_for_their_turn_hold_no_state(tmp_path, monkeypatch):
    """A hundred of them, while a checkpoint is written, would be all that clients kept, many times over."""
    waiting = []

    def do(self, task, *, large):
        waiting.append((large, [type(each) for each in task.args]))
        task()

    monkeypatch.setattr(runner.Beside, "do", do)
    runner.run(config_for(claims_csv(tmp_path), "a-scaffold"), tmp_path / "run")
    assert {large for large, _ in waiting} == {True, False}
    assert all(large == (RunState in types) for large, types in waiting)


def test_a_setting_that_is_new_had_its_default_in_older_runs():
    config = Config.resolve("cycp-minimax", {})
    old = config.as_dict()
    del old["objective"]["start"]
    assert config.differing(old) == []
    assert config.changed({"objective.start": "middle"}).differing(old) == ["objective.start"]
    assert config.changed({"schedule.eta": 7.0}).differing(old) == ["schedule.eta"]
    other = Config.resolve("local-sgdm", {"objective": "minimax-auc"})
    old = other.as_dict()
    del old["objective"]["start"]
    assert other.differing(old) == []


@pytest.mark.parametrize(("link", "said"), [("sigmoid", True), ("identity", False)])
def test_scores_that_have_run_away_together_are_noted(tmp_path, link, said):
    path, file = claims_csv(tmp_path), tmp_path / "far.safetensors"
    config = config_for(path, "cycp-minimax", link=link, eta=1e-9, model="mlp", hidden="4", cycles=1)
    runner.run(config, tmp_path / "near")
    far = load_file(tmp_path / "near" / "model.safetensors")
    save_file(far | {"3.bias": far["3.bias"] - 1000}, file)
    results = [
        records.read_json(tmp_path / "near" / "result.json"),
        runner.run(config.changed({"init_from": str(file)}), tmp_path / "far"),
    ]
    notes = [[note for note in result["data"]["notes"] if "below -6" in note] for result in results]
    assert [len(found) for found in notes] == [0, int(said)]
