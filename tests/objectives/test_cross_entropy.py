"""Cross-entropy against its definition, example by example."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedauc.core.method import Batch
from fedauc.objectives import CrossEntropy, field

examples = st.lists(
    st.tuples(st.floats(-8, 8), st.sampled_from([0.0, 1.0]), st.floats(0, 3)), min_size=1, max_size=12
)


def columns(rows):
    return (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))


@given(examples)
def test_loss_is_the_weighted_negative_log_likelihood(rows):
    expected = 0.0
    for s, y, weight in rows:
        p = 1 / (1 + math.exp(-s))
        expected += -weight * (y * math.log(p) + (1 - y) * math.log(1 - p))
    loss = CrossEntropy().loss({}, *columns(rows))
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(examples)
def test_gradient_is_residual_times_weight(rows):
    """∂/∂s [-y log σ(s) - (1-y) log(1-σ(s))] = σ(s) - y."""
    s, y, weight = columns(rows)
    expected = weight * (torch.sigmoid(s) - y)
    # x = identity: the model's parameters are the logits themselves
    gradient, *_ = field(
        lambda z, x: x @ z["s"],
        CrossEntropy(),
        {"s": s},
        Batch(torch.eye(len(s)).double(), y, weight, y.long()),
    )
    torch.testing.assert_close(gradient["s"], expected, rtol=1e-12, atol=1e-14)
    leaf = s.clone().requires_grad_()
    CrossEntropy().loss({}, leaf, y, weight).backward()
    torch.testing.assert_close(leaf.grad, expected, rtol=1e-12, atol=1e-14)


def test_far_logits_stay_finite():
    s = torch.tensor([1e4, -1e4], dtype=torch.float64, requires_grad=True)
    loss = CrossEntropy().loss({}, s, torch.tensor([0.0, 1.0]).double(), torch.ones(2).double())
    loss.backward()
    assert loss.item() == pytest.approx(2e4)  # -log σ(-s) → s
    torch.testing.assert_close(s.grad, torch.tensor([1.0, -1.0]).double())


def test_it_has_no_variables_of_its_own_and_needs_no_rate():
    assert CrossEntropy().variables(torch.zeros(1)) == {}
    assert CrossEntropy().duals == frozenset()
    assert CrossEntropy("stratified").fitted(np.array([[9, 1]])) == CrossEntropy("stratified")
