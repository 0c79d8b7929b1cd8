"""Convolutions of clients beside each other: torch's numbers, and one memory layout between the layers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.nets import rows, seen, small, torchs
from torch import nn
from torch.func import functional_call, grad, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from fedauc.core import tree
from fedauc.models.beside import apart, beside
from fedauc.models.convolution import Conv2d

CLIENTS = 3
WIDTH = 6
"""Channels."""
LAYERS = {
    "convolution": lambda: Conv2d(WIDTH, WIDTH, 3, 1, 1),
    "without a bias": lambda: Conv2d(WIDTH, WIDTH, 3, 1, 1, bias=False),
    "with a stride": lambda: Conv2d(WIDTH, WIDTH, 3, 2, 1),
    "one pixel": lambda: Conv2d(WIDTH, WIDTH, 1, 2, 0, bias=False),
}


def double(make):
    """Two of them in a row, in float64, and the same of torch's own layers."""
    torch.manual_seed(0)
    ours = nn.Sequential(make(), nn.Tanh(), make()).double()
    return ours, nn.Sequential(*(torchs(layer) or layer for layer in ours)).double()


def product(module):
    """All first derivatives of a loss, and all second ones along a direction."""

    def found(z, x, along_z, along_x):
        def loss(z, x):
            out = functional_call(module, z, (x,))
            return (out**3 * torch.arange(out.numel()).view(out.shape)).mean()

        first, back = vjp(lambda z, x: grad(loss, argnums=(0, 1))(z, x), z, x)
        return first, back((along_z, along_x))

    return found


def drawn(module, count):
    """Parameters, images and directions of several clients."""
    draw = torch.Generator().manual_seed(1)

    def noise(shape):
        return torch.randn(count, *shape, generator=draw, dtype=torch.float64)

    z, v = ({name: noise(value.shape) for name, value in module.named_parameters()} for _ in range(2))
    return z, noise((2, WIDTH, 5, 6)), v, noise((2, WIDTH, 5, 6))


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_derivatives_are_torchs(make):
    ours, theirs = double(make)
    z, x, v, u = (tree.unstack(each, 0) if isinstance(each, dict) else each[0] for each in drawn(ours, 1))
    for mine, its in zip(*(tree_leaves(product(m)(z, x, v, u)) for m in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("alike", ["nothing", "parameters", "images", "directions"])
def test_clients_beside_each_other_are_clients_alone(make, alike):
    ours, _ = double(make)
    given = list(drawn(ours, CLIENTS))
    same = {"nothing": (), "parameters": (0,), "images": (1,), "directions": (2, 3)}[alike]
    for i in same:
        given[i] = tree.unstack(given[i], 0) if isinstance(given[i], dict) else given[i][0]
    dims = tuple(None if i in same else 0 for i in range(4))
    together = tree_leaves(vmap(product(ours), in_dims=dims)(*given))
    for client in range(CLIENTS):
        own = [
            each if i in same else tree.unstack(each, client) if isinstance(each, dict) else each[client]
            for i, each in enumerate(given)
        ]
        for all_of_them, alone in zip(together, tree_leaves(product(ours)(*own)), strict=True):
            torch.testing.assert_close(all_of_them[client], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_derivatives_are_those_of_differences(make):
    torch.manual_seed(2)
    module = make().double()
    names = [name for name, _ in module.named_parameters()]
    leaves = [p.detach().clone().requires_grad_() for p in module.parameters()]
    x = torch.randn(2, WIDTH, 3, 2, dtype=torch.float64, requires_grad=True)

    def out(x, *values):
        return functional_call(module, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(out, (x, *leaves))
    assert torch.autograd.gradgradcheck(out, (x, *leaves))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.data())
def test_apart_is_the_inverse_of_beside(shape, data):
    clients, at = data.draw(st.integers(1, 3)), data.draw(st.integers(0, len(shape) - 1))
    where = data.draw(st.integers(0, len(shape)))
    value = torch.arange(clients * math.prod(shape)).view(*shape[:where], clients, *shape[where:])
    wide = beside(value, where, at, clients)
    assert wide.shape[at] == clients * shape[at]
    assert torch.equal(apart(wide, at, clients), value.movedim(where, at))
    alike = value.select(where, 0)
    each = alike.expand(clients, *shape)
    assert torch.equal(beside(alike, None, at, clients), beside(each, 0, at, clients))


def both(name, norm):
    """A model, its clients' iterates and rows, and the same in float32."""
    model, z = small(name, norm)
    every = [(seen(z, seed), rows(6, seed)) for seed in range(CLIENTS)]
    exact = tree.stack([z for z, _ in every]), torch.stack([x for _, x in every])
    return model, exact, ({n: v.float() for n, v in exact[0].items()}, exact[1].float())


def gradient(model):
    return lambda z, x: grad(lambda z: torch.tanh(model.observe(z, x)[0]).sum())(z)


def curvature(model):
    """The gradient's derivative along the iterate itself."""
    return lambda z, x: vjp(lambda z: gradient(model)(z, x), z)[1](z)[0]


def off(model, rounded, exact):
    flat = [torch.cat([g[n].double().flatten() for n in model.parameters]) for g in (rounded, exact)]
    return (flat[0] - flat[1]).norm() / flat[1].norm()


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize(
    ("name", "derivative", "low", "tolerance"),
    [
        ("resnet20", gradient, None, 1e-4),
        ("resnet18", gradient, None, 1e-4),
        ("densenet121", gradient, None, 1e-3),
        ("resnet20", gradient, torch.bfloat16, 0.4),
        ("resnet20", curvature, None, 1e-3),
        ("resnet18", curvature, None, 1e-3),
    ],
)
def test_what_a_cpu_computes_fast_is_the_same_but_for_rounding(name, norm, derivative, low, tolerance):
    """In the layout for CPUs, against float64, which knows no layouts."""
    model, exact, single = both(name, norm)
    expected = vmap(derivative(model))(*exact)
    model.low = low
    assert off(model, vmap(derivative(model))(*single), expected) < tolerance


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="the layout is oneDNN's")
@pytest.mark.parametrize("derivative", [gradient, curvature])
def test_images_are_turned_once(derivative):
    """Where they come in; not between the layers of a residual network, forwards or backwards."""
    model, _, single = both("resnet20", "batch")
    graph = make_fx(vmap(derivative(model)))(*single)
    copied = [
        node.meta["val"].numel()
        for node in graph.graph.nodes
        if node.target is torch.ops.aten.clone.default and node.meta["val"].dim() >= 4
    ]
    assert sum("convolution" in str(node.target) for node in graph.graph.nodes) > 30
    assert set(copied) == {single[1].numel()}  # (no inner image has as many numbers)
