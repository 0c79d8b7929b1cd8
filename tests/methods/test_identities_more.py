"""Methods that are the same in special cases, what holds for all of them, and what has no meaning."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize

from fedauc.core.loop import Federation, begin
from fedauc.core.uplink import Fixed
from fedauc.data.federated import FederatedData
from fedauc.errors import InputError
from fedauc.methods import ActivePassive, Agnostic, LocalSCGDAM, LocalSGDA, LocalSGDAM, RatioWeights
from fedauc.methods.agnostic import on_simplex
from fedauc.objectives import Contrastive, CrossEntropy, MinimaxAUC, PairwiseAUC, PartialAUC
from fedauc.participation import Cyclic, Full, Optimal, Uniform, Weighted
from fedauc.schedules import Stagewise

from ..reference import naive, naive_more

STEPS, BATCH, ETA, SEED = 3, 6, 0.2, 3
MODEL = naive.Hidden()
START = MODEL.start(2)


@pytest.fixture(scope="module")
def data():
    return naive_more.federated_data()


def run(data, method, participation, rounds, *, steps=STEPS, **settings):
    """The servers after each round."""
    schedule = Stagewise(eta=ETA, steps=steps, cycles=20)
    fed = Federation(method, data, participation, schedule, batch=BATCH, seed=SEED, **settings)
    return [state.server for state in naive_more.states(fed, START, rounds)]


def assert_same(a, b, tolerance=1e-11):
    assert a.keys() == b.keys()
    for n in a:
        np.testing.assert_allclose(a[n], b[n], rtol=tolerance, atol=tolerance, err_msg=n)


# ------------------------------------------------------------------------------- momentum and composition


@pytest.mark.parametrize("participation", [Full(), Cyclic(3)], ids=repr)
@pytest.mark.parametrize("scale", ["classes", "printed"])
@pytest.mark.parametrize("hessian", ["exact", "first-order"])
def test_composition_with_nothing_is_momentum(data, participation, scale, hessian):
    """ρ = 0 makes g the identity, α = 1 makes h its newest value: h = x."""
    rule = {"gamma_x": 0.7, "gamma_y": 1.3, "beta_x": 0.3, "beta_y": 0.6}
    objective = MinimaxAUC(scale=scale).fitted(data.counts)
    plain = run(data, LocalSGDAM(MODEL.torch, objective, **rule), participation, 6)
    composed = run(
        data,
        LocalSCGDAM(MODEL.torch, objective, rho=0.0, h_rate=1.0, hessian=hessian, xi="shared", **rule),
        participation,
        6,
    )
    for a, b in zip(plain, composed, strict=True):
        assert_same(a.z, b.z)
        assert_same(a.momentum, b.momentum)
        assert_same(b.h, {n: torch.zeros_like(value) for n, value in b.h.items()})  # h - x


@pytest.mark.parametrize(
    ("objective", "participation"),
    [(MinimaxAUC(), Full()), (CrossEntropy(), Full()), (CrossEntropy(), Uniform(3))],
)
def test_momentum_without_memory_is_descent_ascent_one_step_behind(data, participation, objective):
    """β = γ = 1: u is the newest gradient, which has not been stepped along yet. x - ηu is the iterate of
    LocalSGDA where a round's weights sum to one: the first step of the run moves nothing, so x lags by one
    gradient, and since both x and u are averaged with the same weights so is x - ηu."""
    plain = run(data, LocalSGDA(MODEL.torch, objective), participation, 7)
    newest = LocalSGDAM(MODEL.torch, objective, gamma_x=1.0, gamma_y=1.0, beta_x=1.0, beta_y=1.0)
    for a, b in zip(plain, run(data, newest, participation, 7), strict=True):
        assert_same(a.z, {n: value - ETA * b.momentum[n] for n, value in b.z.items()})


def test_a_group_that_counts_for_much_does_not_blow_up_the_momentum():
    """One client has 90 % of the rows: its group weighs 9 in a round, the others 0.1. As a plain
    average of differences u and h grew by a factor of 8 per cycle, whatever the step size."""
    generator = np.random.default_rng(0)
    counts = [(90, 90)] + [(1, 1)] * 9
    client = np.repeat(np.arange(10), [n + p for n, p in counts])
    y = np.concatenate([[0] * n + [1] * p for n, p in counts])
    rows = FederatedData.build(
        torch.tensor(generator.normal(size=(len(y), 2)) + y[:, None]),
        torch.tensor(y),
        client,
        list("abcdefghij"),
    )
    for rule in (LocalSGDAM, LocalSCGDAM):
        fed = Federation(
            rule(MODEL.torch, MinimaxAUC()),
            rows,
            Cyclic(10),
            Stagewise(eta=0.001, steps=5, cycles=20),
            batch=8,
            client_weight="examples",
        )
        assert fed.cohort(None, 0).weight.sum() != pytest.approx(1.0, abs=0.5)
        *_, last = naive_more.states(fed, START, 200)
        everything = [*last.server.momentum.values(), *last.server.h.values(), *last.server.z.values()]
        assert max(float(value.abs().max()) for value in everything) < 20


def test_the_first_step_of_a_run_moves_nothing(data):
    """Alg. 1 computes u₀, v₀, h₀ at x₀ before its loop."""
    for rule in (LocalSGDAM, LocalSCGDAM):
        (server,) = run(data, rule(MODEL.torch, MinimaxAUC()), Full(), 1, steps=1)
        assert all(torch.equal(server.z[n], torch.tensor(value)) for n, value in START.items())
        assert float(server.momentum["u"].abs().max()) > 0


# -------------------------------------------------------------------------------------- agnostic weights


@pytest.mark.parametrize("participation", [Full(), Uniform(3), Cyclic(3)], ids=repr)
def test_fixed_equal_weights_are_federated_sgd(data, participation):
    """η_λ = 0: λ stays at 1/N, and I = 1 is FedSGD on the mean of the clients' losses."""
    plain = run(
        data, LocalSGDA(MODEL.torch, CrossEntropy()), participation, 4, steps=1, client_weight="uniform"
    )
    agnostic = run(
        data,
        Agnostic(LocalSGDA(MODEL.torch, CrossEntropy()), eta_lambda=0.0, report=2),
        participation,
        4,
        steps=1,
        client_weight="examples",  # λ decides, not this
    )
    for a, b in zip(plain, agnostic, strict=True):
        assert_same(a.z, b.z)
        np.testing.assert_allclose(b.lam, 1 / 7, rtol=1e-14)


