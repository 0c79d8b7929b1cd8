"""Comparisons: same rows for all, yardsticks, resume, parallel runs."""

from __future__ import annotations

import csv
import json
import shutil
from typing import ClassVar

import pytest

from fedauc.errors import InputError
from fedauc.experiments.compare import ALONE, CENTRAL, compare, relevant
from fedauc.experiments.runner import Silent
from tests.experiments.tables import claims_csv

METHODS = ["cycp-fedavg", "cycp-pairwise"]


def settings_for(path):
    return {"data.path": [str(path)], "data.label": "fraud", "data.client": "state", "cycles": 5}


def test_a_row_per_method_and_yardstick(tmp_path):
    content = compare(METHODS, settings_for(claims_csv(tmp_path)), [0, 1], tmp_path / "out")
    rows = {row["method"]: row for row in content["rows"]}
    assert list(rows) == [*METHODS, ALONE, CENTRAL]
    for row in rows.values():
        assert row["test_auc"] == pytest.approx(sum(row["test_auc_by_seed"]) / 2)
        assert 0 <= row["test_auc"] <= 1
    with open(tmp_path / "out/compare.csv") as file:
        table = list(csv.DictReader(file))
    assert [row["method"] for row in table] == list(rows)
    assert float(table[0]["test_auc"]) == rows["cycp-fedavg"]["test_auc"]
    assert json.loads((tmp_path / "out/compare.json").read_text())["pairwise"][0]["of"] == 2
    with pytest.raises(InputError, match="already holds a comparison"):
        compare(METHODS, settings_for(tmp_path / "claims.csv"), [0, 1], tmp_path / "out")


def test_every_run_is_shown_also_those_of_clients_alone(tmp_path):
    class Titles(Silent):
        begun: ClassVar[list[str]] = []

        def begin(self, title, rounds, done):
            self.begun.append(title)

    compare(["cycp-pairwise"], settings_for(claims_csv(tmp_path)), [0], tmp_path / "out", watch=Titles())
    first, *alone, central = Titles.begun
    assert (first, central) == ("1 of 3 · cycp-pairwise · seed 0", "3 of 3 · cycp-pairwise · seed 0")
    assert alone == [
        f"2 of 3 · alone, client {place} of {len(alone)} · cycp-pairwise · seed 0"
        for place in range(1, len(alone) + 1)
    ]
    assert len(alone) > 1


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("agnostic-auc", {"server.report": 3, "server.high": 0.9}),
        ("coda+", {"train.warmup": "agnostic-auc", "train.warmup_cycles": 2}),
        ("cycp-minimax", {"participation.groups": 4, "stage_cycles": 2}),
    ],
)
def test_yardsticks_train_one_client_whatever_the_method_does(tmp_path, method, more):
    settings = settings_for(claims_csv(tmp_path)) | {"cycles": 4} | more
    content = compare([method], settings, [0], tmp_path / "out")
    assert [row["method"] for row in content["rows"]] == [method, ALONE, CENTRAL]


def test_a_setting_goes_to_the_methods_that_have_it_and_nothing_is_dropped_silently():
    both = ["coda+", "local-sgdam"]
    assert relevant("coda+", {"gamma": 0.1}, both) == {"gamma": 0.1}
    assert relevant("local-sgdam", {"gamma": 0.1}, both) == {}  # it has no such setting
    with pytest.raises(InputError, match="plain gradient steps"):  # it has one that it cannot take
        relevant("local-sgdam", {"correction": "control-variates"}, both)
    asked = {"groups": 4, "participation": "cyclic"}
    assert relevant("rs-minimax", asked, ["rs-minimax"]) == asked  # in whatever order it is said
    with pytest.raises(InputError, match="no setting 'nonsense'"):
        relevant("coda+", {"nonsense": 1}, both)


