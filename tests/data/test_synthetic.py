import subprocess
import sys

import numpy as np
import pytest

from fedauc.data.rows import Bundle
from fedauc.data.synthetic import BLOCK, FEATURES, STATES, YEARS, Block, medicare_like, stream
from fedauc.errors import InputError


def joined(*args: int, **options: float) -> Block:
    return Block(*(np.concatenate(a) for a in zip(*stream(*args, **options), strict=True)))


@pytest.fixture(scope="module")
def large() -> Bundle:
    return medicare_like(900_000)


def test_chunks_and_length_do_not_change_rows() -> None:
    whole = joined(2 * BLOCK + 500, 3)
    for rows, chunk in ((2 * BLOCK + 500, 50_000), (2 * BLOCK + 500, 10**6), (1_000, 7), (BLOCK + 1, BLOCK)):
        for a, b in zip(joined(rows, 3, chunk=chunk), whole, strict=True):
            assert len(a) == rows
            assert (a == b[:rows]).all()
    assert [len(b.y) for b in stream(1_000, chunk=300)] == [300, 300, 300, 100]
    assert (joined(100, 4).x != whole.x[:100]).any()


def test_split_by_year() -> None:
    rows = BLOCK + 3_000
    block, bundle = joined(rows, 1), medicare_like(rows, 1)
    assert set(block.year) == set(YEARS)
    assert bundle.valid is not None
    assert bundle.test is not None
    for part, mask in (
        (bundle.train, block.year < 2021),
        (bundle.valid, block.year == 2021),
        (bundle.test, block.year == 2022),
    ):
        assert (part.x == block.x[mask]).all()
        assert (part.y == block.y[mask]).all()
        assert part.client is not None
        assert (part.client == block.state[mask]).all()
        assert (part.classes == part.y).all()
        assert (part.x.dtype, part.y.dtype, part.client.dtype) == (np.float32, np.int8, np.int64)


def test_shape_of_the_federation(large: Bundle) -> None:
    train = large.train
    assert large.client_names == STATES
    assert large.feature_names == FEATURES
    assert train.x.shape == (600_000, 36)
    assert np.isfinite(train.x).all()
    assert 0.0005 < train.y.mean() < 0.0009
    assert train.client is not None
    rows = np.bincount(train.client, minlength=50)
    positives = np.bincount(train.client[train.y == 1], minlength=50)
    assert len(STATES) == 50
    assert rows.max() > 40 * rows.min() > 0
    assert positives.max() > 30
    assert (positives <= 2).sum() >= 5
    means = np.stack([train.x[train.client == s].mean(axis=0) for s in range(50)])
    spreads = np.stack([train.x[train.client == s].std(axis=0) for s in range(50)])
    assert 0.2 < means.std(axis=0).mean() < 0.4
    assert 0.1 < (spreads / spreads.mean(axis=0)).std() < 0.3
    assert np.abs(train.x).max() > 15  # long tails


def test_pooled_linear_classifier(large: Bundle) -> None:
    from sklearn.metrics import roc_auc_score

    x, y = large.train.x, large.train.y
    difference = x[y == 1].mean(axis=0) - x[y == 0].mean(axis=0)
    weights = np.linalg.solve(np.cov(x[::5].T), difference)  # Fisher's discriminant
    assert large.valid is not None
    assert large.test is not None
    aucs = [roc_auc_score(part.y, part.x @ weights) for part in (large.valid, large.test)]
    assert 0.73 < np.mean(aucs) < 0.82


def test_states_alike_without_shift() -> None:
    block = joined(3 * BLOCK, shift=0.0)
    means = np.stack([block.x[block.state == s].mean(axis=0) for s in range(50)])
    assert means.std(axis=0).mean() < 0.1


@pytest.mark.slow
def test_memory() -> None:
    """A million rows take 161 MB; the peak may be at most a quarter of the 2 GiB allowed for four million."""
    code = (
        "import resource, fedauc.data.synthetic as s\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "bundle = s.medicare_like(1_000_000)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 400


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rows": 3}, "at least 6 rows"),
        ({"rows": "many"}, "whole numbers"),
        ({"seed": -1}, "must not be negative"),
        ({"positive_rate": 0.0}, "positive_rate"),
        ({"shift": -1.0}, "shift"),
        ({"rows": 60, "positive_rate": 1e-6}, "no positive among its 40 training rows"),
    ],
)
def test_bad_options(options: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        medicare_like(**options)


def test_bad_chunk() -> None:
    with pytest.raises(InputError, match="chunk"):
        stream(100, chunk=0)
