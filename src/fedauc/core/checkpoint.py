"""Checkpoints: a run's state in one safetensors file, written atomically.

A file is complete or not there: it is written beside its place, synced to the disk and renamed. What a
state holds besides tensors (round, ledger, the best so far) travels as JSON in the file's metadata.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fedauc.core.ledger import Ledger
from fedauc.core.loop import RunState
from fedauc.core.tree import Tree, flatten, unflatten
from fedauc.errors import InputError


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a part."""
    beside = path.with_name(path.name + ".part")
    with open(beside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_tensors(path: Path, tensors: Tree, metadata: Mapping[str, Any]) -> None:
    """A flat tree and JSON-able metadata as a safetensors file."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomic(path, save(plain, {"fedauc": json.dumps(metadata)}))


def read_tensors(path: Path) -> tuple[Tree, dict[str, Any]]:
    """The inverse of `write_tensors`."""
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get("fedauc", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise InputError(
            f"{path} is damaged and cannot be read ({error}); remove it to start anew."
        ) from error


def save_state(path: Path, state: RunState, best: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    """A run's state and the outputs to choose from so far (a tree, or trees by name)."""
    tensors = (
        flatten(state.server, "server")
        | flatten(state.averaged, "averaged")
        | {f"memory/{client}/{name}": t for client, c in state.memory.items() for name, t in c.items()}
        | flatten(best, "best")
    )
    write_tensors(path, tensors, {"round": state.round, "ledger": state.ledger.as_dict(), **extra})


def load_state(path: Path, like: RunState, device: str) -> tuple[RunState, Tree, dict[str, Any]]:
    """The state, the best output and the extra values of a checkpoint; `like` gives the structure."""
    tensors, extra = read_tensors(path)
    tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
    memory: dict[int, Tree] = {}
    best = {name.removeprefix("best/"): t for name, t in tensors.items() if name.startswith("best/")}
    try:
        for name, tensor in tensors.items():
            if name.startswith("memory/"):
                _, client, field = name.split("/", 2)
                memory.setdefault(int(client), {})[field] = tensor
        server = unflatten(like.server, tensors, "server")
        averaged = unflatten(like.averaged, tensors, "averaged")
        averaged = averaged._replace(iterates=averaged.iterates.cpu())
        state = RunState(extra["round"], server, memory, averaged, Ledger.from_dict(extra["ledger"]))
    except (KeyError, ValueError) as error:
        raise InputError(f"{path} does not belong to this configuration ({error}).") from error
    return state, best, extra
