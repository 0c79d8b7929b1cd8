"""What the command line makes of words."""

from __future__ import annotations

import typer

from fedauc.cli import app
from fedauc.cli_options import overrides_of
from fedauc.experiments.config import Config


def read(words):
    """The configuration that `fedauc train` makes of these words, and what was given."""
    options = typer.main.get_command(app).commands["train"].make_context("train", list(words)).params
    given = overrides_of(options)
    return Config.resolve(options["method"], given | {"seed": options["seed"]}), given
