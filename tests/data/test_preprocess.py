"""Federated preprocessing: sums over any partition are the sums of the pooled table."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedauc.data.preprocess import CLIP, Preprocessor, fit_federated, rare_below
from fedauc.data.split import stratified_split
from fedauc.data.statistics import (
    ClientStatistics,
    Groups,
    Moments,
    Sums,
    merge_schemas,
    merge_statistics,
    propose_schema,
    skewed_columns,
    summarise,
)
from fedauc.data.table import read_features, read_table
from fedauc.errors import InputError


def shared(name: str) -> Path:
    """A published data file, or skip."""
    folder = os.environ.get("FEDAUC_DATA") or Path(__file__).parents[2] / ".." / "shared" / "data"
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"{name} is not in the data folder; set FEDAUC_DATA to the folder that holds it")
    return path


def frame_of(seed: int, n: int) -> pd.DataFrame:
    """Numbers far from zero, skewed ones, integers, missing values, and text with rare values."""
    rng = np.random.default_rng(seed)
    age = rng.normal(1e6, 3, n).astype(np.float64)
    age[rng.random(n) < 0.2] = np.nan
    kind = pd.Series(rng.choice(["a", "b", "c", "rare"], n, p=[0.5, 0.3, 0.18, 0.02]), dtype=object)
    kind[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "age": age,
            "cost": np.exp(rng.normal(3, 2, n)).astype(np.float32),
            "grade": rng.integers(1, 5, n),
            "kind": kind.astype("category"),
        }
    )


@st.composite
def partitioned(draw: st.DrawFn) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    n = draw(st.integers(40, 200))
    frame = frame_of(draw(st.integers(0, 2**32)), n)
    client = np.random.default_rng(draw(st.integers(0, 99))).integers(0, draw(st.integers(1, 60)), n)
    return frame, [frame[client == k] for k in np.unique(client)]


def close(one: ClientStatistics, two: ClientStatistics) -> None:
    assert one.rows == two.rows
    assert one.categorical == two.categorical
    for name, a in one.numeric.items():
        b = two.numeric[name]
        assert (a.count, a.missing, a.low, a.high) == (b.count, b.missing, b.low, b.high)
        assert a.mean == pytest.approx(b.mean, rel=1e-9)
        assert a.m2 == pytest.approx(b.m2, rel=1e-9)
        assert a.m3 == pytest.approx(b.m3, rel=1e-9, abs=1e-9 * a.m2**1.5)  # near 0 where there is no skew


@settings(deadline=None, max_examples=60)
@given(partitioned())
def test_merged_statistics_are_those_of_the_pooled_table(
    table: tuple[pd.DataFrame, list[pd.DataFrame]],
) -> None:
    frame, clients = table
    schema = merge_schemas(propose_schema(client) for client in clients)
    assert schema == merge_schemas([propose_schema(frame)])
    parts = [summarise(client, schema) for client in clients]
    pooled = summarise(frame, schema)
    merged = merge_statistics(parts)
    close(merged, pooled)
    assert merged == merge_statistics(parts[::-1])  # to the last bit
    one_by_one = parts[0]
    for part in parts[1:]:
        one_by_one = part.merge(one_by_one)
    close(one_by_one, pooled)
    again = ClientStatistics.from_dict(json.loads(json.dumps(parts[0].to_dict())))
    assert again == parts[0]
    assert parts[0].nbytes == len(json.dumps(parts[0].to_dict(), separators=(",", ":")).encode())


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_transform_is_the_plain_computation(seed: int, clients: int) -> None:
    frame = frame_of(seed, 300)
    client = np.random.default_rng(seed).integers(0, clients, len(frame))
    fitted, up, down = fit_federated(frame, client)
    expected: dict[str, pd.Series] = {}
    for name in ("age", "cost", "grade"):
        x: pd.Series = frame[name].astype(float)
        skewness = float(((x - x.mean()) ** 3).mean() / x.std(ddof=0) ** 3)
        assume(abs(skewness - 3) > 1e-6)
        if skewness > 3:
            x = x.map(np.log1p)
        expected[name] = ((x - x.mean()) / x.std(ddof=0)).clip(-CLIP, CLIP).fillna(0)
        if x.isna().any():
            expected[f"{name} (missing)"] = x.isna().astype(float)
    counts = frame["kind"].value_counts()
    kept = sorted(counts.index[counts >= rare_below(300)])
    for level in kept:
        expected[f"kind={level}"] = (frame["kind"] == level).astype(float)
    rest = frame["kind"].notna() & ~frame["kind"].isin(kept)
    if rest.sum() >= rare_below(300):
        expected["kind=(other)"] = rest.astype(float)
    expected["kind=(missing)"] = frame["kind"].isna().astype(float)
    assert fitted.feature_names == list(expected)
    matrix = fitted.transform(frame)
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix, pd.DataFrame(expected).to_numpy(), rtol=2e-6, atol=2e-6)
    assert up > 0
    assert down >= len(np.unique(client)) * fitted.nbytes

    order = np.random.default_rng(1).permutation(len(np.unique(client)))
    renamed, up_again, _ = fit_federated(frame, order[np.unique(client, return_inverse=True)[1]])
    assert renamed.to_json() == fitted.to_json()  # the order of the clients does not matter
    assert up_again == up
    stored = Preprocessor.from_json(fitted.to_json())
    assert stored.to_json() == fitted.to_json()
    assert np.array_equal(stored.transform(frame), matrix)
    assert stored.notes == fitted.notes


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from([1, 3, 400]), st.sampled_from([3, 20, 300, 3000]))
def test_sums_of_all_clients_are_those_of_each_to_the_last_bit(seed: int, clients: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(clients), rng.integers(1, most, clients))
    values = rng.lognormal(0, 3, len(owner))
    values[rng.random(len(values)) < rng.choice([0, 0.3])] = np.nan
    order = rng.permutation(len(owner))
    groups = Groups.of(owner[order])
    sums = Sums.of(values[order][groups.rows], groups)
    parts = [Moments.of(values[order][owner[order] == k]) for k in range(clients)]
    for i, part in enumerate(parts):
        assert (part.count, part.missing) == (sums.count[i], sums.missing[i])
        assert (part.mean, part.m2, part.m3) == (sums.mean[i], sums.m2[i], sums.m3[i])
        assert part.low is None or (part.low, part.high) == (sums.low[i], sums.high[i])
    assert sums.total() == Moments.total(parts)


def fit_by_messages(frame: pd.DataFrame, client: np.ndarray) -> tuple[Preprocessor, int, int]:
    """`fit_federated` as it is described: every client's messages made and measured by themselves."""

    def size(message: object) -> int:
        return len(json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode())

    own = [frame[client == k] for k in np.unique(client)]
    proposals = [propose_schema(part) for part in own]
    schema = merge_schemas(proposals)
    first = [summarise(part, schema) for part in own]
    skewed = skewed_columns(merge_statistics(first))
    second = [summarise(part, dict.fromkeys(skewed, "numeric"), log1p=True) for part in own] if skewed else []
    fitted = Preprocessor.fit(schema, first, second)
    up = sum(map(size, proposals)) + sum(part.nbytes for part in [*first, *second])
    return fitted, up, len(own) * (size(schema) + (size(skewed) if skewed else 0) + fitted.nbytes)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 7, 60, 290]), st.sampled_from([40, 300]))
