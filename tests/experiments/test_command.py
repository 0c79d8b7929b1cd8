"""The command that is printed, read by the command line again: it means the same configuration."""

from __future__ import annotations

import shlex

import pytest

from fedauc.experiments.command import train_command
from fedauc.experiments.config import Config
from tests.experiments.reading import read
from tests.experiments.tables import claims_csv


@pytest.mark.parametrize(
    "words",
    [
        "--data table.csv --label fraud --client state",
        "--data a.csv --data 'b 2.csv' --label \"it's\" --positive 'yes & no' --drop x --drop 'y z' --seed 3",
        "--data t.csv --label fraud --valid v.csv --test t.csv --method cycp-minimax --set eta=1e-3",
        "--data t.csv --label fraud --split-by year --model mlp --set 'hidden=[5, 3]' --set groups=null",
        "--data digits --data-root 'my data' --set partition=dirichlet --set clients=5",
        "--data fashion-mnist --positive 6",
        "--data fashion-mnist --model resnet20 --set norm=batch --set statistics=recalibrated",
        "--data t.csv --label -1 --init-from 'runs/a run'",
        "--data t.csv --label fraud --init-from runs/x --fresh-head",
        "--data t.csv --label fraud --init-from runs/x --set head=zero",
        "--data t.csv --label fraud --set init_from=runs/x --set train.head=fresh",
        "--set source=fashion-mnist --set warmup=cycp-fedavg --set head=fresh --set compile=false",
        "--set path=a.csv,b.csv --set data.label=fraud --set drop=x,y --set model.name=mlp --set root=here",
    ],
)
def test_what_was_typed_is_said_again(words):
    config, given = read(shlex.split(words))
    command = shlex.split(train_command(config, given))
    assert command[:2] == ["fedauc", "train"]
    assert read(command[2:])[0] == config


def test_values_of_a_grid_are_written_as_the_command_line_reads_them(tmp_path):
    given = {"data.path": [str(claims_csv(tmp_path))], "data.label": "fraud", "data.client": "state"}
    given |= {"eta": 1e-5, "groups": None, "model": "mlp", "model.hidden": [5, 3], "train.compile": False}
    config = Config.resolve("cycp-minimax", given | {"seed": 2})
    command = train_command(config, given)
    assert command.endswith(
        "--model mlp --device cpu --seed 2 --set eta=1e-05 --set groups=null --set 'model.hidden=[5, 3]'"
        " --set train.compile=false"
    )
    assert read(shlex.split(command)[2:])[0] == config
