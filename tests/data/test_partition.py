import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedauc.data import partition as p
from fedauc.data.rows import Rows
from fedauc.errors import InputError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def rows_of(classes: np.ndarray, client: np.ndarray | None = None) -> Rows:
    return Rows(np.zeros((len(classes), 1), np.float32), (classes == 0).astype(np.int8), classes, client)


classes_of = st.integers(1, 8).flatmap(
    lambda k: st.lists(st.integers(0, k - 1), min_size=20, max_size=150).map(lambda v: np.array(v, np.int64))
)


@settings(max_examples=150, deadline=None)
@given(
    classes_of,
    st.integers(1, 20),
    st.sampled_from(sorted(set(p.PARTITIONS) - {"natural"})),
    st.integers(0, 99),
)
def test_every_row_once_and_seeded(classes: np.ndarray, clients: int, name: str, seed: int) -> None:
    rows = rows_of(classes)
    try:
        codes = p.partition(name, rows, clients, rng(seed))
    except InputError:
        kinds, counts = np.unique(classes, return_counts=True)
        assert (
            (name == "disjoint-classes" and len(kinds) < clients)
            or (name == "one-class-per-client" and (len(kinds) > clients or counts.min() < clients))
            or (name == "label-sorted" and 2 * clients > len(rows))
        )
        return
    assert codes.dtype == np.int64
    assert codes.shape == classes.shape
    assert codes.min() >= 0
    assert codes.max() < clients
    assert (codes == p.partition(name, rows, clients, rng(seed))).all()
    report = p.report(rows.y, codes, clients)
    assert len(report) == clients
    assert sum(r["rows"] for r in report) == len(rows)
    assert sum(r["positives"] for r in report) == rows.y.sum()
    held = [set(classes[codes == c]) for c in range(clients)]
    if name == "iid":
        assert np.ptp(np.bincount(codes, minlength=clients)) <= 1
    if name == "disjoint-classes":
        assert sum(map(len, held)) == len(set.union(*held))
        assert max(map(len, held)) - min(map(len, held)) <= 1
    if name == "one-class-per-client":
        assert all(len(h) == 1 for h in held)
    if name == "label-sorted":
        assert all(r["rows"] > 0 for r in report)


@settings(max_examples=100, deadline=None)
@given(classes_of, st.integers(1, 20), st.floats(1e-3, 1e3), st.integers(0, 99))
def test_dirichlet_counts(classes: np.ndarray, clients: int, alpha: float, seed: int) -> None:
    codes = p.dirichlet(classes, clients, alpha, rng(seed))
    for c in np.unique(classes):
        assert np.bincount(codes[classes == c], minlength=clients).sum() == (classes == c).sum()


def test_dirichlet_concentration() -> None:
    classes = np.repeat(np.arange(10), 5000)
    spread = [
        np.mean([np.bincount(p.dirichlet(classes, 10, a, rng(s)), minlength=10).std() for s in range(5)])
        for a in (0.1, 1.0, 100.0)
    ]
    assert spread[0] > 1.5 * spread[1] > 3 * spread[2]
    even = p.dirichlet(classes, 10, 1e6, rng())
    assert np.ptp(np.bincount(even)) < 200
    # a class's own draw: the clients' mix of classes differs, not only their size
    mix = np.stack(
        [np.bincount(classes[p.dirichlet(classes, 10, 0.1, rng()) == c], minlength=10) for c in range(10)]
    )
    assert np.corrcoef(mix).mean() < 0.5


def test_strong_dirichlet_keeps_empty_clients() -> None:
    classes = np.zeros(100, np.int64)
    codes = p.dirichlet(classes, 50, 0.01, rng())
    report = p.report(classes, codes, 50)
    assert len(report) == 50
    assert any(r["rows"] == 0 for r in report)


@pytest.mark.parametrize("alpha", [0.0, -1.0, 1e308, float("inf"), float("nan")])
def test_dirichlet_alpha(alpha: float) -> None:
    with pytest.raises(InputError, match="alpha"):
        p.dirichlet(np.zeros(9, np.int64), 3, alpha, rng())


