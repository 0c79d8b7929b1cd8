"""The saddle of minimax AUC is the pairwise square loss; its forms are one objective."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedauc.core.method import Batch
from fedauc.methods import LocalSGDA
from fedauc.objectives import MinimaxAUC, field

number = st.floats(-3, 3)
scores = st.lists(number, min_size=1, max_size=8)
margins = st.sampled_from([1.0, 0.5, 2.0])
links = st.sampled_from(["sigmoid", "identity"])
DOUBLE = torch.float64


def counts(p):
    """One client whose share of positives is p."""
    return np.array([[1 - p, p]])


def batch(positives, negatives, scale):
    """Logits, labels and weights: class means 1/n⁺ and 1/n⁻, or 1/n for the printed form."""
    logit = torch.tensor([*positives, *negatives], dtype=DOUBLE)
    y = torch.tensor([1.0] * len(positives) + [0.0] * len(negatives), dtype=DOUBLE)
    if scale == "printed":
        return logit, y, torch.full_like(y, 1 / len(y))
    return logit, y, y / len(positives) + (1 - y) / len(negatives)


def variables(a, b, alpha):
    names = ("auc.a", "auc.b", "auc.alpha")
    return {name: torch.tensor(value, dtype=DOUBLE) for name, value in zip(names, (a, b, alpha), strict=True)}


def linked(link, logits):
    s = np.array(logits, dtype=float)
    return 1 / (1 + np.exp(-s)) if link == "sigmoid" else s


@given(scores, scores, number, number, number, links)
def test_printed_scale_is_equation_3(positives, negatives, a, b, alpha, link):
    """The mean over all examples of F, term by term as printed."""
    n = len(positives) + len(negatives)
    p = len(positives) / n
    expected = 0.0
    for h in linked(link, positives):
        expected += (1 - p) * (h - a) ** 2 + 2 * (1 + alpha) * (-(1 - p) * h) - p * (1 - p) * alpha**2
    for h in linked(link, negatives):
        expected += p * (h - b) ** 2 + 2 * (1 + alpha) * p * h - p * (1 - p) * alpha**2
    objective = MinimaxAUC(scale="printed", link=link).fitted(counts(p))
    loss = objective.loss(variables(a, b, alpha), *batch(positives, negatives, "printed"))
    assert loss.item() == pytest.approx(expected / n, rel=1e-9, abs=1e-9)


@given(scores, scores, number, number, number, links, margins, st.sampled_from(["plain", "margin"]))
def test_class_scale_is_the_printed_one_divided_by_its_p(
    positives, negatives, a, b, alpha, link, margin, form
):
    """[+] has expectation p: (1-p)·E[f·[+]] = p(1-p)·E⁺f, and likewise for the negatives."""
    p = len(positives) / (len(positives) + len(negatives))
    z = variables(a, b, alpha)
    printed = MinimaxAUC(scale="printed", link=link, margin=margin, form=form).fitted(counts(p))
    classes = MinimaxAUC(scale="classes", link=link, margin=margin, form=form)
    torch.testing.assert_close(
        printed.loss(z, *batch(positives, negatives, "printed")),
        p * (1 - p) * classes.loss(z, *batch(positives, negatives, "classes")),
        rtol=1e-10,
        atol=1e-10,
    )


@given(scores, scores, margins, links, st.sampled_from(["classes", "printed"]))
def test_saddle_is_the_pairwise_square_loss(positives, negatives, margin, link, scale):
    """With Δ = E⁺h - E⁻h and V the sum of the class variances,

        E⁺E⁻(m - h⁺ + h⁻)² = m² - 2mΔ + Δ² + V          (h⁺ and h⁻ are independent)
        E⁺(h-a)² + E⁻(h-b)² - 2(m+α)Δ - α²              at a = E⁺h, b = E⁻h: V - 2mΔ - 2αΔ - α²
                                                        at α = -Δ = b - a:   V - 2mΔ + Δ²

    so the saddle value is the pairwise loss minus m², times p(1-p) in the printed scale.
    """
    h_pos, h_neg = linked(link, positives), linked(link, negatives)
    pairs = 0.0
    for u in h_pos:
        for v in h_neg:
            pairs += (margin - u + v) ** 2 / (len(h_pos) * len(h_neg))
    p = len(positives) / (len(positives) + len(negatives))
    factor = p * (1 - p) if scale == "printed" else 1.0

    objective = MinimaxAUC(margin=margin, scale=scale, link=link).fitted(counts(p))
    rows = batch(positives, negatives, scale)
    a, b = h_pos.mean(), h_neg.mean()
    value = objective.loss(variables(a, b, b - a), *rows)
    assert value.item() == pytest.approx(factor * (pairs - margin**2), rel=1e-9, abs=1e-9)

    # It is a saddle: no slope in (a, b, α), higher to both sides in a and b, lower in α.
    leaves = {name: v.requires_grad_() for name, v in variables(a, b, b - a).items()}
    slopes = torch.autograd.grad(objective.loss(leaves, *rows), list(leaves.values()))
    assert all(abs(slope.item()) < 1e-9 for slope in slopes)
    for shift in (-0.5, 0.5):
        assert objective.loss(variables(a + shift, b, b - a), *rows) > value
        assert objective.loss(variables(a, b + shift, b - a), *rows) > value
        assert objective.loss(variables(a, b, b - a + shift), *rows) < value


@given(
    scores, scores, number, number, st.floats(0, 4), margins, links, st.sampled_from(["classes", "printed"])
)
def test_margin_form_is_the_plain_form_up_to_a_constant(
    positives, negatives, a, b, dual, margin, link, scale
):
    """With α' = m + α ≥ 0:  2α'(m + gap) - α'² = m² + 2(m+α)gap - α²,  so the constant is m² (times p(1-p)).

    For m = 1 this is the equivalence of LibAUC's AUCM with eq. (3).
    """
    p = len(positives) / (len(positives) + len(negatives))
    constant = margin**2 * (p * (1 - p) if scale == "printed" else 1.0)
    common = {"margin": margin, "scale": scale, "link": link}
    plain, aucm = (MinimaxAUC(form=form, **common).fitted(counts(p)) for form in ("plain", "margin"))
    logit, y, weight = batch(positives, negatives, scale)
    x = torch.eye(len(y), dtype=DOUBLE)

    def at(objective, alpha):
        z = {"s": logit} | variables(a, b, alpha)
        return field(lambda z, x: x @ z["s"], objective, z, Batch(x, y, weight, y.long()))[:2]

    (gradient, value), (gradient_m, value_m) = at(plain, dual - margin), at(aucm, dual)
    assert value_m.item() == pytest.approx(value.item() + constant, rel=1e-9, abs=1e-9)
    for name in gradient:
        torch.testing.assert_close(gradient[name], gradient_m[name], rtol=1e-9, atol=1e-9)


@given(scores, scores, number, number, number, margins, links)
def test_field_descends_the_primal_and_ascends_the_dual(positives, negatives, a, b, alpha, margin, link):
    """F = (∂v, -∂α), by hand:

    ∂h: 2(h-a) - 2(m+α) over the positives, 2(h-b) + 2(m+α) over the negatives
    ∂a: -2(E⁺h - a)     ∂b: -2(E⁻h - b)     ∂α: 2(E⁻h - E⁺h) - 2α
    """
    logit, y, weight = batch(positives, negatives, "classes")
    objective = MinimaxAUC(margin=margin, link=link)
    z = {"s": logit} | variables(a, b, alpha)
    got, *_ = field(
        lambda z, x: x @ z["s"], objective, z, Batch(torch.eye(len(y), dtype=DOUBLE), y, weight, y.long())
    )

    h_pos, h_neg = linked(link, positives), linked(link, negatives)
    slope = (lambda h: h * (1 - h)) if link == "sigmoid" else np.ones_like
    by_score = [
        (2 * (h - a) - 2 * (margin + alpha)) * s / len(h_pos)
        for h, s in zip(h_pos, slope(h_pos), strict=True)
    ]
    by_score += [
        (2 * (h - b) + 2 * (margin + alpha)) * s / len(h_neg)
        for h, s in zip(h_neg, slope(h_neg), strict=True)
    ]
    np.testing.assert_allclose(got["s"].numpy(), by_score, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got["auc.a"].item(), -2 * (h_pos.mean() - a), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got["auc.b"].item(), -2 * (h_neg.mean() - b), rtol=1e-9, atol=1e-9)
    ascent = 2 * (h_neg.mean() - h_pos.mean()) - 2 * alpha
    np.testing.assert_allclose(got["auc.alpha"].item(), -ascent, rtol=1e-9, atol=1e-9)


@given(scores, scores, number, number, number, margins, links, st.sampled_from(["plain", "margin"]))
def test_field_is_autograd(positives, negatives, a, b, alpha, margin, link, form):
    if form == "margin":
        alpha = abs(alpha) + 0.1
    logit, y, weight = batch(positives, negatives, "classes")
    objective = MinimaxAUC(margin=margin, link=link, form=form)
    z = {"s": logit} | variables(a, b, alpha)
    got, value, *_ = field(
        lambda z, x: x @ z["s"], objective, z, Batch(torch.eye(len(y), dtype=DOUBLE), y, weight, y.long())
    )
    leaves = {name: v.clone().requires_grad_() for name, v in z.items()}
    loss = objective.loss(leaves, leaves["s"], y, weight)
    gradient = torch.autograd.grad(loss, list(leaves.values()))
    assert value.item() == loss.item()
    for name, g in zip(leaves, gradient, strict=True):
        torch.testing.assert_close(got[name], -g if name == "auc.alpha" else g, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("margin", [1.0, 0.5])
def test_both_forms_start_at_the_same_place(margin):
    """α = 0 and α' = m are the same point, in the type of the model."""
    plain = MinimaxAUC(margin=margin).variables(torch.zeros(1, dtype=DOUBLE))
    aucm = MinimaxAUC(margin=margin, form="margin").variables(torch.zeros(1, dtype=DOUBLE))
    assert {name: v.item() for name, v in plain.items()} == {"auc.a": 0, "auc.b": 0, "auc.alpha": 0}
    assert aucm["auc.alpha"].item() == margin
    assert all(v.dtype == DOUBLE for v in (*plain.values(), *aucm.values()))