def test_full_participation_descends_the_mean_of_the_losses(data):
    """The same by hand, on all rows of every client."""
    rows = int(data.counts.sum(axis=1).max())
    data = naive_more.federated_data(((rows - 3, 3),) * 4)  # equal clients: a batch is everything
    method = Agnostic(LocalSGDA(MODEL.torch, CrossEntropy()), eta_lambda=0.0)
    fed = Federation(method, data, Full(), Stagewise(eta=ETA, steps=1, cycles=2), batch=rows, seed=SEED)
    end = naive_more.states(fed, START, 1)[0].server.z
    gradient = naive.zeros(START)
    for client in range(4):
        mine = data.order[data.start[client] : data.start[client + 1]]
        gradient = naive.plus(
            gradient,
            naive.cross_entropy_field(
                MODEL, START, data.x[mine].numpy(), data.y[mine].numpy(), [1 / rows] * rows
            ),
            1 / 4,
        )
    assert_same(end, naive.plus(START, gradient, -ETA))


SAMPLERS = [
    Optimal(3, kappa=30.0),
    Optimal(1, kappa=30.0),
    Optimal(1.5, kappa=30.0, groups=3),
    Weighted(3),
    Weighted(1, groups=2),
    Uniform(3),
    Cyclic(3, per_round=1),
    Cyclic(2),
]


