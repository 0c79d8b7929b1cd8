"""Successive halving: what it keeps, that nothing is trained twice, and that it can be interrupted."""

from __future__ import annotations

import csv
import itertools
import json
import shlex
import shutil
from contextlib import contextmanager

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from fedauc import locks
from fedauc.cli import app
from fedauc.core.checkpoint import read_tensors
from fedauc.errors import InputError, OutOfMemory
from fedauc.experiments import runner
from fedauc.experiments import tune as tuning
from fedauc.experiments.compare import compare
from fedauc.experiments.config import Config, parse_grid
from fedauc.experiments.predict import Predictor
from fedauc.experiments.tune import _trials, default_grid, tune
from tests.experiments.searches import GRID, METHOD, Interrupts, settings_for
from tests.experiments.tables import claims_csv


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    """A finished search: its folder, its settings and what came out."""
    folder = tmp_path_factory.mktemp("tune")
    settings = settings_for(folder)
    return folder / "out", settings, tune(METHOD, settings, GRID, [0, 1], folder / "out")


def plain(content):
    return json.loads(json.dumps({name: value for name, value in content.items() if name != "versions"}))


def paired(one, other):
    """The rows of the same settings."""
    by_settings = {json.dumps(row["settings"]): row for row in other["trials"]}
    assert len(by_settings) == len(one["trials"])
    return [(row, by_settings[json.dumps(row["settings"])]) for row in one["trials"]]


def test_a_third_goes_on(search):
    folder, _, content = search
    assert content["shares"] == [pytest.approx(1 / 9), pytest.approx(1 / 3), 1.0]
    came_to = [row["share"] for row in content["trials"]]
    assert sorted(came_to) == pytest.approx([1 / 9] * 6 + [1 / 3] * 2 + [1])
    for k in (0, 1):  # whoever goes on was at least as good as whoever does not
        there = [row for row in content["trials"] if len(row["valid_auc_by_share"]) > k]
        on = [row["valid_auc_by_share"][k] for row in there if len(row["valid_auc_by_share"]) > k + 1]
        off = [row["valid_auc_by_share"][k] for row in there if len(row["valid_auc_by_share"]) == k + 1]
        assert min(on) >= max(off)
    assert content["best"]["settings"] == content["trials"][0]["settings"]
    with open(folder / "tune.csv") as file:
        assert [int(row["trial"]) for row in csv.DictReader(file)] == [r["trial"] for r in content["trials"]]


def test_only_the_best_is_tested(search):
    folder, _, content = search
    tested = sorted(path.parent.relative_to(folder) for path in folder.rglob("result.json"))
    assert [str(path) for path in tested] == content["best"]["runs"]


def test_the_best_trial_is_the_run_that_train_makes(search, tmp_path):
    folder, settings, content = search
    for seed, run in enumerate(content["best"]["runs"]):
        config = Config.resolve(METHOD, settings | content["best"]["settings"] | {"seed": seed})
        result = runner.run(config, tmp_path / str(seed))
        assert result["test_auc"] == content["best"]["test_auc_by_seed"][seed]
        one, other = (
            read_tensors(at / "model.safetensors")[0] for at in (tmp_path / str(seed), folder / run)
        )
        assert all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("rounds", [25, 60])
def test_an_interrupted_search_goes_on(search, tmp_path, rounds):
    _, settings, content = search
    with pytest.raises(KeyboardInterrupt):
        tune(METHOD, settings, GRID, [0, 1], tmp_path, watch=Interrupts(rounds))
    with pytest.raises(InputError, match="already holds a search"):
        tune(METHOD, settings, GRID, [0, 1], tmp_path)
    assert plain(tune(METHOD, settings, GRID, [0, 1], tmp_path, resume=True)) == plain(content)
    again = tune(METHOD, settings, GRID, [0, 1], tmp_path, resume=True, watch=Interrupts(1))
    assert plain(again) == plain(content)  # nothing is left to train


def test_a_search_without_memory_ends_and_goes_on(search, tmp_path):
    _, settings, content = search
    with pytest.raises(OutOfMemory, match=r"does not suffice: fewer runs at the same time \(--jobs\)"):
        tune(METHOD, settings, GRID, [0, 1], tmp_path, watch=Interrupts(20, torch.OutOfMemoryError("CUDA")))
    assert plain(tune(METHOD, settings, GRID, [0, 1], tmp_path, resume=True)) == plain(content)


