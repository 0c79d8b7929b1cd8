"""The command line as a user meets it: real files, exit codes, one sentence per mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from fedauc import cli
from fedauc.experiments.presets import PRESETS
from tests.experiments.tables import claims, claims_csv


@pytest.fixture
def fedauc(monkeypatch, capfd):
    """Runs a command line in this process; returns exit code, standard output and standard error."""

    def call(*args: object):
        monkeypatch.setattr(sys, "argv", ["fedauc", *map(str, args)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capfd.readouterr()
        return code, out, err

    return call


QUICK = ("--set", "cycles=4")


def test_train_predict_and_report(fedauc, tmp_path):
    path = claims_csv(tmp_path)
    run = tmp_path / "run"
    code, out, _ = fedauc(
        "train", "--data", path, "--label", "fraud", "--client", "state", "--out", run, *QUICK
    )
    assert code == 0
    assert "test AUC" in out
    assert (run / "report.html").exists()
    claims(rows=50, seed=9).drop(columns=["fraud", "state"]).to_csv(tmp_path / "new.csv", index=False)
    code, out, _ = fedauc("predict", run, "--data", tmp_path / "new.csv", "--out", tmp_path / "scores.csv")
    assert code == 0
    scores = pd.read_csv(tmp_path / "scores.csv")
    assert list(scores.columns) == ["row", "score", "probability"]
    assert len(scores) == 50
    assert scores.probability.between(0, 1).all()
    assert (np.argsort(scores.score) == np.argsort(scores.probability)).all()
    code, _, _ = fedauc("report", run, "--out", tmp_path / "again.html")
    assert code == 0
    assert (tmp_path / "again.html").read_text().startswith("<!doctype html")


def test_compare_prints_every_method_and_yardstick(fedauc, tmp_path):
    path = claims_csv(tmp_path)
    code, out, _ = fedauc(
        "compare", "--data", path, "--label", "fraud", "--client", "state", "--methods",
        "cycp-fedavg,cycp-pairwise", "--seeds", 1, "--out", tmp_path / "c", *QUICK,
    )  # fmt: skip
    assert code == 0
    for name in ("cycp-fedavg", "cycp-pairwise", "clients-alone", "central"):
        assert name in out
    assert (tmp_path / "c/report.html").exists()


def test_named_data_sets_need_no_files(fedauc, tmp_path):
    code, _, _ = fedauc(
        "train",
        "--data",
        "digits",
        "--set",
        "partition=dirichlet",
        "--set",
        "clients=5",
        "--out",
        tmp_path / "d",
        *QUICK,
    )
    assert code == 0
    code, _, err = fedauc("predict", tmp_path / "d", "--data", tmp_path / "x.csv")
    assert code == 2
    assert ".npy" in err


def test_lists(fedauc):
    code, out, _ = fedauc("methods")
    assert code == 0
    assert "cycp-pairwise" in out
    code, out, _ = fedauc("methods", "cycp-pairwise")
    assert "objective.surrogate" in out
    code, out, _ = fedauc("datasets")
    assert "fashion-mnist" in out
    assert "dirichlet" in out


def write(folder, frame):
    path = folder / "claims.csv"
    frame.to_csv(path, index=False)
    return path


def broken(name, tmp_path):
    """A file with one thing wrong."""
    frame = claims()
    if name == "one value":
        return write(tmp_path, frame.assign(fraud="no"))
    if name == "three values":
        return write(tmp_path, frame.assign(fraud=np.resize(["a", "b", "c"], len(frame))))
    if name == "all NaN":
        return write(tmp_path, frame.assign(empty=np.nan))
    if name == "single row":
        return write(tmp_path, frame.assign(state=["lonely", *frame.state[1:]]))
    if name == "text in numbers":
        return write(tmp_path, frame.assign(amount=["lots", *frame.amount[1:].round(2).astype(str)]))
    path = tmp_path / "claims.csv"
    path.write_text("" if name == "empty" else "amount,age\n")
    if name == "unreadable":
        path = tmp_path / "claims.parquet"
        path.write_bytes(b"not parquet")
    return path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("one value", ["'fraud'", "no"]),
        ("three values", ["'fraud'", "--positive"]),
        ("all NaN", ["'empty'"]),
        ("single row", ["'lonely'"]),
        ("text in numbers", ["'amount'", "lots"]),
        ("empty", ["claims.csv", "empty"]),
        ("no rows", ["claims.csv", "no rows"]),
        ("unreadable", ["claims.parquet"]),
    ],
)
def test_bad_files_get_one_sentence_and_exit_code_2(fedauc, tmp_path, name, words):
    path = broken(name, tmp_path)
    code, _, err = fedauc(
        "train", "--data", path, "--label", "fraud", "--client", "state", "--out", tmp_path / "run"
    )
    assert code == 2
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--label", "froud"], ["'froud'", "'fraud'"]),
        (["--client", "stat"], ["'stat'", "'state'"]),
        (["--method", "cycp-parwise"], ["'cycp-parwise'", "'cycp-pairwise'"]),
        (["--set", "etaa=1"], ["'etaa'", "'eta'"]),
        (["--set", "rule=local-sgda"], ["active-passive"]),
        (["--model", "cnn"], ["cnn", "images"]),
        (["--device", "tpu"], ["tpu"]),
        (["--device", "cpu:7"], ["cpu:7"]),
        (["--seed", "99999999999999999999"], ["seed", "2^63"]),
        (["--set", "groups=99"], ["groups=99"]),
        (["--data", "nowhere.csv"], ["nowhere.csv"]),
    ],
)
def test_bad_options_get_one_sentence_and_exit_code_2(fedauc, tmp_path, more, words):
    given = {
        "--data": claims_csv(tmp_path),
        "--label": "fraud",
        "--client": "state",
        "--out": tmp_path / "run",
    }
    if more[0] in given:
        given[more[0]] = more[1]
        more = []
    options = [text for pair in given.items() for text in pair]
    code, _, err = fedauc("train", *options, *more)
    assert code == 2
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_a_folder_with_a_run_is_refused(fedauc, tmp_path):
    args = (
        "train",
        "--data",
        claims_csv(tmp_path),
        "--label",
        "fraud",
        "--client",
        "state",
        "--out",
        tmp_path / "r",
        *QUICK,
    )
    assert fedauc(*args)[0] == 0
    code, _, err = fedauc(*args)
    assert code == 2
    assert "already holds a run" in err
    assert fedauc(*args, "--resume")[0] == 0


def test_missing_feature_at_prediction_is_named(fedauc, tmp_path):
    run = tmp_path / "run"
    fedauc(
        "train", "--data", claims_csv(tmp_path), "--label", "fraud", "--client", "state", "--out", run, *QUICK
    )
    claims(rows=20).drop(columns="amount").to_csv(tmp_path / "new.csv", index=False)
    code, _, err = fedauc("predict", run, "--data", tmp_path / "new.csv", "--out", tmp_path / "s.csv")
    assert code == 2
    assert "'amount'" in err


def test_scores_never_overwrite_the_rows_they_are_of(fedauc, tmp_path):
    run = tmp_path / "run"
    path = claims_csv(tmp_path)
    fedauc("train", "--data", path, "--label", "fraud", "--client", "state", "--out", run, *QUICK)
    before = path.read_bytes()
    code, _, err = fedauc("predict", run, "--data", path, "--out", path)
    assert code == 2
    assert "another name" in err
    assert path.read_bytes() == before
    for name in ("other.csv", "other.parquet"):
        (other := tmp_path / name).write_bytes(before)
        code, _, err = fedauc("predict", run, "--data", path, "--out", other)
        assert code == 2
        assert "holds something else than scores" in err
        assert other.read_bytes() == before
    for _ in range(2):  # (scores may be made again)
        for name in ("scores.csv", "scores.parquet"):
            assert fedauc("predict", run, "--data", path, "--out", tmp_path / name)[0] == 0


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere", r"nowhere does not exist."),
        ("run/model.safetensors", r"model.safetensors is a file; the folder of a run is needed"),
        ("", r"holds no trained model"),
    ],
)
def test_what_is_no_run_is_said_at_prediction(fedauc, tmp_path, name, sentence):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/model.safetensors").touch()
    code, _, err = fedauc("predict", tmp_path / name, "--data", claims_csv(tmp_path))
    assert code == 2
    assert sentence in " ".join(err.split())


def test_text_among_numbers_at_prediction_has_advice_that_can_be_followed(fedauc, tmp_path):
    args = ("--data", claims_csv(tmp_path), "--label", "fraud", "--client", "state")
    fedauc("train", *args, "--out", tmp_path / "run", *QUICK)
    claims(rows=20).assign(amount=["many"] + ["1"] * 19).to_csv(tmp_path / "new.csv", index=False)
    code, _, err = fedauc("predict", tmp_path / "run", "--data", tmp_path / "new.csv")
    assert code == 2
    assert "'many'" in err
    assert "--drop" not in err


@pytest.mark.parametrize("name", ["metrics.jsonl", "report.html"])
def test_somebody_elses_files_are_not_replaced(fedauc, tmp_path, name):
    args = ("--data", claims_csv(tmp_path), "--label", "fraud", "--client", "state", *QUICK)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("mine")
    code, _, err = fedauc("train", *args, "--out", tmp_path / "mine")
    assert code == 2
    assert f"{name} of something else than a run; choose another --out" in err
    assert (tmp_path / "mine" / name).read_text() == "mine"


def test_a_comparison_of_nothing_is_refused(fedauc, tmp_path):
    args = ("--data", claims_csv(tmp_path), "--label", "fraud", "--client", "state")
    code, _, err = fedauc("compare", *args, "--methods", " ,", "--out", tmp_path / "c")
    assert (code, err) == (2, "fedauc: --methods names none.\n")


def test_a_refused_setting_leaves_nothing_that_blocks_the_next_try(fedauc, tmp_path):
    args = (
        "train",
        "--data",
        claims_csv(tmp_path),
        "--label",
        "fraud",
        "--client",
        "state",
        "--out",
        tmp_path / "r",
    )
    for wrong in ("groups=99", "model=cnn"):
        assert fedauc(*args, *QUICK, "--set", wrong)[0] == 2
        assert not (tmp_path / "r").exists()
    assert fedauc(*args, *QUICK)[0] == 0


def test_a_place_that_cannot_be_written_is_named(fedauc, tmp_path):
    (tmp_path / "file").write_text("here already")
    path = claims_csv(tmp_path)
    out = tmp_path / "file" / "run"
    code, _, err = fedauc(
        "train", "--data", path, "--label", "fraud", "--client", "state", "--out", out, *QUICK
    )
    assert code == 2
    assert "cannot be used" in err


@pytest.mark.parametrize("more", [["--jobs", "0"], ["--seeds", "0"], ["--seed", "-1"]])
def test_impossible_numbers_are_refused(fedauc, tmp_path, more):
    args = (
        "compare",
        "--data",
        claims_csv(tmp_path),
        "--label",
        "fraud",
        "--client",
        "state",
        "--out",
        tmp_path / "c",
    )
    code, _, err = fedauc(*args, *more)
    assert code == 2
    assert more[0] in err


@pytest.mark.slow
def test_an_interrupted_run_says_how_to_go_on(tmp_path):
    command = [
        sys.executable, "-m", "fedauc", "train", "--data", claims_csv(tmp_path), "--label", "fraud",
        "--client", "state", "--out", tmp_path / "run", "--set", "cycles=5000", "--set", "compile=false",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "run/checkpoint.safetensors").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "--resume" in err


@pytest.mark.slow
def test_as_a_real_process_it_is_quiet_in_a_pipe(tmp_path):
    path = claims_csv(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "fedauc", "train", "--data", path, "--label", "fraud", "--client", "state",
         "--out", tmp_path / "run", *QUICK],
        capture_output=True, text=True, check=True, env=os.environ | {"NO_COLOR": "1"},
    )  # fmt: skip
    assert "\x1b" not in done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "more"),
    [
        (("--label", "fraud", "--client", "state"), ("--set", "cycles=2")),
        (("--data", "digits", "--positive", "8"), ("--set", "cycles=1", "--set", "partition=dirichlet",
          "--set", "data.clients=8", "--set", "data.alpha=0.3")),
    ],
    ids=["a table", "images"],
)  # fmt: skip
def test_every_method_runs_by_name(fedauc, tmp_path, data, more):
    """On any data source, in one comparison, with a report of all of them."""
    if "--data" not in data:
        data = ("--data", claims_csv(tmp_path), *data)
    out = tmp_path / "all"
    code, text, err = fedauc(
        "compare", *data, "--methods", ",".join(PRESETS), "--seeds", 1, "--no-yardsticks", "--out", out, *more
    )
    assert code == 0, err
    assert all(name in text for name in PRESETS)
    rows = json.loads((out / "compare.json").read_text())["rows"]
    assert {row["method"] for row in rows} == set(PRESETS)
    timed = {row["method"] for row in rows if row["seconds_up"] > 0}
    assert timed == {name for name, preset in PRESETS.items() if preset.uplink != "none"}


@pytest.mark.parametrize(
    ("method", "setting", "sentence"),
    [
        ("cycp-pairwise", "objective=minimax-auc", "needs a pairwise objective"),
        ("cycp-minimax", "objective=pairwise-auc", "compares examples of different clients"),
        ("local-sgdam", "correction=control-variates", "correct plain gradient steps"),
        ("local-scgdam", "objective=cross-entropy", "cross-entropy of cross-entropy"),
        ("cycp-minimax", "correction=ratio-weights", "nothing to make up for"),
        ("codasca", "server=agnostic", "would not cancel"),
        ("fedavg", "reestimate=true", "none that could be estimated"),
        ("coda", "statistics=local", "no statistics of its own"),
        ("two-stage-codasca", "warmup=nonsense", "no method 'nonsense'"),
    ],
)
def test_what_the_mathematics_forbids_is_said_at_once(fedauc, tmp_path, method, setting, sentence):
    path = claims_csv(tmp_path)
    code, _, err = fedauc(
        "train", "--data", path, "--label", "fraud", "--client", "state", "--method", method,
        "--set", setting, "--out", tmp_path / "run",
    )  # fmt: skip
    assert code == 2
    assert sentence in " ".join(err.split())
    assert not (tmp_path / "run").exists()
