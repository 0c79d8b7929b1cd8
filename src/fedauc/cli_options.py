"""Options that several commands have, and what they set."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from fedauc.errors import InputError, nearest

TOGETHER = "WORLD_SIZE" in os.environ and "RANK" in os.environ
"""Whether `torchrun` has started this process, and others beside it."""

Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="CSV or Parquet file (repeat: one per client), or a data set's name.",
        show_default=False,
    ),
]
Label = Annotated[str | None, typer.Option(help="Column that says which rows are positive.")]
Client = Annotated[str | None, typer.Option(help="Column that says which client a row belongs to.")]
Positive = Annotated[
    str | None, typer.Option(help="The label's positive value; everything else is negative.")
]
Drop = Annotated[list[str] | None, typer.Option(help="Column not to use (repeat).", show_default=False)]
Valid = Annotated[str | None, typer.Option(help="File with the validation rows.")]
Test = Annotated[str | None, typer.Option(help="File with the test rows.")]
SplitBy = Annotated[
    str | None, typer.Option(help="Split by this column's order (time): oldest train, newest test.")
]
Root = Annotated[
    str | None, typer.Option("--data-root", help="Folder of published data files; otherwise FEDAUC_DATA.")
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="linear (tables), cnn (images), or mlp, resnet20, resnet18, densenet121, densenet161.",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of splits, partitions, start values and draws.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Out = Annotated[Path | None, typer.Option(help="Folder to write; otherwise one in runs.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Any setting, key=value (repeat); `fedauc methods NAME` lists them.", show_default=False
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run in --out.")]
InitFrom = Annotated[
    str | None,
    typer.Option(help="A run's folder or a safetensors file to start from.", show_default=False),
]
FreshHead = Annotated[bool, typer.Option("--fresh-head", help="With --init-from: start the last layer anew.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


def overrides_of(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a command as settings."""
    from fedauc.data.sources import SOURCES
    from fedauc.experiments.command import OPTIONS
    from fedauc.experiments.config import parse_settings

    found: dict[str, Any] = {"device": device_of(options["device"])}
    data = options["data"] or []
    if len(data) == 1 and data[0] in SOURCES and not Path(data[0]).exists():
        found["data.source"] = data[0]
        if options["label"] or options["client"]:
            raise InputError(
                f"The data set {data[0]} knows its label and clients: leave --label and --client out."
            )
    elif len(data) == 1 and not Path(data[0]).suffix and not Path(data[0]).exists():
        raise InputError(f"--data {data[0]} is neither a file nor a data set.{nearest(data[0], SOURCES)}")
    else:
        found["data.path"] = data
    found |= {key: options[name] for name, key in OPTIONS.items() if options[name]}
    if options["model"] or ("data.source" in found and SOURCES[found["data.source"]].images):
        found["model"] = options["model"] or "cnn"
    if options["fresh_head"] and not options["init_from"]:
        raise InputError("--fresh-head says what to do with the model of --init-from, which is not given.")
    if options["init_from"]:
        found["train.head"] = "fresh" if options["fresh_head"] else "kept"
    return found | parse_settings(options["settings"] or [])


def at_least_one(**values: int | None) -> None:
    """Refuse options that count something and name none."""
    for name, value in values.items():
        if value is not None and value < 1:
            raise InputError(f"--{name} must be at least 1.")


def device_of(name: str) -> str:
    import torch

    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise InputError(f"--device {name} is not one of cpu, cuda and, of several, cuda:1.")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("--device cuda: no CUDA device is available here; use --device cpu.")
    if int(name.partition(":")[2] or 0) >= max(1, torch.cuda.device_count()):
        raise InputError(f"--device {name} is not here: there are {torch.cuda.device_count()} CUDA devices.")
    if TOGETHER and name.startswith("cuda"):
        from fedauc.transports import ranks

        ranks.take_gpu(name)
    return name
