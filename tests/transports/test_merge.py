"""Fewer operations, the same bits."""

from __future__ import annotations

import copy
import operator

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from fedauc.transports.merge import LEAST, aten, once, together

SHAPES = [(3, 2), (3, 2), (4,), (4,), (4,), ()]


def places():
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in SHAPES]


def count(graph, *targets):
    return sum(node.target in targets for node in graph.graph.nodes)


def operations(graph):
    return sum(n.op == "call_function" and n.target is not operator.getitem for n in graph.graph.nodes)


def outcome(graph):
    """What it returns, and what it leaves in its arguments."""
    given = places()
    return [*graph(*given), *given]


def assert_same(program):
    """Each of the two, and both."""
    plain = make_fx(program)(*places())
    expected = outcome(plain)
    for changed in (
        once(copy.deepcopy(plain)),
        together(copy.deepcopy(plain)),
        together(once(copy.deepcopy(plain))),
    ):
        assert all(torch.equal(a, b) for a, b in zip(outcome(changed), expected, strict=True))
    return plain, changed


def updates(scale):
    """Parameters, momenta and a step size, as a rule has them; the loss needs the new parameters."""

    def step(*tensors):
        *state, x, eta = tensors
        half = len(state) // 2
        old, momenta = state[:half], state[half:]
        new = [w - eta * scale * m for w, m in zip(old, momenta, strict=True)]
        for w in new:  # layer after layer
            x = torch.tanh(w * x)
        gradients = []
        for w in reversed(new):
            x = torch.sin(w * x)
            gradients.insert(0, x)
        fresh = [m + (1 - eta) * (g - m) for m, g in zip(momenta, gradients, strict=True)]
        for place, value in zip(state, new + fresh, strict=True):
            place.copy_(value)
        return [x.sum()]

    return step


def test_updates_of_all_parameters_are_lists():
    layers = 6
    given = [torch.full((4,), 0.1 * i) for i in range(1, 2 * layers + 2)] + [torch.tensor(0.1)]
    plain = make_fx(updates(1.5))(*given)
    few = together(once(copy.deepcopy(plain)))
    assert count(plain, aten.sub.Tensor) == 2 * layers
    assert count(few, aten.sub.Tensor, aten.copy_.default, aten.rsub.Scalar) == 1  # 1 - η
    assert count(few, aten._foreach_sub.List) == 2
    assert count(few, aten._foreach_copy_.default) == 1
    assert operations(few) < operations(plain) / 2
    runs = []
    for graph in (plain, few):
        tensors = [value.clone() for value in given]
        runs.append([*graph(*tensors), *tensors])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_nothing_is_computed_twice():
    def program(a, b, *_):
        return [torch.sin(a) * 2 + torch.sin(a) * 2, b.sum() * a.sum(), b.sum() * 2, b.sum() * 2.0]

    plain, changed = assert_same(program)
    assert count(plain, aten.sin.default) == 2
    assert count(changed, aten.sin.default) == 1
    assert count(changed, aten.sum.default) == 2


def test_what_has_been_written_over_is_computed_anew():
    def program(a, b, *_):
        first, other = torch.sin(a), torch.cos(a)
        view = a[0]
        view.copy_(b[1])
        second = torch.sin(a)
        first.add_(1)  # in memory of its own, however alike
        return [first, second, torch.sin(a), other, torch.cos(a)]

    _, changed = assert_same(program)
    assert count(changed, aten.sin.default) == 2
    assert count(changed, aten.cos.default) == 2


def test_a_view_whose_schema_does_not_say_so_is_one():
    def program(a, b, *_):
        view = aten._unsafe_view(a, [6])
        first = torch.sin(view)
        a.copy_(b)
        return [first, torch.sin(view)]

    _, changed = assert_same(program)
    assert count(changed, aten.sin.default) == 2


def test_a_draw_is_not_the_one_before():
    def program(a, *_):
        return [torch.rand_like(a), torch.rand_like(a)]

    graph = once(make_fx(program)(*places()))
    one, two = graph(*places())
    assert not torch.equal(one, two)


def test_a_list_is_of_operations_that_do_not_need_one_another():
    def program(*tensors):
        x = tensors[2]
        for other in (*tensors[2:5], *tensors[2:5]):
            x = x + other
        return [x]

    _, changed = assert_same(program)
    assert count(changed, aten.add.Tensor) == 6


STEP = st.tuples(
    st.sampled_from(
        ["add", "sub", "alpha", "mul", "scalar", "number", "copy_", "add_", "mul_", "view", "sin"]
    ),
    st.integers(0, 40),
    st.integers(0, 40),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, min_size=LEAST, max_size=40))
def test_programs_that_write_and_look_through_views_give_the_same_bits(steps):
    def program(*tensors):
        known = list(tensors)
        for what, i, j in steps:
            a = known[i % len(known)]
            alike = [each for each in known if each.shape == a.shape]
            b = alike[j % len(alike)]
            if what in ("copy_", "add_", "mul_"):
                getattr(a, what)(b.clone() if what == "copy_" and b is not a else b)
                continue
            known.append(
                {
                    "add": lambda a=a, b=b: a + b,
                    "sub": lambda a=a, b=b: a - b,
                    "alpha": lambda a=a, b=b: torch.add(a, b, alpha=0.5),
                    "mul": lambda a=a, b=b: a * b,
                    "scalar": lambda a=a: tensors[-1] * a,
                    "number": lambda a=a: a * 0.3,
                    "view": lambda a=a: a[1:] if a.dim() else a.view(()),
                    "sin": lambda a=a: torch.sin(a),
                }[what]()
            )
        return known[len(tensors) :]

    assert_same(program)
