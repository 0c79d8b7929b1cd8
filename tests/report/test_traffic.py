"""What travelled and who took part, in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedauc import models
from fedauc.core.loop import begin, rounds
from fedauc.data.federated import FederatedData
from fedauc.experiments.config import Config
from fedauc.experiments.presets import PRESETS
from fedauc.report import write_report
from fedauc.report.clients import item_name
from fedauc.report.sections.traffic import ITEMS

from .fixtures import client_names, compare_folder, train_run
from .test_report import edit, read


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("z", "model"),
        ("model", "model"),
        ("c", "control variate"),
        ("control", "control variate"),
        ("momentum", "momentum"),
        ("anchor", "proximal anchor"),
        ("estimates", "estimates of positives"),
        ("inner/negatives", "scores of negatives"),
        ("inner/inner/positives", "scores of positives"),
        ("statistics", "normalisation statistics"),
        ("setup: statistics", "setup: statistics"),
        ("warm-up: z", "warm-up: model"),
        ("warm-up: setup: statistics", "warm-up: setup: statistics"),
        ("something/new", "something/new"),
        ("gossip", "gossip"),
    ],
)
def test_names_of_items(raw: str, shown: str) -> None:
    assert item_name(raw) == shown


def test_all_items_of_a_ledger_are_shown(tmp_path: Path) -> None:
    up = {
        "model": 800,
        "control": 800,
        "momentum": 700,
        "ratio": 60,
        "loss": 4,
        "warm-up: model": 80,
        "gossip": 9,
    }
    down = {"z": 800, "c": 800, "momentum": 700, "started": 4, "ratio": 8, "warm-up: z": 80, "inner": 5}
    run = train_run(tmp_path / "run", "codasca", ledger={"up": up, "down": down})
    source, words = read(write_report([run], tmp_path / "report.html"))
    for item in (
        "control variate mean gradients of a client",
        "momentum moving averages of gradients",
        "class ratio up: gradients of the last layer by class",
        "loss how large the client's loss is",
        "first-step flag whether",
        "warm-up: model parameters of the model",
        "wrapped message what the method inside sends",
        "gossip 9 B",
    ):
        assert item in words
    table = source[source.index('aria-label="What travelled"') :].split("</table>")[0]
    assert table.count("<th scope=row>model<") == 1  # up and down in one line
    assert "No training rows left the clients, by this ledger." in words


@pytest.mark.parametrize("method", list(PRESETS))
def test_every_item_of_every_method_has_words(method: str) -> None:
    draw = np.random.default_rng(0)
    x, y = torch.from_numpy(draw.normal(size=(48, 3)).astype(np.float32)), torch.arange(48) % 3 == 0
    data = FederatedData.build(x, y.to(torch.int8), np.arange(48) // 8, client_names(6))
    config = Config.resolve(
        method, {"schedule.cycles": 2, "schedule.steps": 1, "train.batch": 4, "train.mode": "loop"}
    )
    model, params = models.init(config.component("model"), (3,), 0, "cpu")
    federation = config.federation(data, model)
    *_, (state, _) = rounds(federation, begin(federation, params))
    items = {item_name(raw) for raw in (*state.ledger.bytes_up, *state.ledger.bytes_down)}
    assert {"model", "setup: class counts"} <= items
    assert items <= set(ITEMS)


def strip_of(tmp_path: Path, **options: Any) -> tuple[str, str]:
    run = train_run(tmp_path / "run", rounds=40, **options)
    return read(write_report([run], tmp_path / "report.html"))


def vary(run: Path, *clients: int) -> None:
    """The clients of a run's rounds, over and over."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for n, row in enumerate(rows):
        row["clients"] = clients[n % len(clients)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("optimal", "with chances that follow their weights and uplink times"),
        ("weighted", "with chances in proportion to their weights"),
    ],
)
def test_bernoulli_draws_have_no_groups(tmp_path: Path, name: str, drawn: str) -> None:
    everybody = [client_names(12)]
    for groups in (everybody, ...):  # also where the groups are not recorded
        run = train_run(
            tmp_path / f"run-{groups is ...}",
            rounds=40,
            participation={"name": name, "groups": None},
            groups=4,
        )
        edit(run, groups=everybody if groups is not ... else ...)
        vary(run, 1, 2, 4, 9)
        source, words = read(write_report([run], tmp_path / "report.html"))
        assert "took part in rounds" not in source
        assert "Clients of each group" not in words
        if groups is not ...:
            said = f"40 rounds in 10 cycles, 1 to 9 clients of 12 in each (4.0 on average), drawn {drawn}."
            assert said in words


def test_bernoulli_draws_where_everybody_came(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", rounds=40, participation={"name": "optimal"}, groups=1)
    assert "40 rounds, all 12 clients in each." in read(write_report([run], tmp_path / "report.html"))[1]


def test_bernoulli_draws_in_groups_have_a_strip(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", rounds=40, participation={"name": "optimal", "groups": 4})
    vary(run, 1, 2, 3, 2)
    source, words = read(write_report([run], tmp_path / "report.html"))
    assert "4 groups over 40 rounds in 10 cycles, 1 to 3 clients of the active group in each (2.0 on" in words
    assert "Which of 4 groups took part in rounds 1 to 40" in source
    assert source.count(">10 of 40<") == 4
    assert "Clients of each group" in words


def test_some_of_a_group(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", rounds=40, participation={"name": "cyclic", "per_round": 2})
    vary(run, 2)
    words = read(write_report([run], tmp_path / "report.html"))[1]
    assert (
        "4 groups over 40 rounds in 10 cycles, 2 clients of the active group in each, drawn at random."
        in words
    )


def test_all_of_a_group(tmp_path: Path) -> None:
    words = strip_of(tmp_path, participation={"name": "cyclic"})[1]
    assert "4 groups over 40 rounds in 10 cycles, 3 clients in each." in words


def test_reports_of_losses_are_mentioned(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", "ce-minimax", ledger={"up": {"model": 5, "loss": 4}, "down": {"z": 5}})
    assert "Clients that only report their loss" in read(write_report([run], tmp_path / "report.html"))[1]
    assert "only report their loss" not in strip_of(tmp_path / "other")[1]


def test_participation_of_compared_methods(tmp_path: Path) -> None:
    """Methods that take part alike share a line; the strip is of the best that has groups."""
    folder = compare_folder(
        tmp_path / "cmp",
        ("codasca", "coda+", "cycp-pairwise", "cycp-minimax"),
        (0, 1),
        of_method={name: {"groups": 1, "participation": {"name": "full"}} for name in ("codasca", "coda+")},
        rounds=40,
    )
    source, words = read(write_report([folder], tmp_path / "report.html"))
    part = source[source.index('<section id="participation">') :].split("</section>")[0]
    assert part.count("<li>") - part.count("<li><b>Group") == 2
    assert "The groups of cycp-pairwise, seed 0. Filled where it was the group's turn" in words