@pytest.mark.slow
def test_parallel_runs_give_the_same_numbers_and_resume_repeats_nothing(tmp_path):
    settings = settings_for(claims_csv(tmp_path))
    serial = compare(METHODS, settings, [0, 1], tmp_path / "serial")
    parallel = compare(METHODS, settings, [0, 1], tmp_path / "parallel", jobs=2)

    def aucs(content):
        return [row["test_auc_by_seed"] for row in content["rows"]]

    assert aucs(serial) == aucs(parallel)
    result = tmp_path / "serial/cycp-pairwise/seed-1/result.json"
    (tmp_path / "serial/compare.json").unlink()
    (tmp_path / "serial/cycp-fedavg/seed-0/result.json").unlink()
    before = result.stat().st_mtime_ns
    resumed = compare(METHODS, settings, [0, 1], tmp_path / "serial", resume=True)
    assert aucs(resumed) == aucs(serial)
    assert result.stat().st_mtime_ns == before


@pytest.mark.slow
def test_yardsticks_that_were_trained_otherwise_are_measured_again(tmp_path):
    settings = settings_for(claims_csv(tmp_path))

    def yardsticks(methods, folder, **more):
        content = compare(methods, settings | more, [0], tmp_path / folder, resume=True)
        return {row["method"]: (row["test_auc"], row["rounds"], row["note"]) for row in content["rows"][-2:]}

    first = yardsticks(["cycp-fedavg"], "out")
    kept = tmp_path / f"out/{ALONE}/seed-0/yardstick.json"
    before = kept.stat().st_mtime_ns
    assert yardsticks(["cycp-fedavg"], "out") == first
    assert kept.stat().st_mtime_ns == before
    both = yardsticks(METHODS, "out")  # trained like the pairwise method now
    assert both == yardsticks(METHODS, "fresh")
    assert both != first
    moved = tmp_path / "moved.csv"
    moved.write_text((tmp_path / "claims.csv").read_text())
    compare(["cycp-pairwise"], settings | {"data.path": [str(moved)]}, [0], tmp_path / "moved")
    lines = (tmp_path / "claims.csv").read_text().splitlines(keepends=True)
    moved.write_text("".join([*lines[:-1], lines[-2]]))
    changed = settings | {"data.path": [str(moved)]}
    with pytest.raises(InputError, match=r"The rows have changed since the run in .*seed-0 ended"):
        compare(["cycp-pairwise"], changed, [0], tmp_path / "moved", resume=True)
    shutil.rmtree(tmp_path / "moved/cycp-pairwise")
    again = compare(["cycp-pairwise"], changed, [0], tmp_path / "moved", resume=True)
    fresh = compare(["cycp-pairwise"], changed, [0], tmp_path / "last")
    assert [row["test_auc"] for row in again["rows"]] == [row["test_auc"] for row in fresh["rows"]]


def test_a_setting_of_one_method_leaves_the_others_alone(tmp_path):
    settings = settings_for(claims_csv(tmp_path)) | {"surrogate": "sigmoid", "cycp-fedavg:eta": 0.01}
    compare(METHODS, settings, [0], tmp_path / "out", yardsticks=False)
    used = {m: json.loads((tmp_path / f"out/{m}/seed-0/config.json").read_text()) for m in METHODS}
    assert used["cycp-pairwise"]["objective"]["surrogate"] == "sigmoid"
    assert used["cycp-fedavg"]["schedule"]["eta"] == 0.01
    assert used["cycp-pairwise"]["schedule"]["eta"] != 0.01


@pytest.mark.parametrize(
    ("methods", "more", "words"),
    [
        (["cycp-fedavg"], {"surrogate": "sigmoid"}, "surrogate"),
        (["cycp-fedavg"], {"cycp-pairwise:eta": 1}, "not among --methods"),
        (["cycp-fedavg", "cycp-fedavg"], {}, "twice"),
        (["cycp-fedavg", "cycp-fedavgg"], {}, "Did you mean 'cycp-fedavg'"),
    ],
)
def test_mistakes_are_found_before_anything_runs(tmp_path, methods, more, words):
    with pytest.raises(InputError, match=words):
        compare(methods, settings_for(claims_csv(tmp_path)) | more, [0], tmp_path / "out")
    assert not (tmp_path / "out").exists()
