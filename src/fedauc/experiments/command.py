"""`fedauc train` as a text to be pasted into a shell: the inverse of what the command line reads."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # (torch is not loaded for a help text)
    from fedauc.experiments.config import Config

OPTIONS = {
    "label": "data.label",
    "client": "data.client",
    "positive": "data.positive",
    "drop": "data.drop",
    "valid": "data.valid",
    "test": "data.test",
    "split_by": "data.split_by",
    "data_root": "data.root",
    "init_from": "train.init_from",
}
"""Options that are a setting, and which."""
OTHERS = ("data.source", "data.path", "model", "model.name", "seed", "device")
"""Settings that --data, --model, --seed and --device say."""
HEAD = {"kept": (), "fresh": ("--fresh-head",), "zero": ("--set", "train.head=zero")}
"""With --init-from: how to start the last layer."""


def train_command(config: Config, given: Mapping[str, Any]) -> str:
    """The command that trains this configuration.

    What has an option of its own is taken from the configuration, and the rest of what was `given` is --set.
    """
    from fedauc.experiments.config import same_setting

    data, train = config.data, config.train
    options: dict[str, Any] = {"data": data.path if data.source is None else data.source}
    for name, key in OPTIONS.items():
        section, field = key.split(".")
        options[name] = config.sections[section][field]
    options |= {"method": config.method, "model": config.sections["model"]["name"]}
    options |= {"device": config.device, "seed": config.seed}
    words = ["fedauc", "train"]
    for name, value in options.items():
        for each in value if isinstance(value, tuple) else () if value is None else (value,):
            words += [f"--{name.replace('_', '-')}", str(each)]
    said = (*OPTIONS.values(), *OTHERS)
    if train.init_from is not None:
        words += HEAD[train.head]
        said = (*said, "train.head")
    for name, value in given.items():
        if not any(same_setting(name, other) for other in said):
            words += ["--set", setting(name, value)]
    return shlex.join(words)


def setting(name: str, value: Any) -> str:
    """A setting as it is given to --set."""
    return f"{name}={_text(value)}"


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
