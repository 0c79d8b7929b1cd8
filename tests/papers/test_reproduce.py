"""Cells are run once, go on, and stand beside the paper's numbers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from tests.experiments.tables import claims_csv
from tests.papers.rows import ROW, TINY
from typer.testing import CliRunner

from fedauc.cli import app
from fedauc.errors import InputError, OutOfMemory
from fedauc.experiments.runner import Silent
from fedauc.papers import PAPERS, Cell, Paper
from fedauc.papers.cells import Measured
from fedauc.papers.names import DONE, KEY
from fedauc.papers.reproduce import Job, _measured, merge, reproduce
from fedauc.transports import ranks
from fedauc.transports.memory import sufficing
from fedauc.transports.ranks import Ranks


def test_ours_stand_beside_theirs_and_nothing_is_run_twice(paper, tmp_path):
    said: list[str] = []

    def run(patterns, seeds):
        return reproduce(
            paper,
            "table-1",
            patterns,
            seeds,
            tmp_path / "runs",
            tmp_path,
            root=str(tmp_path),
            say=said.append,
        )

    rows = run(["fedavg"], [0])
    assert [row["method"] for row in rows] == ["FedAvg"]
    assert any("FedAvg/CIFAR-10: left out." in line and "--data-root" in line for line in said)
    first = rows[0]["ours_by_seed"][0]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    rows = run(["*/digits/*"], [0, 1])
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert rows[0]["ours_by_seed"][0] == first
    assert rows[0]["ours_mean"] == pytest.approx(np.mean(rows[0]["ours_by_seed"]))
    assert rows[0]["ours_std"] == pytest.approx(np.std(rows[0]["ours_by_seed"], ddof=1))
    kept = json.loads((tmp_path / "099/results.json").read_text())
    assert kept == json.loads(json.dumps(rows))
    needed = {"table", "method", "dataset", "setting", "theirs", "ours_mean", "ours_std", "seeds", "command"}
    assert needed <= set(kept[0])
    assert kept[1]["command"].startswith(
        "fedauc reproduce 099 table-1 --cells 'Pairwise/digits/p=1' --seeds 2"
    )
    with pytest.raises(InputError, match="None of these cells"):
        run(["*/cifar-10"], [0])
    with pytest.raises(InputError, match="No cell of table-1 is like nonsense"):
        run(["fedavg", "nonsense"], [0])
    (row,) = run(["fedavg/digits/*"], [3])  # a seed more: it joins those that are there
    assert row["seeds"] == [0, 1, 3]
    assert row["ours_by_seed"][0] == first
    command = "fedauc reproduce 099 table-1 --cells 'FedAvg/digits/p=1'"
    assert row["command"] == f"{command} --seeds 2 --device cpu && {command} --seed 3 --seeds 1 --device cpu"


def test_the_same_cell_of_another_table_is_not_run_again(paper, tmp_path):
    first, other, _ = paper.cells
    again = replace(first, table="figure-1", setting="", settings=TINY | {"steps": 10})  # its default
    longer = replace(again, setting="longer", settings=TINY | {"cycles": 3})
    paper = replace(paper, cells=(first, other, again, longer))

    def run(table):
        return reproduce(paper, table, [], [0], tmp_path / "runs", tmp_path)

    theirs, _ = run("table-1")
    mine, more = run("figure-1")
    assert (mine["table"], mine["ours_by_seed"]) == ("figure-1", theirs["ours_by_seed"])
    assert [path.name for path in (tmp_path / "runs/099/figure-1/FedAvg_digits/seed-0").iterdir()] == [DONE]
    assert more["rounds"] > mine["rounds"]


def test_a_seed_alone_is_named_in_its_command(paper, tmp_path):
    (row,) = reproduce(paper, "table-1", ["fedavg/digits/*"], [2], tmp_path / "runs", tmp_path)
    assert row["command"].endswith("--seed 2 --seeds 1 --device cpu")


def test_seeds_are_added_to_published_ones(paper, tmp_path):
    def run(seeds, out, cells=paper.cells, **more):
        changed = replace(paper, cells=cells)
        return reproduce(changed, "table-1", ["*/digits/*"], seeds, tmp_path / out, tmp_path, **more)

    both = run([0, 1], "first")
    said: list[str] = []
    rows = run([1, 2], "second", add=True, say=said.append)
    endings = [text.partition(" (")[2] for text in said if "digits" in text]
    assert endings == [*["from results.json, not run)"] * 2, "", ""]
    assert not (tmp_path / "second/099/table-1/FedAvg_digits_p=1/seed-0").exists()  # was not asked for
    assert not (tmp_path / "second/099/table-1/FedAvg_digits_p=1/seed-1/result.json").exists()  # not run anew
    assert [row["seeds"] for row in rows] == [[0, 1, 2]] * 2
    assert [row["devices"] for row in rows] == [["cpu"] * 3] * 2
    for row, before in zip(rows, both, strict=True):
        assert row["ours_by_seed"][:2] == before["ours_by_seed"]
        assert row["more"]["best_round"][:2] == before["more"]["best_round"]
        assert (row["rounds"], row["bytes_up"]) == (before["rounds"], before["bytes_up"])
    curves = json.loads((tmp_path / "099/curves.json").read_text())
    assert [len(each["curves"]) for each in curves] == [3, 3]
    assert all(curve["valid_auc"] for each in curves for curve in each["curves"])
    other = tuple(replace(cell, settings=TINY | {"schedule.eta": 0.5}) for cell in paper.cells[:2])
    told = r"results.json has other settings of FedAvg/digits/p=1 \(seed 0, 1, 2\), Pairwise/digits/p=1 "
    with pytest.raises(InputError, match=told + ".*--add replaces nothing"):
        run([1], "third", other, add=True)
    said.clear()
    assert [row["seeds"] for row in run([1], "third", other, say=said.append)] == [[1]] * 2
    assert re.search(told + ".*, which are replaced", said[0])  # before the training
    said.clear()
    assert [row["seeds"] for row in run([2], "fourth", other, say=said.append)] == [[1, 2]] * 2
    assert not (tmp_path / "fourth/099/table-1/FedAvg_digits_p=1/seed-1").exists()
    assert not [text for text in said if "replaced" in text]
    (again, _) = run([1, 2], "fourth", other)  # without --add it is measured anew
    assert (tmp_path / "fourth/099/table-1/FedAvg_digits_p=1/seed-1/result.json").exists()
    assert again["seeds"] == [1, 2]


def test_seeds_that_knew_less_can_be_added_to(paper, tmp_path):
    """Rows that were written before a run's chosen round was kept beside its number."""

    def run(seeds, out):
        return reproduce(paper, "table-1", ["fedavg/*"], seeds, tmp_path / out, tmp_path, add=True)

    (row,) = run([1], "first")
    (tmp_path / "099/results.json").write_text(json.dumps([row | {"more": {}}]))
    (both,) = run([0], "second")
    assert both["seeds"] == [0, 1]
    assert both["more"]["best_round"][1] is None
    assert both["more"]["best_round"][0] > 0


