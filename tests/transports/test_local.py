"""The in-process transport: what it hands back, and that chunks are invisible."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from fedauc.core.method import Cohort, Knobs
from fedauc.data.federated import Draws, FederatedData
from fedauc.methods import ActivePassive, LocalSGDA
from fedauc.objectives import MinimaxAUC, PairwiseAUC
from fedauc.transports import LocalTransport
from fedauc.transports.local import Exchange

CLIENTS, STEPS, BATCH, ETA, SEED = 9, 2, 4, 0.1, 5
TRANSPORTS = [LocalTransport("loop"), LocalTransport(), LocalTransport(chunk=4), LocalTransport(chunk=1)]


def apply(z, x):
    return (x @ z["W"]).tanh() @ z["u"]


def params(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return {
        "W": torch.randn(2, 3, generator=generator, dtype=torch.float64).to(dtype),
        "u": torch.randn(3, generator=generator, dtype=torch.float64).to(dtype),
    }


def data(clients=CLIENTS, dtype=torch.float64):
    """Every third client has no positives."""
    generator = np.random.default_rng(2)
    y = np.concatenate([[0] * 5 + [1] * (0 if i % 3 == 2 else 1 + i % 4) for i in range(clients)])
    client = np.concatenate([[i] * (5 if i % 3 == 2 else 6 + i % 4) for i in range(clients)])
    x = torch.tensor(generator.normal(size=(len(y), 2)) + y[:, None]).to(dtype)
    return FederatedData.build(x, torch.tensor(y), client, [str(i) for i in range(clients)])


def cohort(clients=CLIENTS):
    """Weights that tell clients apart."""
    generator = np.random.default_rng(3)
    return Cohort(
        np.arange(clients),
        generator.uniform(0.05, 0.3, clients),
        np.full(clients, 1 / clients),
        generator.uniform(0.2, 1.8, (clients, 2)),
        generator.uniform(0.1, 1, (clients, 2)),
    )


def exchanged(transport, method, rows, who):
    dtype = rows.x.dtype
    knobs = Knobs(torch.tensor(ETA, dtype=dtype), STEPS, BATCH, 0, 0, 0, 1)
    draws = Draws(rows, who, method.draw, STEPS, BATCH, SEED, 0)
    memory = [{} for _ in who.clients]
    server = method.server_init(params(dtype), np.ones((len(who.clients), 2)))
    down, own = method.broadcast(server), method.address(server, who, knobs, SEED)
    carried = transport.exchange(Exchange(method, server.z, down, own, memory, draws, who, knobs))
    assert carried.cohort is who
    assert carried.memory == [{}] * len(who.clients)
    return carried.aggregate, carried.loss, carried


def by_hand(method, rows, who):
    """One client after another, and the weighted sum written out."""
    knobs = Knobs(torch.tensor(ETA, dtype=rows.x.dtype), STEPS, BATCH, 0, 0, 0, 1)
    draws = Draws(rows, who, method.draw, STEPS, BATCH, SEED, 0)
    server = method.server_init(params(rows.x.dtype), rows.counts)
    down, own = method.broadcast(server), method.address(server, who, knobs, SEED)
    total, gathered, losses = {}, {}, []
    for i in range(len(who.clients)):
        local = method.client_init(down, {name: value[i] for name, value in own.items()}, {})
        outs = []
        for t in range(STEPS):
            batch = draws.step(t)
            local, out = method.client_step(local, type(batch)(*(part[i] for part in batch)), knobs.eta)
            outs.append(out)
        stacked = {name: torch.stack([out[name] for out in outs]) for name in outs[0]}
        upload, _ = method.client_finish(down, local, {}, stacked, knobs)
        for name, value in upload.mean.items():
            total[name] = total.get(name, 0) + who.weight[i] * value
        for name, part in upload.gather.items():
            gathered.setdefault(name, []).extend((float(v), i) for v in part.values[part.keep])
        losses.append(stacked["loss"].mean().item())
    return total, gathered, float(np.mean(losses))


METHODS = {
    "local-sgda": LocalSGDA(apply, MinimaxAUC(), gamma=0.2),
    "active-passive": ActivePassive(apply, PairwiseAUC(), passive=3),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
@pytest.mark.parametrize("transport", TRANSPORTS, ids=repr)
def test_an_exchange_is_the_weighted_sum_and_the_rows_with_their_owners(transport, method):
    rows, who = data(), cohort()
    aggregate, loss, _ = exchanged(transport, method, rows, who)
    total, gathered, expected_loss = by_hand(method, rows, who)
    assert aggregate.mean.keys() == total.keys()
    for name, value in total.items():
        torch.testing.assert_close(aggregate.mean[name], value, rtol=1e-12, atol=1e-14)
    assert aggregate.gather.keys() == gathered.keys()
    for name, expected in gathered.items():
        pool = aggregate.gather[name]
        np.testing.assert_allclose(pool.values.numpy(), [value for value, _ in expected], rtol=1e-12)
        assert pool.owner.tolist() == [owner for _, owner in expected]
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-12)


def test_more_clients_than_a_chunk_holds():
    """300 clients, 256 at once: the default chunk is crossed, nobody is lost or counted twice."""
    rows, who = data(300), cohort(300)
    method = METHODS["active-passive"]
    (a, _, one), (b, _, other) = (
        exchanged(transport, method, rows, who) for transport in (LocalTransport(), LocalTransport(chunk=300))
    )
    assert one.size == other.size
    np.testing.assert_array_equal(one.sent, other.sent)
    assert len(one.sent) == 300
    assert one.sent.sum() == sum(one.size.values())
    for name in a.gather:
        assert torch.equal(a.gather[name].owner, b.gather[name].owner)
        torch.testing.assert_close(a.gather[name].values, b.gather[name].values, rtol=1e-12, atol=1e-14)
    assert set(torch.cat([pool.owner for pool in a.gather.values()]).tolist()) == set(range(300))


def test_single_precision_stays_single_and_close():
    rows, who = data(dtype=torch.float32), cohort()
    method = METHODS["local-sgda"]
    results = [exchanged(transport, method, rows, who)[0].mean for transport in TRANSPORTS]
    exact = exchanged(TRANSPORTS[0], method, data(), who)[0].mean
    for mean in results:
        for name, value in mean.items():
            assert value.dtype == torch.float32
            torch.testing.assert_close(value.double(), exact[name], rtol=1e-4, atol=1e-5)


def test_a_transport_that_was_pickled_is_the_same():
    transport = LocalTransport("vmap", 7, True, False, 1234, 2)
    assert pickle.loads(pickle.dumps(transport)) == transport
