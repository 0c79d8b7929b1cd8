"""Batch normalisation: torch's numbers, as a pure function."""

from __future__ import annotations

import pytest
import torch
from tests.models.nets import SHAPE, in_torch, rows, same, seen, small
from torch import nn
from torch.func import functional_call, grad, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from fedauc.core import tree
from fedauc.errors import InputError
from fedauc.models import BatchNorm2d, Model
from fedauc.models.batch_norm import normalised

CLIENTS = 3


def loss_of(model, z, x):
    """A loss in training, and the statistics that were observed."""
    logits, stats = model.observe(z, x)
    return torch.nn.functional.softplus(-logits * torch.arange(len(x))).mean(), stats


def step(model):
    """A gradient step that keeps the observed statistics."""

    def taken(z, x):
        gradient, stats = grad(lambda z: loss_of(model, z, x), has_aux=True)(z)
        return tree.add(z, gradient, -0.1) | stats

    return taken


def clients(z, shape=SHAPE):
    """Each client's iterate and rows, stacked."""
    every = [(seen(z, seed), rows(4, seed, shape)) for seed in range(CLIENTS)]
    return tree.stack([z for z, _ in every]), torch.stack([x for _, x in every])


def assert_close(a, b):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-9, atol=1e-11)


def test_a_layer_is_torchs_layer():
    ours, theirs = (cls(5, momentum=0.3).double() for cls in (BatchNorm2d, nn.BatchNorm2d))
    with torch.no_grad():
        for layer in (ours, theirs):
            layer.weight.copy_(torch.linspace(0.5, 2, 5))
            layer.bias.copy_(torch.linspace(-1, 1, 5))
    for training in (True, True, False):
        for seed in range(3):
            draw = torch.Generator().manual_seed(seed)
            x, back = torch.randn(2, 4, 5, 3, 2, generator=draw, dtype=torch.float64)
            x = 3 * x + torch.arange(5.0)[:, None, None]
            found = []
            for layer in (ours.train(training), theirs.train(training)):
                layer.zero_grad()
                leaf = x.clone().requires_grad_()
                out = layer(leaf)
                out.backward(back)
                grads = [leaf.grad, layer.weight.grad, layer.bias.grad]
                found.append([out, layer.running_mean, layer.running_var, *grads])
            for mine, its in zip(*found, strict=True):
                torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("name", ["resnet20", "densenet121"])
def test_a_network_is_torchs_network(name, norm):
    model, z = small(name, norm)
    z = seen(z, 1)
    theirs = in_torch(model, z)
    x = rows(6)
    theirs.eval()
    torch.testing.assert_close(model(z, x), theirs(x).reshape(-1))
    theirs.train()
    loss = torch.nn.functional.softplus(-theirs(x).reshape(-1) * torch.arange(6)).mean()
    loss.backward()
    gradient, stats = grad(lambda z: loss_of(model, z, x), has_aux=True)(z)
    assert_close(
        {n: gradient[n] for n in model.parameters}, {n: p.grad for n, p in theirs.named_parameters()}
    )
    assert_close(stats, {f"stats.{n}": b for n, b in theirs.named_buffers() if "batches" not in n})
    assert not any(gradient[name].any() for name in stats)


def test_statistics_take_no_gradient_in_evaluation():
    model, z = small("resnet20", "batch")
    gradient = grad(lambda z: model(z, rows(2)).sum())(z)
    assert not any(gradient[name].any() for name in model.statistics)
    assert all(gradient[name].any() for name in model.head)


def test_neither_the_iterate_nor_the_model_is_changed():
    model, z = small("shallow", "batch")
    z = seen(z, 0)
    before = {name: value.clone() for name, value in z.items()}
    modules = (model.module, model.observer)
    held = [[id(t) for t in (*m.parameters(), *m.buffers())] for m in modules]
    first = model.observe(z, rows(4))
    stacked, xs = clients(z)
    vmap(step(model))(stacked, xs)
    make_fx(vmap(step(model)))(stacked, xs)
    model(z, rows(4))
    again = model.observe(z, rows(4))
    assert same(z, before)
    assert torch.equal(first[0], again[0])
    assert same(first[1], again[1])
    assert not any(torch.equal(first[1][name], z[name]) for name in model.statistics)
    assert held == [[id(t) for t in (*m.parameters(), *m.buffers())] for m in modules]