def _full(config, folder, watch):
    with sufficing(config.device):
        raise torch.OutOfMemoryError("CUDA out of memory.")


def test_whoever_has_no_memory_left_is_said_and_tried_again(paper, tmp_path):
    said: list[str] = []
    cells = (replace(paper.cells[0], measure=_full), paper.cells[1])
    for _ in range(2):
        rows = reproduce(
            replace(paper, cells=cells), "table-1", [], [0], tmp_path / "runs", tmp_path, say=said.append
        )
        assert [row["method"] for row in rows] == ["Pairwise"]
    told = [
        line
        for line in said
        if line.startswith("FedAvg/digits/p=1 seed 0: failed: The memory of cpu does not")
    ]
    assert len(told) == 2
    assert "--jobs" in told[0]


def test_what_fails_does_not_stop_the_others(paper, tmp_path):
    good, other, _ = paper.cells
    wild = replace(
        other, method="Wild", settings=other.settings | {"schedule.eta": 1e30, "objective.lam": 1e-9}
    )
    said: list[str] = []
    broken = replace(paper, cells=(wild, good))
    failed: list[Job] = []
    rows = reproduce(
        broken, "table-1", [], [0], tmp_path / "runs", tmp_path, jobs=2, say=said.append, failed=failed.append
    )
    assert [row["method"] for row in rows] == ["FedAvg"]
    assert [job.cell.method for job in failed] == ["Wild"]
    assert [row["method"] for row in json.loads((tmp_path / "099/results.json").read_text())] == ["FedAvg"]
    assert any(line.startswith("Wild/digits/p=1 seed 0: failed: ") and "finite" in line for line in said)
    said.clear()
    assert (
        reproduce(broken, "table-1", ["wild/*"], [0], tmp_path / "runs", tmp_path / "new", say=said.append)
        == []
    )
    assert not any(line.startswith("numbers:") for line in said)


