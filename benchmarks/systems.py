"""Three ways to do a round: FedAUC, a plain loop over clients, and one big batch as the limit.

`loop` and `limit` are written as one would write them in PyTorch without this package, and get what they
need for free where it is not what is compared: rows are in memory as tensors, there is no data loader,
and who takes part is known beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.work import BATCH, ETA, ROWS, STEPS, Work
from fedauc import models
from fedauc.core.loop import Federation, advance, begin
from fedauc.core.tree import Tree
from fedauc.data.federated import Draws, FederatedData
from fedauc.methods import LocalSGDA
from fedauc.models.model import Precision
from fedauc.objectives import CrossEntropy
from fedauc.participation import Cyclic
from fedauc.schedules import Stagewise
from fedauc.transports import LocalTransport

TOLERANCE = {torch.float32: (1e-4, 1e-5), torch.float64: (1e-6, 1e-8)}
"""Relative and absolute, of weights after a few rounds, for the order in which floats are added."""


class Ours:
    """`fedauc.core.loop`, as it is used everywhere."""

    def __init__(
        self,
        work: Work,
        data: FederatedData,
        precision: Precision = "float32",
        transport: LocalTransport | None = None,
    ) -> None:
        device = data.x.device.type
        model, params = models.init(work.settings, work.shape, 0, device, precision)
        self.fed = Federation(
            method=LocalSGDA(model, CrossEntropy()),
            data=data,
            participation=Cyclic(groups=work.groups),
            schedule=Stagewise(eta=ETA, steps=STEPS, cycles=10**9),
            transport=transport or LocalTransport(),
            batch=BATCH,
        )
        self.state = begin(self.fed, {name: value.to(data.x.dtype) for name, value in params.items()})

    def round(self) -> None:
        self.state, _ = advance(self.fed, self.state)

    @property
    def weights(self) -> Tree:
        return self.state.server.z

    def rows(self, round: int) -> Tensor:
        """[M, I, B]: the rows that this system draws in a round, for `Loop` to be fed with."""
        cohort = self.fed.cohort(self.state.server, round)
        draw = self.fed.method.draw
        return torch.from_numpy(Draws(self.fed.data, cohort, draw, STEPS, BATCH, self.fed.seed, round).rows)


class Loop:
    """One client after another: the global weights in, I steps of SGD, and the mean of the weights out."""

    def __init__(
        self,
        work: Work,
        data: FederatedData,
        groups: Sequence[np.ndarray],
        precision: Precision = "float32",
    ) -> None:
        self.x, self.y = data.x, data.y.to(data.x.dtype)
        self.low = torch.autocast(self.x.device.type, torch.bfloat16, enabled=precision == "bfloat16")
        bounds = zip(data.start, data.start[1:], strict=False)
        self.rows = [torch.from_numpy(data.order[a:b]).to(self.x.device) for a, b in bounds]
        self.groups, self.done = groups, 0
        self.module = work.module(self.x.device.type).to(self.x.dtype)
        self.loss = nn.BCEWithLogitsLoss()
        self.weights = {name: value.clone() for name, value in self.module.state_dict().items()}

    def round(self) -> None:
        group = self.groups[self.done % len(self.groups)]
        self.average([self.drawn(self.rows[client]) for client in group])
        self.done += 1

    def drawn(self, rows: Tensor) -> Tensor:
        """[I, B]: a client's batches, in the order of a fresh permutation."""
        order = torch.randperm(len(rows), device=rows.device)
        return rows[order[: STEPS * BATCH]].view(STEPS, BATCH)

    def average(self, cohort: Sequence[Tensor]) -> None:
        """A round with the given batches of each client."""
        trained = [self.client(batches) for batches in cohort]
        self.weights = {
            name: torch.stack([weights[name] for weights in trained]).mean(dim=0) for name in self.weights
        }

    def client(self, batches: Tensor) -> Tree:
        self.module.load_state_dict(self.weights)
        optimizer = torch.optim.SGD(self.module.parameters(), lr=ETA)
        for rows in batches:
            optimizer.zero_grad()
            with self.low:
                logits = self.module(self.x[rows]).squeeze(1)
            self.loss(logits.to(self.y.dtype), self.y[rows]).backward()
            optimizer.step()
        return {name: value.clone() for name, value in self.module.state_dict().items()}