class Counts(runner.Silent):
    """Rounds that are trained."""

    rounds = 0

    def round(self, record, auc, traffic) -> None:
        self.rounds += 1


def begun(folder):
    """What the trials' folders stand for, and how many rounds were trained in them."""
    runs = sorted(path.parent for path in folder.glob("trial-*/seed-*/metrics.jsonl"))
    configs = {run.relative_to(folder): (run / "config.json").read_text() for run in runs}
    return configs, sum(len((run / "metrics.jsonl").read_text().splitlines()) for run in runs)


@pytest.mark.parametrize(
    ("grid", "seeds", "options"),
    [
        ({"eta": [0.1, 0.3]}, [0, 1], {}),  # two are trained to the end without a pause
        ({"eta": GRID["eta"], "train.batch": [16]}, [0], {"factor": 2}),
        (GRID | {"decay": [0.3, 0.1]}, [0, 1, 2], {"most": 2}),  # (0.3 is what it is without)
    ],
    ids=["smaller", "other shares, fewer seeds", "drawn from a larger one, more seeds"],
)
def test_a_search_takes_what_others_have_trained(search, tmp_path, grid, seeds, options):
    """It comes to the same as in an empty folder, but for what was trained to the end before, and no round is
    trained twice."""
    _, settings, content = search
    watch = Counts()
    tune(METHOD, settings, grid, seeds, tmp_path, watch=watch, **options)
    before, trained = begun(tmp_path)
    assert watch.rounds == trained
    found = tune(METHOD, settings, GRID, [0, 1], tmp_path, resume=True, watch=watch)
    after, trained = begun(tmp_path)
    assert watch.rounds == trained
    for mine, row in paired(found, content):
        known = mine["valid_auc_by_share"]
        assert row["valid_auc_by_share"] in (known, [auc for auc in known[:-1] if auc is not None])
        assert mine["share"] in (row["share"], 1)
        ended = all(
            (tmp_path / f"trial-{mine['trial']:03d}" / f"seed-{s}/result.json").exists() for s in (0, 1)
        )
        assert ended == (mine["share"] == 1)
        assert known[-1] <= found["best"]["valid_auc"] or not ended
    assert {run: after[run] for run in before} == before
    of = {row["trial"]: row["settings"] for row in found["trials"]}
    for run, config in after.items():
        about = json.loads(config)
        known = of.get(int(run.parts[0].removeprefix("trial-")))
        assert known in (None, {"eta": about["schedule"]["eta"], "train.batch": about["train"]["batch"]})


def test_a_search_that_is_not_finished_takes_another_grid(search, tmp_path):
    """Also where a trial was interrupted beyond a round at which it is now compared."""
    _, settings, content = search
    every = len(content["trials"])
    with pytest.raises(KeyboardInterrupt):
        tune(METHOD, settings, {"eta": [0.3]}, [1, 0], tmp_path, watch=Interrupts(8))
    with pytest.raises(InputError, match=r"another configuration \(seed\); choose"):
        tune(METHOD, settings, GRID, [0, 1], tmp_path, resume=True)
    with pytest.raises(KeyboardInterrupt):
        tune(METHOD, settings, GRID, [1, 0], tmp_path, resume=True, watch=Interrupts(50))
    found = tune(METHOD, settings, GRID, [1, 0], tmp_path, resume=True)
    assert len(found["trials"]) == every
    assert [row["settings"] for row in found["trials"]] == [row["settings"] for row in content["trials"]]
    assert found["best"]["test_auc"] == content["best"]["test_auc"]


def test_a_smaller_grid_is_about_its_own_trials(tmp_path):
    settings, out = settings_for(tmp_path) | {"schedule.cycles": 3}, tmp_path / "out"
    grid = {"eta": [0.01, 0.1, 0.3]}
    first = tune(METHOD, settings, grid, [0], out)
    other = tune(METHOD, settings, {"schedule.eta": [0.3, 1.0]}, [0], out, resume=True)
    assert sorted(row["trial"] for row in other["trials"]) == [2, 3]
    assert plain(tune(METHOD, settings, grid, [0], out, resume=True, watch=Interrupts(1))) == plain(first)


def test_what_was_set_may_be_tuned_later(tmp_path):
    settings, out = settings_for(tmp_path) | {"schedule.cycles": 3}, tmp_path / "out"
    tune(METHOD, settings | {"eta": 0.2, "batch": 16}, {"stage_cycles": [1, 2]}, [0], out)
    grid = {"stage_cycles": [2], "schedule.eta": [0.2, 0.1]}
    with pytest.raises(InputError, match=r"another configuration \(train.batch\); choose another --out"):
        tune(METHOD, settings, grid, [0], out, resume=True)
    found = tune(METHOD, settings | {"batch": 16}, grid, [0], out, resume=True)
    assert sorted(row["trial"] for row in found["trials"]) == [1, 2]


