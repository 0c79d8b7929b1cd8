"""Checkpoints: a run's state in one safetensors file, written atomically.

A file is complete or not there: it is written beside its place, synced to the disk and renamed; a checksum
tells what a disk has damaged later. The last two checkpoints of a run are kept, and where the newer one is
damaged the older one is used. What a
state holds besides tensors (round, ledger, the best so far) travels as JSON in the file's metadata. What the
clients keep is stacked, one tensor per name and not per client, of which there may be a million.
"""

from __future__ import annotations

import json
import os
import time
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedauc.core.ledger import Ledger
from fedauc.core.loop import RunState
from fedauc.core.store import Block, Store
from fedauc.core.tree import Tree, flatten, unflatten
from fedauc.errors import InputError

CHECKSUM = "crc32"
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What the format calls them."""
Piece = bytes | memoryview
QUICK = 1.0
"""Seconds; a checkpoint that takes longer is not written every time."""
SHARE = 0.1
"""Of the time, which checkpoints may take then."""


def write_atomic(path: Path, data: bytes, *, keep: Path | None = None) -> None:
    """Write a file so that a crash or a full disk leaves the old one or the new one, never a part.

    The old one stays under the name `keep`.
    """
    _write(path, [data], keep)


def _write(path: Path, pieces: Iterable[Piece], keep: Path | None) -> None:
    """`write_atomic` for a file that need not be in memory as a whole."""
    beside = path.with_name(path.name + ".part")
    try:
        with open(beside, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        beside.unlink(missing_ok=True)  # of a disk that is full, room for what comes next
        raise
    if keep is not None and path.exists():
        os.replace(path, keep)
    os.replace(beside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_tensors(
    path: Path, tensors: Tree, metadata: Mapping[str, Any], *, keep: Path | None = None
) -> None:
    """A flat tree and JSON-able metadata as a safetensors file."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    about = json.dumps({**metadata, CHECKSUM: _checksum(plain)})
    _write(path, _pieces(plain, {"fedauc": about}), keep)


def _pieces(tensors: Tree, metadata: Mapping[str, str]) -> Iterator[Piece]:
    """A safetensors file: the length of its header, the header, then tensor after tensor.

    The library's `save` makes one string of it, for which a file of gigabytes needs three times its size in
    memory and five times as long; its `save_file` leaves a file of any name behind where a process is killed.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # all of them aligned
    for name in names:
        begin, end = end, end + tensors[name].nbytes
        shape = list(tensors[name].shape)
        header[name] = {"dtype": DTYPES[tensors[name].dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in names:
        yield _content(tensors[name])


def read_tensors(path: Path) -> tuple[Tree, dict[str, Any]]:
    """The inverse of `write_tensors`."""
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get("fedauc", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if metadata.pop(CHECKSUM, None) not in (None, _checksum(tensors)):
                raise ValueError("its checksum is another one")
            return tensors, metadata
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(
            f"{path} is damaged and cannot be read ({error}); remove it to start anew."
        ) from error


def _checksum(tensors: Tree) -> str:
    found = 0
    for name in sorted(tensors):
        found = zlib.crc32(_content(tensors[name]), zlib.crc32(name.encode(), found))
    return f"{found:08x}"


def _content(tensor: Tensor) -> memoryview:
    """Its bytes, without a copy."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def previous(path: Path) -> Path:
    """Where the checkpoint before the last one is."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def read_latest(path: Path) -> tuple[Tree, dict[str, Any]] | None:
    """The last checkpoint that can be read; None: there is none. A damaged one is put aside."""
    older = previous(path)
    try:
        if path.exists():
            return read_tensors(path)
    except InputError as error:
        if not older.exists():
            raise
        warnings.warn(f"{error} The checkpoint before it is used.", stacklevel=2)
        os.replace(path, path.with_suffix(".damaged"))
    return read_tensors(older) if older.exists() else None


def remove(path: Path) -> None:
    """A run has ended and needs no checkpoint."""
    for each in (path, previous(path), path.with_suffix(".damaged")):
        each.unlink(missing_ok=True)


class Pace:
    """When a checkpoint is due: always where writing one is quick, otherwise so that they take a share.

    A hundred clients that keep a control variate of a ResNet18 make one of 4.5 GB.
    """

    def __init__(self) -> None:
        self.next = 0.0

    def due(self) -> bool:
        return time.monotonic() >= self.next

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A checkpoint is being written."""
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        self.next = 0.0 if took <= QUICK else began + took / SHARE


def save_state(path: Path, state: RunState, best: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    """A run's state and the outputs to choose from so far (a tree, or trees by name)."""
    tensors = (
        flatten(state.server, "server")
        | flatten(state.averaged, "averaged")
        | _flat_memory(state.memory)
        | flatten(best, "best")
    )
    about = {"round": state.round, "ledger": state.ledger.as_dict(), **extra}
    write_tensors(path, tensors, about, keep=previous(path))


def load_state(path: Path, like: RunState, device: str) -> tuple[RunState, Tree, dict[str, Any]]:
    """The state, the best output and the extra values of a checkpoint; `like` gives the structure."""
    return restored(path, *read_tensors(path), like, device)


def restored(
    path: Path, tensors: Tree, extra: dict[str, Any], like: RunState, device: str
) -> tuple[RunState, Tree, dict[str, Any]]:
    """`load_state` for what was read from the file."""
    tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
    best = {name.removeprefix("best/"): t for name, t in tensors.items() if name.startswith("best/")}
    try:
        memory = _memory(tensors)
        server = unflatten(like.server, tensors, "server")
        averaged = unflatten(like.averaged, tensors, "averaged")
        averaged = averaged._replace(iterates=averaged.iterates.cpu())
        state = RunState(extra["round"], server, memory, averaged, Ledger.from_dict(extra["ledger"]))
    except (KeyError, ValueError) as error:
        raise InputError(f"{path} does not belong to this configuration ({error}).") from error
    return state, best, extra


def _flat_memory(memory: Store) -> Tree:
    """kept/NUMBER/clients and kept/NUMBER/values/NAME, a number for every form that the trees have."""
    flat: Tree = {}
    for number, block in enumerate(memory.stacked("cpu")):
        flat[f"kept/{number}/clients"] = torch.from_numpy(block.clients)
        flat |= {f"kept/{number}/values/{name}": value for name, value in block.values.items()}
    return flat


def _memory(tensors: Tree) -> Store:
    """The inverse of `_flat_memory`; also from memory/CLIENT/NAME, as it was written at first."""
    single: dict[int, Tree] = {}
    blocks: dict[str, Block] = {}
    for name, tensor in tensors.items():
        if name.startswith("memory/"):
            _, client, field = name.split("/", 2)
            single.setdefault(int(client), {})[field] = tensor
        elif name.startswith("kept/") and name.endswith("/clients"):
            blocks[name.removesuffix("clients") + "values/"] = Block(tensor.numpy(force=True), {})
    for name, tensor in tensors.items():
        if name.startswith("kept/") and "/values/" in name:
            prefix, _, field = name.partition("/values/")
            blocks[f"{prefix}/values/"].values[field] = tensor
    return Store.of(blocks.values()).updated(single.items())
