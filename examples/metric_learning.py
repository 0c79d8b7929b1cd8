"""Metric learning across clients: embeddings as passive parts (eq. 14 of CyCp).

Handwritten digits at twenty clients in groups; the rare class is the eights (most of them were removed).
A small network learns an embedding in which eights are near each other. A search shows how good it is: of the
images nearest to an eight, how many are eights?

    python examples/metric_learning.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score
from torch import nn
from torch.func import functional_call

from fedauc import Federation
from fedauc.core.loop import begin, rounds
from fedauc.data.federated import FederatedData
from fedauc.methods import ActivePassive
from fedauc.objectives import Contrastive
from fedauc.participation import Cyclic
from fedauc.schedules import Stagewise

torch.set_num_threads(1)
torch.manual_seed(0)
rng = np.random.default_rng(0)

digits = load_digits()
x = torch.tensor(digits.data / 16, dtype=torch.float32)
y = torch.tensor(digits.target == 8, dtype=torch.float32)
shuffled = rng.permutation(len(y))
train, test = shuffled[:1200], shuffled[1200:]
train = train[(y[train] == 0) | torch.tensor(rng.random(len(train)) < 0.3)]
client = rng.integers(0, 20, len(train))
data = FederatedData.build(x[train], y[train], client, [f"client-{i}" for i in range(20)])

net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
params = {name: value.detach().clone() for name, value in net.named_parameters()}


def embed(z, x):
    """The model: an embedding per example instead of a score."""
    return functional_call(net, {name: z[name] for name in params}, (x,))


def search(embeddings):
    """Mean average precision of finding eights by their distance to an eight."""
    distance = torch.cdist(embeddings, embeddings)
    found = []
    for query in y[test].nonzero().flatten():
        others = torch.arange(len(test)) != query
        found.append(average_precision_score(y[test][others], -distance[query][others]))
    return float(np.mean(found))


federation = Federation(
    method=ActivePassive(embed, Contrastive(dimension=8, margin=1.0)),
    data=data,
    participation=Cyclic(groups=4),
    schedule=Stagewise(eta=0.5, cycles=60),
    client_weight="examples",
    output="ema",
    seed=0,
)
print(f"{int(y[train].sum())} eights among {len(train)} images")
print(f"search by pixels          mAP {search(x[test]):.4f}")
print(f"search before training    mAP {search(embed(params, x[test])):.4f}")
*_, (state, _) = rounds(federation, begin(federation, params))
print(f"search after training     mAP {search(embed(state.averaged.z, x[test])):.4f}")
