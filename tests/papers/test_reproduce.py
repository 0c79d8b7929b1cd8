"""Cells of the papers: they can be configured, run once, go on, and stand beside the paper's numbers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from tests.experiments.tables import claims_csv
from typer.testing import CliRunner

from fedauc.cli import app
from fedauc.errors import InputError, OutOfMemory
from fedauc.experiments.runner import Silent
from fedauc.papers import PAPERS, Cell, Paper
from fedauc.papers.cells import Measured, printed
from fedauc.papers.names import DONE, KEY, name_of
from fedauc.papers.pictures import Panel, Picture, draw
from fedauc.papers.reproduce import Job, _measured, merge, reproduce
from fedauc.transports import ranks
from fedauc.transports.memory import sufficing
from fedauc.transports.ranks import Ranks


@pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS)
def test_every_cell_can_be_configured(paper):
    for cell in paper.cells:
        config = cell.config(1, "cpu", "somewhere")
        assert (config.seed, config.data.root) == (1, "somewhere")
        assert config.rounds(100) > 0


STATED = {
    "000": {
        "table-1": (
            35,
            "*/CIFAR-10/*",
            {"data.clients": 100, "data.alpha": 0.5, "data.remove_positives": 0.95},
        ),
        "table-2": (35, "*/ChestMNIST/*", {"data.flip_positives": 0.2, "data.remove_positives": 0.5}),
        "table-3": (28, "*/dir=0.1flip=0.2", {"data.alpha": 0.1, "data.flip_positives": 0.2}),
        "table-4": (28, "*", {"data.source": "cifar100", "data.remove_positives": 0.5}),
        "table-5": (28, "*", {"model": "densenet121"}),
        "table-8": (42, "*/200clientsdir=0.1", {"data.alpha": 0.1, "participation.per_round": 20}),
        "table-9": (14, "*/CIFAR-10/*", {"model": "resnet18"}),
    },
    "001": {
        "figure-1": (48, "*/K=16*", {"data.clients": 16, "schedule.decay": 1 / 3}),
        "table-3": (25, "*", {}),
    },
    "002": {
        "figure-2": (10, "CE-*/Fashion*/*", {"participation.kappa": 100.0, "participation.per_round": 5}),
        "figure-3": (10, "CE-*/EMNIST/*", {"participation.kappa": 1000.0, "model.hidden": [300, 100]}),
    },
    "004": {
        "table-1": (90, "CoDA/STL10/*", {"model": "resnet20", "train.batch": 8, "data.clients": 4}),
        "figure-1": (30, "LocalSCGDAM/STL10/*", {"schedule.steps": 4, "train.batch": 8 + 8}),  # ξ and ζ
        "figure-2": (30, "LocalSGDM*/CIFAR10/*", {"schedule.steps": 8, "train.batch": 32}),
        "figure-3": (30, "*/CIFAR10/*", {"schedule.steps": 16, "model": "resnet20", "data.clients": 4}),
        "no-decay": (15, "LocalSGDM*", {"schedule.eta": 0.1, "data.source": "cifar10"}),
    },
}


@pytest.mark.parametrize("paper", STATED)
def test_settings_are_those_of_the_papers(paper):
    for table, (count, like, settings) in STATED[paper].items():
        assert len(PAPERS[paper].chosen(table, [])) == count
        for cell in PAPERS[paper].chosen(table, [like]):
            assert {**cell.settings, **settings} == cell.settings


def test_insurance_is_trained_as_the_generated_data_are():
    """The published files that few have, and what stands for them."""
    for table in ("table-1", "table-2"):
        published, generated = (PAPERS["000"].chosen(table, [f"*/{name}/*"]) for name in ("Ins*", "Medi*"))
        assert len(published) == len(generated) == 7
        for one, other in zip(published, generated, strict=True):
            assert (one.method, one.theirs, one.theirs_std) == (other.method, other.theirs, other.theirs_std)
            like = {"data.source": "medicare-like", "data.rows": 6_000_000}
            assert {**one.settings, **like} == other.settings


def test_weight_decay_is_what_no_decay_leaves_out():
    paper = PAPERS["004"]
    for with_it, without in zip(
        paper.chosen("table-1", ["*/CIFAR10/*"]), paper.chosen("no-decay", []), strict=True
    ):
        assert (with_it.key, with_it.preset) == (without.key, without.preset)
        differs = dict(with_it.settings.items() - without.settings.items())
        assert differs.pop("rule.weight_decay") == 5e-4
        assert set(differs) <= {"schedule.eta"}
        assert without.config(0, "cpu", None).sections["rule"]["weight_decay"] == 0.0


def test_uplinks_of_paper_002():
    config = PAPERS["002"].chosen("figure-2", ["ce-minimax/fashion-mnist/*"])[0].config(0, "cpu", None)
    assert config.component("uplink").seconds == (0.01, 0.001)
    assert config.sections["server"]["chi2"] == 1e-5


def test_what_was_run_is_what_would_be_run():
    """Results in the repository are of cells and settings as they are now."""
    home = Path(__file__).parents[2] / "papers"
    files = sorted(home.glob("*/results.json"))
    assert files
    for file in files:
        cells = {(cell.table, cell.key): cell for cell in PAPERS[file.parent.name].cells}
        for row in json.loads(file.read_text()):
            cell = cells[row["table"], name_of(row)]
            assert row["settings"] == json.loads(json.dumps({"preset": cell.preset, **cell.settings}))
            assert (row["theirs"], row["theirs_std"]) == (cell.theirs, cell.theirs_std)
            if row["ours_mean"] is not None:
                assert row["ours_mean"] == pytest.approx(np.mean(row["ours_by_seed"]))


def test_cells_have_names_of_their_own():
    for paper in PAPERS.values():
        names = [(cell.table, cell.key) for cell in paper.cells]
        assert len(set(names)) == len(names)


def test_greek_letters_can_be_spelt_out():
    found = PAPERS["002"].chosen("grid", ["ce-*/lr eta=0.1 eta_lambda=0.01"])
    assert [cell.key for cell in found] == ["CE-Minimax/Fashion-MNIST/LRη=0.1η_λ=0.01"]


def test_numbers_are_those_of_the_papers():
    """A few that are quoted elsewhere, and that every row is whole."""
    found = {(p.name, c.table, c.key): c.theirs for p in PAPERS.values() for c in p.cells}
    assert found["000", "table-1", "CyCp-Pairwise/CIFAR-10/dir=0.5flip=0"] == 0.8480
    assert found["000", "table-1", "CyCp-FedAvg/Medicare-like/flip=0"] == 0.7339
    assert found["000", "table-2", "RS-Pairwise/Insurance/flip=0.2"] == 0.7173
    assert found["000", "table-3", "CyCp-Minimax/CIFAR-10/dir=10flip=0"] == 0.8702
    assert found["001", "table-3", "CODASCA/ChestXray-IH/EdemaI=1024"] == 0.8444
    assert found["002", "figure-2", "CE-Minimax/Fashion-MNIST/LR55%"] == 443.102
    assert found["004", "table-1", "LocalSCGDAM/FashionMNIST/p=8"] == 0.980
    assert found["004", "table-1", "CoDA/CIFAR10/p=16"] == 0.883
    assert dict(printed("a 0.5±0.1 2\nb 1 3")) == {
        "a": [(0.5, 0.1), (2.0, None)],
        "b": [(1.0, None), (3.0, None)],
    }


def test_files_are_looked_for_in_the_folder_of_published_ones(tmp_path):
    cell = PAPERS["000"].chosen("motor", ["CyCp-Pairwise/*"])[0]
    assert "freMTPL2freq.parquet does not exist" in cell.absent(str(tmp_path))
    assert cell.config(0, "cpu", str(tmp_path)).data.path == (
        str(tmp_path / "freMTPL2/freMTPL2freq.parquet"),
    )


TINY = {"data.source": "digits", "data.partition": "iid", "data.clients": 4, "model": "linear", "cycles": 2}


@pytest.fixture
def paper():
    cells = [
        Cell("table-1", name, "digits", "p=1", preset, TINY, 0.9, 0.01)
        for name, preset in (("FedAvg", "cycp-fedavg"), ("Pairwise", "cycp-pairwise"))
    ]
    gone = Cell("table-1", "FedAvg", "CIFAR-10", "", "fedavg", {"data.source": "cifar10"}, 0.8)
    return Paper("099", "A paper", (*cells, gone))


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
    rows = run([1, 2], "second", add=True)
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
    assert [row["seeds"] for row in run([1], "third", other, add=True)] == [[1]] * 2  # others are replaced
    said: list[str] = []
    assert [row["seeds"] for row in run([2], "fourth", other, say=said.append)] == [[1, 2]] * 2
    assert not (tmp_path / "fourth/099/table-1/FedAvg_digits_p=1/seed-1").exists()
    assert not [text for text in said if "lost" in text]
    (again, _) = run([1], "fifth", other)  # without --add it is measured anew
    assert (tmp_path / "fifth/099/table-1/FedAvg_digits_p=1/seed-1/result.json").exists()
    assert again["seeds"] == [1, 2]
    assert [row["seeds"] for row in run([0], "sixth", say=said.append)] == [[0]] * 2
    assert "FedAvg/digits/p=1: results.json has lost seed 1, 2 of other settings." in said


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


ROW = {"table": "t", "method": "a", "dataset": "d", "setting": "s", "ours_mean": 1.0, "settings": {}}
ROW |= {"seeds": [0], "ours_by_seed": [1.0], "ours_std": None, "devices": ["cpu"], "more": {}}
ROW |= {"rounds": 1, "bytes_up": 1, "bytes_down": 1, "seconds": 1.0}


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
        run(1, "here", 0.5, add=True)
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
    with pytest.raises(InputError, match=r"measured.json is damaged; remove it"):
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


@pytest.mark.parametrize("row", [{"table": "t"}, ROW | {"table": 1}, {k: ROW[k] for k in KEY}])
def test_results_of_another_shape_are_refused(paper, row, tmp_path):
    (tmp_path / "099").mkdir()
    (tmp_path / "099/results.json").write_text(json.dumps([row]))
    for add in (True, False):
        with pytest.raises(InputError, match=r"results.json is not a list of cells"):
            reproduce(paper, "table-1", [], [0], tmp_path / "runs", tmp_path, add=add)


# ----------------------------------------------------------------------------- pictures


def _texts(svg):
    return [each.text for each in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_curves_of_runs_become_a_picture(paper, tmp_path):
    panels = (
        Panel("Digits", "table-1", "*/digits/*", "round", "valid_auc"),
        Panel("Nothing was run of it", "table-1", "*/CIFAR-10", "round", "valid_auc"),
    )
    pictures = (Picture("curves", panels), Picture("none", panels[1:]))
    shown = replace(paper, pictures=pictures)
    reproduce(shown, "table-1", ["*/digits/*"], [0, 1], tmp_path / "runs", tmp_path, root=str(tmp_path))
    folder = tmp_path / "099"
    curves = json.loads((folder / "curves.json").read_text())
    assert [(each["method"], each["seeds"]) for each in curves] == [("FedAvg", [0, 1]), ("Pairwise", [0, 1])]
    assert [curve["round"] for curve in curves[0]["curves"]] == [[2, 4], [2, 4]]
    assert curves[0]["curves"][0]["step"] == [20, 40]
    assert sorted(path.name for path in folder.glob("*.svg")) == ["curves.svg"]
    words = _texts(folder / "curves.svg")
    assert {"Digits", "FedAvg", "Pairwise", "rounds", "validation AUC"} <= set(words)
    assert "Nothing was run of it" not in words
    (folder / "curves.json").unlink()  # seeds that come from results.json alone have numbers and no curves
    reproduce(shown, "table-1", ["*/digits/*"], [2], tmp_path / "other", tmp_path, add=True)
    curves = json.loads((folder / "curves.json").read_text())
    assert [[bool(curve) for curve in each["curves"]] for each in curves] == [[False, False, True]] * 2
    assert {"FedAvg", "Pairwise"} <= set(_texts(folder / "curves.svg"))


def _colours(svg):
    """Of the key's names."""
    parts = list(ElementTree.parse(svg).getroot())
    return {
        label.text: stroke.get("stroke")
        for stroke, label in pairwise(parts)
        if stroke.get("stroke") and label.tag.endswith("text")
    }


