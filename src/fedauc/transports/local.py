"""The in-process transport: the clients of a cohort in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map

from fedauc.core import tree
from fedauc.core.ledger import count, parts
from fedauc.core.method import Aggregate, Cohort, Gathered, Knobs, Method, Pool, Upload
from fedauc.core.store import Store
from fedauc.core.tree import Tree
from fedauc.data.federated import Draws
from fedauc.errors import InputError
from fedauc.transports.execution import Effort, Execution, Replay, Written, single
from fedauc.transports.memory import keep_freed_memory

Mode = Literal["auto", "vmap", "streams", "loop"]
FOLDS = 2
"""How often a cohort is halved before its uploads are summed, see `_summed`."""


class Carried(NamedTuple):
    """What an exchange brings back."""

    cohort: Cohort
    """Who has answered."""
    aggregate: Aggregate
    memory: list[Tree]
    """The clients' new memory."""
    loss: Tensor
    """The mean over clients and steps."""
    sent: NDArray[np.int64]
    """Bytes that each client sent."""
    size: dict[str, int]
    """The same by item, of all."""


class Exchange(NamedTuple):
    """What an exchange is about, whoever carries it out."""

    method: Method
    z: Tree
    """The iterate."""
    down: Any
    """What every client gets."""
    own: Tree
    """What each client gets by itself, with a leading client axis."""
    memory: list[Tree]
    draws: Draws
    cohort: Cohort
    knobs: Knobs
    phase: int = 0
    """Which of the round's exchanges this is; 0 is the method's own."""


class Made(NamedTuple):
    """What clients made of an exchange; everything has a leading client axis."""

    upload: Upload
    memory: Tree
    loss: Tensor


class Collected(NamedTuple):
    """What clients sent and kept, folded; for clients that stand beside each other in the cohort."""

    mean: Tree
    total: Tree
    pools: dict[str, list[Pool]]
    memory: list[Tree]
    losses: list[Tensor]
    sent: list[NDArray[np.int64]]
    size: dict[str, int]
    """Bytes by item."""

    def and_then(self, other: Collected) -> Collected:
        """Together with the clients that come next."""
        size = dict(self.size)
        count(size, other.size)
        return Collected(
            tree.add(self.mean, other.mean),
            tree.add(self.total, other.total),
            {name: pools + other.pools[name] for name, pools in self.pools.items()},
            self.memory + other.memory,
            self.losses + other.losses,
            self.sent + other.sent,
            size,
        )

    def carried(self, cohort: Cohort) -> Carried:
        """From all who are in the cohort."""
        gather = {
            name: Pool(torch.cat([p.values for p in pools]), torch.cat([p.owner for p in pools]))
            for name, pools in self.pools.items()
        }
        aggregate = Aggregate(self.mean, gather, self.total)
        loss = torch.cat(self.losses).mean()
        return Carried(cohort, aggregate, self.memory, loss, np.concatenate(self.sent), self.size)


@dataclass(frozen=True)
class LocalTransport:
    """Runs a method's client functions for a cohort.

    `vmap` runs all clients of a chunk at once (`torch.func.vmap` over the pure client functions), `streams`
    each on a stream of its own (CUDA), `loop` one after another; `auto` is `vmap` on a CPU and what was
    measured to be fastest on a GPU. `loop` is what the others are tested against.
    """

    mode: Mode = "auto"
    chunk: int = 256
    """At most so many clients at once, which bounds the memory of large cohorts."""
    compile: bool | None = None
    """Compile the local steps; None: where a run is long enough to be worth it."""
    record: bool | None = None
    """Record vectorised steps and replay them without Python in between; None: in all but short runs."""
    expected: int = 0
    """Local steps of the whole run."""
    parts: int = 1
    """Parts (1, 2 or 4) that every cohort is computed in, however many processes compute them."""
    executions: dict[Method, Execution] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Of the methods that were run."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Recordings are made anew where a transport is unpickled."""
        return type(self), tuple(getattr(self, each.name) for each in fields(self) if each.init)

    def bind(self, expected: int) -> LocalTransport:
        """The transport for a run of so many local steps."""
        return replace(self, expected=expected)

    def staged(self, memory: Store, method: Method) -> Store:
        """What clients still keep when a stage begins."""
        return memory.mapped(method.memory_stage)

    def committed(self, memory: Store) -> None:
        """The clients' memory is part of the checkpoint."""

    def exchange(self, what: Exchange) -> Carried:
        """One exchange: send down, I local steps, collect."""
        keep_freed_memory()
        return self._everybody(what, len(what.cohort.clients)).carried(what.cohort)

    def _everybody(self, what: Exchange, clients: int) -> Collected:
        """What the clients of the cohort send."""
        return self._collected(what, 0, clients, 0)

    def _collected(self, what: Exchange, first: int, last: int, depth: int) -> Collected:
        """What the clients first…last send, at most `chunk` of them at once."""

        def most(depth: int) -> int:
            return 1 if self.mode == "loop" or 2**depth < self.parts else self.chunk

        return halved(first, last, depth, most, partial(self._clients, what))

    def _clients(self, what: Exchange, part: slice, depth: int) -> Collected:
        return collected(self.made(what, part), what, part, depth)

    def made(self, what: Exchange, part: slice) -> Made:
        """Init, I steps and finish for a chunk of clients."""
        method, knobs, clients = what.method, what.knobs, part.stop - part.start
        own = {name: value[part] for name, value in what.own.items()}
        memory = what.memory[part]
        known = tree.stack(memory) if memory[0] else {}
        over = single if self.mode == "loop" else torch.func.vmap
        if own or known:
            local = over(method.client_init, in_dims=(None, 0, 0))(what.down, own, known)
        else:  # the same for all
            alike = method.client_init(what.down, {}, {})
            local = tree_map(lambda value: value.expand(clients, *value.shape), alike)
        draws = what.draws.part(part)
        local, outs = self._execution(method, knobs).run(local, draws, knobs.eta, knobs.steps)
        finish = over(lambda d, l, c, o: method.client_finish(d, l, c, o, knobs), in_dims=(None, 0, 0, 0))
        upload, new = finish(what.down, local, known, outs)
        return Made(upload, new, outs["loss"].mean(dim=1))

    def _execution(self, method: Method, knobs: Knobs) -> Execution:
        if method not in self.executions:
            self.executions[method] = self._executed(method, knobs.eta.device)
        return self.executions[method]

    def _executed(self, method: Method, device: torch.device) -> Execution:
        if self.mode == "loop":
            return Written(method)
        effort = Effort(self.compile, self.record, self.expected)
        if device.type == "cuda":
            from fedauc.transports.cuda import Captured

            return Captured(method, None if self.mode == "auto" else self.mode, effort)
        if self.mode == "streams":
            raise InputError("train.mode=streams needs a CUDA device; on a CPU choose vmap or loop.")
        return Replay(method, effort)


