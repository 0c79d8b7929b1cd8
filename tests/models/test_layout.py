"""Convolutions and normalisations of clients beside each other: torch's numbers, and one memory layout."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.nets import SMALL, rows, seen, small, torchs
from torch import nn
from torch.func import functional_call, grad, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from fedauc.core import tree
from fedauc.models.beside import apart, beside
from fedauc.models.convolution import Conv2d
from fedauc.models.group_norm import GroupNorm

CLIENTS = 3
WIDTH = 6
"""Channels."""
LAYERS = {
    "convolution": lambda: Conv2d(WIDTH, WIDTH, 3, 1, 1),
    "without a bias": lambda: Conv2d(WIDTH, WIDTH, 3, 1, 1, bias=False),
    "with a stride": lambda: Conv2d(WIDTH, WIDTH, 3, 2, 1),
    "one pixel": lambda: Conv2d(WIDTH, WIDTH, 1, 2, 0, bias=False),
    "normalisation": lambda: GroupNorm(3, WIDTH),
}


def double(make):
    """Two of them in a row, in float64, and the same of torch's own layers."""
    torch.manual_seed(0)
    ours = nn.Sequential(make(), nn.Tanh(), make()).double()
    return ours, nn.Sequential(*(torchs(layer) or layer for layer in ours)).double()


def product(module, power=3):
    """All first derivatives of a loss, and all second ones along a direction."""

    def found(z, x, along_z, along_x):
        def loss(z, x):
            out = functional_call(module, z, (x,))
            return (out**power * torch.arange(out.numel()).view(out.shape)).mean()

        first, back = vjp(lambda z, x: grad(loss, argnums=(0, 1))(z, x), z, x)
        return first, back((along_z, along_x))

    return found


def drawn(module, count, *, square=5):
    """Parameters, images and directions of several clients."""
    draw = torch.Generator().manual_seed(1)

    def noise(shape):
        return torch.randn(count, *shape, generator=draw, dtype=torch.float64)

    z, v = ({name: noise(value.shape) for name, value in module.named_parameters()} for _ in range(2))
    return z, noise((2, WIDTH, square, square + 1)), v, noise((2, WIDTH, square, square + 1))


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
    value = torch.randn(shape).unsqueeze(where).repeat_interleave(clients, where)
    wide = beside(value, where, at, clients)
    assert wide.shape[at] == clients * shape[at]
    assert torch.equal(apart(wide, at, clients), value.movedim(where, at))
    alike = beside(torch.ones(shape), None, at, clients)
    assert torch.equal(alike, torch.ones(wide.shape))


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize(
    ("name", "low", "tolerance"),
    [
        ("resnet20", None, 1e-4),
        ("resnet18", None, 1e-4),
        ("densenet121", None, 1e-4),
        ("resnet20", torch.bfloat16, 0.3),
    ],
)
def test_what_a_cpu_computes_fast_is_the_same_but_for_rounding(name, norm, low, tolerance):
    """A gradient in the layout for CPUs, against float64, which knows no layouts."""
    model, z = small(name, norm)
    clients = [(seen(z, seed), rows(6, seed)) for seed in range(CLIENTS)]
    stacked, xs = tree.stack([z for z, _ in clients]), torch.stack([x for _, x in clients])

    def gradient(z, x):
        return grad(lambda z: torch.tanh(model.observe(z, x)[0]).sum())(z)

    exact = vmap(gradient)(stacked, xs)
    model.low = low
    rounded = vmap(gradient)({n: v.float() for n, v in stacked.items()}, xs.float())
    flat = [torch.cat([g[n].double().flatten() for n in model.parameters]) for g in (exact, rounded)]
    assert (flat[0] - flat[1]).norm() < tolerance * flat[0].norm()


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="the layout is oneDNN's")
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_images_are_turned_once(norm):
    """Between the layers of a residual network, forwards and backwards and in the second derivative."""
    model, z = small("resnet20", norm)
    stacked = tree.stack([{n: v.float() for n, v in seen(z, seed).items()} for seed in range(CLIENTS)])
    xs = torch.randn(CLIENTS, 5, 3, 8, 8)
    along = {n: torch.randn_like(v) for n, v in stacked.items()}

    def second(z, x, v):
        def loss(z):
            return torch.tanh(model.observe(z, x)[0]).sum()

        return vjp(grad(loss), z)[1](v)[0]

    graph = make_fx(vmap(second))(stacked, xs, along)
    width = SMALL["resnet20"]["width"] * CLIENTS
    copies = [
        node
        for node in graph.graph.nodes
        if node.target is torch.ops.aten.clone.default and node.meta["val"].numel() >= 5 * width * 8 * 8
    ]
    convolutions = [node for node in graph.graph.nodes if "convolution" in str(node.target)]
    assert len(convolutions) > 60
    assert len(copies) < len(convolutions) / 10