@pytest.mark.parametrize(("link", "middle"), [("sigmoid", 0.5), ("identity", 0.0)])
def test_from_the_middle_nothing_pushes_all_scores_the_same_way(link, middle):
    """At a logit of 0 and a = b = h(0) the bias has no slope; from a = b = 0 a sigmoid's has."""
    logit, y, weight = batch([0.0], [0.0, 0.0, 0.0], "classes")

    def pushed(start):
        objective = MinimaxAUC(link=link, start=start)
        z, bias = objective.variables(logit), torch.zeros((), dtype=DOUBLE, requires_grad=True)
        objective.loss(z, logit + bias, y, weight).backward()
        return z["auc.a"].item(), z["auc.b"].item(), bias.grad.item()

    assert pushed("middle") == pytest.approx((middle, middle, 0.0), abs=1e-15)
    assert (pushed("zero")[2] > 0) == (link == "sigmoid")


def test_the_rate_that_the_user_gave_is_kept():
    assert MinimaxAUC(positive_rate=0.2).fitted(counts(0.4)).positive_rate == 0.2
    assert MinimaxAUC().fitted(counts(0.4)).positive_rate == 0.4


@pytest.mark.parametrize(("scale", "draw"), [("classes", "stratified"), ("printed", "natural")])
def test_class_means_need_stratified_batches(scale, draw):
    assert MinimaxAUC(scale=scale).draw == draw
    assert MinimaxAUC(scale=scale).duals == {"auc.alpha"}


def test_a_dual_below_its_border_comes_back():
    """AUCM ascends in α' ≥ 0. At h = 0 the slope at the border is 2(m + E⁻h - E⁺h) = 2m > 0: a step that
    overshot the border (other clients' data, an average) must not be the end of the dual."""
    method = LocalSGDA(lambda z, x: x @ z["s"], MinimaxAUC(form="margin", link="identity"))
    logit, y, weight = batch([0.0, 0.0], [0.0, 0.0], "classes")
    local = method.client_init(method.server_init({"s": logit}, 1), {}, {})
    local = local._replace(z=local.z | {"auc.alpha": torch.tensor(-0.05, dtype=DOUBLE)})
    for _ in range(3):
        local, _ = method.client_step(
            local, Batch(torch.eye(4, dtype=DOUBLE), y, weight, y.long()), torch.tensor(0.1, dtype=DOUBLE)
        )
    assert local.z["auc.alpha"] > 0
