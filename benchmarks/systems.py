"""Three ways to do a round: FedAUC, a plain loop over clients, and one big batch as the limit.

`loop` and `limit` are written as one would write them in PyTorch without this package, and get what they
need for free where it is not what is compared: rows are in memory as tensors, there is no data loader,
and who takes part is known beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.work import BATCH, ETA, GROUPS, STEPS, Work
from fedauc import models
from fedauc.core.loop import Federation, advance, begin
from fedauc.core.tree import Tree
from fedauc.data.federated import Draws, FederatedData
from fedauc.methods import LocalSGDA
from fedauc.objectives import CrossEntropy
from fedauc.participation import Cyclic
from fedauc.schedules import Stagewise


class Ours:
    """`fedauc.core.loop` with the clients of a round vectorised."""

    def __init__(self, work: Work, data: FederatedData) -> None:
        model, params = models.init(work.settings, work.shape, seed=0)
        self.fed = Federation(
            method=LocalSGDA(model, CrossEntropy()),
            data=data,
            participation=Cyclic(groups=GROUPS),
            schedule=Stagewise(eta=ETA, steps=STEPS, cycles=10**9),
            batch=BATCH,
        )
        self.state = begin(self.fed, params)

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

    def __init__(self, work: Work, data: FederatedData, groups: Sequence[np.ndarray]) -> None:
        self.x, self.y = data.x, data.y
        bounds = zip(data.start, data.start[1:], strict=False)
        self.rows = [torch.from_numpy(data.order[a:b]) for a, b in bounds]
        self.groups, self.done = groups, 0
        self.module = work.module()
        self.loss = nn.BCEWithLogitsLoss()
        self.weights = {name: value.clone() for name, value in self.module.state_dict().items()}

    def round(self) -> None:
        group = self.groups[self.done % len(self.groups)]
        self.average([self.drawn(self.rows[client]) for client in group])
        self.done += 1

    def drawn(self, rows: Tensor) -> Tensor:
        """[I, B]: a client's batches, in the order of a fresh permutation."""
        return rows[torch.randperm(len(rows))[: STEPS * BATCH]].view(STEPS, BATCH)

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
            logits = self.module(self.x[rows]).squeeze(1)
            self.loss(logits, self.y[rows]).backward()
            optimizer.step()
        return {name: value.clone() for name, value in self.module.state_dict().items()}


class Limit:
    """One model and one batch of M·B per step: the arithmetic of a round without federation."""

    def __init__(self, work: Work, data: FederatedData) -> None:
        self.x, self.y = data.x, data.y
        self.batch = len(data.counts) // GROUPS * BATCH
        self.module = work.module()
        self.loss = nn.BCEWithLogitsLoss()
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=ETA)

    def round(self) -> None:
        for rows in torch.randint(len(self.x), (STEPS, self.batch)):
            self.optimizer.zero_grad()
            logits = self.module(self.x[rows]).squeeze(1)
            self.loss(logits, self.y[rows]).backward()
            self.optimizer.step()


def systems(work: Work) -> dict[str, Ours | Loop | Limit]:
    """All three on the same rows; fails where ours and the loop do not compute the same."""
    data = work.data()
    ours = Ours(work, data)
    groups = ours.fed.roster.groups
    same(ours, Loop(work, data, groups))
    return {"ours": Ours(work, data), "loop": Loop(work, data, groups), "limit": Limit(work, data)}


def same(ours: Ours, loop: Loop, rounds: int = 2) -> None:
    """The same weights after the same rows, up to the order in which floats are added."""
    for t in range(rounds):
        loop.average(list(ours.rows(t)))
        ours.round()
        for name, expected in loop.weights.items():
            torch.testing.assert_close(ours.weights[name], expected, rtol=1e-4, atol=1e-5)
