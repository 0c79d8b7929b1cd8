"""Pairwise surrogates against Table 10 and eq. (9), pair by pair."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedauc.errors import InputError
from fedauc.objectives import PairwiseAUC
from fedauc.objectives.pairwise_auc import SURROGATES

M, LAM, TAU, Q = 0.8, 0.5, 1.7, 1.4
LEFT, RIGHT = -TAU * M / (TAU - 1), M  # kinks: m - τ(m+t) = m - t, and m - t = 0 = τ(t-m)
DOUBLE = torch.float64


def sigma(t):
    return 1 / (1 + math.exp(-t))


# ψ(t) and ψ'(t) as Table 10 prints them, with s = 1/λ (the q-norm hinge with the plus it lacks there).
TABLE_10 = {
    "square": (lambda t: (M - t) ** 2, lambda t: -2 * (M - t)),
    "squared-hinge": (lambda t: max(M - t, 0) ** 2, lambda t: -2 * max(M - t, 0)),
    "logistic": (lambda t: math.log(1 + math.exp(-t / LAM)), lambda t: -sigma(-t / LAM) / LAM),
    "sigmoid": (
        lambda t: 1 / (1 + math.exp(t / LAM)),
        lambda t: -math.exp(t / LAM) / LAM / (1 + math.exp(t / LAM)) ** 2,
    ),
    "barrier-hinge": (
        lambda t: max(M - TAU * (M + t), TAU * (t - M), M - t),
        lambda t: -TAU if t < LEFT else (-1.0 if t < RIGHT else TAU),
    ),
    "q-norm-hinge": (lambda t: max(M - t, 0) ** Q, lambda t: -Q * max(M - t, 0) ** (Q - 1)),
}

number = st.floats(-3, 3)
scores = st.lists(number, min_size=1, max_size=6)


def smooth(t):
    """Whether every surrogate has a slope at t."""
    return min(abs(t - LEFT), abs(t - RIGHT)) > 1e-9


def objective(surrogate, link="identity"):
    return PairwiseAUC(surrogate, margin=M, lam=LAM, tau=TAU, q=Q, link=link)


every_surrogate = pytest.mark.parametrize("surrogate", TABLE_10)


def test_the_table_is_complete():
    assert set(TABLE_10) == set(SURROGATES)


@every_surrogate
@given(t=number)
def test_surrogates_and_their_slopes_are_table_10(surrogate, t):
    assume(smooth(t))
    psi, slope = TABLE_10[surrogate]
    leaf = torch.tensor(t, dtype=DOUBLE, requires_grad=True)
    value = objective(surrogate).psi(leaf)
    value.backward()
    assert value.item() == pytest.approx(psi(t), rel=1e-9, abs=1e-12)
    assert leaf.grad.item() == pytest.approx(slope(t), rel=1e-9, abs=1e-9)


@every_surrogate
@given(
    positives=scores,
    negatives=scores,
    passive=st.lists(st.tuples(number, number), min_size=1, max_size=5),
    data=st.data(),
)
def test_loss_and_gradient_pair_by_pair(surrogate, positives, negatives, passive, data):
    """Σⱼ weightⱼ mean ψ: positives meet passive negatives (∇₁ψ), negatives passive positives (∇₂ψ = -ψ')."""
    psi, slope = TABLE_10[surrogate]
    passive_pos, passive_neg = zip(*passive, strict=True)
    weights = st.floats(0.1, 3)
    w_pos = data.draw(st.lists(weights, min_size=len(positives), max_size=len(positives)))
    w_neg = data.draw(st.lists(weights, min_size=len(negatives), max_size=len(negatives)))
    expected, gradient = 0.0, []
    for h, weight in zip(positives, w_pos, strict=True):
        gradient.append(0.0)
        for other in passive_neg:
            assume(smooth(h - other))
            expected += weight * psi(h - other) / len(passive_neg)
            gradient[-1] += weight * slope(h - other) / len(passive_neg)
    for h, weight in zip(negatives, w_neg, strict=True):
        gradient.append(0.0)
        for other in passive_pos:
            assume(smooth(other - h))
            expected += weight * psi(other - h) / len(passive_pos)
            gradient[-1] += weight * -slope(other - h) / len(passive_pos)

    h = torch.tensor([*positives, *negatives], dtype=DOUBLE, requires_grad=True)
    y = torch.tensor([1.0] * len(positives) + [0.0] * len(negatives), dtype=DOUBLE)
    weight = torch.tensor([*w_pos, *w_neg], dtype=DOUBLE)
    loss = objective(surrogate).loss(
        h, y, weight, *(torch.tensor(p, dtype=DOUBLE) for p in (passive_pos, passive_neg))
    )
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    torch.testing.assert_close(h.grad, torch.tensor(gradient, dtype=DOUBLE), rtol=1e-9, atol=1e-9)


@every_surrogate
@pytest.mark.parametrize("link", ["identity", "sigmoid"])
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_active_parts_against_own_passive_parts_are_the_gradient_of_equation_9(surrogate, link, seed):
    """∇F = Δ₁ + Δ₂: with passive scores from the same w, the two active halves are the whole gradient.

    F(w) = 1/(n⁺n⁻) Σᵢ Σⱼ ψ(h(w; xᵢ⁺) - h(w; xⱼ⁻)), summed in a double loop and differentiated by autograd.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(7, 2, generator=generator, dtype=DOUBLE)
    y = torch.tensor([1, 1, 1, 0, 0, 0, 0], dtype=DOUBLE)
    w = torch.randn(2, generator=generator, dtype=DOUBLE, requires_grad=True)
    o = objective(surrogate, link)
    psi = SURROGATES[surrogate]

    h = (x @ w).sigmoid() if link == "sigmoid" else x @ w
    total = torch.zeros((), dtype=DOUBLE)
    for u in h[y == 1]:
        for v in h[y == 0]:
            total = total + psi(o, u - v) / (3 * 4)
    (expected,) = torch.autograd.grad(total, w)

    fresh = o.score(x @ w)
    passive = fresh.detach()
    # The loss wants equally many of each: repeating all of them as often changes no mean.
    positives, negatives = passive[y == 1].repeat(4), passive[y == 0].repeat(3)
    loss = o.loss(fresh, y, y / 3 + (1 - y) / 4, positives, negatives)
    (gradient,) = torch.autograd.grad(loss, w)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)
    assert loss.item() == pytest.approx(2 * total.item(), rel=1e-10)  # each pair is seen from both ends


@every_surrogate
def test_a_better_order_is_cheaper(surrogate):
    """At t = 0 every surrogate falls: it pushes positives up and negatives down."""
    h = torch.zeros(2, dtype=DOUBLE, requires_grad=True)
    y, zero = torch.tensor([1.0, 0.0], dtype=DOUBLE), torch.zeros(1, dtype=DOUBLE)
    objective(surrogate).loss(h, y, torch.ones(2, dtype=DOUBLE), zero, zero).backward()
    assert h.grad[0] < 0 < h.grad[1]


@every_surrogate
def test_far_scores_stay_finite(surrogate):
    """No surrogate overflows: e^(t/λ) is never formed."""
    t = torch.tensor([-1e4, -50.0, 50.0, 1e4], dtype=DOUBLE, requires_grad=True)
    value = objective(surrogate).psi(t)
    value.sum().backward()
    assert value.isfinite().all()
    assert t.grad.isfinite().all()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"surrogate": "hinge"}, "surrogate='hinge'"),
        ({"lam": 0.0}, "lam=0.0"),
        ({"surrogate": "q-norm-hinge", "q": 1.0}, "q=1.0"),
        ({"surrogate": "barrier-hinge", "tau": 1.0}, "tau=1.0"),
    ],
)
def test_impossible_settings_are_refused_by_name(wrong, named):
    with pytest.raises(InputError, match=named):
        PairwiseAUC(**wrong)