def test_a_method_looks_the_same_in_all_pictures(tmp_path):
    along = {"round": [1, 2], "valid_auc": [0.6, 0.7]}
    names, numbers = ("B", "C", "A"), (16, 4)
    curves = [
        {
            "table": table,
            "method": name,
            "dataset": "d",
            "setting": f"I={number}",
            "seeds": [0],
            "curves": [along],
        }
        for table, methods in (("t", names), ("u", names[1:]))
        for name in methods
        for number in numbers
    ]
    (tmp_path / "curves.json").write_text(json.dumps(curves))
    panels = [Panel(table, table, "*", "round", "valid_auc") for table in ("t", "u")]
    settings = Panel("I", "u", "*", "round", "valid_auc", "setting")
    pictures = [Picture("t", (panels[0],)), Picture("u", (panels[1],)), Picture("i", (panels[1], settings))]
    draw(pictures, tmp_path, ["A", "B", "C"])
    every, some, mixed = (_colours(tmp_path / f"{name}.svg") for name in "tui")
    assert list(every) == ["A", "B", "C"]
    assert some == {name: every[name] for name in ("A", "C")}
    assert list(mixed) == ["A", "C", "I=16", "I=4"]
    assert {name: mixed[name] for name in some} == some
    assert len(set(mixed.values())) == 4


