"""What must hold exactly between methods with and without control variates, amplification, extrapolation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from scipy.optimize import root

from fedauc.core import tree
from fedauc.core.loop import Federation, advance, begin
from fedauc.core.method import Aggregate, Cohort, Knobs
from fedauc.core.store import Store
from fedauc.data.federated import Draws, FederatedData
from fedauc.errors import InputError
from fedauc.methods import (
    ActivePassive,
    Agnostic,
    Amplified,
    ControlVariates,
    LocalSCGDAM,
    LocalSGDA,
    LocalSGDAM,
    RatioWeights,
)
from fedauc.objectives import CrossEntropy, MinimaxAUC, PairwiseAUC, PartialAUC
from fedauc.objectives.base import field
from fedauc.participation import Cyclic, Full, Uniform
from fedauc.schedules import Stagewise

MIXED = ((9, 4), (5, 0), (0, 6), (12, 1), (3, 3), (7, 0), (4, 8))
EIGHT = ((4, 4), (8, 0), (4, 4), (0, 8), (4, 4))  # a batch of eight is all that a client has
EVERY = [Full(), Cyclic(3), Cyclic(3, per_round=1), Uniform(3)]
START = {"w": torch.tensor([0.3, -0.2], dtype=torch.float64), "d": torch.tensor(0.1, dtype=torch.float64)}


def linear(z, x):
    return x @ z["w"] + z["d"]


def data(counts, same=False):
    """Clients with their own shift, or all with the same rows."""
    generator = np.random.default_rng(2)
    x, y, client = [], [], []
    rows = generator.normal(size=(sum(counts[0]), 2))
    for i, own in enumerate(counts):
        labels = [0] * own[0] + [1] * own[1]
        shift = generator.normal(size=2)
        here = rows if same else shift + np.array(labels)[:, None] + generator.normal(size=(len(labels), 2))
        x.append(here)
        y += labels
        client += [i] * len(labels)
    names = [str(i) for i in range(len(counts))]
    return FederatedData.build(torch.tensor(np.concatenate(x)), torch.tensor(y), np.array(client), names)


def federation(method, participation=None, rows=None, **settings):
    schedule = {"eta": 0.2, "steps": 3, "cycles": 50} | settings.pop("schedule", {})
    settings = {"batch": 4, "seed": 1} | settings
    rows = data(MIXED) if rows is None else rows
    return Federation(method, rows, participation or Cyclic(3), Stagewise(**schedule), **settings)


def run(fed, rounds, state=None):
    """The states after each of the next rounds."""
    state = begin(fed, START) if state is None else state
    for _ in range(rounds):
        state, _ = advance(fed, state)
        yield state


def close(a, b, rtol=1e-11):
    assert a.keys() == b.keys()
    return all(torch.allclose(a[name], b[name], rtol=rtol, atol=rtol) for name in a)


def fedavg(**settings):
    return LocalSGDA(linear, CrossEntropy(), **settings)


def coda_plus(**settings):
    return LocalSGDA(linear, MinimaxAUC(), **settings)


def pairwise():
    return ActivePassive(linear, PairwiseAUC(), passive=4)


RULES = {"fedavg": fedavg, "coda+": coda_plus, "pairwise": pairwise}


# ------------------------------------------------------------------------------------- nothing changes


@pytest.mark.parametrize("participation", [Cyclic(3), Uniform(3)], ids=repr)
@pytest.mark.parametrize(
    "wrap",
    [lambda rule: rule, lambda rule: ControlVariates(rule, refresh="cycle")],
    ids=["alone", "with control variates"],
)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_amplification_by_one_is_the_method_itself(rule, wrap, participation):
    inner = wrap(rule())
    schedule = {"stage_cycles": 1, "decay": 0.5}
    plain = federation(inner, participation, schedule=schedule)
    amplified = federation(Amplified(inner, amplify=1.0), participation, schedule=schedule)
    rounds = 3 * plain.roster.cycle_length
    for a, b in zip(run(plain, rounds), run(amplified, rounds), strict=True):
        assert close(tree.flatten(a.server), tree.flatten(b.server.inner))
        assert a.memory.keys() == b.memory.keys()
        assert all(close(a.memory[k], b.memory[k]) for k in a.memory)
        assert a.ledger == b.ledger


@pytest.mark.parametrize("participation", EVERY, ids=repr)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_without_control_variates_yet_the_first_round_is_the_rules_own(rule, participation):
    """Bit for bit; frozen ones are zero for the whole first cycle."""
    plain = federation(rule(), participation)
    (first,) = run(plain, 1)
    (with_control,) = run(federation(ControlVariates(rule()), participation), 1)
    assert all(torch.equal(first.server.z[name], v) for name, v in with_control.server.z.items())
    window = plain.roster.cycle_length
    frozen = federation(ControlVariates(rule(), refresh="cycle"), participation)
    for a, b in zip(run(plain, window), run(frozen, window), strict=True):
        assert all(torch.equal(a.server.z[name], value) for name, value in b.server.z.items())
        assert b.round == window or not any(value.any() for value in b.server.c.values())


@pytest.mark.parametrize("participation", [Full(), Cyclic(3)], ids=repr)
def test_after_a_reset_a_stages_first_round_is_the_rules_own(participation):
    schedule = {"stage_cycles": 2, "decay": 0.5}
    fed = federation(ControlVariates(coda_plus(gamma=0.4), reset=True), participation, schedule=schedule)
    plain = federation(coda_plus(gamma=0.4), participation, schedule=schedule)
    rounds = 2 * fed.roster.cycle_length
    *_, state = run(fed, rounds)
    assert any(value.abs().max() > 1e-3 for value in state.server.c.values())
    (after,) = run(fed, 1, state)
    (alone,) = run(plain, 1, state._replace(server=state.server.inner, memory=Store()))
    assert all(torch.equal(after.server.z[name], value) for name, value in alone.server.z.items())
    present = set(fed.cohort(after.server, rounds).clients.tolist())
    assert all(not v.any() for k, c in after.memory.items() if k not in present for v in c.values())


def test_a_reset_forgets_control_variates_and_nothing_else():
    """What the rule itself keeps at the clients (FedXL2's estimates) survives a stage, as it does without."""
    objective = PartialAUC(positives=8)
    rule = ActivePassive(linear, objective, passive=4)
    schedule = {"stage_cycles": 2, "decay": 0.5}
    kept = {}
    for name, method in {"plain": rule, "reset": ControlVariates(rule, reset=True)}.items():
        fed = federation(method, schedule=schedule)
        *_, before, after = run(fed, 7)  # two cycles and the first round of the second stage
        absent = set(range(7)) - set(fed.roster.select(6)[0].tolist())
        prefix = "inner/" if name == "reset" else ""
        assert any(before.memory[k][f"{prefix}log_u"].ge(0).any() for k in absent)
        kept[name] = {k for k in absent if k in after.memory and f"{prefix}log_u" in after.memory[k]}
    assert kept["reset"] == kept["plain"] != set()


@pytest.mark.parametrize("rule", [fedavg, coda_plus], ids=["fedavg", "coda+"])
def test_clients_that_are_all_the_same_have_nothing_to_correct(rule):
    """Equal rows, whole batches, everybody there: F - c_k + c = F for ever."""
    rows = data(((4, 4),) * 5, same=True)
    settings = {"batch": 8, "schedule": {"stage_cycles": 8, "decay": 0.5}}
    plain = federation(rule(gamma=0.1), Full(), rows, **settings)
    control = federation(ControlVariates(rule(gamma=0.1)), Full(), rows, **settings)
    for a, b in zip(run(plain, 15), run(control, 15), strict=True):
        assert close(a.server.z, b.server.z)
        assert all(close(tree.learned(b.server.c), _c(memory)) for memory in b.memory.values())
    assert any(value.abs().max() > 1e-3 for value in b.server.c.values())


def _c(memory):
    return {name.removeprefix("c/"): value for name, value in memory.items() if name.startswith("c/")}


# ----------------------------------------------------------------------------------- corrections cancel


@pytest.mark.parametrize("eta_g", [1.0, 1.7])
@pytest.mark.parametrize("client_weight", ["uniform", "examples"])
@pytest.mark.parametrize("rule", [fedavg, coda_plus], ids=["fedavg", "coda+"])
def test_with_one_step_and_everybody_there_corrections_cancel(rule, client_weight, eta_g):
    """z' = z - η_g η Σ ω_k (F_k - c_k + c) = z - η_g η Σ ω_k F_k, as Σ ω_k = 1 and c = Σ ω_k c_k: whatever
    the batches are, this is the rule alone with the step η_g η. The new c is Σ ω_k F_k = (z - z')/(η_g η)."""
    settings = {"client_weight": client_weight}
    control = federation(
        ControlVariates(rule(gamma=0.3), eta_g=eta_g), Full(), schedule={"steps": 1, "eta": 0.2}, **settings
    )
    plain = federation(rule(gamma=0.3), Full(), schedule={"steps": 1, "eta": 0.2 * eta_g}, **settings)
    before = begin(plain, START).server.z
    for a, b in zip(run(plain, 8), run(control, 8), strict=True):
        assert close(a.server.z, b.server.z)
        assert close(b.server.z, tree.add(before, b.server.c, -0.2 * eta_g), rtol=1e-10)
        before = b.server.z
    spread = [(_c(b.memory[0])[name] - b.server.c[name]).abs().max().item() for name in b.server.c]
    assert max(spread) > 0.1  # there was something to cancel


@dataclass(frozen=True)
class Slope:
    """Σ weight · (1 - 2y) · logit: gradients that do not depend on where they are taken."""

    draw = "natural"
    duals = frozenset()

    def variables(self, like):
        return {}

    def fitted(self, counts):
        return self

    def projected(self, z):
        return z

    def loss(self, z, logit, y, weight):
        return (weight * (1 - 2 * y) * logit).sum()


@pytest.mark.parametrize("client_weight", ["uniform", "examples"])
def test_frozen_control_variates_cancel_over_a_cycle(client_weight):
    """Σ over a cycle of Σ_k K ω_k (c - c_k) = 0 where everybody takes part once: gradients that are the same
    everywhere lead to the same place at every cycle's end, whatever the batches, but not in between."""
    rule = LocalSGDA(linear, Slope())
    plain = federation(rule, client_weight=client_weight)
    frozen = federation(ControlVariates(rule, refresh="cycle"), client_weight=client_weight)
    apart = []
    for a, b in zip(run(plain, 12), run(frozen, 12), strict=True):
        if a.round % 3 == 0:
            assert close(a.server.z, b.server.z)
        else:
            apart.append(not close(a.server.z, b.server.z))
    assert apart == [False, False] + [True] * 6  # nothing is corrected in the first cycle


@cache
def saddle(objective, weight_decay):
    """Where the federation's field vanishes, and the clients' own fields there; whole batches."""
    rows = data(EIGHT)
    fed = federation(ControlVariates(LocalSGDA(linear, objective)), Full(), rows, batch=8)
    cohort = fed.cohort(begin(fed, START).server, 0)
    names = START | objective.variables(START["d"])
    draws = Draws(rows, cohort, objective.draw, 1, 8, 0, 0)

    def unpacked(flat):
        return {
            "w": torch.tensor(flat[:2]),
            **{name: torch.tensor(v) for name, v in zip(list(names)[1:], flat[2:], strict=True)},
        }

    def fields(z):
        whole = draws.step(0)
        found = []
        for i in range(rows.clients):
            batch = type(whole)(*(part[i] for part in whole))
            own = dict(field(linear, objective, z, batch).gradient)
            found.append(own | {name: own[name] + weight_decay * z[name] for name in START})
        return found

    def mean(flat):
        every = fields(unpacked(flat))
        total = {name: sum(w * f[name] for w, f in zip(cohort.omega, every, strict=True)) for name in names}
        return np.concatenate([np.atleast_1d(total[name].numpy()) for name in names])

    start = np.concatenate([np.atleast_1d(value.numpy()) for value in names.values()])
    solved = root(mean, start, tol=1e-14)
    assert np.abs(mean(solved.x)).max() < 1e-11
    z = unpacked(solved.x)
    return z, fields(z)


@pytest.mark.parametrize("participation", [Full(), Cyclic(2), Uniform(2)], ids=repr)
@pytest.mark.parametrize("refresh", ["round", "cycle"])
@pytest.mark.parametrize("objective", [CrossEntropy(), MinimaxAUC(link="identity")], ids=["ce", "auc"])
def test_at_the_solution_nobody_moves(objective, refresh, participation):
    """c_k = F_k(z*) and c = Σ ω_k F_k(z*) = 0: every local step stands still, for any number of steps and any
    participation; without control variates the clients drift away from it."""
    rows = data(EIGHT)
    z, own = saddle(objective, 0.1)
    rule = LocalSGDA(linear, objective, weight_decay=0.1)
    method = ControlVariates(rule, refresh=refresh, eta_g=1.5)
    settings = {"batch": 8, "schedule": {"eta": 0.05}}  # small enough that rounding is not blown up
    fed = federation(method, participation, rows, **settings)
    state = begin(fed, START)
    nothing = {name: torch.zeros_like(value) for name, value in z.items()}
    memory = {}
    for k, c_k in enumerate(own):
        memory[k] = method.memory_init(z) | {f"c/{name}": value for name, value in c_k.items()}
        if refresh == "cycle":
            memory[k] |= {f"following/{name}": value for name, value in c_k.items()}
    server = state.server._replace(inner=state.server.inner._replace(z=z), c=nothing)
    for after in run(fed, 5, state._replace(server=server, memory=Store().updated(memory.items()))):
        assert close(after.server.z, z, rtol=1e-9)
        assert close(after.server.c, nothing, rtol=1e-9)
    alone = federation(rule, participation, rows, **settings)
    *_, drifted = run(alone, 5, begin(alone, START)._replace(server=server.inner))
    assert max((drifted.server.z[name] - z[name]).abs().max().item() for name in z) > 1e-3


# -------------------------------------------------------------------------------------- extrapolation


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_the_servers_step_is_along_the_averaged_change(rule):
    """From one state: z(η_g) - z = η_g (z(1) - z), and nothing else depends on η_g."""
    inner = rule()
    *_, state = run(federation(ControlVariates(inner)), 5)
    (one,) = run(federation(ControlVariates(inner, eta_g=1.0)), 1, state)
    (same,) = run(federation(ControlVariates(inner)), 1, state)
    assert all(torch.equal(one.server.z[name], value) for name, value in same.server.z.items())
    change = tree.sub(one.server.z, state.server.z)
    assert max(value.abs().max().item() for value in change.values()) > 1e-4
    for eta_g in (0.5, math.sqrt(7)):
        (further,) = run(federation(ControlVariates(inner, eta_g=eta_g)), 1, state)
        assert close(further.server.z, tree.add(state.server.z, change, eta_g))
        assert close(further.server.c, one.server.c)
        assert all(close(further.memory[k], one.memory[k]) for k in one.memory)


# ------------------------------------------------------------------------------------------- payload


@pytest.mark.parametrize("participation", EVERY, ids=repr)
@pytest.mark.parametrize("rule", [fedavg, coda_plus], ids=["scaffold", "codasca"])
def test_control_variates_double_what_travels(rule, participation):
    plain = federation(rule(), participation)
    setup = begin(plain, START).ledger
    pairs = {}
    for name, method in {
        "plain": rule(),
        "round": ControlVariates(rule()),
        "amplified": Amplified(ControlVariates(rule())),
        "cycle": ControlVariates(rule(), refresh="cycle"),
    }.items():
        up, down, pairs[name] = setup.total_up, setup.total_down, []
        for state in run(federation(method, participation), 4):
            pairs[name].append((state.ledger.total_up - up, state.ledger.total_down - down))
            up, down = state.ledger.total_up, state.ledger.total_down
    took_part = [len(plain.roster.select(round, None)[0]) for round in range(4)]
    size = 8 * (3 if rule is fedavg else 6)
    assert pairs["plain"] == [(m * size, m * size) for m in took_part]
    assert pairs["round"] == pairs["amplified"] == [(2 * m * size, 2 * m * size) for m in took_part]
    # which cycle it is has to be said as well
    assert pairs["cycle"] == [(2 * m * size, 2 * m * size + 8 * m) for m in took_part]


# --------------------------------------------------------------------------------- what cannot be done


@pytest.mark.parametrize(
    "rule",
    [
        lambda: LocalSGDAM(linear, MinimaxAUC()),
        lambda: LocalSGDAM(linear, CrossEntropy()),
        lambda: LocalSCGDAM(linear, MinimaxAUC()),
        lambda: RatioWeights(LocalSGDAM(linear, CrossEntropy())),
    ],
    ids=["local-sgdam", "local-sgdm", "local-scgdam", "local-sgdm-rl"],
)
def test_momentum_has_no_control_variates(rule):
    with pytest.raises(InputError, match="momentum"):
        ControlVariates(rule())


def test_factors_must_be_positive():
    for eta_g in (0.0, -1.0):
        with pytest.raises(InputError, match="eta_g"):
            ControlVariates(fedavg(), eta_g=eta_g)
    for amplify in (0.0, -1.0):
        with pytest.raises(InputError, match="amplify"):
            Amplified(fedavg(), amplify=amplify)


def test_control_variates_follow_the_weights_of_the_clients():
    """c is the mean of all c_k with what the clients count for, also where that changes from round to round;
    or the two do not go together, and that is said when they are put together."""
    try:
        method = Agnostic(ControlVariates(fedavg()), eta_lambda=0.02)
    except InputError:
        return
    fed = federation(method, Uniform(3), schedule={"steps": 2})
    for state in run(fed, 6):
        mean = {name: torch.zeros_like(value) for name, value in state.server.inner.c.items()}
        for client, memory in state.memory.items():
            mean = tree.add(mean, _c(memory), state.server.lam[client].item())
        assert close(mean, state.server.inner.c), f"round {state.round}"


# ------------------------------------------------------------------------------- running statistics


class Normalised:
    """A linear score of standardised features, with running statistics of the features."""

    share = 0.3

    def __call__(self, z, x):
        return ((x - z["stats.mean"]) / (z["stats.var"] + 0.01).sqrt()) @ z["w"] + z["d"]

    def observe(self, z, x):
        mean, var = x.mean(dim=0), x.var(dim=0, correction=0)
        seen = {
            "stats.mean": torch.lerp(z["stats.mean"], mean, self.share),
            "stats.var": torch.lerp(z["stats.var"], var, self.share),
        }
        return ((x - mean) / (var + 0.01).sqrt()) @ z["w"] + z["d"], seen


OBSERVED = {
    "stats.mean": torch.full((2,), 3.0, dtype=torch.float64),
    "stats.var": torch.full((2,), 5.0, dtype=torch.float64),
}


def observing(method, participation, **settings):
    fed = federation(method, participation, batch=8, **settings)
    state = begin(fed, START | OBSERVED)
    return fed, state


WRAPPED = {
    "fedavg": lambda rule: rule,
    "scaffold": lambda rule: ControlVariates(rule, eta_g=3.0),
    "a-fedavg": lambda rule: Amplified(rule, amplify=4.0),
    "a-scaffold": lambda rule: Amplified(ControlVariates(rule, refresh="cycle", eta_g=2.0), amplify=3.0),
}


@pytest.mark.parametrize("participation", [Full(), Cyclic(3)], ids=repr)
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED.keys())
def test_statistics_are_averaged_and_nothing_else(wrap, participation):
    """They depend on the rows alone here, so every method must have the same: each client's own after its
    steps, averaged with weights that sum to one."""
    rule = LocalSGDA(Normalised(), CrossEntropy(), gamma=0.2, mu=0.1)
    schedule = {"eta": 0.01, "stage_cycles": 2, "decay": 0.9}
    fed, state = observing(wrap(rule), participation, client_weight="examples", schedule=schedule)
    statistics = {name: value.numpy() for name, value in OBSERVED.items()}
    sums = set()
    for round in range(7):
        cohort = fed.cohort(state.server, round)
        rows = Draws(fed.data, cohort, "natural", 3, 8, 1, round).rows
        own = []
        for i in range(len(cohort.clients)):
            now = dict(statistics)
            for t in range(3):
                x = fed.data.x.numpy()[rows[i, t]]
                for name, seen in (("stats.mean", x.mean(axis=0)), ("stats.var", x.var(axis=0))):
                    now[name] = 0.7 * now[name] + 0.3 * seen
            own.append(now)
        weight = cohort.weight / cohort.weight.sum()
        sums.add(float(cohort.weight.sum()))
        statistics = {name: sum(w * o[name] for w, o in zip(weight, own, strict=True)) for name in statistics}
        (state,) = run(fed, 1, state)
        for name, value in statistics.items():
            np.testing.assert_allclose(state.server.z[name].numpy(), value, rtol=1e-11, err_msg=name)
            assert name.endswith("mean") or (value > 0).all()
        for name in tree.flatten(state.server):  # nowhere but in the iterate
            assert "stats." not in name or name.rpartition("stats.")[0].endswith("z/")
        assert not any("stats." in name for memory in state.memory.values() for name in memory)
    assert participation == Full() or any(abs(total - 1) > 0.1 for total in sums)


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED.keys())
def test_a_running_variance_stays_positive(wrap):
    """A cohort that weighs 3 together: the parameters move by Σ ŵΔ, the statistics by the mean of Δ."""
    fed, state = observing(wrap(LocalSGDA(Normalised(), CrossEntropy())), Full())
    weight = np.array([1.0, 2.0])
    cohort = Cohort(np.array([0, 1]), weight, weight / 3, np.ones((2, 2)), np.ones((2, 2)))
    change = {name: torch.zeros_like(value) for name, value in state.server.z.items()}
    change["stats.var"] = 3 * torch.full((2,), -4.0, dtype=torch.float64)  # Σ ŵ Δ with Δ = -4
    change["stats.mean"] = 3 * torch.full((2,), 1.5, dtype=torch.float64)
    change["w"] = 3 * torch.ones(2, dtype=torch.float64)
    nothing = tree.learned({name: torch.zeros_like(value) for name, value in state.server.z.items()})
    knobs = _knobs(fed)
    after = fed.method.server_update(state.server, Aggregate(change, {}, nothing), cohort, knobs)
    torch.testing.assert_close(after.z["stats.var"], torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(after.z["stats.mean"], torch.full((2,), 4.5, dtype=torch.float64))
    further = {"fedavg": 1.0, "scaffold": 3.0, "a-fedavg": 4.0, "a-scaffold": 6.0}
    (factor,) = (further[name] for name, each in WRAPPED.items() if each is wrap)
    torch.testing.assert_close(after.z["w"], START["w"] + 3 * factor)


def _knobs(fed):
    eta = torch.tensor(0.1, dtype=torch.float64)
    return Knobs(eta, 3, 8, 0, 0, 0, fed.roster.cycle_length)


def test_clients_that_count_for_nothing_change_nothing():
    """λ may be 0 for all clients of a round: their changes weigh nothing, and it is no error."""
    fed, state = observing(LocalSGDA(Normalised(), CrossEntropy()), Full())
    nothing = np.zeros(2)
    cohort = Cohort(np.array([0, 1]), nothing, nothing, np.ones((2, 2)), np.ones((2, 2)))
    change = {name: torch.zeros_like(value) for name, value in state.server.z.items()}
    after = fed.method.server_update(state.server, Aggregate(change, {}), cohort, _knobs(fed))
    assert all(torch.equal(after.z[name], value) for name, value in state.server.z.items())
