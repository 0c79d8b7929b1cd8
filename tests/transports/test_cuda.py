"""Every method on a GPU is the method on the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.contract.federations import configured, rows, tensors

from fedauc import models
from fedauc.core.loop import Federation, advance, begin
from fedauc.experiments.presets import PRESETS
from fedauc.transports import LocalTransport

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def after(name: str, device: str, transport: LocalTransport):
    """The state after a cycle and a round."""
    config, data = configured(name), rows()
    data = replace(data, x=data.x.to(device), y=data.y.to(device))
    model, params = models.init(config.component("model"), tuple(data.x.shape[1:]), 1, device)
    fed: Federation = replace(config.federation(data, model), transport=transport)
    state = begin(fed, {n: value.double() for n, value in params.items()})
    for _ in range(fed.roster.cycle_length + 1):
        state, _ = advance(fed, state)
    return state


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("transport", [LocalTransport("loop"), LocalTransport(record_after=2)])
def test_a_gpu_computes_what_the_cpu_does(name, transport):
    expected, found = tensors(after(name, "cpu", LocalTransport())), tensors(after(name, "cuda", transport))
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        torch.testing.assert_close(
            found[key].cpu(), value, rtol=1e-9, atol=1e-11, msg=lambda m, k=key: f"{k}: {m}"
        )
