"""Federated learning of one client is ordinary learning, and of equal clients that of one of them."""

from __future__ import annotations

import math

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
    cohort = fed.weighting.cohort(fed.roster, round, lambda clients: 0.0 * clients)
    draws = Draws(fed.data, cohort, fed.method.draw, fed.schedule.steps, fed.batch, fed.seed, round)
    return [fed.data.gather(draws.index[t, 0]) for t in range(fed.schedule.steps)]


def cross_entropy(z, logit, y):
    return F.binary_cross_entropy_with_logits(logit, y)


def minimax(z, logit, y):
    """Eq. (3) of CyCp divided by p(1-p): class means instead of expectations of indicators."""
    h, a, b, alpha = logit.sigmoid(), z["auc.a"], z["auc.b"], z["auc.alpha"]
    pos, neg = h[y == 1], h[y == 0]
    gap = neg.mean() - pos.mean()
    return ((pos - a) ** 2).mean() + ((neg - b) ** 2).mean() + 2 * (1 + alpha) * gap - alpha**2


LOSSES = {"cross-entropy": cross_entropy, "minimax-auc": minimax}


def gradients(value, leaves):
    found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, create_graph=True)
    zeros = (torch.zeros_like(leaf) for leaf in leaves.values())
    return dict(zip(leaves, (z if g is None else g for g, z in zip(found, zeros, strict=True)), strict=True))


def leaves_of(z):
    return {name: value.detach().clone().requires_grad_() for name, value in z.items()}


def towards(name):
    """Descend, and ascend in what is called alpha."""
    return 1 if name == "auc.alpha" else -1


class SGDA:
    """Plain steps; FedProx pulls towards where the round started."""

    def __init__(self, run, loss):
        self.run, self.loss = run, loss

    def round(self, z, round):
        start, method = z, self.run.fed.method
        while hasattr(method, "inner"):
            method = method.inner
        for x, y in batches(self.run.fed, round):
            leaves = leaves_of(z)
            slope = gradients(self.loss(leaves, method.apply(leaves, x), y), leaves)
            for name, old in z.items():
                pull = method.mu * (old - start[name]) if name != "auc.alpha" else 0.0
                slope[name] = slope[name].detach() + pull
            z = {n: old + towards(n) * self.run.fed.schedule.eta * slope[n] for n, old in z.items()}
        return z


class Momentum:
    """Steps along a moving average of gradients; the first one only finds the average's first value."""

    def __init__(self, run, loss):
        self.run, self.loss, self.u, self.h = run, loss, None, None
        self.rule = run.fed.method
        while hasattr(self.rule, "inner"):
            self.rule = self.rule.inner

    def slope(self, z, x, y):
        leaves = leaves_of(z)
        return {n: g.detach() for n, g in gradients(self.value(leaves, x, y), leaves).items()}

    def value(self, leaves, x, y):
        return self.loss(leaves, self.rule.apply(leaves, x), y)

    def round(self, z, round):
        rule, eta = self.rule, self.run.fed.schedule.eta
        for x, y in batches(self.run.fed, round):
            if isinstance(self.loss, Ratio):
                self.loss.observe(leaves_of(z), rule.apply, x, y)
            if self.u is None:
                self.u = self.slope(z, x, y)
                continue
            z = {n: v + towards(n) * eta * self.u[n] for n, v in z.items()}
            new = self.slope(z, x, y)
            beta = {n: rule.beta_y if n == "auc.alpha" else rule.beta_x for n in z}
            self.u = {n: (1 - beta[n]) * old + beta[n] * new[n] for n, old in self.u.items()}
        return z


class Compositional(Momentum):
    """The gradient of AUC at h ~ w - rho * grad CE(w), of other rows, carried back through that step."""

    def slope(self, z, x, y):
        rule, apply = self.rule, self.rule.apply
        w = {n: v for n, v in leaves_of(z).items() if not n.startswith("auc.")}
        x_inner, y_inner, x, y = x[0::2], y[0::2], x[1::2], y[1::2]
        positive, negative = (y_inner == 1), (y_inner == 0)
        each = F.binary_cross_entropy_with_logits(apply(w, x_inner), y_inner, reduction="none")
        entropy = gradients((each[positive].mean() + each[negative].mean()) / 2, w)
        g = {n: v - rule.rho * entropy[n] for n, v in w.items()} | {n: z[n] for n in ("auc.a", "auc.b")}
        share = 1.0 if self.h is None else rule.h_rate
        old = self.h or {n: v.detach() for n, v in g.items()}
        self.h = {n: (1 - share) * old[n] + share * g[n].detach() for n in g}
        at = leaves_of(self.h | {"auc.alpha": z["auc.alpha"]})
        outer = {n: v.detach() for n, v in gradients(self.value(at, x, y), at).items()}
        names = list(w)
        back = torch.autograd.grad([g[n] for n in names], [w[n] for n in names], [outer[n] for n in names])
        return outer | dict(zip(names, back, strict=True))


