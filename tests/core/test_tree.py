"""Trees: arithmetic, and there and back."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from fedauc.core import tree


class Inner(NamedTuple):
    h: torch.Tensor
    parts: dict


class Outer(NamedTuple):
    z: dict
    inner: dict
    empty: dict


def example():
    inner = Inner(torch.arange(3), {"x/y": torch.ones(2, dtype=torch.float64)})
    return Outer(
        {"0.weight": torch.zeros(2, 3), "b": torch.tensor(1.5)}, {"first": inner, "second": inner}, {}
    )


def test_flatten_names_every_tensor_by_its_path():
    flat = tree.flatten(example(), "server")
    assert list(flat) == [
        "server/z/0.weight",
        "server/z/b",
        "server/inner/first/h",
        "server/inner/first/parts/x/y",
        "server/inner/second/h",
        "server/inner/second/parts/x/y",
    ]


@pytest.mark.parametrize("prefix", ["", "server"])
def test_unflatten_is_the_inverse_of_flatten(prefix):
    state = example()
    back = tree.unflatten(state, tree.flatten(state, prefix), prefix)
    assert type(back) is Outer
    assert type(back.inner["first"]) is Inner
    assert back.empty == {}
    for name, value in tree.flatten(back).items():
        assert torch.equal(value, tree.flatten(state)[name])
        assert value.dtype == tree.flatten(state)[name].dtype


def test_unflatten_misses_what_is_missing():
    flat = tree.flatten(example())
    del flat["z/b"]
    with pytest.raises(KeyError, match="z/b"):
        tree.unflatten(example(), flat)


def test_states_hold_nothing_but_tensors():
    with pytest.raises(TypeError, match="list"):
        tree.flatten({"a": [torch.ones(1)]})


def test_stack_and_unstack_are_inverse():
    states = [tree.map_state(lambda t, i=i: t + i, example()) for i in range(3)]
    stacked = tree.stack(states)
    assert stacked.z["0.weight"].shape == (3, 2, 3)
    for i, state in enumerate(states):
        for name, value in tree.flatten(tree.unstack(stacked, i)).items():
            assert torch.equal(value, tree.flatten(state)[name])


def test_arithmetic():
    a = {"u": torch.tensor([1.0, 2.0]), "v": torch.tensor(3.0)}
    b = {"u": torch.tensor([10.0, 20.0]), "v": torch.tensor(30.0)}
    assert tree.add(a, b, -0.5)["u"].tolist() == [-4.0, -8.0]
    assert tree.add(a, {"v": b["v"]})["u"] is a["u"]  # names that b does not have
    assert tree.add(a, {"v": b["v"]})["v"].item() == 33.0
    assert tree.sub(b, a)["v"].item() == 27.0
    assert tree.lerp(a, b, 0.25)["u"].tolist() == [0.75 * 1 + 0.25 * 10, 0.75 * 2 + 0.25 * 20]
    assert a["u"].tolist() == [1.0, 2.0]  # and a is as it was


def test_nbytes_counts_every_tensor_in_its_type():
    # 6 × 4 + 1 × 4 in z, twice (3 × 8 + 2 × 8) inside
    assert tree.nbytes(example()) == 28 + 2 * 40
