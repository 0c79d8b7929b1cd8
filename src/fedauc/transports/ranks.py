"""The processes that carry out a run together, as `torchrun` starts them.

Every process has a rank. All of them hold the same rows and the same server state and go through the same
rounds; they differ in whose clients they compute (`transports.distributed`). What only one of them should do
(read a checkpoint, validate, write the run's folder) the first one does, and tells the others what came out.

A process that cannot go on says why and ends. The others notice when they wait for it, or are told to end by
`torchrun`, and end without a word, because it has been said.
"""

from __future__ import annotations

import atexit
import math
import os
import re
import signal
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map_only

from fedauc.core.tree import Tree
from fedauc.errors import InputError, Lost

T = TypeVar("T")

WAIT = timedelta(minutes=30)
"""How long a process waits for the others: longer than the first one validates."""
PATIENCE = timedelta(seconds=3)
"""How long a process that has lost another leaves it to that one to say why."""
SAYING = timedelta(seconds=10)
"""How long the others stay while one says what went wrong, since `torchrun` ends all when one has ended; and
how long those that are through wait for the others."""
EXACT = 4
"""Processes up to which sums are added in the order of `transports.local`, in pairs."""
ALIGNED = 16
"""Bytes that tensors in a message are rounded up to."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, seen from one of them; one by itself has nobody to talk to."""

    rank: int = 0
    size: int = 1
    pairs: tuple[Any, ...] = ()
    """Groups of two over which sums are added, one after another; none: over all processes at once."""
    board: Any = None
    """A store that outlives the processes, where they leave notes."""

    @property
    def first(self) -> bool:
        """Whether this is the process that reads, writes and speaks."""
        return self.rank == 0

    def told(self, fn: Callable[[], T], device: str = "cpu") -> T:
        """What `fn` returns at the first process, at all of them; its tensors arrive on `device`."""
        if self.size == 1:
            return fn()
        value: Any = fn() if self.first else None
        parcel = [tree_map_only(Tensor, Tensor.cpu, value)]
        with _listening():
            dist.broadcast_object_list(parcel, src=0, device=torch.device("cpu"))
        return value if self.first else tree_map_only(Tensor, lambda t: t.to(device), parcel[0])

    def agree(self, what: str, *contents: Any) -> None:
        """Make sure that all processes have the same."""
        if self.size > 1:
            self._same(self._from_all(torch.tensor([zlib.crc32(content) for content in contents])), what)

    def summed(self, values: Tree) -> Tree:
        """The sum of all processes' trees, whose names, types and shapes are the same."""
        found: Tree = {}
        for dtype in dict.fromkeys(value.dtype for value in values.values()):
            mine = {name: value for name, value in values.items() if value.dtype == dtype}
            flat = torch.cat([value.reshape(-1) for value in mine.values()])
            with _listening():
                for group in self.pairs or (None,):
                    dist.all_reduce(flat, group=group)
            parts = flat.split([value.numel() for value in mine.values()])
            found |= {name: part.view(mine[name].shape) for name, part in zip(mine, parts, strict=True)}
        return {name: found[name] for name in values}

    def gathered(self, values: Tree, what: str, content: bytes) -> Tree:
        """All processes' rows, rank after rank; names, types and all axes but the first are the same.

        On the way it is made sure that all have the same `content`.
        """
        own = torch.tensor([zlib.crc32(content), *(len(value) for value in values.values())])
        every = self._from_all(own)
        self._same(every[:, 0], what)
        lengths = [dict(zip(values, each, strict=True)) for each in every[:, 1:].tolist()]
        found: Tree = {}
        for device in dict.fromkeys(value.device for value in values.values()):
            found |= self._rows({n: v for n, v in values.items() if v.device == device}, lengths)
        return {name: found[name] for name in values}

    def _rows(self, values: Tree, lengths: list[dict[str, int]]) -> Tree:
        """`gathered` on one device: a message of as many bytes from every process."""
        width = {name: math.prod(v.shape[1:]) * v.element_size() for name, v in values.items()}
        room = [{n: -(-each[n] * width[n] // ALIGNED) * ALIGNED for n in values} for each in lengths]
        message = torch.zeros(max(sum(each.values()) for each in room), dtype=torch.uint8)
        message = message.to(next(iter(values.values())).device)
        start = 0
        for name, value in values.items():
            message[start : start + value.nbytes] = value.contiguous().view(-1).view(torch.uint8)
            start += room[self.rank][name]
        rows: dict[str, list[Tensor]] = {name: [] for name in values}
        for length, rooms, received in zip(lengths, room, self._from_all(message), strict=True):
            start = 0
            for name, value in values.items():
                part = received[start : start + length[name] * width[name]].view(value.dtype)
                rows[name].append(part.view(length[name], *value.shape[1:]))
                start += rooms[name]
        return {name: torch.cat(parts) for name, parts in rows.items()}

    def _from_all(self, value: Tensor) -> Tensor:
        """[R, …]: a tensor of the same shape from every process."""
        found = value.new_empty(self.size, *value.shape)
        with _listening():
            dist.all_gather(list(found.unbind()), value)
        return found

    def _same(self, marks: Tensor, what: str) -> None:
        if not (marks == marks[0]).all():
            raise InputError(f"The processes do not have the same {what}, so they cannot train together.")


_here = Ranks()


def here() -> Ranks:
    """The processes of this run."""
    return _here


def join() -> Ranks:
    """Find the other processes that `torchrun` has started (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).

    From here on being told to end (SIGTERM) ends a process through `Lost`.
    """
    global _here
    where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=WAIT))
        if size == 1:
            return _here
        # What the processes of an earlier attempt have left there is not for these.
        board = dist.PrefixStore(f"fedauc/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
        dist.init_process_group(_backend(), store=board, rank=rank, world_size=size, timeout=WAIT)
        _here = Ranks(rank, size, _pairs(rank, size), board)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"The processes cannot find each other at {where}: {_reason(error)}.") from error
    signal.signal(signal.SIGTERM, _told_to_end)
    return _here


def take_gpu(name: str) -> None:
    """Each process of a machine has a GPU of its own, which is its `cuda` from here on."""
    if _here.size > 1:
        if name != "cuda":
            raise InputError(f"--device {name}: every process takes a GPU of its own; say --device cuda.")
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", _here.rank)) % torch.cuda.device_count())


def leave() -> None:
    """Take leave of the other processes, when all of them are through: who goes first closes connections that
    others may still read from."""
    global _here
    if _here.size > 1:
        with suppress(RuntimeError):  # one that has much to write is not waited for
            _here.board.set(f"left/{_here.rank}", "yes")
            _here.board.wait([f"left/{rank}" for rank in range(_here.size)], SAYING)
        dist.destroy_process_group()
        _here = Ranks()


def end(code: Any, say: Callable[[], None], *, patient: bool = False) -> NoReturn:
    """End this process; the first that fails says why, a patient one only if no other does."""
    if _here.size == 1:
        say()
        sys.exit(code)
    if not code:
        say()
        leave()
        atexit._run_exitfuncs()
        _gone(0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    board = _here.board
    mine = _here.first
    with suppress(RuntimeError):  # without the store the first one speaks
        if patient:
            with suppress(RuntimeError):
                board.wait(["failed"], PATIENCE)
        mine = board.add("failed", 1) == 1
        if not mine:
            board.wait(["said"], SAYING)
    if mine:
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        say()
        with suppress(RuntimeError):
            board.set("said", "yes")
    _gone(code)  # nobody is left to take leave of


def _gone(code: int) -> NoReturn:
    """End without taking the interpreter apart: a thread that has talked to the other processes may be on its
    way out still, and its library aborts the process if it is taken apart before that."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _backend() -> str:
    if not torch.cuda.is_available():
        return "gloo"
    shared = int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > torch.cuda.device_count()
    return f"cpu:gloo,cuda:{'gloo' if shared else 'nccl'}"  # NCCL wants a GPU for each process


def _pairs(rank: int, size: int) -> tuple[Any, ...]:
    """This process's pairs: neighbours first, then pairs of pairs, as `transports.local` halves a cohort."""
    if size == 2 or size > EXACT or size & (size - 1):
        return ()
    mine = []
    for stage in range(size.bit_length() - 1):
        for low in (r for r in range(size) if not r >> stage & 1):
            both = [low, low | 1 << stage]
            group = dist.new_group(both, timeout=WAIT)  # everybody takes part in making every group
            if rank in both:
                mine.append(group)
    return tuple(mine)


@contextmanager
def _listening() -> Iterator[None]:
    """What goes wrong here goes wrong because another process is not there any more."""
    try:
        yield
    except RuntimeError as error:
        raise Lost(
            f"Another process of this run has ended or cannot be reached ({_reason(error)}); the same command"
            " with --resume goes on."
        ) from error


def _told_to_end(*_: object) -> None:
    raise Lost(
        "The run was told to end, or another of its processes has died; the same command with --resume"
        " goes on."
    )


def _reason(error: Exception) -> str:
    """The first sentence of an error, without the place in the library's source that it begins with."""
    text = re.sub(r"^\[\S+\] ", "", str(error).strip())
    return text.splitlines()[0].split(". ")[0].rstrip(".") if text else type(error).__name__