class DelayedPairs:
    """Every own score against all scores of the step before; the first step only scores."""

    def __init__(self, run, loss):
        self.run, self.loss, self.old, self.u, self.passive_u = run, loss, None, {}, None
        self.rule = run.fed.method
        while hasattr(self.rule, "inner"):
            self.rule = self.rule.inner

    def round(self, z, round):
        objective = self.rule.objective
        psi = {"logistic": lambda t: F.softplus(-t), "squared-hinge": lambda t: F.relu(1 - t) ** 2}[
            objective.surrogate
        ]
        temperature = getattr(objective, "temperature", None)
        ((x, y),) = batches(self.run.fed, round)
        rows = [tuple(row.tolist()) for row in x[y == 1]]
        leaves = leaves_of(z)
        h = self.rule.apply(leaves, x)
        if objective.link == "sigmoid":
            h = h.sigmoid()
        if self.old is None:  # u of a tie, ψ(0) = 1
            u = [math.exp(1 / temperature)] * len(rows) if temperature else None
        elif temperature is None:
            positive, negative = self.old
            value = torch.stack([psi(h_i - negative).mean() for h_i in h[y == 1]]).mean()
            value = value + torch.stack([psi(positive - h_j).mean() for h_j in h[y == 0]]).mean()
        else:
            (positive, negative), u, terms = self.old, [], []
            for row, h_i in zip(rows, h[y == 1], strict=True):
                risk = torch.exp(psi(h_i - negative) / temperature)
                now = float(risk.detach().mean())
                before = self.u.get(row)
                u.append(now if before is None else (1 - objective.rate) * before + objective.rate * now)
                terms.append((temperature * risk / u[-1]).mean())
            self.u |= dict(zip(rows, u, strict=True))
            value = torch.stack(terms).mean()
            risks = [torch.exp(psi(positive - h_j) / temperature) for h_j in h[y == 0]]
            value = (
                value + torch.stack([(temperature * risk / self.passive_u).mean() for risk in risks]).mean()
            )
        if self.old is not None:
            slope = gradients(value, leaves)
            z = {n: v - self.run.fed.schedule.eta * slope[n].detach() for n, v in z.items()}
        if temperature:
            self.passive_u = torch.tensor(u, dtype=torch.float64)
        self.old = h[y == 1].detach(), h[y == 0].detach()
        return z


CENTRALISED = {
    "local-sgda": SGDA,
    "local-sgdam": Momentum,
    "local-scgdam": Compositional,
    "active-passive": DelayedPairs,
}


class Ratio:
    """Cross-entropy whose classes weigh 1 + beta * R, R from the last layer's gradients a round before."""

    def __init__(self, run):
        self.beta, self.ratio, self.seen = run.fed.method.beta, {0: 1.0, 1: 1.0}, []

    def observe(self, z, apply, x, y):
        """What the classes do to the last layer at the step's start."""
        each = F.binary_cross_entropy_with_logits(apply(z, x), y, reduction="none") / len(y)
        last = [leaf for name, leaf in z.items() if name.startswith("3.")]
        found = {q: torch.autograd.grad(each[y == q].sum(), last, retain_graph=True) for q in (0, 1)}
        self.seen.append({q: torch.cat([g.flatten() for g in of_class]) for q, of_class in found.items()})

    def __call__(self, z, logit, y):
        each = F.binary_cross_entropy_with_logits(logit, y, reduction="none") / len(y)
        return sum((1 + self.beta * self.ratio[q]) * each[y == q].sum() for q in (0, 1))

    def end(self):
        size = [torch.stack([g[q] for g in self.seen]).mean(dim=0).norm() for q in (0, 1)]
        self.ratio, self.seen = {0: size[1] / size[0], 1: size[0] / size[1]}, []


def test_one_client_is_centralised_training(preset):
    """Control variates cancel, and the only client is the worst one."""
    sections = configured(preset).sections
    rule, objective = sections["rule"]["name"], sections["objective"]["name"]
    if rule not in CENTRALISED:
        pytest.fail(f"write down what {rule!r} is without a federation, in CENTRALISED")
    run = built(preset, whole(preset) | {"participation.groups": 1, "uplink": "none"}, rows(ONE))
    state = run.after(ROUNDS)
    ratio = Ratio(run) if sections["correction"]["name"] == "ratio-weights" else None
    centralised = CENTRALISED[rule](run, ratio or LOSSES.get(objective))
    z = dict(run.params)
    if objective == "minimax-auc":
        z |= {n: torch.zeros((), dtype=torch.float64) for n in ("auc.a", "auc.b", "auc.alpha")}
    for round in range(ROUNDS):
        before, z = z, centralised.round(z, round)
        if sections["server"]["name"] == "amplified":
            z = {n: old + run.fed.method.amplify * (z[n] - old) for n, old in before.items()}
        if ratio is not None:
            ratio.end()
    assert any(not torch.equal(z[name], value) for name, value in run.params.items())
    for name, value in state.server.z.items():
        torch.testing.assert_close(value, z[name], rtol=1e-11, atol=1e-11)


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
        "uplink": "none",
        "train.client_weight": client_weight,
        "train.balance": balance,
        "rule.xi": "shared",
    }
    pool = {"rule.passive": PASSIVE_POOL * copies}  # the whole pool again, each score `copies` times
    one, all_of_them = built(preset, common, data), built(preset, common | pool, many)
    a, b = one.after(ROUNDS), all_of_them.after(ROUNDS)
    assert any(not torch.equal(a.server.z[name], value) for name, value in one.params.items())
    for name, value in a.server.z.items():
        torch.testing.assert_close(value, b.server.z[name], rtol=1e-12, atol=1e-12)
