"""How the I local steps of some clients are carried out.

    Written    one client after another, as the method is written: what the others are tested against
    Replay     all clients at once (`vmap`), recorded after a while, or compiled
    Captured   all clients in one CUDA graph (`transports.cuda`)

Each takes the clients' states with a leading client axis and gives them back after I steps, together with
what the steps returned besides, [M, I, …].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten
from torch.utils.flop_counter import FlopCounterMode

from fedauc.core.method import Method
from fedauc.core.tree import Tree
from fedauc.data.federated import Draws
from fedauc.transports.step import Flat, Step, compiled, recorded

RECORDED = 50
"""Local steps of a run from which on they are recorded."""
FEW = 6
"""Parts of a state up to which several steps are compiled as one: more take too long to compile."""
SMALL = 2**15
"""Numbers in the states of all clients up to which several steps are compiled as one."""
STRIDES = (5, 4, 3, 2, 1)
"""How many: the first that divides a round's steps."""


class Speed(NamedTuple):
    """How long a step takes, roughly."""

    overhead: float
    """Seconds of the smallest step."""
    rate: float
    """Operations a second."""
    most: float
    """Operations of the largest step; fewer steps than would be worth it with this need not be looked at."""
    worth: float
    """Estimated seconds of a run's local steps from which on they are compiled: deep networks, which GPUs are
    for, take minutes to compile the first time."""


CPU, GPU = Speed(3e-4, 5e10, 1e11, 30.0), Speed(1e-4, 1e14, 1e13, 120.0)


class Execution(Protocol):
    """Runs I local steps of some clients."""

    def run(self, local: Any, draws: Draws, eta: Tensor, steps: int) -> tuple[Any, Tree]:
        """The states after `steps` steps, and the steps' outs [M, I, …]."""


class Effort(NamedTuple):
    """What is done to make steps fast before the first one is taken.

    It depends on the run alone and on no clock, so that an interrupted run goes on with the same bits.
    """

    compile: bool | None
    """Whether steps are compiled, which takes some seconds; None: where a run is long enough."""
    record: bool | None
    """Whether they are recorded, which takes about as long as a few of them; None: in all but short runs."""
    steps: int
    """Local steps of the whole run, of all clients at once."""

    @property
    def records(self) -> bool:
        return self.steps >= RECORDED if self.record is None else self.record

    def compiles(self, fn: Flat, flat: Sequence[Tensor]) -> bool:
        """Whether fn(*flat), a step of all clients, is compiled."""
        if self.compile is not None:
            return self.compile

        def operations() -> float:
            with FlopCounterMode(display=False) as counter:
                fn(*flat)
            return counter.get_total_flops()

        return worth(self.steps, GPU if flat[0].is_cuda else CPU, operations)


def worth(steps: int, speed: Speed, operations: Callable[[], float]) -> bool:
    """Whether so many steps take long enough to be compiled; operations are counted if need be."""
    if steps * speed.overhead >= speed.worth:
        return True
    if steps * (speed.overhead + speed.most / speed.rate) < speed.worth:
        return False
    return steps * (speed.overhead + operations() / speed.rate) >= speed.worth


def single(fn: Callable[..., Any], in_dims: tuple[int | None, ...]) -> Callable[..., Any]:
    """The same contract as `torch.func.vmap` for one client, without vectorising."""

    def run(*args: Any) -> Any:
        one = [
            arg if dim is None else tree_map(lambda v: v[0], arg)
            for arg, dim in zip(args, in_dims, strict=True)
        ]
        return tree_map(lambda v: v[None], fn(*one))

    return run


class Written:
    """One client after another, as the method is written."""

    def __init__(self, method: Method) -> None:
        self.step = single(method.client_step, (0, 0, None))

    def run(self, local: Any, draws: Draws, eta: Tensor, steps: int) -> tuple[Any, Tree]:
        if draws.clients > 1:
            seats = [slice(m, m + 1) for m in range(draws.clients)]
            each = [self.run(tree_map(itemgetter(m), local), draws.part(m), eta, steps) for m in seats]
            return tree_map(lambda *values: torch.cat(values), *each)
        outs = []
        for t in range(steps):
            local, out = self.step(local, draws.step(t), eta)
            outs.append(out)
        return local, {name: torch.stack([out[name] for out in outs], dim=1) for name in outs[0]}


class Replay:
    """All clients at once: as it is written in a short run, otherwise recorded or compiled."""

    def __init__(self, method: Method, effort: Effort) -> None:
        self.fn = torch.func.vmap(method.client_step, in_dims=(0, 0, None))
        self.effort = effort
        self.ways: dict[Any, Way] = {}

    def run(self, local: Any, draws: Draws, eta: Tensor, steps: int) -> tuple[Any, Tree]:
        values, structure = tree_flatten(local)
        state = [value.clone(memory_format=torch.contiguous_format) for value in values]
        few = len(state) <= FEW and sum(value.numel() for value in state) <= SMALL
        stride = next(n for n in STRIDES if steps % n == 0) if few else 1
        shapes = ((v.shape, v.dtype, v.device) for v in (*state, *draws.step(0), eta))
        key = (structure, *shapes, stride, torch.get_num_threads())
        if key not in self.ways:
            self.ways[key] = Way(self.fn, structure, state, draws, eta, stride, self.effort)
        way = self.ways[key]
        outs: list[list[Tensor]] = []
        for t in range(0, steps, way.stride):
            state, taken = way.advance(state, draws, t, eta)
            outs += taken
        each = (torch.stack(values, dim=1) for values in zip(*outs, strict=True))
        return tree_unflatten(state, structure), dict(zip(way.step.outs, each, strict=True))


class Way:
    """How steps with states and batches of one shape are taken.

    Calling a compiled step takes longer than the step of a small model, so several are compiled as one.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        structure: TreeSpec,
        state: list[Tensor],
        draws: Draws,
        eta: Tensor,
        stride: int,
        effort: Effort,
    ) -> None:
        self.step, self.stride = Step(fn, structure), 1
        self.in_place: Flat | None = None
        """Writes over the state."""
        if effort.compiles(self.step, [*state, *draws.step(0), eta]):
            several = Step(fn, structure, stride)
            self.in_place = compiled(several.in_place, state, *_batches(draws, 0, stride), eta)
            if self.in_place is not None:
                self.step, self.stride = several, stride
        if self.in_place is None and effort.records:
            self.in_place = recorded(self.step.in_place, state, *draws.step(0), eta)

    def advance(
        self, state: list[Tensor], draws: Draws, t: int, eta: Tensor
    ) -> tuple[list[Tensor], list[list[Tensor]]]:
        """The state after `stride` steps from t on, and what else each of them returned."""
        flat = (*state, *_batches(draws, t, self.stride), eta)
        if self.in_place is not None:
            with torch.no_grad():
                outs = self.in_place(*flat)
        else:
            values = self.step(*flat)
            state, outs = values[: len(state)], values[len(state) :]
        each = len(outs) // self.stride
        return state, [list(outs[first : first + each]) for first in range(0, len(outs), each)]


def _batches(draws: Draws, t: int, count: int) -> list[Tensor]:
    return [value for step in range(t, t + count) for value in draws.step(step)]