def test_all_clients_at_once_is_message_by_message(seed: int, clients: int, rows: int) -> None:
    """The same preprocessor to the last bit, and the same bytes."""
    rng = np.random.default_rng(seed)
    frame = frame_of(seed, rows)
    frame["é empty for many"] = np.where(rng.random(rows) < 0.03, rng.normal(0, 1e-7, rows), np.nan)
    frame["name"] = [f"patient «{i}»" for i in rng.integers(0, 10 * rows, rows)]
    frame["mixed"] = pd.Series([(1, "1", 1.5, None, 'a "quoted" b')[i] for i in rng.integers(0, 5, rows)])
    client = 3 * rng.integers(0, clients, rows) + 5
    fitted, up, down = fit_federated(frame, client)
    expected, expected_up, expected_down = fit_by_messages(frame, client)
    assert fitted.to_json() == expected.to_json()
    assert (up, down) == (expected_up, expected_down)

    kept = np.flatnonzero(rng.random(rows) < 0.7)
    by_rows = fit_federated(frame, client[kept], kept)
    taken = fit_federated(frame.iloc[kept], client[kept])
    assert by_rows[0].to_json() == taken[0].to_json()
    assert by_rows[1:] == taken[1:]


def test_skewed_columns_take_a_second_round() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "cost": np.exp(rng.normal(0, 2, 500)),
            "signed": -np.exp(rng.normal(0, 2, 500)) + 1,
            "flag": (rng.random(500) < 0.01).astype(int),
            "even": rng.random(500),
        }
    )
    schema = propose_schema(frame)
    first = summarise(frame, schema)
    assert skewed_columns(first) == ["cost"]
    second = summarise(frame[["cost"]], {"cost": "numeric"}, log1p=True)
    fitted = Preprocessor.fit(schema, [first], [second])
    assert "log" in fitted.notes[0]
    assert fitted.to_json() == fit_federated(frame, np.zeros(500, int))[0].to_json()
    low = frame.assign(cost=-5.0)
    assert np.isfinite(fitted.transform(low)).all()


