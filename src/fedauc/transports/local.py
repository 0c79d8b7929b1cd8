"""The in-process transport: clients of a cohort in one process, vectorised or one after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map

from fedauc.core import tree
from fedauc.core.ledger import Ledger, parts, sizes
from fedauc.core.method import Aggregate, Cohort, Gathered, Knobs, Method, Pool, Upload
from fedauc.core.tree import Tree
from fedauc.data.federated import Draws
from fedauc.transports.memory import keep_freed_memory
from fedauc.transports.trace import Replay


class Carried(NamedTuple):
    """What an exchange brings back."""

    aggregate: Aggregate
    memory: list[Tree]
    """The clients' new memory."""
    loss: float
    sent: NDArray[np.int64]
    """Bytes that each client sent."""


@dataclass(frozen=True)
class LocalTransport:
    """Runs a method's client functions for a cohort.

    `vmap` runs all clients of a chunk at once (`torch.func.vmap` over the pure client functions); `loop`
    runs one after another and is what `vmap` is tested against.
    """

    mode: Literal["vmap", "loop"] = "vmap"
    chunk: int = 256
    """At most so many clients at once, which bounds the memory of large cohorts."""
    record_after: int = 50
    """Local steps after which the vectorised step is recorded and replayed without Python in between."""
    steps: dict[Method, Replay] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The vectorised steps of the methods that were run."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Recordings are made anew where a transport is unpickled."""
        return type(self), (self.mode, self.chunk, self.record_after)

    def exchange(
        self,
        method: Method,
        server: Any,
        memory: list[Tree],
        draws: Draws,
        cohort: Cohort,
        knobs: Knobs,
        seed: int,
        ledger: Ledger,
    ) -> Carried:
        """One exchange: send down, I local steps, collect."""
        keep_freed_memory()
        down = method.broadcast(server)
        own = method.address(server, cohort, knobs, seed)
        m = len(cohort.clients)
        ledger.down({name: size * m for name, size in sizes(down).items()}, m)
        ledger.down(sizes(own), 0)

        size = self.chunk if self.mode == "vmap" else 1
        mean: Tree = {}
        total: Tree = {}
        sent: list[NDArray[np.int64]] = []
        pools: dict[str, list[Pool]] = {}
        kept: list[Tree] = []
        losses: list[Tensor] = []
        for first in range(0, m, size):
            part = slice(first, min(first + size, m))
            upload, new, outs = self._clients(method, down, own, memory[part], draws, part, knobs)
            sent.append(_record(ledger, upload, part.stop - part.start))
            mean = _folded(mean, upload.mean, cohort.weight[part])
            total = _folded(total, upload.sum, cohort.omega[part])
            for name, rows in upload.gather.items():
                pools.setdefault(name, []).append(_kept(rows, first))
            here = range(part.stop - part.start)
            kept += [tree.map_state(torch.clone, tree.unstack(new, i)) if new else {} for i in here]
            losses.append(outs["loss"].mean(dim=1))
        gather = {
            name: Pool(torch.cat([p.values for p in parts]), torch.cat([p.owner for p in parts]))
            for name, parts in pools.items()
        }
        aggregate = Aggregate(mean, gather, total)
        return Carried(aggregate, kept, float(torch.cat(losses).mean()), np.concatenate(sent))

    def _clients(
        self,
        method: Method,
        down: Any,
        own: Tree,
        memory: list[Tree],
        draws: Draws,
        part: slice,
        knobs: Knobs,
    ) -> tuple[Upload, Tree, Tree]:
        """Init, I steps and finish for a chunk of clients; results have a leading client axis."""
        over = _vmap if self.mode == "vmap" else _single
        own = {name: value[part] for name, value in own.items()}
        stacked = tree.stack(memory) if memory[0] else {}
        each = torch.arange(part.stop - part.start)  # something with a client axis, whatever else there is
        local = over(lambda _, d, o, c: method.client_init(d, o, c), (0, None, 0, 0))(
            each, down, own, stacked
        )
        step = self._step(method) if self.mode == "vmap" else _single(method.client_step, (0, 0, None))
        outs: list[Tree] = []
        for t in range(knobs.steps):
            local, out = step(local, draws.step(t, part), knobs.eta)
            outs.append(out)
        stacked_outs = {name: torch.stack([out[name] for out in outs], dim=1) for name in outs[0]}
        finish = over(lambda d, l, c, o: method.client_finish(d, l, c, o, knobs), (None, 0, 0, 0))
        upload, new = finish(down, local, stacked, stacked_outs)
        return upload, new, stacked_outs

    def _step(self, method: Method) -> Replay:
        if method not in self.steps:
            self.steps[method] = Replay(_vmap(method.client_step, (0, 0, None)), self.record_after)
        return self.steps[method]


def _vmap(fn: Callable[..., Any], dims: tuple[int | None, ...]) -> Callable[..., Any]:
    return torch.func.vmap(fn, in_dims=dims)


def _single(fn: Callable[..., Any], dims: tuple[int | None, ...]) -> Callable[..., Any]:
    """The same contract as `_vmap` for a chunk of one client, without vectorising."""

    def run(*args: Any) -> Any:
        one = [
            arg if dim is None else tree_map(lambda v: v[0], arg) for arg, dim in zip(args, dims, strict=True)
        ]
        return tree_map(lambda v: v[None], fn(*one))

    return run


def _folded(total: Tree, stacked: Tree, weight: NDArray[np.float64]) -> Tree:
    """total + Σ_m weight_m · upload_m over the client axis."""
    partial: Tree = {}
    for name, value in stacked.items():
        w = torch.as_tensor(weight, dtype=value.dtype, device=value.device)
        partial[name] = torch.tensordot(w, value, dims=1)
    return tree.add(total, partial) if total else partial


def _kept(rows: Gathered, first: int) -> Pool:
    """Rows that travel, client after client, with their owner's index in the cohort."""
    owner = torch.arange(len(rows.keep), device=rows.keep.device)[:, None].expand(rows.keep.shape) + first
    return Pool(rows.values[rows.keep], owner[rows.keep])


def _record(ledger: Ledger, upload: Upload, clients: int) -> NDArray[np.int64]:
    """Count a chunk's uploads: all of `mean` and `sum`, and of `gather` the rows that are kept; returns the
    bytes that each client sent."""
    size = parts(upload.mean, "model") | parts(upload.sum, "control")
    each = np.full(clients, sum(size.values()) // clients, dtype=np.int64)
    for name, rows in upload.gather.items():
        per_row = rows.values[0, 0].numel() * rows.values.element_size() if rows.values.numel() else 0
        own = rows.keep.sum(dim=1).numpy(force=True) * per_row
        size[name] = int(own.sum())
        each += own
    ledger.up(size, clients)
    return each