def test_an_error_on_the_way_leaves_nothing_behind():
    model, z = small("resnet20", "batch")
    x = rows(4)
    expected, (logits, stats) = model(z, x), model.observe(z, x)
    broken = z | {model.head[0]: torch.zeros(1, 3, dtype=torch.float64)}  # every statistic has been observed
    for call in (model, model.observe, vmap(model.observe, in_dims=(None, 0))):
        with pytest.raises(RuntimeError):
            call(broken, x[None] if call not in (model, model.observe) else x)
    assert not any(layer.training for layer in model.module.modules())
    assert all(layer.training for layer in model.observer.modules())
    assert torch.equal(model(z, x), expected)
    assert torch.equal(model.observe(z, x)[0], logits)
    assert same(model.observe(z, x)[1], stats)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("resnet20", SHAPE), ("resnet18", SHAPE), ("densenet121", SHAPE), ("shallow", (1, 64, 64))],
)
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_vectorised_clients_are_clients_one_after_another(name, shape, norm):
    model, z = small(name, norm, shape)
    stacked, xs = clients(z, shape)
    one = [tree.unstack(stacked, i) for i in range(CLIENTS)]
    assert_close(
        vmap(step(model))(stacked, xs),
        tree.stack([step(model)(z, x) for z, x in zip(one, xs, strict=True)]),
    )
    logits = torch.stack([model(z, x) for z, x in zip(one, xs, strict=True)])
    torch.testing.assert_close(vmap(model)(stacked, xs), logits, rtol=1e-9, atol=1e-11)
    shared = torch.stack([model(z, xs[0]) for z in one])
    torch.testing.assert_close(vmap(model, in_dims=(0, None))(stacked, xs[0]), shared, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["resnet20", "shallow"])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_a_recorded_step_gives_the_same_bits(name, norm):
    model, z = small(name, norm)
    stacked, xs = clients(z)
    stacked, xs = {n: value.float() for n, value in stacked.items()}, xs.float()
    plain = vmap(step(model))
    recorded = make_fx(plain)(stacked, xs)
    assert same(recorded(stacked, xs), plain(stacked, xs))
    other = {n: value * 1.1 for n, value in stacked.items()}
    assert same(recorded(other, xs.flip(0)), plain(other, xs.flip(0)))


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_second_derivatives(norm):
    """A Hessian times a vector, vectorised, against differences of gradients."""
    model, z = small("resnet20", norm)
    stacked, xs = clients(z)
    direction = {n: torch.randn_like(v) * (n in model.parameters) for n, v in stacked.items()}

    def gradient(z, x):
        return grad(lambda z: torch.tanh(model.observe(z, x)[0]).square().sum())(z)

    product = vmap(lambda z, x, v: vjp(lambda z: gradient(z, x), z)[1](v)[0])(stacked, xs, direction)
    h = 1e-6
    ahead, behind = (vmap(gradient)(tree.add(stacked, direction, s * h), xs) for s in (1, -1))
    difference = {n: (ahead[n] - behind[n]) / (2 * h) for n in ahead}
    size = max(float(value.abs().max()) for value in product.values())
    for name in model.parameters:
        torch.testing.assert_close(product[name], difference[name], rtol=0, atol=1e-4 * size)


def double(seed):
    draw = torch.Generator().manual_seed(seed)
    x = 2 * torch.randn(4, 3, 5, 2, generator=draw, dtype=torch.float64) + torch.arange(3.0)[:, None, None]
    return x, torch.tensor([0.5, 0.0, -2.0]).double(), torch.randn(3, generator=draw, dtype=torch.float64)


def layers_gradient(function):
    """All first derivatives of a loss of a normalised x, which is no symmetric function of its rows."""

    def loss(x, weight, bias):
        out = function(x, weight, bias)
        return (torch.sin(out) * torch.arange(out.numel()).view(out.shape)).sum()

    return grad(loss, argnums=(0, 1, 2))


