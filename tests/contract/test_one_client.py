"""Federated learning of one client is ordinary learning, and of equal clients that of one of them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fedauc.data.federated import Draws

from .federations import COUNTS, built, configured, rows

ROUNDS = 4
ONE = [(sum(n for n, _ in COUNTS), sum(p for _, p in COUNTS))]  # all rows at one client
PASSIVE_POOL = 3  # scores of a class in a round of one step with a batch of 6


def whole(name):
    """Settings in which nothing is left to chance: rules with pools see the whole pool in every step."""
    if "passive" in configured(name).sections["rule"]:
        return {"schedule.steps": 1, "rule.passive": PASSIVE_POOL, "schedule.cycles": ROUNDS}
    return {"schedule.cycles": ROUNDS}


def batches(fed, round):
    """The rows of a round's local steps, as (x, y)."""
    cohort = fed.weighting.cohort(fed.roster, round)
    draws = Draws(fed.data, cohort, fed.method.draw, fed.schedule.steps, fed.batch, fed.seed, round)
    return [fed.data.gather(draws.rows[0, t]) for t in range(fed.schedule.steps)]


def cross_entropy(objective, z, logit, y):
    return F.binary_cross_entropy_with_logits(logit, y)


def minimax(objective, z, logit, y):
    """Eq. (3) of CyCp divided by p(1-p): class means instead of expectations of indicators."""
    h, a, b, alpha = logit.sigmoid(), z["auc.a"], z["auc.b"], z["auc.alpha"]
    pos, neg = h[y == 1], h[y == 0]
    gap = neg.mean() - pos.mean()
    return ((pos - a) ** 2).mean() + ((neg - b) ** 2).mean() + 2 * (1 + alpha) * gap - alpha**2


LOSSES = {"cross-entropy": cross_entropy, "minimax-auc": minimax}


def sgda(run, loss):
    """Descend, and ascend in what is called alpha."""
    z = run.params | {n: torch.zeros((), dtype=torch.float64) for n in ("auc.a", "auc.b", "auc.alpha")}
    for r in range(ROUNDS):
        for x, y in batches(run.fed, r):
            leaves = {name: value.clone().requires_grad_() for name, value in z.items()}
            value = loss(run.fed.method.objective, leaves, run.fed.method.apply(leaves, x), y)
            gradient = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
            for (name, old), g in zip(z.items(), gradient, strict=True):
                if g is not None:
                    z[name] = old + (1 if name == "auc.alpha" else -1) * run.fed.schedule.eta * g
    return z


def delayed_pairs(run, loss):
    """Every own score against all scores of the step before; the first step only scores."""
    psi = {"logistic": lambda t: F.softplus(-t)}[run.fed.method.objective.surrogate]
    z, old = dict(run.params), None
    for r in range(ROUNDS):
        ((x, y),) = batches(run.fed, r)
        leaves = {name: value.clone().requires_grad_() for name, value in z.items()}
        h = run.fed.method.apply(leaves, x)
        if old is not None:
            positive, negative = old
            value = torch.stack([psi(h_i - negative).mean() for h_i in h[y == 1]]).mean()
            value = value + torch.stack([psi(positive - h_j).mean() for h_j in h[y == 0]]).mean()
            gradient = torch.autograd.grad(value, list(leaves.values()))
            z = {n: v - run.fed.schedule.eta * g for (n, v), g in zip(z.items(), gradient, strict=True)}
        old = h[y == 1].detach(), h[y == 0].detach()
    return z


CENTRALISED = {"local-sgda": sgda, "active-passive": delayed_pairs}


def test_one_client_is_centralised_training(preset):
    sections = configured(preset).sections
    rule, objective = sections["rule"]["name"], sections["objective"]["name"]
    if rule not in CENTRALISED:
        pytest.fail(f"write down what {rule!r} is without a federation, in CENTRALISED")
    run = built(preset, whole(preset) | {"participation.groups": 1}, rows(ONE))
    state = run.after(ROUNDS)
    expected = CENTRALISED[rule](run, LOSSES.get(objective))
    assert any(not torch.equal(expected[name], value) for name, value in run.params.items())
    for name, value in state.server.z.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("balance", ["aggregate", "local"])
@pytest.mark.parametrize("client_weight", ["uniform", "sqrt", "examples"])
def test_equal_clients_are_one_client(preset, client_weight, balance):
    """Clients draw differently by design; where a batch is all rows, that is only a matter of order."""
    data = rows([(3, 3)])  # 3 + 3 slots of a stratified batch of 6, or 6 natural ones
    copies = 4
    many = type(data).build(
        data.x.repeat(copies, 1),
        data.y.repeat(copies),
        torch.arange(copies).repeat_interleave(6).numpy(),
        [f"copy-{i}" for i in range(copies)],
    )
    common = whole(preset) | {
        "participation": "full",
        "train.client_weight": client_weight,
        "train.balance": balance,
    }
    pool = {"rule.passive": PASSIVE_POOL * copies}  # the whole pool again, each score `copies` times
    one, all_of_them = built(preset, common, data), built(preset, common | pool, many)
    a, b = one.after(ROUNDS), all_of_them.after(ROUNDS)
    assert any(not torch.equal(a.server.z[name], value) for name, value in one.params.items())
    for name, value in a.server.z.items():
        torch.testing.assert_close(value, b.server.z[name], rtol=1e-12, atol=1e-12)