def test_methods_with_the_same_settings_have_the_same_heights(tmp_path):
    aucs = {"A": [0.5, 0.6], "B": [0.9, 0.95]}
    curves = [
        {"table": "t", "method": name, "dataset": "d", "setting": "I=4", "seeds": [0]}
        | {"curves": [{"round": [10, 20], "valid_auc": values}]}
        for name, values in aucs.items()
    ]
    (tmp_path / "curves.json").write_text(json.dumps(curves))

    def heights(by):
        panels = tuple(Panel(name, "t", f"{name}/*", "round", "valid_auc", by) for name in aucs)
        (drawn,) = draw([Picture(by, panels)], tmp_path, list(aucs))
        words = _texts(drawn)
        middle = words.index("rounds")  # (below the first panel)
        return [[float(word) for word in part if "0." in word] for part in (words[:middle], words[middle:])]

    above, below = heights("method")
    assert max(above) < max(below)
    assert min(above) < min(below)
    one, other = heights("setting")
    assert one == other
    assert min(one) <= 0.5
    assert max(one) >= 0.9


def test_settings_become_an_axis(tmp_path):
    rows = [
        ROW | {"table": "figure-1", "setting": f"I={steps}", "ours_mean": mean, "ours_std": 0.01}
        for steps, mean in ((16, 0.85), (4, 0.8), (64, None))
    ]
    for row in rows:
        merge(tmp_path / "results.json", row)
    (drawn,) = draw((Picture("steps", (Panel("d", "figure-1", "*", "I", "ours"),)),), tmp_path)
    root = ElementTree.parse(drawn).getroot()
    dots = [float(each.get("cx")) for each in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert dots == sorted(dots)
    assert len(dots) == 2  # what was not reached has no point
    assert {"I", "test AUC"} <= set(_texts(drawn))


def test_the_command_lists_what_there_is(tmp_path):
    def said(*given):
        done = CliRunner().invoke(app, ["reproduce", *map(str, given)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.output

    assert "table-8" in said()
    cells = said("000", "--data-root", tmp_path)
    assert re.search(r"table-1 +CyCp-Pairwise/CIFAR-10/dir=0.5flip=0 +0.8480 ± 0.0008 +\[1\]", cells)
    assert re.search(r"table-1 +CyCp-Pairwise/Medicare-like/flip=0 +0.7778 ± 0.0002 *\n", cells)
    assert "[1] cannot be run here: data_batch_1.bin of 'cifar10' is missing" in cells
    assert "figure-3 shows the cells p=16 of table-1." in said("004", "--data-root", tmp_path)
    with pytest.raises(InputError, match="--seed must be at least 0"):
        said("000", "table-1", "--seed", -1)
    with pytest.raises(InputError, match="--cells are those of a table: table-1, "):
        said("000", "--cells", "A-FedAvg/*")
    with pytest.raises(InputError, match="--cells names none"):
        said("000", "table-1", "--cells", "")
    with pytest.raises(
        InputError, match=r"is like A-FedAvg/CIFAR10\. Did you mean 'A-FedAvg/CIFAR-10/\S+'\? `fedauc rep"
    ):
        said("000", "table-1", "--cells", "A-FedAvg/CIFAR10")
    with pytest.raises(InputError, match="There is no paper '005'"):
        said("005")
    with pytest.raises(InputError, match="has no 'table-7'"):
        said("000", "table-7")
    for unlike in (["--cells", "A/*,B/*"], ["--cells", "B/*", "--cells", "A-FedAvg/*"]):  # every one counts
        with pytest.raises(InputError, match=r"No cell of table-1 is like [AB]/"):
            said("000", "table-1", *unlike)