def test_the_command_says_by_its_status_that_a_cell_has_failed(paper, tmp_path, monkeypatch):
    monkeypatch.setitem(
        PAPERS, "099", replace(paper, cells=(replace(paper.cells[0], measure=_full), paper.cells[1]))
    )
    given = ["reproduce", "099", "table-1", "--seeds", "1", "-q"]
    given += ["--out", str(tmp_path / "runs"), "--results", str(tmp_path)]
    done = CliRunner().invoke(app, given)
    assert (done.exit_code, "Pairwise" in done.output) == (1, True)
    assert CliRunner().invoke(app, [*given, "--cells", "pairwise/*"]).exit_code == 0


def _killed(config, folder, watch):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_is_an_error_of_one_sentence(paper, tmp_path):
    cells = tuple(replace(cell, measure=_killed) for cell in paper.cells[:2])
    with pytest.raises(OutOfMemory, match=r"was killed from outside.* fewer --jobs need less"):
        reproduce(replace(paper, cells=cells), "table-1", [], [0], tmp_path / "runs", tmp_path, jobs=2)


def test_files_may_lie_elsewhere_when_a_cell_is_asked_for_again(tmp_path):
    """Of an own table, whose path has the folder of published files in it, and of an interrupted run."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        claims_csv(tmp_path / folder)
    own = {"data.path": ["claims.csv"], "data.label": "fraud", "data.client": "state", "cycles": 4}
    paper = Paper("099", "A paper", (Cell("table-1", "FedAvg", "claims", "p=1", "cycp-fedavg", own),))

    def run(root, **more):
        (row,) = reproduce(
            paper, "table-1", [], [0], tmp_path / "runs", tmp_path, root=str(tmp_path / root), **more
        )
        return row["ours_by_seed"]

    class Ends(Silent):
        def round(self, record, auc, traffic):
            if record.round == 8:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("one", watch=Ends())
    assert run("two") == run("one")


def test_results_that_cannot_be_written_are_known_before_training(paper, tmp_path):
    (tmp_path / "099").mkdir()
    (tmp_path / "099/results.json").write_text('{"some": "other file"}')

    def never(config, folder, watch):
        raise AssertionError

    cells = (replace(paper.cells[0], measure=never),)
    with pytest.raises(InputError, match=r"results.json is not a list of cells"):
        reproduce(replace(paper, cells=cells), "table-1", [], [0], tmp_path / "runs", tmp_path)
    (tmp_path / "shut/099/results.json.lock").mkdir(parents=True)  # nobody can write there
    with pytest.raises(OSError, match=r"results.json.lock"):
        reproduce(replace(paper, cells=cells), "table-1", [], [0], tmp_path / "runs", tmp_path / "shut")
    damaged = tmp_path / "runs/099/table-1/FedAvg_digits_p=1/seed-5/measured.json"
    damaged.parent.mkdir(parents=True)
    damaged.touch()
    with pytest.raises(InputError, match=r"seed-5/measured.json cannot be read"):
        reproduce(replace(paper, cells=cells), "table-1", [], [0], tmp_path / "runs", tmp_path / "other")


def test_what_another_process_has_measured_meanwhile_is_not_measured_again(paper, tmp_path):
    cell, folder = paper.cells[0], tmp_path / "runs/099/table-1/FedAvg_digits_p=1/seed-0"
    measured = []

    def measure(config, folder, watch):
        measured.append(folder)
        return Measured(0.5, 1, 1, 1, 1.0)

    def meanwhile(text):
        if not measured:
            _measured(Job(other, other.config(0, "cpu", None), folder), None)

    other = replace(cell, measure=measure)
    first = replace(cell, method="First", measure=lambda *_: Measured(0.9, 1, 1, 1, 1.0))
    both = replace(paper, cells=(first, other))
    reproduce(both, "table-1", [], [0], tmp_path / "runs", tmp_path, say=meanwhile)
    assert measured == [folder]


def test_cells_are_not_measured_by_several_processes_together(paper, tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "here", lambda: Ranks(0, 2))
    with pytest.raises(InputError, match=r"one by one, or --jobs at a time: without torchrun"):
        reproduce(paper, "table-1", [], [0], tmp_path / "runs", tmp_path)


def test_other_settings_of_a_finished_cell_are_named(paper, tmp_path):
    reproduce(paper, "table-1", ["fedavg/digits/*"], [0], tmp_path / "runs", tmp_path)
    kept = tmp_path / "runs/099/table-1/FedAvg_digits_p=1/seed-0/measured.json"
    elsewhere = json.loads(kept.read_text())
    elsewhere["config"]["device"] = "cuda"
    elsewhere["config"]["data"]["root"] = "elsewhere"
    kept.write_text(json.dumps(elsewhere))
    (row,) = reproduce(paper, "table-1", ["fedavg/digits/*"], [0], tmp_path / "runs", tmp_path)
    assert row["command"].endswith("--device cuda")  # the number is of that device
    assert row["devices"] == ["cuda"]
    cells = (replace(paper.cells[0], settings=TINY | {"schedule.eta": 0.5}),)
    with pytest.raises(InputError, match=r"has other settings \(schedule.eta\); choose another --out"):
        reproduce(replace(paper, cells=cells), "table-1", [], [0], tmp_path / "runs", tmp_path)


def test_results_of_other_cells_stay(tmp_path):
    row = ROW
    for each in (row, row | {"method": "b"}, row | {"ours_mean": 2.0}):
        merge(tmp_path / "results.json", each)
    found = json.loads((tmp_path / "results.json").read_text())
    assert [(each["method"], each["ours_mean"]) for each in found] == [("a", 2.0), ("b", 1.0)]
    for setting in ("I=12", "I=4", "p=0.5", "p=0.25"):
        merge(tmp_path / "results.json", row | {"table": "u", "setting": setting})
    found = json.loads((tmp_path / "results.json").read_text())
    assert [each["setting"] for each in found[2:]] == ["I=4", "I=12", "p=0.25", "p=0.5"]


def _added(paper, seed, out, results):
    reproduce(paper, "table-1", ["*/digits/*"], [seed], out, results, add=True)


@pytest.mark.slow
def test_seeds_of_several_processes_all_stay(paper, tmp_path):
    """Whoever is the last to write has what the others wrote while it trained."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        begun = [
            pool.submit(_added, paper, seed, tmp_path / f"out-{seed % 2}", tmp_path / "results")
            for seed in range(4)
        ]
        for each in begun:
            each.result()
    rows = json.loads((tmp_path / "results/099/results.json").read_text())
    assert [row["seeds"] for row in rows] == [[0, 1, 2, 3]] * 2
    names = {each.name for each in (tmp_path / "results/099").iterdir()}
    assert names == {"results.json", "curves.json"}  # and no lock