def test_values_at_prediction_time(tmp_path: Path) -> None:
    frame = frame_of(3, 400)
    fitted, _, _ = fit_federated(frame, np.arange(400) % 7)
    names = fitted.feature_names
    new = pd.DataFrame(
        {
            "kind": ["new", None, "a"],
            "grade": [1.0, np.nan, 1e9],
            "cost": [1, 2, 3],
            "age": [np.nan, 1e6, -1e9],
            "extra": ["x", "y", "z"],
        }
    )
    matrix = pd.DataFrame(fitted.transform(new), columns=names)
    kinds = matrix.filter(like="kind=")
    assert kinds.iloc[0].sum() == kinds.iloc[0].get("kind=(other)", 0)
    assert kinds.iloc[1].to_dict()["kind=(missing)"] == 1
    assert kinds.iloc[2].sum() == kinds.iloc[2]["kind=a"] == 1
    assert matrix["grade"].tolist()[1:] == [0, CLIP]
    assert matrix["age"].tolist()[0::2] == [0, -CLIP]
    assert matrix["age (missing)"].tolist() == [1, 0, 0]
    with pytest.raises(InputError, match="'grade' is missing"):
        fitted.transform(new.drop(columns="grade"))
    with pytest.raises(InputError, match="'grade' must hold numbers"):
        fitted.transform(new.assign(grade="old"))
    with pytest.raises(InputError, match="cannot be read"):
        Preprocessor.from_json("{}")
    new.to_csv(tmp_path / "new.csv", index=False)
    read = read_features(tmp_path / "new.csv", fitted.columns, categorical=fitted.categorical)
    assert np.array_equal(fitted.transform(read), matrix.to_numpy())


def test_numbers_where_text_was_seen() -> None:
    zone = pd.Series(["1", "2", "x"] * 20, dtype="category")
    fitted, _, _ = fit_federated(pd.DataFrame({"zone": zone}), np.arange(60) % 3)
    assert fitted.feature_names == ["zone=1", "zone=2", "zone=x"]
    matrix = fitted.transform(pd.DataFrame({"zone": [1.0, 2.0, np.nan]}))
    assert matrix.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_columns_left_out() -> None:
    n = 200
    frame = pd.DataFrame(
        {
            "x": np.arange(n, dtype=float),
            "same": np.full(n, 0.1),
            "ticked": np.where(np.arange(n) % 3 == 0, 1.0, np.nan),
            "name": [f"patient {i}" for i in range(n)],
            "word": ["yes"] * n,
            "pairs": [f"p{i // 2}" for i in range(n)],
        }
    )
    fitted, _, _ = fit_federated(frame, np.arange(n) % 3)
    assert fitted.feature_names == ["x", "ticked (missing)"]
    assert len(fitted.notes) == 4
    for name, note in zip(["same", "name", "word", "pairs"], fitted.notes, strict=True):
        assert repr(name) in note
    assert "identifier" in fitted.notes[1]
    assert fit_federated(frame, np.arange(n) // 5)[0].notes[1] == fitted.notes[1]  # clients of five rows
    with pytest.raises(InputError, match="No feature column is left"):
        fit_federated(frame[["same"]], np.zeros(n, int))


def test_identifiers_stay_with_the_client() -> None:
    names = pd.DataFrame({"name": [f"patient {i}" for i in range(100)]})
    schema = merge_schemas(
        [propose_schema(names[:50]), propose_schema(names[50:]), propose_schema(names[:3])]
    )
    assert schema == {"name": "identifier"}
    assert "patient" not in json.dumps(summarise(names, schema).to_dict())


def test_many_levels_and_reserved_names() -> None:
    rng = np.random.default_rng(0)
    zone = pd.Series([f"z{i:03d}" for i in rng.integers(0, 300, 30000)])
    zone[:200] = "(other)"
    zone[200:400] = None
    fitted, _, _ = fit_federated(pd.DataFrame({"zone": zone}), rng.integers(0, 4, 30000))
    assert len(fitted.feature_names) == len(set(fitted.feature_names)) == 64
    assert fitted.feature_names[-2:] == ["zone=(other)", "zone=(missing)"]
    assert (fitted.transform(pd.DataFrame({"zone": zone})).sum(1) == 1).all()
    assert [rare_below(n) for n in (60, 920, 2179, 700_000)] == [2, 9, 10, 350]


def test_a_client_that_never_saw_a_value() -> None:
    frame = pd.DataFrame({"x": [np.nan, np.nan, 1.0, 2.0], "w": [1.0, 2.0, 3.0, 4.0]})
    fitted, _, _ = fit_federated(frame, np.array([0, 0, 1, 1]))
    assert fitted.feature_names == ["x", "x (missing)", "w"]
    assert fitted.transform(frame)[:, 0].tolist() == [0, 0, -1, 1]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "label", "client", "least"),
    [
        ("heart-disease-uci/heart.csv", "disease", "hospital", 0.87),
        ("eicu-demo/icu.csv", "died", "hospitalid", 0.79),
        ("creditcard/creditcard.parquet", "Class", None, 0.95),
    ],
)
def test_published_tables_reach_their_auc(name: str, label: str, client: str | None, least: float) -> None:
    """A plain logistic regression on the matrix ranks as well as the published references."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    table = read_table(shared(name), label=label, client=client)
    found = []
    for seed in range(1 if len(table) > 10**5 else 3):
        train, _, test = stratified_split(table.y, table.client, (0.75, 0.0, 0.25), seed)
        fitted, _, _ = fit_federated(table.features.iloc[train], table.client[train])
        model = LogisticRegression(max_iter=500)
        model.fit(fitted.transform(table.features.iloc[train]), table.y[train])
        score = model.decision_function(fitted.transform(table.features.iloc[test]))
        found.append(roc_auc_score(table.y[test], score))
    assert np.mean(found) > least
