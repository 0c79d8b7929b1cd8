"""The store of what clients keep is a dictionary that is never changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedauc.core.store import BLOCK, WIDEST, Store
from fedauc.core.tree import Tree, nbytes

CLIENTS = st.one_of(st.integers(0, 5), st.integers(0, 5 * WIDEST), st.just(10**12))
FORMS: list[dict[str, Any]] = [
    {"c/w": ((2, 3), torch.float32), "c/b": ((), torch.float64)},
    {"c/w": ((2, 3), torch.float32)},
    {"c/w": ((4,), torch.float32), "rounds": ((), torch.int64)},
    {},
]


def state(form: int, value: int) -> Tree:
    return {name: torch.full(shape, value, dtype=dtype) for name, (shape, dtype) in FORMS[form].items()}


UPDATES = st.lists(
    st.dictionaries(CLIENTS, st.tuples(st.sampled_from([0, 0, 0, 1, 2, 3]), st.integers(0, 99)), max_size=12),
    max_size=8,
)


def assert_same(store: Store, plain: dict[int, Tree]) -> None:
    assert list(store) == sorted(plain)
    assert len(store) == len(plain)
    for client, tree in plain.items():
        found = store[client]
        assert list(found) == list(tree)
        assert all(found[n].dtype == t.dtype and torch.equal(found[n], t) for n, t in tree.items())


@settings(max_examples=150)
@given(UPDATES)
def test_it_is_a_dictionary_and_older_ones_stay_as_they_were(updates):
    store, plain = Store(), {}
    history = [(store, plain)]
    for update in updates:
        new = {client: state(*what) for client, what in update.items()}
        store, plain = store.updated(new.items()), plain | new
        history.append((store, plain))
    for kept, expected in history:
        assert_same(kept, expected)
        assert 7777 not in kept
        assert kept.get(7777) is None


@settings(max_examples=60)
@given(UPDATES)
def test_stacked_holds_everything_once(updates):
    store, plain = Store(), {}
    for update in updates:
        new = {client: state(*what) for client, what in update.items()}
        store, plain = store.updated(new.items()), plain | new
    blocks = store.stacked()
    assert len({block.form for block in blocks}) == len(blocks)
    assert sum(len(block.clients) for block in blocks) == len(plain)
    assert_same(Store.of(blocks), plain)


@settings(max_examples=60)
@given(UPDATES)
def test_a_function_of_a_tree_is_applied_to_every_client(updates):
    def fn(c: Tree) -> Tree:
        return {f"new/{name}": value * 2 + value.sum() for name, value in c.items()}

    store = Store()
    for update in updates:
        store = store.updated((client, state(*what)) for client, what in update.items())
    mapped = store.mapped(fn)
    assert_same(mapped, {client: fn(c) for client, c in store.items()})
    assert_same(store.mapped(lambda c: {}), {client: {} for client in store})
    assert_same(store.mapped(lambda c: c), dict(store))


def test_a_round_copies_the_blocks_it_touches_and_no_others():
    store = Store().updated((i, state(0, i)) for i in range(4 * WIDEST))
    after = store.updated([(WIDEST + 3, state(0, -1))])
    same = [number for number, blocks in store.blocks.items() if after.blocks[number] is blocks]
    assert len(store.blocks) - len(same) == 1
    assert store[WIDEST + 3]["c/b"].item() == WIDEST + 3
    assert after[WIDEST + 3]["c/b"].item() == -1


@pytest.mark.parametrize("size", [1, 100, 10_000, 1_000_000])
def test_blocks_are_narrower_where_states_are_larger(size):
    one = {"c": torch.zeros(size)}
    store = Store().updated((i, one) for i in range(3))
    assert store.width == max(1, min(WIDEST, BLOCK // nbytes(one)))
    if store.width == 1:  # kept as it is
        assert store[2]["c"].data_ptr() == one["c"].data_ptr()


def test_a_small_tree_keeps_no_larger_tensor_alive():
    """Views of a cohort's stacked trees would keep the whole cohort's for as long as one of them is there."""
    cohort = torch.zeros(500, 20_000)
    store = Store().updated((10_000 * i, {"c": cohort[i]}) for i in range(500))
    kept = [v for blocks in store.blocks.values() for b in blocks for v in b.values.values()]
    assert all(value.untyped_storage().nbytes() == value.nbytes for value in kept)