def torchs(x, weight, bias):
    return torch.nn.functional.batch_norm(x, None, None, weight, bias, True, 0.0, 1e-3)


def ours(x, weight, bias):
    return normalised(x, weight, bias, 1e-3)[0]


def test_the_second_derivative_is_torchs():
    """And that of a channel whose γ is 0; also where only some of the tensors differ between clients."""
    point, along = double(0), double(1)
    theirs, expected = vjp(layers_gradient(torchs), *point)
    mine, found = vjp(layers_gradient(ours), *point)
    for a, b in zip((*mine, *found(along)), (*theirs, *expected(along)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    many = [torch.stack([each, 2 * each, each + 1]) for each in (*point, *along)]

    def product(*six):
        return vjp(layers_gradient(ours), *six[:3])[1](six[3:])

    for alike in ((), (0,), (1, 2), (3, 4, 5)):
        given = [each[0] if i in alike else each for i, each in enumerate(many)]
        together = vmap(product, in_dims=tuple(None if i in alike else 0 for i in range(6)))(*given)
        for client in range(3):
            alone = product(*(each if i in alike else each[client] for i, each in enumerate(given)))
            for a, b in zip(together, alone, strict=True):
                torch.testing.assert_close(a[client], b, rtol=1e-10, atol=1e-10)


def test_derivatives_are_those_of_differences():
    leaves = [value.requires_grad_() for value in double(2)]
    assert torch.autograd.gradcheck(ours, leaves)
    assert torch.autograd.gradgradcheck(ours, leaves)


def test_a_second_derivative_is_few_operations():
    """Some eighty passes over the images are what it costs otherwise."""
    point, along = double(0), double(1)
    graphs = [make_fx(lambda *v, f=f: vjp(layers_gradient(f), *v)[1](along))(*point) for f in (ours, torchs)]
    whole = [
        sum(
            n.meta.get("val", torch.zeros(())).shape == point[0].shape
            for n in g.graph.nodes
            if n.op == "call_function" and isinstance(n.meta.get("val"), torch.Tensor)
        )
        for g in graphs
    ]
    assert 2 * whole[0] < whole[1]


def test_running_statistics_have_all_digits_in_bfloat16():
    layer = BatchNorm2d(4, momentum=1.0)
    x = 3 + torch.randn(50, 4, 5, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    layer.train()(x)
    var, mean = torch.var_mean(x.double(), (0, 2, 3))
    torch.testing.assert_close(layer.running_mean.double(), mean, rtol=1e-5, atol=0)
    torch.testing.assert_close(layer.running_var.double(), var, rtol=1e-5, atol=0)


def test_batch_statistics_of_one_value_are_refused():
    layer = BatchNorm2d(3)
    with pytest.raises(InputError, match="at least two rows"):
        layer(torch.zeros(1, 3, 1, 1))
    assert torch.equal(layer.eval()(torch.zeros(1, 3, 1, 1)), torch.zeros(1, 3, 1, 1))


def test_layers_that_change_their_statistics_in_place_are_refused():
    with pytest.raises(InputError, match=r"'1' \(BatchNorm1d\) changes its running statistics"):
        Model(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    Model(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)))


def test_a_layer_that_is_used_twice_observes_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = BatchNorm2d(3)

        def forward(self, x):
            return self.norm(1 + 2 * self.norm(x)).mean((1, 2, 3))

    model = Model(Twice().double())
    z = {n: t.clone() for n, t in model.module.named_parameters()}
    z |= {f"stats.{n}": t.clone() for n, t in model.module.named_buffers()}
    theirs = nn.BatchNorm2d(3).double()
    x = rows(4)
    expected = theirs(1 + 2 * theirs(x)).mean((1, 2, 3))
    logits, stats = model.observe(z, x)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(stats["stats.norm.running_mean"], theirs.running_mean)
    torch.testing.assert_close(stats["stats.norm.running_var"], theirs.running_var)
    assert functional_call(model.module, {}, (x,)).shape == (4,)