def test_a_seed_of_other_settings_in_the_way_of_a_published_one_is_said(paper, tmp_path):
    def run(seed, out, eta, **more):
        cells = (replace(paper.cells[0], settings=TINY | {"schedule.eta": eta}),)
        changed = replace(paper, cells=cells)
        return reproduce(changed, "table-1", [], [seed], tmp_path / out, tmp_path, **more)

    run(0, "elsewhere", 0.5)
    run(0, "here", 0.1)
    run(0, "elsewhere", 0.5)
    with pytest.raises(InputError, match=r"seed-0 has other settings \(schedule.eta\); choose another --out"):
        run(0, "here", 0.5, add=True)
    (row,) = json.loads((tmp_path / "099/results.json").read_text())
    assert row["seeds"] == [0]


def test_seeds_of_other_settings_and_other_folders_are_no_part_of_a_row(paper, tmp_path):
    def run(seed, eta):
        cells = (replace(paper.cells[0], settings=TINY | {"schedule.eta": eta}),)
        return reproduce(replace(paper, cells=cells), "table-1", [], [seed], tmp_path / "runs", tmp_path)

    run(0, 0.1)
    home = tmp_path / "runs/099/table-1/FedAvg_digits_p=1"
    shutil.copytree(home / "seed-0", home / "seed-0.old")
    assert [row["seeds"] for row in run(1, 0.5)] == [[1]]
    assert [row["seeds"] for row in run(0, 0.1)] == [[0]]
    (home / "seed-0" / DONE).write_text("{}")
    with pytest.raises(InputError, match=r"measured.json is damaged \(config: Field required\); remove it"):
        run(0, 0.1)


