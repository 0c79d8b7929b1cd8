"""Steps that are compiled for images with their channels last."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.utils._pytree import tree_flatten

from fedauc import models
from fedauc.core.method import Batch
from fedauc.methods import LocalSGDA
from fedauc.objectives import CrossEntropy
from fedauc.transports.step import Step, compiled


def last(value):
    return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value.clone()


@pytest.mark.slow
def test_a_compiled_step_is_the_step():
    """Of a model that flattens its images, which needs them in the other layout."""
    apply, params = models.init(models.CNN((4, 8)), (3, 8, 8), 0)
    method = LocalSGDA(apply, CrossEntropy())
    state, structure = tree_flatten(method.client_init(method.server_init(params, torch.ones(1, 2)), {}, {}))
    x = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0.0, 1.0] * 3)
    rest = [*Batch(last(x), y, torch.full((6,), 1 / 6), torch.arange(6)), torch.tensor(0.1)]
    step = Step(method.client_step, structure)
    found, expected = [last(value) for value in state], [value.clone() for value in state]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fn = compiled(step.in_place, [last(value) for value in state], *rest, keep_layout=True)
    with torch.no_grad():
        fn(*found, *rest)
    step.in_place(*expected, *rest)
    assert any(not torch.equal(a, b) for a, b in zip(expected, state, strict=True))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
