"""All clients' local steps in one CUDA graph.

A GPU is fast enough that launching kernels one by one from Python takes most of a small batch's time. So one
local step of all clients is captured once, with everything it reads and writes at fixed places on the
device: the clients' states, the round's row numbers, the step's number, the weights and η. A round fills
those places and replays the graph I times; the rows are gathered inside it. A new capture is needed only
when shapes change: step sizes, duals and masks are tensors.

Clients run beside each other in one of three ways, and which one is fastest depends on the model and the
device, so it is measured once and remembered (`caches`):

    vmap                   all clients in every kernel: small models
    streams                every client on a stream of its own: convolutions, whose kernels `vmap` turns into
                           slow grouped ones
    streams-channels-last  the same with images and filters laid out channels last
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from fedauc.caches import cache_folder
from fedauc.core.checkpoint import write_atomic
from fedauc.core.method import Batch, Method
from fedauc.core.tree import Tree
from fedauc.data.augment import taken
from fedauc.data.federated import Draws
from fedauc.locks import by_one
from fedauc.transports.execution import Effort, Execution, Replay, Written
from fedauc.transports.step import Flat, Step, compiled, reason, recorded

LAYOUTS = ("vmap", "streams", "streams-channels-last")
MOST = 8
"""Shapes that are captured; cohorts of ever new sizes would cost more than they gain."""
NEAR = 2.0
"""Layouts that take at most so many times the best one's time are also measured compiled."""
ROOM = 64
"""Steps that there is room for in a round, at least: rounds of other lengths have the same compiled step."""
STREAMS = 16
"""At most so many at once; more clients take turns."""
WARM_UP = 3
"""Steps before the capture, in which libraries set up and choose their kernels."""
TURNS = 20
"""Steps that a layout is timed for, in turns with the best so far."""

G = TypeVar("G")


class Captured:
    """Runs the local steps of all clients as a CUDA graph; without one where that is impossible."""

    def __init__(self, method: Method, layout: str | None, effort: Effort) -> None:
        self.method, self.layout, self.effort = method, layout, effort
        self.graphs: dict[Any, Graph] = {}
        self.otherwise: Execution = Replay(method, effort)
        self.impossible = False

    def run(self, local: Any, draws: Draws, eta: Tensor, steps: int) -> tuple[Any, Tree]:
        values, structure = tree_flatten(local)
        key = (structure, *((v.shape, v.dtype) for v in values), draws.batch, id(draws.data.x))
        graph = self.graphs.get(key)
        if graph is None or graph.capacity < steps:
            if self.impossible or len(self.graphs) >= MOST:
                return self.otherwise.run(local, draws, eta, steps)
            try:
                graph = self.graphs[key] = self._captured(values, structure, draws, eta, steps)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                warnings.warn(
                    f"Local steps cannot be captured in a CUDA graph and run without one ({reason(error)}).",
                    stacklevel=2,
                )
                self.impossible = True
                self.otherwise = Written(self.method)  # it may look at values, which `vmap` has none of
                return self.otherwise.run(local, draws, eta, steps)
        return graph.run(values, draws, eta, steps)

    def _captured(
        self, values: list[Tensor], structure: TreeSpec, draws: Draws, eta: Tensor, steps: int
    ) -> Graph:
        def build(layout: str, compile: bool) -> Graph:
            return Graph(self.method, layout, compile, values, structure, draws, eta, steps)

        layouts = [layout for layout in LAYOUTS if layout.startswith(self.layout or "")]
        if not any(value.dim() == 5 for value in values):  # no convolution
            layouts = [layout for layout in layouts if layout != "streams-channels-last"]
        if len(layouts) == 1:
            graph = build(layouts[0], False)
            return build(layouts[0], True) if graph.compiles(self.effort) else graph
        device = torch.cuda.get_device_name(eta.device)
        what = [type(self.method).__name__, self.effort.compile, device, torch.__version__, draws.batch]
        what += [draws.data.augment] if draws.data.augment else []
        shapes = [[str(v.dtype), *v.shape] for v in (*values, draws.data.x[:1])]
        name = hashlib.sha256(json.dumps([what, layouts, shapes]).encode()).hexdigest()[:16]
        known = cache_folder() / "layouts" / f"{name}.json"
        with by_one(known):  # runs that begin together measure and compile once
            if (found := _read(known)) is None or found["layout"] not in layouts:
                graph, found = self._measured(layouts, build, lambda graph: graph.timed(values, draws, eta))
                found |= {"device": device, "torch": torch.__version__}
                write_atomic(known, json.dumps(found, indent=2).encode())
                return graph
        return build(found["layout"], found["compile"])

    def _measured(
        self, layouts: Sequence[str], build: Callable[[str, bool], Graph], timed: Callable[[Graph], float]
    ) -> tuple[Graph, dict[str, Any]]:
        """The layout that takes least time: compiled, where it is to be, and not hopeless before."""
        graph, plain = _fastest(layouts, lambda layout: build(layout, False), timed)
        seconds = plain
        if compile := graph.compiles(self.effort):
            del graph
            near = [layout for layout in plain if plain[layout] <= NEAR * min(plain.values())]
            graph, seconds = _fastest(near, lambda layout: build(layout, True), timed)
        return graph, {
            "layout": min(seconds, key=seconds.__getitem__),
            "compile": compile,
            "seconds_per_step": seconds,
            "seconds_per_step_not_compiled": plain,
        }