def test_seeds_of_several_devices_have_commands_of_their_own(paper, tmp_path):
    def run():
        return reproduce(paper, "table-1", ["fedavg/digits/*"], [0, 1, 2], tmp_path / "runs", tmp_path)

    run()
    kept = tmp_path / "runs/099/table-1/FedAvg_digits_p=1/seed-0/measured.json"
    elsewhere = json.loads(kept.read_text())
    elsewhere["config"]["device"] = "cuda"
    kept.write_text(json.dumps(elsewhere))
    (row,) = run()
    command = "fedauc reproduce 099 table-1 --cells 'FedAvg/digits/p=1'"
    assert row["command"] == f"{command} --seeds 1 --device cuda && {command} --seed 1 --seeds 2 --device cpu"


def test_published_seeds_of_the_same_cell_in_another_table_count_as_well(paper, tmp_path):
    first = paper.cells[0]
    paper = replace(paper, cells=(first, replace(first, table="table-9", theirs=0.8)))
    (row,) = reproduce(paper, "table-1", [], [0, 1], tmp_path / "runs", tmp_path)
    (same,) = reproduce(paper, "table-9", [], [0, 1], tmp_path / "elsewhere", tmp_path, add=True)
    assert (same["table"], same["theirs"], same["ours_by_seed"]) == ("table-9", 0.8, row["ours_by_seed"])
    assert not (tmp_path / "elsewhere/099/table-9/FedAvg_digits_p=1/seed-0/result.json").exists()


def test_what_is_done_stands_in_the_results_when_the_rest_is_interrupted(paper, tmp_path):
    def measure(config, folder, watch):
        if config.seed == 1:
            raise KeyboardInterrupt
        return Measured(0.5, 1, 1, 1, 1.0)

    cells = (replace(paper.cells[0], measure=measure),)
    with pytest.raises(KeyboardInterrupt):
        reproduce(replace(paper, cells=cells), "table-1", [], [0, 1], tmp_path / "runs", tmp_path)
    (row,) = json.loads((tmp_path / "099/results.json").read_text())
    assert (row["seeds"], row["ours_mean"], row["in_paper"]) == ([0], 0.5, True)


@pytest.mark.parametrize(
    "row",
    [
        {"table": "t"},
        ROW | {"table": 1},
        {k: ROW[k] for k in KEY},
        ROW | {"ours_by_seed": []},
        ROW | {"devices": ["cpu", "cpu"]},
        ROW | {"more": None},
        ROW | {"more": {"best_round": []}},
        ROW | {"rounds": "many"},
        ROW | {"seeds": ["0"]},
    ],
)
def test_results_of_another_shape_are_refused(paper, row, tmp_path):
    (tmp_path / "099").mkdir()
    (tmp_path / "099/results.json").write_text(json.dumps([row]))
    for add in (True, False):
        with pytest.raises(InputError, match=r"results.json is not a list of cells"):
            reproduce(paper, "table-1", [], [0], tmp_path / "runs", tmp_path, add=add)


@pytest.mark.parametrize(
    "more",
    [
        {"curves": None},
        {"curves": []},
        {"curves": [{"round": [1, 2], "valid_auc": [0.5]}]},
        {"curves": [{"round": ["1"]}]},
    ],
)
def test_curves_of_another_shape_are_refused(paper, more, tmp_path):
    (tmp_path / "099").mkdir()
    row = {name: ROW[name] for name in (*KEY, "seeds")} | more
    (tmp_path / "099/curves.json").write_text(json.dumps([row]))
    with pytest.raises(InputError, match=r"curves.json is not a list of cells"):
        reproduce(paper, "table-1", [], [0], tmp_path / "runs", tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"{}", b'{"config": 1, "measured": {}}', b'{"config": {}, "measured": {"value": 0.9}}'],
)
def test_a_damaged_measurement_is_an_error_of_one_sentence(paper, content, tmp_path):
    kept = tmp_path / "runs/099/table-1/FedAvg_digits_p=1/seed-0" / DONE
    kept.parent.mkdir(parents=True)
    kept.write_bytes(content)
    with pytest.raises(InputError, match=r"measured.json (is damaged \(.*\); remove it|cannot be read)"):
        reproduce(paper, "table-1", [], [0], tmp_path / "runs", tmp_path)