def test_disjoint_classes_spreads_positive_classes() -> None:
    classes = np.repeat(np.arange(100), 5)
    y = (classes < 50).astype(np.int8)
    codes = p.disjoint_classes(classes, 10, rng(), classes_per_client=10, y=y)
    positives = [len(set(classes[(codes == c) & (y == 1)])) for c in range(10)]
    assert positives == [5] * 10
    with pytest.raises(InputError, match="product is 100"):
        p.disjoint_classes(classes, 10, rng(), classes_per_client=9)
    with pytest.raises(InputError, match="100 classes cannot be dealt to 101"):
        p.disjoint_classes(classes, 101, rng())


def test_one_class_per_client() -> None:
    classes = np.repeat(np.arange(10), 7)
    codes = p.one_class_per_client(classes, 10, rng())
    assert sorted({(a, b) for a, b in zip(codes, classes, strict=True)}) == sorted(
        (int(codes[classes == c][0]), c) for c in range(10)
    )
    shared = p.one_class_per_client(classes, 30, rng())
    assert set(np.bincount(shared)) == {2, 3}
    with pytest.raises(InputError, match="at least as many clients as classes"):
        p.one_class_per_client(classes, 9, rng())
    with pytest.raises(InputError, match="Class 0 has 2 rows for 3 of the 6 clients"):
        p.one_class_per_client(np.repeat([0, 1], [2, 9]), 6, rng())


def test_label_sorted_holds_few_classes() -> None:
    classes = rng().permutation(np.repeat(np.arange(10), 100))
    codes = p.label_sorted(classes, 50, 2, rng())
    assert (np.bincount(codes) == 20).all()
    assert max(len(set(classes[codes == c])) for c in range(50)) <= 4
    with pytest.raises(InputError, match="cannot be cut into 1200 shards"):
        p.label_sorted(classes, 100, 12, rng())
    with pytest.raises(InputError, match="cannot be cut into 0 shards"):
        p.label_sorted(classes, 100, 0, rng())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["NY", "CA", "WY"]), min_size=1) | st.lists(st.integers(-5, 5), min_size=1))
def test_by_column(values: list) -> None:
    codes, names = p.by_column(values)
    assert [names[c] for c in codes] == [str(v) for v in values]
    assert list(names) == [str(v) for v in sorted(set(values))]


def test_by_column_odd_values() -> None:
    assert p.by_column(np.array([10.0, 9.0, 10.0]))[1] == ("9", "10")
    assert p.by_column(["b", 1, "a"])[1] == ("1", "a", "b")
    with pytest.raises(InputError, match="Row 1 of the client column has no value"):
        p.by_column(["a", None, "b"])
    with pytest.raises(InputError, match="Row 2"):
        p.by_column([1.0, 2.0, float("nan")])


def test_entry_point_errors() -> None:
    rows = rows_of(np.arange(20) % 4)
    with pytest.raises(InputError, match="Did you mean 'dirichlet'"):
        p.partition("dirichlett", rows, 2, rng())
    with pytest.raises(InputError, match="Did you mean 'alpha'"):
        p.partition("dirichlet", rows, 2, rng(), alpa=1.0)
    with pytest.raises(InputError, match="It has no options"):
        p.partition("iid", rows, 2, rng(), alpha=1.0)
    with pytest.raises(InputError, match="needs the number of clients"):
        p.partition("iid", rows, None, rng())
    with pytest.raises(InputError, match="20 rows cannot be split over 21 clients"):
        p.partition("iid", rows, 21, rng())
    with pytest.raises(InputError, match="at least 1"):
        p.partition("iid", rows, 0, rng())
    with pytest.raises(InputError, match="no clients of its own"):
        p.partition("natural", rows, None, rng())


def test_natural_clients() -> None:
    client = np.arange(20) % 5
    rows = rows_of(np.arange(20) % 4, client)
    assert (p.partition("natural", rows, None, rng()) == client).all()
    assert (p.partition("natural", rows, 9, rng()) == client).all()
    with pytest.raises(InputError, match="5 clients of its own"):
        p.partition("natural", rows, 3, rng())


def test_report_names() -> None:
    y, client = np.array([1, 0, 1]), np.array([2, 0, 2])
    assert p.report(y, client, ["a", "b", "c"]) == [
        {"client": "a", "rows": 1, "positives": 0},
        {"client": "b", "rows": 0, "positives": 0},
        {"client": "c", "rows": 2, "positives": 2},
    ]
    with pytest.raises(InputError, match="Client code 2 has no name"):
        p.report(y, client, 2)


def test_summaries() -> None:
    assert all(entry.summary and entry.name == name for name, entry in p.PARTITIONS.items())
