"""A round of one full-batch step is a step of ordinary gradient descent-ascent on the global objective."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedauc.core.loop import Federation, advance, begin, rounds
from fedauc.core.weighting import TAU
from fedauc.data.federated import FederatedData
from fedauc.errors import InputError
from fedauc.methods import ActivePassive, LocalSGDA
from fedauc.objectives import CrossEntropy, MinimaxAUC, PairwiseAUC
from fedauc.participation import Cyclic, Full
from fedauc.schedules import Stagewise

ETA, BATCH = 0.3, 6
# A stratified batch of 6 is everything a client has: 3 + 3 rows, or 6 of one class.
COUNTS = ((3, 3), (6, 0), (0, 6), (3, 3), (6, 0))


def apply(z, x):
    return (x @ z["W"]).tanh() @ z["u"]


def start():
    generator = torch.Generator().manual_seed(4)
    return {
        "W": torch.randn(2, 3, generator=generator, dtype=torch.float64),
        "u": torch.randn(3, generator=generator, dtype=torch.float64),
    }


def data(counts=COUNTS):
    generator = np.random.default_rng(8)
    y = np.concatenate([[0] * n + [1] * p for n, p in counts])
    client = np.repeat(np.arange(len(counts)), [n + p for n, p in counts])
    x = generator.normal(size=(len(y), 2)) + y[:, None]
    return FederatedData.build(torch.tensor(x), torch.tensor(y), client, [str(i) for i in range(len(counts))])


def federation(method, participation=None, counts=COUNTS, **settings):
    schedule = Stagewise(**({"eta": ETA, "steps": 1, "cycles": 4} | settings.pop("schedule", {})))
    return Federation(method, data(counts), participation or Full(), schedule, batch=BATCH, **settings)


def client_of(fed):
    owner = np.empty(len(fed.data.y), dtype=int)
    for i in range(fed.data.clients):
        owner[fed.data.order[fed.data.start[i] : fed.data.start[i + 1]]] = i
    return torch.tensor(owner)


def class_weight(fed, client_weight):
    """The weight of each row in E⁺ or E⁻: Cᵢ/nᵢ with Cᵢ ∝ nᵢ^τ over the clients that have the class."""
    counts = torch.tensor(fed.data.counts, dtype=torch.float64)
    powered = torch.where(counts > 0, counts ** TAU[client_weight], 0)
    each = powered / powered.sum(dim=0) / counts.clamp(min=1)
    return each[client_of(fed), fed.data.y.long()]


@pytest.mark.parametrize("balance", ["aggregate", "local"])
@pytest.mark.parametrize("client_weight", ["uniform", "sqrt", "examples"])
def test_one_step_of_everybody_is_a_large_batch_step_of_minimax_auc(client_weight, balance):
    """z₁ = z₀ - η F(z₀) with F of Σᵢ C⁺ᵢ E⁺ᵢ[...] + Σᵢ C⁻ᵢ E⁻ᵢ[...], over several rounds."""
    fed = federation(LocalSGDA(apply, MinimaxAUC()), client_weight=client_weight, balance=balance)
    weight, y = class_weight(fed, client_weight), fed.data.y
    z = start() | {name: torch.zeros((), dtype=torch.float64) for name in ("auc.a", "auc.b", "auc.alpha")}
    state = begin(fed, start())
    for _ in range(3):
        z = {name: value.requires_grad_() for name, value in z.items()}
        h = apply(z, fed.data.x).sigmoid()
        gap = (weight * h)[y == 0].sum() - (weight * h)[y == 1].sum()
        loss = (weight * (h - z["auc.a"]) ** 2)[y == 1].sum() + (weight * (h - z["auc.b"]) ** 2)[y == 0].sum()
        loss = loss + 2 * (1 + z["auc.alpha"]) * gap - z["auc.alpha"] ** 2
        gradient = dict(zip(z, torch.autograd.grad(loss, list(z.values())), strict=True))
        gradient["auc.alpha"] = -gradient["auc.alpha"]
        z = {name: (value - ETA * gradient[name]).detach() for name, value in z.items()}
        state, record = advance(fed, state)
        if balance == "local":  # the mean over clients is the objective where all clients count the same
            assert record.loss == pytest.approx(loss.item())
        for name in z:
            torch.testing.assert_close(state.server.z[name], z[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("client_weight", ["uniform", "sqrt", "examples"])
def test_one_step_of_everybody_is_a_large_batch_step_of_cross_entropy(client_weight):
    """Σᵢ ωᵢ · (mean over the client's rows), ωᵢ ∝ nᵢ^τ; clients have 6, 6, 6, 3 and 2 rows."""
    counts = ((3, 3), (6, 0), (0, 6), (2, 1), (1, 1))  # 3 and 2 divide the batch: two or three full passes
    fed = federation(LocalSGDA(apply, CrossEntropy()), counts=counts, client_weight=client_weight)
    rows = torch.tensor(fed.data.counts.sum(axis=1), dtype=torch.float64)
    omega = rows ** TAU[client_weight] / (rows ** TAU[client_weight]).sum()
    weight = (omega / rows)[client_of(fed)]
    z = {name: value.requires_grad_() for name, value in start().items()}
    loss = (
        weight * F.binary_cross_entropy_with_logits(apply(z, fed.data.x), fed.data.y, reduction="none")
    ).sum()
    gradient = torch.autograd.grad(loss, list(z.values()))
    state, _ = advance(fed, begin(fed, start()))
    for (name, value), g in zip(z.items(), gradient, strict=True):
        torch.testing.assert_close(state.server.z[name], (value - ETA * g).detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("balance", ["aggregate", "local"])
@pytest.mark.parametrize("client_weight", ["uniform", "sqrt", "examples"])
def test_one_step_of_everybody_is_a_large_batch_step_on_all_pairs(client_weight, balance):
    """After a round that only scored, the pool is every score at z₀: the step is the gradient of eq. (9),
    Σᵢ Σⱼ C⁺ᵢ C⁻ⱼ E⁺ᵢ E⁻ⱼ ψ(h⁺ - h⁻), over pairs of all clients."""
    passive = 3600  # weights are multiples of the pool's grain: every score is drawn in proportion to its own
    fed = federation(
        ActivePassive(apply, PairwiseAUC("logistic"), passive=passive),
        client_weight=client_weight,
        balance=balance,
    )
    weight, y = class_weight(fed, client_weight), fed.data.y
    state, record = advance(fed, begin(fed, start()))
    assert np.isnan(record.loss)
    assert all(torch.equal(state.server.z[name], value) for name, value in start().items())

    z = {name: value.requires_grad_() for name, value in start().items()}
    h = apply(z, fed.data.x)
    total = torch.zeros((), dtype=torch.float64)
    for i in torch.nonzero(y == 1).flatten():
        for j in torch.nonzero(y == 0).flatten():
            total = total + weight[i] * weight[j] * F.softplus(-(h[i] - h[j]))
    gradient = torch.autograd.grad(total, list(z.values()))
    state, _ = advance(fed, state)
    for (name, value), g in zip(z.items(), gradient, strict=True):
        # Irrational shares (sqrt) are met to one draw in `passive`.
        tolerance = 1e-12 if client_weight != "sqrt" else 2e-3
        torch.testing.assert_close(
            state.server.z[name], (value - ETA * g).detach(), rtol=tolerance, atol=tolerance
        )


def test_the_balances_are_the_same_update_to_first_order():
    """aggregate - local = O(η²): a tenth of the step size, a hundredth of the difference."""
    difference = []
    for eta in (1e-3, 1e-4):
        ends = []
        for balance in ("aggregate", "local"):
            fed = federation(
                LocalSGDA(apply, MinimaxAUC()),
                balance=balance,
                schedule={"eta": eta, "steps": 4, "cycles": 1},
            )
            state, _ = advance(fed, begin(fed, start()))
            ends.append(state.server.z["u"])
        difference.append((ends[0] - ends[1]).norm().item())
    assert difference[0] > 0
    assert difference[1] / difference[0] == pytest.approx(0.01, rel=0.05)


def test_records_follow_cycles_groups_and_stages():
    fed = federation(
        LocalSGDA(apply, CrossEntropy()),
        Cyclic(2),
        schedule={"cycles": 3, "stage_cycles": 1, "growth": 2.0, "decay": 0.5},
    )
    seen = [record[:6] for _, record in rounds(fed, begin(fed, start()))]
    sizes = [len(group) for group in fed.roster.groups]
    assert sorted(sizes) == [2, 3]
    assert seen == [  # round, cycle, stage, group, clients, η
        (1, 0, 0, 0, sizes[0], ETA),
        (2, 0, 0, 1, sizes[1], ETA),
        (3, 1, 1, 0, sizes[0], ETA / 2),
        (4, 1, 1, 1, sizes[1], ETA / 2),
        (5, 2, 1, 0, sizes[0], ETA / 2),
        (6, 2, 1, 1, sizes[1], ETA / 2),
    ]
    assert fed.rounds == 6


def test_the_memory_of_the_moving_average_is_counted_in_cycles():
    """Two rounds a cycle and a memory of 1.5 cycles: a horizon of 3 rounds, through the stages."""
    fed = federation(
        LocalSGDA(apply, CrossEntropy()),
        Cyclic(2),
        output="ema",
        memory=1.5,
        schedule={"cycles": 3, "stage_cycles": 1},
    )
    expected = torch.zeros_like(start()["u"])
    for state, record in rounds(fed, begin(fed, start())):
        share = 1 / min(record.round, 3)
        expected = (1 - share) * expected + share * state.server.z["u"]
        torch.testing.assert_close(state.averaged.z["u"], expected, rtol=1e-12, atol=1e-12)


def test_the_anchor_moves_with_the_stage_and_not_before():
    fed = federation(
        LocalSGDA(apply, CrossEntropy(), gamma=1.0), schedule={"cycles": 4, "stage_cycles": 2, "decay": 0.5}
    )
    anchors, iterates = [], [start()["u"]]
    for state, _ in rounds(fed, begin(fed, start())):
        anchors.append(state.server.anchor["u"])
        iterates.append(state.server.z["u"])
    expected = [iterates[0], iterates[0], iterates[2], iterates[2]]
    assert all(torch.equal(a, b) for a, b in zip(anchors, expected, strict=True))


def test_a_client_without_rows_is_named_when_its_turn_comes():
    fed = federation(LocalSGDA(apply, CrossEntropy()), counts=((3, 3), (0, 0), (3, 3)))
    state = begin(fed, start())
    with pytest.raises(InputError, match="'1' has no training rows"):
        advance(fed, state)
