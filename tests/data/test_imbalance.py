import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedauc.data.imbalance import flip_positives, remove_positives
from fedauc.errors import InputError

labels = st.lists(st.integers(0, 1), min_size=1, max_size=200).map(lambda v: np.array(v, dtype=np.int8))


@settings(max_examples=100, deadline=None)
@given(labels, st.floats(0, 0.999), st.integers(0, 2**32))
def test_counts_are_exact_and_only_positives_change(y: np.ndarray, share: float, seed: int) -> None:
    positives = int(y.sum())
    count = round(share * positives)
    if count and count >= positives:
        for function in (remove_positives, flip_positives):
            with pytest.raises(InputError, match="leaves none"):
                function(y, share, np.random.default_rng(seed))
        return
    before = y.copy()
    kept = remove_positives(y, share, np.random.default_rng(seed))
    flipped = flip_positives(y, share, np.random.default_rng(seed))
    assert (np.diff(kept) > 0).all()
    assert len(kept) == len(y) - count
    assert y[kept].sum() == positives - count
    assert set(np.flatnonzero(y == 0)) <= set(kept)
    assert flipped.dtype == y.dtype
    assert flipped.sum() == positives - count
    assert (flipped <= y).all()
    assert (y == before).all()
    again = remove_positives(y, share, np.random.default_rng(seed))
    assert (again == kept).all()


def test_the_reference_setting() -> None:
    y = np.repeat([1, 0], [6000, 54000]).astype(np.int8)
    kept = remove_positives(y, 0.95, np.random.default_rng(0))
    assert (len(kept), y[kept].sum()) == (54300, 300)


def test_no_positives_and_nothing_to_do() -> None:
    assert len(remove_positives(np.zeros(4, np.int8), 0.5, np.random.default_rng(0))) == 4


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0, float("nan")])
def test_impossible_share(share: float) -> None:
    with pytest.raises(InputError, match="at least 0 and less than 1"):
        remove_positives(np.ones(9, np.int8), share, np.random.default_rng(0))
