"""pfl-research: federated averaging on its simulated backend.

Clients' rows are tensors in memory, cut into batches once; nothing is evaluated and no metric leaves the
process. Where PFL_WORKER_ADDRESSES and PFL_WORKER_RANK are set, as its guide to fast simulations has it, the
clients of a round are spread over several processes.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, distributed, nn

from benchmarks.workers.turns import Turns

ENDLESS = 10**9


class Classifier(nn.Module):
    """A network with the loss and the metrics that pfl asks for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.cross_entropy = nn.BCEWithLogitsLoss()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.cross_entropy(self.network(x).squeeze(1), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class OneByOne(TrainingProcessCallback):
    """Holds up the loop between rounds; of several processes the first waits, and the others for it."""

    def __init__(self, clients: int, per_round: int) -> None:
        self.clients, self.per_round, self.rounds = clients, per_round, 0
        self.several = distributed.is_initialized()
        self.turns = Turns() if not self.several or distributed.get_rank() == 0 else None

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.wait(model)
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.rounds += 1
        self.wait(model)
        return False, Metrics()

    def wait(self, model: PyTorchModel) -> None:
        if self.turns is not None:
            self.turns.wait(lambda: self.made(model))
        if self.several:
            distributed.barrier()

    def made(self, model: PyTorchModel) -> dict[str, Any]:
        first = (self.rounds - 1) * self.per_round
        took_part = [i % self.clients for i in range(first, first + self.per_round)]
        return {"weights": model.pytorch_model.network.state_dict(), "clients": took_part}


def main(file: str, setting: str) -> None:
    """`setting` is the number of threads of this process."""
    torch.set_num_threads(int(setting))
    task = torch.load(file, weights_only=False, mmap=True)
    x, y, clients = task["x"], task["y"], len(task["x"])
    users = [PyTorchTensorDataset((x[i], y[i]), user_id=str(i)) for i in range(clients)]
    turn = itertools.cycle(range(clients))
    data = FederatedDataset(users.__getitem__, lambda: next(turn))
    network = Classifier(task["network"])
    model = PyTorchModel(
        network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),  # of lr 1: the clients' average
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=ENDLESS,
            evaluation_frequency=ENDLESS,
            train_cohort_size=task["per_round"],
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_batch_size=task["batch"], local_num_epochs=1, local_learning_rate=task["eta"]
        ),
        callbacks=[OneByOne(clients, task["per_round"])],
        send_metrics_to_platform=False,
    )
