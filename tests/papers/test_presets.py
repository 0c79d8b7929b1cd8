"""Cells of the papers: their settings and the papers' numbers, and that they can be configured and listed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from tests.experiments.reading import read
from typer.testing import CliRunner

from fedauc.cli import app
from fedauc.errors import InputError
from fedauc.papers import PAPERS
from fedauc.papers.cells import printed
from fedauc.papers.names import name_of


@pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS)
def test_the_command_of_a_cell_is_its_configuration(paper):
    for cell in {(cell.dataset, cell.method): cell for cell in paper.cells}.values():
        words = shlex.split(cell.command(1, "cpu", "some where"))
        assert read(words[2:])[0] == cell.config(1, "cpu", "some where")


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
        "participation": (24, "*asprinted", {"train.client_weight": "uniform", "train.output": "last"}),
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


def test_the_command_lists_what_there_is(tmp_path):
    def said(*given):
        done = CliRunner().invoke(app, ["reproduce", *map(str, given)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.output

    assert "table-8" in said()
    cells = said("000", "--data-root", tmp_path)
    assert re.search(r"table-1 +CyCp-Pairwise/CIFAR-10/dir=0.5flip=0 +0.8480 ± 0.0008 +\[1\] *\n", cells)
    assert re.search(r"table-1 +CyCp-Pairwise/Medicare-like/flip=0 +0.7778 ± 0.0002 +\[4\] \[5\] *\n", cells)
    assert "[4] not in the paper\n[5] Medicare-like data are generated" in cells
    assert "[1] cannot be run here: data_batch_1.bin of 'cifar10' is missing" in cells
    assert "figure-3 shows the cells p=16 of table-1." in said("004", "--data-root", tmp_path)
    shown = said("000", "table-1", "--cells", "CyCp-Pairwise/CIFAR-10/*", "--seed", 2, "--show")
    assert shown.startswith(
        "# CyCp-Pairwise/CIFAR-10/dir=0.5flip=0: test AUC, theirs 0.8480 ± 0.0008\nfedauc train "
    )
    assert "--seed 2" in shown
    out = "runs/reproduce/000/table-1/CyCp-Pairwise_CIFAR-10_dir=0.5flip=0/seed-4"
    assert shown.endswith(f" --out {out}\n")
    with pytest.raises(InputError, match="--seed must be at least 0"):
        said("000", "table-1", "--seed", -1)
    with pytest.raises(InputError, match="--seeds must be at least 1"):
        said("000", "--seeds", 0)
    with pytest.raises(InputError, match="--cells are those of a table of a paper"):
        said("--cells", "A-FedAvg/*")
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
