"""AUC per client."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedauc.metrics import UndefinedAUC, auc, per_client

row = st.tuples(st.one_of(st.integers(-2, 2).map(float), st.floats(-5, 5)), st.booleans(), st.integers(0, 4))


@settings(deadline=None)
@given(st.lists(row, max_size=60), st.permutations(["ann", "bob", "cyd", "dee", "eve"]))
def test_each_client_is_its_own_auc(rows: list[tuple[float, bool, int]], names: list[str]) -> None:
    scores, labels, codes = (np.array([r[k] for r in rows]) for k in range(3))
    codes, labels = codes.astype(int), labels.astype(bool)
    table = per_client(scores, labels, codes, names)
    assert [line["client"] for line in table] == names
    assert table == per_client(scores, labels, [names[c] for c in codes], names)
    for k, line in enumerate(table):
        mine = codes == k
        assert (line["rows"], line["positives"]) == (mine.sum(), labels[mine].sum())
        try:
            assert line["auc"] == auc(scores[mine], labels[mine])
            assert line["why"] is None
        except UndefinedAUC:
            assert line["auc"] is None
            assert line["why"]


def test_why_there_is_no_auc() -> None:
    table = per_client([0.1, 0.9, 0.5, 0.6], [0, 1, 0, 1], [0, 0, 1, 2], ["both", "healthy", "sick", "none"])
    assert [line["why"] for line in table] == [
        None,
        "no positives in the test rows",
        "no negatives in the test rows",
        "no test rows",
    ]
    assert table[0] == {"client": "both", "rows": 2, "positives": 1, "auc": 1.0, "why": None}
    assert all(type(line["rows"]) is int and type(line["positives"]) is int for line in table)


def test_tensors() -> None:
    args = (torch.tensor([0.1, 0.9]), torch.tensor([0, 1]), torch.tensor([1, 1]), ["a", "b"])
    assert [line["auc"] for line in per_client(*args)] == [None, 1.0]
    assert per_client([], [], [], []) == []


def test_bad_input_is_named() -> None:
    for clients, message in (
        (["a", "zed"], "Client zed is not among the 2"),
        ([0, 2], "Client 2 is not among"),
        ([0, -1], "Client -1 is not among"),
        ([0], "2 scores but 1 clients"),
    ):
        with pytest.raises(ValueError, match=message):
            per_client([0.1, 0.2], [0, 1], clients, ["a", "b"])
    with pytest.raises(ValueError, match="'a' is given twice"):
        per_client([0.1], [0], [0], ["a", "a"])


def test_many_clients_take_one_sort() -> None:
    rng = np.random.default_rng(0)
    count, names = 200_000, [f"site-{k}" for k in range(10_000)]
    scores, labels, codes = rng.random(count), rng.random(count) < 0.1, rng.integers(0, 10_000, count)
    start = time.process_time()
    table = per_client(scores, labels, codes, names)
    assert time.process_time() - start < 2  # a scan of all rows per client would take 10^9 steps or more
    mine = codes == 1234
    assert table[1234]["auc"] == auc(scores[mine], labels[mine])
