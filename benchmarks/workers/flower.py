"""Flower: federated averaging in its simulation, with a Ray actor of one thread per core.

It has two engines, and either can be asked for: `run_simulation`, which passes messages through a store that
it looks into every so often, and the older `start_simulation`, which calls its actors directly. Clients' rows
are tensors in the memory of every actor, training is the plain loop that its tutorials have, and nothing is
evaluated.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import ServerConfig
from flwr.server.strategy import FedAvg as DirectFedAvg
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation, start_simulation
from torch import Tensor, nn

from benchmarks.workers.turns import Turns

ENDLESS = 10**9
PULL_S = 0.01  # `run_simulation` looks for answers so often, not every 0.1 s
Weights = dict[str, Tensor]


@functools.cache
def loaded(file: str) -> dict[str, Any]:
    """The task, once in a process."""
    torch.set_num_threads(1)
    return torch.load(file, weights_only=False, mmap=True)


def trained(file: str, weights: Weights, client: int) -> Weights:
    """A client's pass over its rows."""
    task = loaded(file)
    network, loss = task["network"], nn.BCEWithLogitsLoss()
    network.load_state_dict(weights)
    optimizer = torch.optim.SGD(network.parameters(), lr=task["eta"])
    batches = (task[part][client].split(task["batch"]) for part in ("x", "y"))
    for x, y in zip(*batches, strict=True):
        optimizer.zero_grad()
        loss(network(x).squeeze(1), y).backward()
        optimizer.step()
    return network.state_dict()


def through_messages(file: str, resources: dict[str, float], ray: dict[str, Any]) -> None:
    """With `run_simulation`."""
    turns, task = Turns(), loaded(file)
    clients, per_round = len(task["x"]), task["per_round"]
    made: dict[str, Any] = {}
    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        number = int(context.node_config["partition-id"])
        weights = trained(file, message.content["arrays"].to_torch_state_dict(), number)
        metrics = MetricRecord({"num-examples": len(loaded(file)["x"][number]), "client": number})
        return Message(RecordDict({"arrays": ArrayRecord(weights), "metrics": metrics}), reply_to=message)

    class OneByOne(FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            turns.wait(lambda: made | {"weights": arrays.to_torch_state_dict()})
            return super().configure_train(server_round, arrays, config, grid)

        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            replies = list(replies)
            made["clients"] = [reply.content["metrics"]["client"] for reply in replies]
            return super().aggregate_train(server_round, replies)

    @server.main()
    def rounds(grid: Grid, context: Context) -> None:
        grid.pull_interval = PULL_S
        strategy = OneByOne(per_round / clients, fraction_evaluate=0.0, min_train_nodes=per_round)
        strategy.start(grid, ArrayRecord(task["network"].state_dict()), num_rounds=ENDLESS)

    run_simulation(server, client, clients, backend_config={"client_resources": resources, "init_args": ray})


class Caller(NumPyClient):
    """A client of `start_simulation`."""

    def __init__(self, file: str, number: int) -> None:
        self.file, self.number = file, number

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        task = loaded(self.file)
        values = (torch.from_numpy(array) for array in parameters)
        weights = trained(
            self.file, dict(zip(task["network"].state_dict(), values, strict=True)), self.number
        )
        examples = len(task["x"][self.number])
        return [value.numpy() for value in weights.values()], examples, {"client": self.number}


def by_calls(file: str, resources: dict[str, float], ray: dict[str, Any]) -> None:
    """With `start_simulation`."""
    turns, task = Turns(), loaded(file)
    clients, per_round, start = len(task["x"]), task["per_round"], task["network"].state_dict()
    made: dict[str, Any] = {}

    def client(context: Context) -> Client:
        return Caller(file, int(context.node_config["partition-id"])).to_client()

    class OneByOne(DirectFedAvg):
        def configure_fit(self, *args: Any, **kwargs: Any) -> Any:
            turns.wait(lambda: made)
            return super().configure_fit(*args, **kwargs)

        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            if failures:
                raise RuntimeError(f"{len(failures)} clients failed: {failures[0]}")
            parameters, metrics = super().aggregate_fit(server_round, results, failures)
            values = (torch.from_numpy(array) for array in parameters_to_ndarrays(parameters))
            made["weights"] = dict(zip(start, values, strict=True))
            made["clients"] = [answer.metrics["client"] for _, answer in results]
            return parameters, metrics

    strategy = OneByOne(
        fraction_fit=per_round / clients,
        fraction_evaluate=0.0,
        min_fit_clients=per_round,
        min_available_clients=clients,
        initial_parameters=ndarrays_to_parameters([value.numpy() for value in start.values()]),
    )
    start_simulation(
        client_fn=client,
        num_clients=clients,
        client_resources=resources,
        config=ServerConfig(num_rounds=ENDLESS),
        strategy=strategy,
        ray_init_args=ray,
    )


def main(file: str, setting: str) -> None:
    """`setting` is the name of the engine."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    engine = {"run_simulation": through_messages, "start_simulation": by_calls}[setting]
    ray = {
        "num_cpus": os.cpu_count(),
        "include_dashboard": False,
        "_temp_dir": str(Path(file).parent / f"ray-{setting[:3]}"),
    }
    engine(file, {"num_cpus": 1, "num_gpus": 0.0}, ray)