def halved(
    first: int,
    last: int,
    depth: int,
    most: Callable[[int], int],
    work: Callable[[slice, int], Collected],
) -> Collected:
    """What the clients first…last send: halved until they are at most `most(depth)`, and folded in pairs."""
    if last - first <= most(depth):
        return work(slice(first, last), depth)
    middle = (first + last) // 2
    before = halved(first, middle, depth + 1, most, work)
    return before.and_then(halved(middle, last, depth + 1, most, work))


def collected(made: Made, what: Exchange, part: slice, depth: int = FOLDS) -> Collected:
    """What these clients of the cohort made, folded with their weights."""
    upload, clients = made.upload, part.stop - part.start
    weight, omega = (
        tree.placed(each[part], what.knobs.eta, what.knobs.eta.dtype)
        for each in (what.cohort.weight, what.cohort.omega)
    )
    size, sent = _sizes(upload, clients)
    return Collected(
        _folded(upload.mean, weight, depth),
        _folded(upload.sum, omega, depth),
        {name: [_kept(rows, part.start)] for name, rows in upload.gather.items()},
        [
            tree.map_state(torch.clone, tree.unstack(made.memory, i)) if made.memory else {}
            for i in range(clients)
        ],
        [made.loss],
        [sent],
        size,
    )


def _folded(values: Tree, weight: Tensor, depth: int) -> Tree:
    """Σ_m weight_m · values_m over the client axis, name by name."""
    if not weight.is_cuda or not values:
        return {name: _summed(value, weight, depth) for name, value in values.items()}
    # On a GPU one long sum instead of many short ones, each of which would have to be launched.
    shapes = {name: value.shape[1:] for name, value in values.items()}
    summed = _summed(torch.cat([v.reshape(len(v), -1) for v in values.values()], dim=1), weight, depth)
    parts = summed.split([shape.numel() for shape in shapes.values()])
    return {name: part.view(shapes[name]) for name, part in zip(shapes, parts, strict=True)}


def _summed(values: Tensor, weight: Tensor, depth: int) -> Tensor:
    """Σ_m weight_m · values_m.

    Sums of floats depend on the order. A cohort is therefore halved in the same places whether its clients
    are on one machine or split over two or four, and the halves' sums are added.
    """
    if depth < FOLDS and len(values) > 1:
        middle = len(values) // 2
        before = _summed(values[:middle], weight[:middle], depth + 1)
        return before + _summed(values[middle:], weight[middle:], depth + 1)
    return torch.mm(weight[None], values.reshape(len(values), -1)).view(values.shape[1:])


def _kept(rows: Gathered, first: int) -> Pool:
    """Rows that travel, client after client, with their owner's index in the cohort."""
    owner = torch.arange(len(rows.keep), device=rows.keep.device)[:, None].expand(rows.keep.shape) + first
    return Pool(rows.values[rows.keep], owner[rows.keep])


def _sizes(upload: Upload, clients: int) -> tuple[dict[str, int], NDArray[np.int64]]:
    """Bytes of the uploads by item, and by client: all of `mean` and `sum`, and of `gather` the rows that are
    kept."""
    size = parts(upload.mean, "model") | parts(upload.sum, "control")
    each = np.full(clients, sum(size.values()) // clients, dtype=np.int64)
    for name, rows in upload.gather.items():
        per_row = rows.values[0, 0].numel() * rows.values.element_size() if rows.values.numel() else 0
        own = rows.keep.sum(dim=1).numpy(force=True) * per_row
        size[name] = int(own.sum())
        each += own
    return size, each
