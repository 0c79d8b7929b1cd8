"""Files of a search that are damaged: whoever reads them says which, and no trial is passed over silently."""

from __future__ import annotations

import json
import random
import shutil

import pytest
from typer.testing import CliRunner

from fedauc.cli import app
from fedauc.errors import InputError
from fedauc.experiments.tune import tune
from tests.experiments.searches import METHOD, Interrupts, settings_for
from tests.experiments.tables import claims_csv


def spoil(run):
    """What a disk can leave of a run that pauses."""
    (run / "checkpoint.safetensors").write_bytes(random.Random(0).randbytes(500))
    (run / "checkpoint.previous.safetensors").unlink(missing_ok=True)


def given_to(command, folder, *more):
    path = claims_csv(folder)
    given = [command, "--data", path, "--label", "fraud", "--client", "state", "--method", METHOD, "--quiet"]
    return [str(each) for each in (*given, "--set", "cycles=9", "--out", folder / "out", *more)]


def test_a_trial_that_its_files_have_stopped_is_missed(tmp_path):
    """The best is that of the others, which is said, also by the command's status."""
    run, out = CliRunner().invoke, tmp_path / "out"
    first = run(app, given_to("tune", tmp_path, "--grid", "eta=0.0001,0.1,0.3"))
    assert first.exit_code == 0, first.output
    trained = sorted(path.parent.parent.name for path in out.glob("trial-*/seed-0/result.json"))
    assert "trial-001" not in trained
    spoil(out / "trial-001/seed-0")
    again = given_to("tune", tmp_path, "--grid", "eta=0.1,0.0001", "--resume")
    ended = run(app, again)
    assert ended.exit_code == 1, ended.output
    content = json.loads((out / "tune.json").read_text())
    assert content["missing"] == [1]
    assert content["best"]["settings"] == {"eta": 0.0001}
    assert content["best"]["test_auc"] > 0
    (note,) = [note for note in content["best"]["notes"] if "trial-001 (eta=0.1)" in note]
    assert "the best is the best of the others" in note
    assert "best of the others: eta=0.0001" in ended.output
    assert "\nbest:" not in ended.output
    assert "was tried" not in ended.output  # (what is missing may be better than any end)
    assert "is damaged and cannot be read" in content["trials"][-1]["note"]
    (out / "trial-001/seed-0/checkpoint.safetensors").unlink()
    mended = run(app, again)
    assert mended.exit_code == 0, mended.output
    assert json.loads((out / "tune.json").read_text())["missing"] == []
    assert "best: eta=0.1\n" in mended.output


def test_where_all_that_is_left_are_stopped_by_their_files_that_is_said(tmp_path):
    """Of those whose settings are to blame nothing would be gained by trying again."""
    settings, out = settings_for(tmp_path), tmp_path / "out"
    grid = {"eta": [1e30, 0.1, 0.0001], "objective.link": ["identity"]}
    with pytest.raises(KeyboardInterrupt):
        tune(METHOD, settings, grid, [0], out, watch=Interrupts(10))
    runs = sorted(path.parent for path in out.glob("trial-*/seed-0/checkpoint.safetensors"))
    assert [run.parent.name for run in runs] == ["trial-001", "trial-002"]
    for run in runs:
        spoil(run)
    with pytest.raises(InputError, match=r"All trials have failed; one of them: \S+/trial-001/seed-0/checkp"):
        tune(METHOD, settings, grid, [0], out, resume=True)
    assert json.loads((out / "tune.json").read_text())["missing"] == [1, 2]


@pytest.mark.parametrize("damage", [b"\xff\xfe" * 40, b"[]\n" * 9, b"{}\n" * 9, b""])
def test_metrics_that_are_none_stop_their_trial_only(tmp_path, damage):
    settings, out = settings_for(tmp_path), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        tune(METHOD, settings, {"eta": [0.1, 0.3, 1.0]}, [0], out, watch=Interrupts(10))
    (out / "trial-000/seed-0/metrics.jsonl").write_bytes(damage)
    content = tune(METHOD, settings, {"eta": [0.1, 0.3, 1.0]}, [0], out, resume=True)
    assert content["missing"] == [0]
    assert "has lost lines of its metrics.jsonl; remove the folder" in content["trials"][-1]["note"]


@pytest.mark.parametrize("content", ["[]", "{}", '{"method": 3}', "{"])
def test_a_configuration_that_is_none_stops_its_trial_only(tmp_path, content):
    settings, out = settings_for(tmp_path) | {"schedule.cycles": 3}, tmp_path / "out"
    tune(METHOD, settings, {"eta": [0.1, 0.3, 1.0]}, [0], out)
    left = next(path for path in sorted(out.glob("trial-*")) if not (path / "seed-0/result.json").exists())
    (left / "seed-0/config.json").write_text(content)
    found = tune(METHOD, settings, {"eta": [0.1, 0.3, 1.0]}, [0], out, resume=True, factor=1)
    assert [f"trial-{trial:03d}" for trial in found["missing"]] == [left.name]
    assert "config.json" in found["trials"][-1]["note"]


DAMAGES = [
    *(("tune.json", text, "choose another --out") for text in ("[]", "{}", '{"schema": 2}', "{", "")),
    ("tune.json", {"config": {}}, "choose another --out"),
    ("tune.json", {"grid": []}, "choose another --out"),
    ("tune.json", {"trials": [3]}, "choose another --out"),
    ("tune.json", {"trials": [{"settings": {"eta": 7}}] * 2}, "choose another --out"),
    *(("{0}/trial.json", text, r"remove \S+/{0} to train") for text in ("[]", "{}", '{"config": {}}', "{")),
    ("{0}/trial.json", {"every": None}, r"remove \S+/{0} to train"),
    ("{0}/trial.json", {"config": {"method": "none"}}, r"remove \S+/{0} to train"),
    *(("{0}/result.json", text, r"remove \S+/{0} to train") for text in ("[]", "{}", "{")),
    ("{0}/result.json", {"valid_auc": None}, r"remove \S+/{0} to train"),
    ("{0}/result.json", {"data": {}}, r"remove \S+/{0} to train"),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A finished search of two trials that were drawn: its folder and its settings."""
    folder = tmp_path_factory.mktemp("small")
    settings = settings_for(folder) | {"schedule.cycles": 1}
    tune(METHOD, settings, {"eta": [0.1, 0.3, 1.0]}, [0], folder / "out", most=2)
    return folder / "out", settings


@pytest.mark.parametrize(("file", "damage", "what_to_do"), DAMAGES)
def test_a_file_that_is_damaged_is_named(small, tmp_path, file, damage, what_to_do):
    folder, settings = small
    out = shutil.copytree(folder, tmp_path / "out")
    run = json.loads((out / "tune.json").read_text())["best"]["runs"][0]
    path = out / file.format(run)
    if isinstance(damage, dict):
        damage = json.dumps(json.loads(path.read_text()) | damage)
    path.write_text(damage)
    with pytest.raises(InputError, match=what_to_do.format(run)) as error:
        tune(METHOD, settings, {"eta": [0.1, 0.3, 1.0]}, [0], out, most=2, resume=True)
    assert str(path) in str(error.value)
    assert str(error.value).count(". ") == 0
    assert "version" not in str(error.value)
