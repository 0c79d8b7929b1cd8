"""Updates inside the products that make the gradients: the same step, in place."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fedauc.transports.fuse import aten, fused, parted, together


def products(graph):
    return sum(node.target in (aten.baddbmm_.default, aten.addmm_.default) for node in graph.graph.nodes)


def rand(*shape, seed=0):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed + len(shape)), dtype=torch.float64
    )


def network(w, v, b, x, d, eta):
    """The gradients of a layer in both orders of the product, and of a bias."""
    one = torch.bmm(x.mT, d).mT
    two = torch.bmm(d.mT, x)
    new = [torch.addcmul(w, one, -eta), torch.addcmul(v, two, -eta), torch.addcmul(b, d.sum(1), -eta)]
    for place, value in zip((w, v, b), new, strict=True):
        place.copy_(value)
    return [d.sum()]


def arguments():
    return [
        rand(3, 4, 5),
        rand(3, 4, 5, seed=9),
        rand(3, 4),
        rand(3, 7, 5),
        rand(3, 7, 4),
        torch.tensor(0.1).double(),
    ]


def clones(values):
    return [value.clone() for value in values]


def test_products_take_the_update_in_either_order():
    graph = fused(make_fx(network)(*arguments()))
    assert products(graph) == 2
    assert not any(node.target is aten.copy_.default for node in graph.graph.nodes)
    found, expected = arguments(), arguments()
    assert torch.equal(graph(*found)[0], network(*expected)[0])
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_parting_and_joining_change_nothing():
    graph = fused(make_fx(network)(*arguments()))
    found, expected = arguments(), arguments()
    rest, updates = parted(graph)
    assert products(rest) == 0
    assert len(updates) == 2
    outs = together(rest, updates)(*found)
    assert torch.equal(outs[0], network(*expected)[0])
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_small_matrices_are_left_alone():
    graph = fused(make_fx(network)(*arguments()), least=10**6)
    assert products(graph) == 0
    assert parted(graph)[1] == []


def test_plain_matrices():
    def layer(w, x, d, eta):
        w.copy_(torch.addcmul(w, d.T @ x, -eta))
        return []

    given = [rand(4, 5), rand(7, 5), rand(7, 4), torch.tensor(0.1).double()]
    graph = fused(make_fx(layer)(*clones(given)))
    assert products(graph) == 1
    found, expected = clones(given), clones(given)
    graph(*found)
    layer(*expected)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-12, atol=1e-12)


def swapped(a, b, x, eta):
    """Two matrices whose gradients are made of each other: neither may see the other's new value."""
    new_a, new_b = torch.addcmul(a, x @ b, -eta), torch.addcmul(b, x @ a, -eta)
    a.copy_(new_a)
    b.copy_(new_b)
    return []


def used(w, x, d, eta):
    """A gradient that is also returned."""
    gradient = d.T @ x
    w.copy_(torch.addcmul(w, gradient, -eta))
    return [gradient]


def along(z, c, x, eta):
    """A step along another part of the state, which changes first."""
    new_c, new_z = c + x, torch.addcmul(z, c, -eta)
    c.copy_(new_c)
    z.copy_(new_z)
    return []


ETA = torch.tensor(0.1).double()


@pytest.mark.parametrize(
    ("step", "given"),
    [
        (swapped, [rand(4, 4), rand(4, 4, seed=5), rand(4, 4, seed=6), ETA]),
        (used, [rand(4, 5), rand(7, 5), rand(7, 4), ETA]),
        (along, [rand(4, 5), rand(4, 5, seed=3), rand(4, 5, seed=4), ETA]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_still_needed_is_not_written_over(step, given):
    graph = fused(make_fx(step)(*clones(given)))
    found, expected = clones(given), clones(given)
    outs, wanted = graph(*found), step(*expected)
    for a, b in zip((*found, *outs), (*expected, *wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