def test_a_search_of_something_else_is_refused(search):
    folder, settings, _ = search
    for method, given, seeds, why in (
        ("cycp-fedavg", settings, [0, 1], r"another configuration \(method, "),
        (METHOD, settings | {"cycles": 5}, [0, 1], r"another configuration \(schedule.cycles\)"),
        (METHOD, settings | {"data.drop": ["age"]}, [0, 1], r"another configuration \(data.drop\)"),
        (METHOD, settings, [1], r"another configuration \(seed\)"),
    ):
        with pytest.raises(InputError, match=why):
            tune(method, given, GRID, seeds, folder, resume=True)


@pytest.mark.slow
def test_several_at_once_are_the_same(tmp_path):
    settings, grid = settings_for(tmp_path), {"eta": GRID["eta"]}
    one, two = (tune(METHOD, settings, grid, [0, 1], tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    assert len(one["shares"]) > 1
    assert plain(one) == plain(two)


def test_a_trial_that_fails_says_why(tmp_path):
    settings = settings_for(tmp_path)
    grid = {"eta": [0.1, 1e30], "objective.link": ["identity"]}
    content = tune(METHOD, settings, grid, [0], tmp_path / "out", factor=2)
    assert content["best"]["settings"]["eta"] == 0.1
    assert any("eta=0.1 is the smallest that was tried" in note for note in content["best"]["notes"])
    assert not any("link" in note for note in content["best"]["notes"])
    assert content["trials"][-1]["valid_auc"] is None
    assert "is too large for these data" in content["trials"][-1]["note"]
    with pytest.raises(InputError, match=r"All trials have failed; one of them: .* too large"):
        tune(METHOD, settings, grid | {"eta": [1e30]}, [0], tmp_path / "none")
    with pytest.raises(InputError, match=r"holds no trained model \(model.safetensors is missing\)\.$"):
        Predictor.load(tmp_path / "none")


def test_whoever_fails_late_makes_room_for_the_next(tmp_path):
    """The one that goes on does so because its step size has not grown yet."""
    settings = settings_for(tmp_path) | {"schedule.stage_cycles": 4}
    grid = {"decay": [1e30, 0.3, 0.1]}
    content = tune(METHOD, settings, grid, [0], tmp_path / "out")
    best, _, last = content["trials"]
    assert content["best"]["settings"] == best["settings"]
    assert best["settings"]["decay"] < 1
    assert best["share"] == 1
    assert (last["settings"]["decay"], last["share"]) == (1e30, pytest.approx(1 / 3))
    assert last["valid_auc_by_share"][1] is None
    assert plain(tune(METHOD, settings, grid, [0], tmp_path / "out", resume=True)) == plain(content)
    tune(METHOD, settings, grid, [0], tmp_path / "all", factor=1)  # it fails without having been compared
    again = tune(METHOD, settings, grid, [0], tmp_path / "all", resume=True, watch=Interrupts(1))
    assert again["best"]["valid_auc"] >= content["best"]["valid_auc"]
    assert [row["settings"]["decay"] for row in again["trials"] if row["share"] < 1] == [1e30]


def test_a_trial_that_files_have_stopped_is_tried_again(search, tmp_path):
    _, settings, content = search
    with pytest.raises(KeyboardInterrupt):
        tune(METHOD, settings, GRID, [0, 1], tmp_path, watch=Interrupts(30))
    shutil.copytree(tmp_path / "trial-000", tmp_path / "trial-000.old")
    saved = sorted((tmp_path / "trial-000/seed-0").glob("checkpoint*"))
    for path in saved:
        path.write_bytes(b"nothing")
    stopped = tune(METHOD, settings, {**GRID, "eta": [0.01]}, [0, 1], tmp_path, factor=1, resume=True)
    assert "is damaged and cannot be read" in stopped["trials"][-1]["note"]
    for path in saved:
        path.unlink()
    assert "(With --resume it is tried again.)" in stopped["trials"][-1]["note"]
    metrics = tmp_path / "trial-001/seed-0/metrics.jsonl"
    metrics.write_bytes(bytes(len(metrics.read_bytes()) - 1) + b"\n")  # what a power cut can leave
    lost = tune(METHOD, settings, GRID, [0, 1], tmp_path, resume=True)
    assert [row["trial"] for row in lost["trials"] if row["valid_auc"] is None] == [1]
    assert "has lost lines of its metrics.jsonl; remove the folder" in lost["trials"][-1]["note"]
    shutil.rmtree(tmp_path / "trial-001")
    again = tune(METHOD, settings, GRID, [0, 1], tmp_path, resume=True)
    assert not any(row["note"] for row in again["trials"])
    assert again["best"]["valid_auc"] >= content["best"]["valid_auc"]  # (more were trained to the end)


def test_a_folder_is_of_one_process(search, tmp_path, monkeypatch):
    _, settings, _ = search
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    with locks.held(tmp_path):
        for begin in (
            lambda: tune(METHOD, settings, GRID, [0], tmp_path),
            lambda: compare([METHOD], settings, [0], tmp_path),
            lambda: runner.run(Config.resolve(METHOD, settings), tmp_path),
        ):
            with pytest.raises(InputError, match="Another process is writing into"):
                begin()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["compare", "tune"])
def test_a_folder_that_another_process_has_just_finished_is_not_written_over(tmp_path, monkeypatch, kind):
    """The first one ends while the second one waits for the folder."""
    settings = settings_for(tmp_path)
    begin = {
        "compare": lambda: compare([METHOD], settings, [0], tmp_path / "out", yardsticks=False),
        "tune": lambda: tune(METHOD, settings, {"eta": [0.1]}, [0], tmp_path / "out"),
    }

    @contextmanager
    def waits(folder, first=True):
        monkeypatch.undo()
        begin["compare"]()
        with locks.held(folder, first):
            yield

    monkeypatch.setattr(f"fedauc.experiments.{kind}.held", waits)
    with pytest.raises(InputError, match="holds a comparison"):
        begin[kind]()
    assert (tmp_path / "out/compare.json").exists()
    assert not (tmp_path / "out/tune.json").exists()


def test_a_trial_that_is_no_federation_leaves_the_others_alone(tmp_path):
    content = tune(METHOD, settings_for(tmp_path), {"participation.groups": [2, 50]}, [0], tmp_path / "out")
    assert content["best"]["settings"] == {"participation.groups": 2}
    assert "50" in content["trials"][-1]["note"]


def test_files_may_be_moved_while_a_search_rests(tmp_path):
    settings, grid = settings_for(tmp_path), {"eta": [0.1, 0.3, 1.0]}
    content = tune(METHOD, settings, grid, [0], tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        tune(METHOD, settings, grid, [0], tmp_path / "out", watch=Interrupts(8))
    moved = (tmp_path / "claims.csv").rename(tmp_path / "elsewhere.csv")
    again = tune(METHOD, settings | {"data.path": [str(moved)]}, grid, [0], tmp_path / "out", resume=True)
    assert again["trials"] == content["trials"]


def test_rows_that_have_changed_are_noticed(tmp_path):
    settings, grid = settings_for(tmp_path), {"eta": [0.1, 0.3, 1.0]}
    path = tmp_path / "claims.csv"
    assert [str(path)] == settings["data.path"]
    with pytest.raises(KeyboardInterrupt):
        tune(METHOD, settings, grid, [0], tmp_path / "out", watch=Interrupts(8))
    table = pd.read_csv(path)
    table["amount"] = table["amount"].to_numpy()[::-1]
    table.to_csv(path, index=False)
    with pytest.raises(InputError, match="The rows have changed since the search in"):
        tune(METHOD, settings, grid, [0], tmp_path / "out", resume=True)


def test_trials_of_a_lost_search_are_not_those_of_another(tmp_path):
    settings = settings_for(tmp_path) | {"schedule.cycles": 1}
    content = tune(METHOD, settings, {"eta": [0.1]}, [0], tmp_path / "out")
    (tmp_path / "out/tune.json").write_text(json.dumps(plain(content) | {"schema": 1}))
    with pytest.raises(InputError, match="holds a search of another version of fedauc"):
        tune(METHOD, settings, {"eta": [0.1]}, [0], tmp_path / "out", resume=True)
    (tmp_path / "out/tune.json").unlink()
    with pytest.raises(InputError, match=r"has lost its tune.json"):
        tune(METHOD, settings, {"eta": [5.0]}, [0], tmp_path / "out")


def test_a_folder_holds_things_of_one_kind(search):
    folder, settings, content = search
    config = Config.resolve(METHOD, settings)
    with pytest.raises(InputError, match=r"out holds a search; choose another --out"):
        runner.run(config, folder)
    with pytest.raises(InputError, match=r"out holds a search; choose another --out"):
        compare([METHOD], settings, [0], folder)
    with pytest.raises(InputError, match=r"seed-0 holds a run; choose another --out"):
        tune(METHOD, settings, GRID, [0], folder / content["best"]["runs"][0])


def test_what_makes_no_difference_is_said(tmp_path):
    settings = settings_for(tmp_path) | {"schedule.cycles": 1}
    grid = {"eta": [0.01, 0.1, 1.0, 10.0], "train.warmup_cycles": [10, 20]}
    content = tune(METHOD, settings, grid, [0], tmp_path / "out", most=5)
    tried = [row["settings"]["eta"] for row in content["trials"]]
    best = content["best"]
    ends = [note for note in best["notes"] if note.startswith("eta=")]
    assert bool(ends) == (best["settings"]["eta"] in (min(tried), max(tried)))
    both = tune(METHOD, settings, grid | {"eta": [0.1]}, [0], tmp_path / "both")["best"]
    assert [note for note in both["notes"] if "warmup" in note] == [
        "train.warmup_cycles=20 came to the same as train.warmup_cycles=10."
    ]


def test_values_that_are_not_tried_are_said(tmp_path):
    """What is an end is told of the values that were given."""
    settings = settings_for(tmp_path) | {"schedule.cycles": 1}
    grid = {"eta": [0.001, 0.01, 0.1, 1.0], "growth": [2, 5, 10], "train.batch": [8]}
    content = tune(METHOD, settings, grid, [0], tmp_path / "out", most=2)
    untried = [
        f"{name}={value}"
        for name, values in grid.items()
        for value in values
        if value not in {row["settings"][name] for row in content["trials"]}
    ]
    assert len(untried) == 3
    notes = content["best"]["notes"]
    (said,) = [note for note in notes if "Not tried" in note]
    assert said == f"Not tried of what was given: {', '.join(untried)}; --trials 4 tries every value."
    ends = {name: (min(values), max(values)) for name, values in grid.items() if len(values) > 1}
    best = content["best"]["settings"]
    for name, value in best.items():
        told = any(note.startswith(f"{name}={value} is the ") for note in notes)
        assert told == (value in ends.get(name, ()))
    whole = tune(METHOD, settings, grid, [0], tmp_path / "out", most=4, resume=True)
    assert not any("Not tried" in note for note in whole["best"]["notes"])
    assert {row["settings"]["growth"] for row in whole["trials"]} == {2, 5, 10}


def test_a_search_goes_on_with_the_trials_that_it_has_drawn(tmp_path, monkeypatch):
    """Also where another version of fedauc, or of numpy, would draw others."""
    settings, out = settings_for(tmp_path) | {"schedule.cycles": 3}, tmp_path / "out"

    def first(lengths, most, drawing):
        return list(itertools.product(*map(range, lengths)))[:most]

    with monkeypatch.context() as before:
        before.setattr(tuning, "drawn", first)
        content = tune(METHOD, settings, GRID, [0], out, most=3)
    assert {row["settings"]["eta"] for row in content["trials"]} == {0.01}
    again = tune(METHOD, settings, GRID, [0], out, most=3, resume=True, watch=Interrupts(1))
    assert plain(again) == plain(content)
    assert any("eta=0.1, eta=0.3; --trials 4 tries" in note for note in again["best"]["notes"])
    more = tune(METHOD, settings, GRID, [0], out, most=4, resume=True)
    assert {row["settings"]["eta"] for row in more["trials"]} == {0.01, 0.1, 0.3}


def test_a_part_of_the_grid_is_drawn(tmp_path):
    settings = settings_for(tmp_path) | {"schedule.cycles": 1}
    found = [tune(METHOD, settings, GRID, [seed], tmp_path / str(seed), most=3) for seed in (0, 1)]
    drawn = [sorted(str(row["settings"]) for row in content["trials"]) for content in found]
    assert [len(each) for each in drawn] == [3, 3]
    assert drawn[0] != drawn[1]
    assert found[0]["shares"] == [1.0]  # one cycle cannot be shared


def test_trials_are_drawn_from_a_grid_of_any_size(tmp_path):
    """Of all that there are for three, not of what fits into memory."""
    many = [round(0.0001 * k, 4) for k in range(1, 3001)]
    names = ("eta", "decay", "growth", "train.memory")
    trials = _trials(METHOD, settings_for(tmp_path), dict.fromkeys(names, many), 3, 0)
    assert len({str(trial.settings) for trial in trials}) == 3
    assert all(list(trial.settings) == list(names) for trial in trials)


@pytest.mark.parametrize(
    ("grid", "why"),
    [
        ({"eta": []}, "names no value"),
        ({"valid_fraction": [0.1, 0.2]}, "changes the data"),
        ({"data.root": ["/here", "/there"]}, "changes the data"),
        ({"seed": [1, 2]}, "cannot be tuned. --seeds"),
        ({"device": ["cpu", "cuda"]}, "device: this cannot be tuned"),
        ({"eta": [0.1, 0.3, 0.1]}, "names 0.1 twice"),
        ({"eta": [0.1, "0.1"]}, "the same settings twice"),
        ({"eta": [0.1], "schedule.eta": [0.3]}, "are the same setting"),
        ({"nonsense": [1]}, "no setting 'nonsense'"),
        ({"eta": [0.1, float("inf")]}, "eta=inf must be positive and finite"),
        ({"eta": range(1, 1002)}, "has 1001 combinations"),
    ],
)
def test_a_grid_that_cannot_be(grid, why, tmp_path):
    with pytest.raises(InputError, match=why):
        tune(METHOD, settings_for(tmp_path), grid, [0], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_grids_are_written_as_settings_are():
    asked = parse_grid(["eta=0.1,1e-2", "model.hidden=[5],[5, 3]", "objective.link=sigmoid"])
    assert asked == {"eta": [0.1, 0.01], "model.hidden": [[5], [5, 3]], "objective.link": ["sigmoid"]}
    for wrong in ("eta", "=1", "eta=", "eta=[1"):
        with pytest.raises(InputError, match="--grid takes"):
            parse_grid([wrong])
    with pytest.raises(InputError, match="names eta twice"):
        parse_grid(["eta=1", "eta=2"])
    assert default_grid(METHOD, {})["schedule.eta"] == [0.01, 0.03, 0.1, 0.3]


def test_the_command_says_what_to_do_next(tmp_path):
    path = claims_csv(tmp_path)
    given = ["tune", "--data", path, "--label", "fraud", "--client", "state", "--out", tmp_path / "out"]
    given += ["--grid", "objective.surrogate=square,sigmoid", "--set", "cycles=2", "--factor", "2"]
    done = CliRunner().invoke(app, [str(each) for each in given])
    assert done.exit_code == 0, done.output
    best = json.loads((tmp_path / "out/tune.json").read_text())["best"]
    assert f"best: objective.surrogate={best['settings']['objective.surrogate']}\n" in done.output
    assert f"test AUC {best['test_auc']:.4f}" in done.output
    with pytest.raises(InputError, match=r"The best trial of this search is \S+/out/trial-00\d/seed-0\."):
        Predictor.load(tmp_path / "out")
    again = CliRunner().invoke(app, [*map(str, given), "--set", "surrogate=square"])
    assert "--grid objective.surrogate: this is set as well" in str(again.exception)


def test_the_command_that_is_printed_trains_the_best(tmp_path):
    folder = tmp_path / "last year's"
    folder.mkdir()
    table = pd.read_csv(claims_csv(folder)).rename(columns={"fraud": "is it fraud?"})
    table.to_csv(folder / "claims.csv", index=False)
    given = ["tune", "--data", folder / "claims.csv", "--label", "is it fraud?", "--client", "state"]
    given += ["--drop", "year", "--drop", "kind", "--method", METHOD, "--model", "mlp", "--seed", 3]
    given += ["--seeds", 2, "--set", "cycles=3", "--grid", "hidden=[5],[8, 3]", "--out", tmp_path / "out"]
    done = CliRunner().invoke(app, [str(each) for each in given])
    assert done.exit_code == 0, done.output
    *_, said, command = done.output.splitlines()
    assert said.endswith("with seed 3:")
    words = shlex.split(command)
    assert words[0] == "fedauc"
    assert words[-2:] == ["--out", str(tmp_path / "out/best")]
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, done.output
    best = json.loads((tmp_path / "out/tune.json").read_text())["best"]
    assert shlex.split(best["command"]) == words[:-2]
    result = json.loads((tmp_path / "out/best/result.json").read_text())
    assert result["config"]["seed"] == 3
    assert result["test_auc"] == best["test_auc_by_seed"][0]