class Limit:
    """One model and one batch of M·B per step: the arithmetic of a round without federation.

    On a GPU a step is captured in a CUDA graph. In bfloat16 weights and images are cast by hand, which is
    faster than autocast (that normalises in float32), and the weights themselves stay in float32.
    """

    def __init__(
        self,
        work: Work,
        data: FederatedData,
        precision: Precision = "float32",
        layout: torch.memory_format = torch.contiguous_format,
    ) -> None:
        device = data.x.device.type
        self.batch, self.layout = work.per_round * BATCH, layout
        self.low = torch.bfloat16 if precision == "bfloat16" else None
        self.x, self.y = data.x, data.y
        self.module = work.module(device)
        if self.x.dim() == 4:
            self.module = self.module.to(memory_format=layout)
        self.loss = nn.BCEWithLogitsLoss()
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=ETA)
        self.rows = torch.randint(len(self.x), (self.batch,), device=device)
        self.replay = self._captured() if device == "cuda" else self._step

    def round(self) -> None:
        for rows in torch.randint(len(self.x), (STEPS, self.batch), device=self.x.device):
            self.rows.copy_(rows)
            self.replay()

    def _step(self) -> None:
        self.optimizer.zero_grad()
        self.loss(self._logits(self.x[self.rows]), self.y[self.rows]).backward()
        self.optimizer.step()

    def _logits(self, x: Tensor) -> Tensor:
        if self.low is None:
            return self.module(x).squeeze(1)
        low = {name: value.to(self.low) for name, value in self.module.named_parameters()}
        x = x.to(self.low, memory_format=self.layout)
        return torch.func.functional_call(self.module, low, (x,)).squeeze(1).float()

    def _captured(self) -> Callable[[], None]:
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        return graph.replay


class Here:
    """One of the three in this process, with a number of threads: a contender of `benchmarks.speed`."""

    def __init__(self, name: str, system: Ours | Loop | Limit, threads: int, setting: str) -> None:
        self.name, self.system, self.threads, self.setting = name, system, threads, setting
        self.device = "cuda" if torch.cuda.is_available() else "cpu"

    def resume(self) -> None:
        torch.set_num_threads(self.threads)

    def pause(self) -> None:
        """What does not run in this process does not run."""

    def round(self) -> float:
        """One round; its seconds."""
        return self.mean(0.0)

    def mean(self, least: float) -> float:
        """Seconds of a round, the mean of as many as take `least` seconds; a GPU is waited for at the end, as
        in a run."""
        rounds, start = 0, time.perf_counter()
        while rounds == 0 or time.perf_counter() - start < least:
            self.system.round()
            rounds += 1
        if self.device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / rounds

    def close(self) -> None:
        """Nothing to end."""


def contenders(work: Work, data: FederatedData, threads: Sequence[int]) -> list[Here]:
    """All three on the same rows, with each number of threads; fails where ours and the loop do not compute
    the same.

    On a GPU that is found out in float64 and without compiling: what is timed there is rounded more.
    """
    exact = replace(data, x=data.x.double()) if data.x.is_cuda else data
    ours = Ours(work, exact, transport=LocalTransport(compile=False) if data.x.is_cuda else None)
    groups = ours.fed.roster.groups
    same(ours, Loop(work, exact, groups))
    del exact, ours
    if data.x.is_cuda:
        precision, layouts = work.precision, {"channels first": torch.contiguous_format}
        if data.x.dim() == 4:
            layouts["channels last"] = torch.channels_last
        ours = Ours(work, data, precision)  # says for the process, and so for all, whether TF32 is used
        loop = Loop(work, data, groups, precision)
        limits = [Here("limit", Limit(work, data, precision, of), 1, name) for name, of in layouts.items()]
        return [Here("ours", ours, 1, precision), Here("loop", loop, 1, precision), *limits]
    make = {
        "ours": lambda: Ours(work, data),
        "loop": lambda: Loop(work, data, groups),
        "limit": lambda: Limit(work, data),
    }
    names = {n: "1 thread" if n == 1 else f"{n} threads" for n in threads}
    return [Here(name, new(), n, names[n]) for name, new in make.items() for n in threads]


def same(ours: Ours, loop: Loop, rounds: int = 2) -> None:
    """The same weights after the same rows, up to the order in which floats are added."""
    for t in range(rounds):
        loop.average(list(ours.rows(t)))
        ours.round()
    agree(ours.weights, loop.weights)


def one_round(work: Work, data: FederatedData, clients: Sequence[int]) -> Tree:
    """The loop's weights after a first round of these clients, each with its rows as they lie."""
    loop = Loop(work, data, groups=[])
    loop.average([torch.arange(i * ROWS, (i + 1) * ROWS).view(STEPS, BATCH) for i in clients])
    return loop.weights


def agree(weights: Tree, expected: Tree) -> None:
    """Fails where weights differ by more than the order of a sum explains."""
    for name, value in expected.items():
        rtol, atol = TOLERANCE[value.dtype]
        torch.testing.assert_close(weights[name], value, rtol=rtol, atol=atol)
