"""The work that is timed: a round of federated averaging of cross-entropy with several models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedauc import models
from fedauc.data.federated import FederatedData
from fedauc.models.model import Precision

STEPS = 20  # I, local steps
BATCH = 32  # B, examples of a step
ROWS = STEPS * BATCH  # of a client: one round is one pass over them
ETA = 0.05


@dataclass(frozen=True)
class Work:
    """A model, the shape of its rows, and how many clients there are and take part in a round."""

    name: str
    settings: models.Settings
    shape: tuple[int, ...]
    clients: int = 100
    per_round: int = 10  # M
    precision: Precision = "tf32"  # on a GPU

    @property
    def groups(self) -> int:
        """Rounds of a cycle."""
        return self.clients // self.per_round

    @property
    def samples(self) -> int:
        """Examples of a round."""
        return self.per_round * ROWS

    def module(self, device: str = "cpu") -> nn.Module:
        """The model as PyTorch has it, from a fixed seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.settings.build(self.shape).to(device)

    def data(self, device: str = "cpu") -> FederatedData:
        """Clients one after another, with equally many rows; in every second there is something to find."""
        generator = torch.Generator().manual_seed(0)
        n = self.clients * ROWS
        y = torch.arange(n) % 2
        x = torch.randn(n, *self.shape, generator=generator)
        x.reshape(n, -1)[:, 0] += y
        names = [f"client-{i:03d}" for i in range(self.clients)]
        return FederatedData.build(x, y, np.repeat(np.arange(self.clients), ROWS), names, device)


MLP = models.MLP((300, 100))
WORKS = {
    work.name: work
    for work in (
        Work("linear", models.Linear(), (64,)),
        Work("mlp", MLP, (784,)),
        Work("cnn", models.CNN((16, 32)), (1, 28, 28)),
        Work("resnet20", models.ResNet20(), (3, 32, 32), precision="bfloat16"),
        Work("resnet18", models.ResNet18(), (3, 32, 32), precision="bfloat16"),
        Work("mlp-m100", MLP, (784,), clients=1000, per_round=100),
    )
}
USUAL = {"cpu": ("linear", "mlp", "cnn"), "cuda": tuple(WORKS)}
"""What is measured on a device where nothing else is said."""
