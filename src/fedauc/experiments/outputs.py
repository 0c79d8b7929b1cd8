"""From a run's state to the model that is validated and tested.

Without running statistics that is the averaged iterate. Under batch normalisation `train.statistics` says
which statistics the model is evaluated with:

    averaged       those of the iterate: what the clients sent, averaged
    recalibrated   computed anew for this model from a batch of every client: one more message each
    local          every client's own; rows of no known client get the mean of all clients' statistics
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fedauc import models
from fedauc.core import rng, tree
from fedauc.core.ledger import Ledger
from fedauc.core.loop import Federation, RunState
from fedauc.core.method import Cohort
from fedauc.core.tree import Tree
from fedauc.data.federated import Draws
from fedauc.experiments.settings import Statistics
from fedauc.methods.base import under
from fedauc.methods.local_statistics import OWN_STATISTICS
from fedauc.models import Model

ROWS = 64
"""Rows of a client's batch when statistics are computed anew."""
MOST = 256
"""So many clients at most are asked for it."""


def output(fed: Federation, model: Model, state: RunState, statistics: Statistics) -> tuple[Tree, Ledger]:
    """The model to evaluate after a round, and the ledger with what it took to get it."""
    z, ledger = state.averaged.z, state.ledger
    if not model.statistics or statistics == "averaged":
        return z, ledger
    if statistics == "recalibrated":
        return _recalibrated(fed, model, state)
    own = {client: _own(memory) for client, memory in state.memory.items() if _own(memory)}
    mean = {n: torch.stack([s[n] for s in own.values()]).mean(dim=0) for n in model.statistics} if own else {}
    each: Tree = {}
    for client, values in own.items():
        each |= under(f"clients/{client}", values)
    return z | mean | each, ledger


def _recalibrated(fed: Federation, model: Model, state: RunState) -> tuple[Tree, Ledger]:
    n = fed.data.clients
    clients = np.unique(np.linspace(0, n - 1, min(n, MOST)).round().astype(np.int64))
    ones = np.ones((len(clients), 2))
    cohort = Cohort(clients, ones[:, 0], ones[:, 0], ones, ones)
    seed = rng.derived(fed.seed, rng.STATISTICS)
    data = replace(fed.data, augment=None)  # as rows are scored
    draws = Draws(data, cohort, "natural", 1, ROWS, seed, state.round)
    sizes = np.minimum(data.counts[clients].sum(axis=1), ROWS)
    batches = (data.gather(draws.index[0, i, :size])[0] for i, size in enumerate(sizes))
    z = models.recalibrated(model, state.averaged.z, batches)
    ledger = state.ledger.copy()
    statistics = tree.nbytes({name: z[name] for name in model.statistics})
    ledger.down({"z": tree.nbytes(model.params(z)) * len(clients)}, len(clients))
    ledger.up({"recalibration": statistics * len(clients)}, len(clients))
    sent = np.full(len(clients), statistics, dtype=np.int64)
    ledger.wait(fed.times(clients, state.round), sent, tree.nbytes(model.params(z)), fed.uplink)
    return z, ledger


def _own(memory: Tree) -> Tree:
    """The statistics in a client's memory, however deep."""
    name = f"{OWN_STATISTICS}/"
    return {key.rpartition(name)[2]: value for key, value in memory.items() if name in key}
