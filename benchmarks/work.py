"""The work that is timed: a round of federated averaging of cross-entropy with three models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedauc import models
from fedauc.data.federated import FederatedData

CLIENTS = 100
GROUPS = 10  # rounds of a cycle, so that M = 10 clients take part in a round
STEPS = 20  # I, local steps
BATCH = 32  # B, examples of a step
ROWS = STEPS * BATCH  # of a client: one round is one pass over them
ETA = 0.05
SAMPLES = CLIENTS // GROUPS * STEPS * BATCH  # examples of a round


@dataclass(frozen=True)
class Work:
    """A model and the shape of its rows."""

    name: str
    settings: models.Linear | models.MLP | models.CNN
    shape: tuple[int, ...]

    def module(self) -> nn.Module:
        """The model as PyTorch has it, from a fixed seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.settings.build(self.shape)

    def data(self) -> FederatedData:
        """Clients with equally many rows; in every second row there is something to find."""
        generator = torch.Generator().manual_seed(0)
        n = CLIENTS * ROWS
        y = torch.arange(n) % 2
        x = torch.randn(n, *self.shape, generator=generator)
        x.reshape(n, -1)[:, 0] += y
        names = [f"client-{i:02d}" for i in range(CLIENTS)]
        return FederatedData.build(x, y, np.repeat(np.arange(CLIENTS), ROWS), names)


WORKS = (
    Work("linear", models.Linear(), (64,)),
    Work("mlp", models.MLP((300, 100)), (784,)),
    Work("cnn", models.CNN((16, 32)), (1, 28, 28)),
)