@pytest.mark.parametrize("participation", SAMPLERS, ids=repr)
def test_the_importance_weighted_gradient_is_unbiased(data, participation):
    """E over a cycle's cohorts of Σ_{n in cohort} ŵ_n ∇f_n = Σ_n λ_n ∇f_n, at λ far from uniform."""
    method = Agnostic(LocalSGDA(MODEL.torch, CrossEntropy()))
    fed = Federation(
        method,
        data,
        participation,
        Stagewise(eta=ETA, steps=1, cycles=2),
        uplink=Fixed((0.02, 0.004, 0.001)),
        batch=BATCH,
        seed=SEED,
    )
    lam = torch.tensor([0.3, 0.02, 0.25, 0.01, 0.2, 0.07, 0.15], dtype=torch.float64)
    server = begin(fed, {n: torch.tensor(v) for n, v in START.items()}).server._replace(lam=lam)
    gradients = []
    for client in range(7):
        mine = data.order[data.start[client] : data.start[client + 1]]
        xs, ys = data.x[mine].numpy(), data.y[mine].numpy()
        slope = naive.cross_entropy_field(MODEL, START, xs, ys, [1 / len(mine)] * len(mine))
        gradients.append(np.concatenate([value.ravel() for value in slope.values()]))
    gradients = np.array(gradients)
    wanted = lam.numpy() @ gradients
    groups = len(fed.roster.groups)
    estimates = []
    for cycle in range(300 // groups):
        total = np.zeros_like(wanted)
        for round in range(cycle * groups, (cycle + 1) * groups):
            cohort = fed.cohort(server, round)
            total += cohort.weight @ gradients[cohort.clients] / groups
        estimates.append(total)
    estimates = np.array(estimates)
    error = np.abs(estimates.mean(axis=0) - wanted)
    spread = estimates.std(axis=0) / math.sqrt(len(estimates))
    assert (error <= 4.5 * spread + 1e-12).all()  # 17 coordinates, about 1e-4 that any is beyond by chance
    if spread.max() > 0:  # and the bound is sharp enough to see what a wrong weight would do
        assert (np.abs(gradients.mean(axis=0) - wanted) > 4.5 * spread).any()


@settings(max_examples=60)
@given(
    st.lists(st.floats(-3, 3), min_size=2, max_size=9),
    st.sampled_from([(0.0, 1.0), (0.05, 0.6), (0.1, 0.11), (0.0, 0.5)]),
)
def test_the_projection_is_the_nearest_point(values, box):
    low, high = box
    n = len(values)
    if not low * n <= 1 <= high * n:
        return
    lam = on_simplex(torch.tensor(values, dtype=torch.float64), low, high)
    assert float(lam.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(lam.min()) >= low - 1e-12
    assert float(lam.max()) <= high + 1e-12
    np.testing.assert_allclose(on_simplex(lam, low, high), lam, atol=1e-12)  # idempotent
    np.testing.assert_allclose(lam, naive_more.on_box_simplex(values, low, high), atol=1e-10)
    if box == (0.0, 1.0):
        np.testing.assert_allclose(lam, naive_more.on_simplex(values), atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("box", [(0.0, 1.0), (0.05, 0.4)])
def test_the_projection_is_what_a_general_solver_finds(seed, box):
    v = np.random.default_rng(seed).normal(0.2, 0.5, size=6)
    found = minimize(
        lambda lam: ((lam - v) ** 2).sum() / 2,
        np.full(6, 1 / 6),
        jac=lambda lam: lam - v,
        bounds=[box] * 6,
        constraints=LinearConstraint(np.ones((1, 6)), 1.0, 1.0),
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    np.testing.assert_allclose(on_simplex(torch.tensor(v), *box), found.x, atol=1e-6)


@pytest.mark.parametrize("box", [(0.0, 1.0), (0.05, 0.4)])
def test_projected_weights_are_inside_to_the_last_bit(box):
    """A weight of -1e-17 is one that P1 refuses: `optimal` needs weights of at least 0. Ties at a bound."""
    low, high = box
    generator = np.random.default_rng(0)
    for _ in range(300):
        v = torch.tensor(generator.integers(-4, 12, size=generator.integers(4, 12)) / 10.0)
        lam = on_simplex(v, low, high)
        assert float(lam.min()) >= low
        assert float(lam.max()) <= high
        assert float(lam.sum()) == pytest.approx(1.0, abs=1e-14)


def test_the_chi_square_pull_has_its_minimum_at_equal_weights():
    """∇ of ϱ N Σ (λ - 1/N)²: with no losses λ goes back to uniform by a factor 1 - 2Nη_λϱ."""
    method = Agnostic(LocalSGDA(MODEL.torch, CrossEntropy()), eta_lambda=0.1, chi2=0.3)
    lam = torch.tensor([0.5, 0.3, 0.1, 0.1], dtype=torch.float64)
    nothing = method.ascended(lam, torch.zeros_like(lam), torch.arange(4), lam > 0)
    np.testing.assert_allclose(nothing - 0.25, (1 - 2 * 4 * 0.1 * 0.3) * (lam - 0.25), rtol=1e-12)


# ------------------------------------------------------------------------------------------- partial AUC


def batch(generator, count=8, passive=5):
    h, y = torch.tensor(generator.normal(size=count)), torch.tensor([1.0, 0.0] * (count // 2))
    pools = {name: torch.tensor(generator.normal(size=passive)) for name in ("negatives", "positives")}
    return h, y, torch.tensor(generator.uniform(0.1, 1.0, size=count)), pools


@pytest.mark.parametrize("surrogate", ["square", "squared-hinge", "logistic", "sigmoid"])
def test_partial_auc_at_high_temperature_is_the_whole_auc(surrogate):
    """∇ = E⁺[mean e^{ψ/τ}/u ψ'] …: as τ → ∞ the weights e^{ψ/τ}/u go to 1 like 1 + O(1/τ), so the gradient
    goes to that of E⁺E⁻ψ with factor one (the τ in front of the logarithm cancels the 1/τ inside)."""
    h, y, weight, pools = batch(np.random.default_rng(1))
    whole = torch.func.grad(
        lambda h: PairwiseAUC(surrogate).paired(h, y, weight, pools, torch.zeros_like(h))[0]
    )(h)
    gaps = []
    for temperature in (1e3, 1e4, 1e5):
        partial = PartialAUC(surrogate, temperature=temperature, positives=4)
        tie = partial.unpaired(pools["positives"])["log_u"]
        passive = pools | {"estimates": tie}
        slope = torch.func.grad(lambda h: partial.paired(h, y, weight, passive, -torch.ones_like(h))[0])  # noqa: B023
        gaps.append(float((slope(h) - whole).abs().max()))
    assert gaps[0] < 0.1
    for earlier, later in itertools.pairwise(gaps):
        assert later == pytest.approx(earlier / 10, rel=0.05)


def test_partial_auc_over_rounds_at_high_temperature(data):
    """The same for whole runs: pools, draws and weights are those of the pairwise objective."""
    whole = run(data, ActivePassive(MODEL.torch, PairwiseAUC("logistic"), passive=3), Cyclic(3), 7, steps=2)
    objective = PartialAUC("logistic", link="identity", temperature=1e9).fitted(data.counts)
    partial = run(data, ActivePassive(MODEL.torch, objective, passive=3), Cyclic(3), 7, steps=2)
    for a, b in zip(whole, partial, strict=True):
        assert_same(a.z, b.z, 1e-6)


@pytest.mark.parametrize(("surrogate", "temperature"), [("squared-hinge", 0.1), ("logistic", 0.02)])
def test_partial_auc_counts_the_hardest_negative_at_low_temperature(surrogate, temperature):
    """τ → 0: with u exact, all weight is on the negative ranked highest, and the slope is its ψ'. The scores
    are sigmoids of logits, as in the objective's default, and the positive is far below that negative."""
    o = PartialAUC(surrogate, temperature=temperature, rate=1.0, positives=1)
    negatives = torch.tensor([0.99, 0.05, 0.3], dtype=torch.float64)
    pools = {"negatives": negatives, "positives": negatives, "estimates": torch.ones_like(negatives)}
    h, one = torch.tensor([0.1], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    slope = torch.func.grad(lambda h: o.paired(h, one, one, pools, -torch.ones_like(h))[0])(h)
    assert float(slope) == pytest.approx(naive.surrogate_slope(o, 0.1 - 0.99), rel=0.02)


# -------------------------------------------------------------------------------------- exchanged classes


@pytest.mark.parametrize("surrogate", ["square", "squared-hinge", "logistic", "sigmoid", "barrier-hinge"])
def test_pairwise_auc_of_the_other_class_is_that_of_the_negated_score(surrogate):
    h, y, weight, pools = batch(np.random.default_rng(2))
    o, none = PairwiseAUC(surrogate), torch.zeros_like(h)
    mirrored = {"negatives": -pools["positives"], "positives": -pools["negatives"]}
    value = float(o.paired(h, y, weight, pools, none)[0])
    assert float(o.paired(-h, 1 - y, weight, mirrored, none)[0]) == pytest.approx(value, rel=1e-12)


def test_minimax_auc_of_the_other_class_is_that_of_the_negated_score():
    """a and b change places and sign, α stays."""
    h, y, weight, _ = batch(np.random.default_rng(3))
    o = MinimaxAUC(link="identity")
    z = {"auc.a": torch.tensor(0.4), "auc.b": torch.tensor(-0.1), "auc.alpha": torch.tensor(-0.3)}
    other = {"auc.a": torch.tensor(0.1), "auc.b": torch.tensor(-0.4), "auc.alpha": torch.tensor(-0.3)}
    assert float(o.loss(other, -h, 1 - y, weight)) == pytest.approx(float(o.loss(z, h, y, weight)), rel=1e-6)


def test_partial_auc_is_not_symmetric():
    """It looks at the negatives above each positive, not at the positives below each negative."""
    h, y, weight, pools = batch(np.random.default_rng(2))
    o, none = PartialAUC("logistic", temperature=0.2, positives=4), torch.zeros_like(h)
    mirrored = {"negatives": -pools["positives"], "positives": -pools["negatives"]}
    ones = {"estimates": torch.ones(5, dtype=torch.float64)}
    a = float(o.paired(h, y, weight, pools | ones, none)[0])
    b = float(o.paired(-h, 1 - y, weight, mirrored | ones, none)[0])
    assert abs(a - b) > 1e-3 * abs(a)


# ------------------------------------------------------------------------------------ what has no meaning


def apply(z, x):
    return x @ z["w"]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: LocalSCGDAM(apply, CrossEntropy()), r"cross-entropy of cross-entropy.*minimax-auc"),
        (lambda: LocalSCGDAM(apply, PairwiseAUC()), r"PairwiseAUC compares.*active-passive"),
        (lambda: LocalSGDAM(apply, PairwiseAUC()), r"PairwiseAUC compares.*local-sgdam.*active-passive"),
        (lambda: LocalSGDAM(apply, PartialAUC()), r"PartialAUC compares"),
        (lambda: LocalSGDAM(apply, Contrastive()), r"Contrastive compares"),
        (lambda: ActivePassive(apply, MinimaxAUC()), r"MinimaxAUC is a sum over examples.*local-sgda"),
        (lambda: RatioWeights(LocalSGDA(apply, MinimaxAUC())), r"compares the classes"),
        (lambda: RatioWeights(ActivePassive(apply, PairwiseAUC())), r"compares the classes"),
        (lambda: LocalSGDAM(apply, MinimaxAUC(), beta_x=0.0), r"beta_x=0\.0"),
        (lambda: LocalSGDAM(apply, MinimaxAUC(), beta_y=1.1), r"beta_y=1\.1"),
        (lambda: LocalSGDAM(apply, MinimaxAUC(), gamma_x=0.0), r"gamma_x=0\.0"),
        (lambda: LocalSGDAM(apply, MinimaxAUC(), gamma_y=-1.0), r"gamma_y=-1\.0"),
        (lambda: LocalSCGDAM(apply, MinimaxAUC(), rho=-0.1), r"rho=-0\.1"),
        (lambda: LocalSCGDAM(apply, MinimaxAUC(), h_rate=0.0), r"h_rate=0\.0"),
        (lambda: PartialAUC(temperature=0.0), r"temperature=0\.0"),
        (lambda: PartialAUC(rate=0.0), r"rate=0\.0"),
        (lambda: Agnostic(LocalSGDA(apply, CrossEntropy()), low=0.5, high=0.5), r"low < high"),
        (lambda: Agnostic(LocalSGDA(apply, CrossEntropy()), eta_lambda=-1.0), r"must not be negative"),
    ],
)
def test_what_has_no_meaning_is_refused(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


def test_a_box_without_weights_is_refused_when_the_clients_are_known(data):
    method = Agnostic(LocalSGDA(MODEL.torch, CrossEntropy()), high=0.1)  # 7 · 0.1 < 1
    fed = Federation(method, data, Full(), Stagewise(cycles=1), batch=BATCH)
    with pytest.raises(InputError, match=r"7 clients in \[0\.0, 0\.1\]"):
        begin(fed, {n: torch.tensor(v) for n, v in START.items()})