def _fastest(
    layouts: Sequence[str], build: Callable[[str], G], timed: Callable[[G], float]
) -> tuple[G, dict[str, float]]:
    """The graph of the fastest layout, and the seconds of all; at most two graphs are in memory.

    A layout is timed in turns with the best so far. Other runs on the same GPU make a step take several times
    as long, one moment more and the next less, and in turns they hit both alike.
    """
    seconds: dict[str, float] = {}
    for layout in layouts:
        try:
            graph = build(layout)
        except Exception as error:  # not every operation can be vectorised
            last = error
            continue
        if not seconds:
            best, leader = graph, layout
            seconds[layout] = median(timed(graph) for _ in range(TURNS))
            continue
        turns = [(timed(best), timed(graph)) for _ in range(TURNS)]
        theirs, ours = (median(times) for times in zip(*turns, strict=True))
        seconds[layout] = seconds[leader] * ours / theirs
        if ours < theirs:  # (as the smallest of `seconds` says)
            best, leader = graph, layout
        del graph
    if not seconds:
        raise last
    return best, seconds


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
        return found if {"layout", "compile"} <= found.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


class Graph:
    """One local step of all clients, captured; its inputs and outputs are at fixed places.

    A *seat* is what one call of the step works on: all clients (`vmap`), or one.
    """

    def __init__(
        self,
        method: Method,
        layout: str,
        compile: bool,
        values: list[Tensor],
        structure: TreeSpec,
        draws: Draws,
        eta: Tensor,
        steps: int,
    ) -> None:
        self.clients, self.structure, self.capacity = draws.clients, structure, max(steps, ROOM)
        self.augment = draws.data.augment
        self.together, self.channels_last = layout == "vmap", layout == "streams-channels-last"
        fn = (
            torch.func.vmap(method.client_step, in_dims=(0, 0, None)) if self.together else method.client_step
        )
        self.step = Step(fn, structure)
        self.now = torch.zeros(1, dtype=torch.int64, device=eta.device)
        self.index, self.row = (
            each.new_zeros(self.capacity, *each.shape[1:]) for each in (draws.index, draws.row)
        )
        self.weight, self.eta = torch.empty_like(draws.weight), torch.empty_like(eta)
        self.states = [[self._place(value) for value in own] for own in self._seats(values)]
        by_client = [self.index.transpose(0, 1), self.row.transpose(0, 1), self.weight]
        self.rest = [
            (draws.data.x, draws.data.y, *rows, self.now, self.eta)
            for rows in ([[self.index, self.row, self.weight]] if self.together else self._seats(by_client))
        ]
        self._fill(values, draws, eta)
        self.fn = self._made(compile)
        self.streams = [torch.cuda.Stream() for _ in range(min(len(self.states), STREAMS))]
        self._capture(lambda: self._fill(values, draws, eta))

    def run(self, values: list[Tensor], draws: Draws, eta: Tensor, steps: int) -> tuple[Any, Tree]:
        self._fill(values, draws, eta)
        for _ in range(steps):
            self.graph.replay()
        outs = (out[:steps].transpose(0, 1) for out in self.outs)
        state = tree_unflatten(self._joined(self.states), self.structure)
        return state, dict(zip(self.step.outs, outs, strict=True))

    def timed(self, values: list[Tensor], draws: Draws, eta: Tensor) -> float:
        """Seconds of a round's first step: a state may count its steps."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._fill(values, draws, eta)
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def compiles(self, effort: Effort) -> bool:
        return effort.compiles(lambda *_: self._once(), [self.eta])

    def _seats(self, values: list[Tensor]) -> list[list[Tensor]]:
        """Tensors with a leading client axis, seat by seat."""
        return [values] if self.together else [[value[m] for value in values] for m in range(self.clients)]

    def _joined(self, seats: list[list[Tensor]]) -> list[Tensor]:
        """The inverse of `_seats`."""
        return seats[0] if self.together else [torch.stack(each) for each in zip(*seats, strict=True)]

    def _place(self, like: Tensor) -> Tensor:
        """Room for a tensor like this."""
        layout = torch.channels_last if self.channels_last and like.dim() == 4 else torch.contiguous_format
        return torch.empty(like.shape, dtype=like.dtype, device=like.device, memory_format=layout)

    def _fill(self, values: list[Tensor], draws: Draws, eta: Tensor) -> None:
        """Put a round's inputs in their places."""
        steps = len(draws.index)
        self.index[:steps].copy_(draws.index)
        self.row[:steps].copy_(draws.row)
        self.weight.copy_(draws.weight)
        self.eta.copy_(eta)
        self.now.zero_()
        places, sources = ([v for own in seats for v in own] for seats in (self.states, self._seats(values)))
        torch._foreach_copy_(places, sources)

    def _gathered(self, *flat: Tensor) -> list[Tensor]:
        """A step that takes its batch itself, and writes over its state."""
        *state, x, y, index, row, weight, now, eta = flat
        at, row = (each.index_select(0, now)[0] for each in (index, row))
        images, labels = taken(x, y, at.flatten(), self.augment)
        if self.channels_last and images.dim() == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        batch = Batch(images.unflatten(0, at.shape), labels.view(at.shape), weight, row)
        return self.step.in_place(*state, *batch, eta)

    def _made(self, compile: bool) -> Flat:
        """The step compiled, or else recorded."""
        state, rest = self.states[0], self.rest[0]
        fn: Flat | None = None
        if compile:
            fn = compiled(self._gathered, state, *rest, keep_layout=self.channels_last)
        fn = fn or recorded(self._gathered, state, *rest)
        if fn is None:
            raise RuntimeError("the step depends on values that only the GPU knows")
        return fn

    def _once(self) -> list[Tensor]:
        """One local step of all clients; the outs with a leading client axis."""
        main = torch.cuda.current_stream()
        outs: list[list[Tensor]] = []
        for seat, (state, rest) in enumerate(zip(self.states, self.rest, strict=True)):
            stream = self.streams[seat % len(self.streams)]
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                outs.append(list(self.fn(*state, *rest)))
        for stream in self.streams:
            main.wait_stream(stream)
        return self._joined(outs)

    def _capture(self, fill: Callable[[], None]) -> None:
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                fill()
                outs = self._once()
            fill()
        torch.cuda.current_stream().wait_stream(aside)
        self.outs = [out.new_empty(self.capacity, *out.shape) for out in outs]
        self.graph = torch.cuda.CUDAGraph()
        # Validation may use the device from another thread meanwhile.
        with torch.no_grad(), torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            for place, out in zip(self.outs, self._once(), strict=True):
                place.index_copy_(0, self.now, out[None])
            self.now.add_(1)
