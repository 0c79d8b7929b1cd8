"""Reading a user's table: what is understood, and what is refused with a sentence that helps."""

from __future__ import annotations

import datetime
import decimal
import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedauc.data.files import read_frame
from fedauc.data.table import Table, from_frame, read_features, read_table
from fedauc.errors import InputError

SMALL = "site,age,died\na,50,0\na,61,1\nb,47,0\nb,,1\n"


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def shared(name: str) -> Path:
    """A published data file, or skip."""
    folder = os.environ.get("FEDAUC_DATA") or Path(__file__).parents[2] / ".." / "shared" / "data"
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"{name} is not in the data folder; set FEDAUC_DATA to the folder that holds it")
    return path


def column(values: object) -> pd.Series:
    """A feature column as it comes out of a table."""
    n = len(values)  # type: ignore[arg-type]
    frame = pd.DataFrame({"x": values, "y": np.arange(n) % 2})
    return from_frame(frame, label="y").features["x"]


def refused(folder: Path, text: str, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        read_table(write(folder, text), **{"label": "died", "client": "site", **options})  # type: ignore[arg-type]
    return str(caught.value)


def test_a_small_table(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, SMALL), label="died", client="site")
    assert len(table) == 4
    assert list(table.features) == ["age"]
    assert table.y.dtype == np.int8
    assert table.y.tolist() == [0, 1, 0, 1]
    assert table.client.dtype == np.int64
    assert table.client.tolist() == [0, 0, 1, 1]
    assert table.client_names == ("a", "b")
    assert table.positive == "1"
    assert table.order is None
    assert table.source.endswith("t.csv")
    part = table.take(np.array([3, 0]))
    assert isinstance(part, Table)
    assert part.y.tolist() == [1, 0]
    assert part.client_names == table.client_names
    assert part.features["age"].iloc[1] == 50


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators(tmp_path: Path, separator: str) -> None:
    path = write(tmp_path, SMALL.replace(",", separator))
    assert read_table(path, label="died", client="site").features["age"].sum() == 158


def test_decimal_comma_in_a_semicolon_file(tmp_path: Path) -> None:
    frame = read_frame(write(tmp_path, "x;note\n1,5;a,b\n2,25;c\n"))
    assert frame["x"].tolist() == [1.5, 2.25]
    frame = read_frame(write(tmp_path, "x;note\n1.5;a,b\n2.25;c\n"))
    assert frame["x"].tolist() == [1.5, 2.25]


def test_other_files(tmp_path: Path) -> None:
    expected = read_frame(write(tmp_path, SMALL))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(SMALL.encode()))
    (tmp_path / "bom.CSV").write_bytes(b"\xef\xbb\xbf" + SMALL.encode())
    expected.to_parquet(tmp_path / "t.parquet")
    expected.set_index("site").to_parquet(tmp_path / "t.pq")
    expected.iloc[[1, 3]].to_parquet(tmp_path / "some.parquet")
    for name in ("t.csv.gz", "bom.CSV", "t.parquet", "t.pq"):
        pd.testing.assert_frame_equal(read_frame(tmp_path / name), expected)
    assert list(read_frame(tmp_path / "some.parquet")) == list(expected)
    expected.to_csv(tmp_path / "counted.csv")
    assert list(read_frame(tmp_path / "counted.csv")) == list(expected)
    ended = write(tmp_path, SMALL.replace("\n", ",\n"), "ended.csv")
    pd.testing.assert_frame_equal(read_frame(ended), expected)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"not parquet at all")
    (tmp_path / "bad.csv.gz").write_bytes(b"\x1f\x8b not gzip")
    (tmp_path / "short.csv.gz").write_bytes(gzip.compress(SMALL.encode() * 99)[:-20])
    (tmp_path / "latin.csv").write_bytes("a,b\n1,\xe9\n".encode("latin-1"))
    for name, text in {
        "empty.csv": "",
        "blank.csv": "\n\n",
        "header.csv": "a,b\n",
        "twice.csv": "a,b,a\n1,2,3\n",
        "ragged.csv": "a,b\n1,2\n1,2,3\n",
        "wide.csv": "a,b\n1,2,3\n4,5,6\n",
        "t.xlsx": "x",
    }.items():
        write(tmp_path, text, name)
    for name, reason in {
        "none.csv": "does not exist",
        "empty.csv": "is empty",
        "blank.csv": "is empty",
        "header.csv": "has no rows",
        "twice.csv": "two columns named 'a'",
        "ragged.csv": "line 3",
        "wide.csv": "has 3 values, and its header 2 names",
        "t.xlsx": "suffix",
        "bad.parquet": "cannot be read",
        "bad.csv.gz": "cannot be read",
        "short.csv.gz": "cannot be read",
        "latin.csv": "not UTF-8",
    }.items():
        with pytest.raises(InputError, match=reason) as caught:
            read_frame(tmp_path / name)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="is a folder"):
        read_frame(tmp_path)


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    assert "Did you mean 'died'?" in refused(tmp_path, SMALL, label="dead")
    assert "the client column. Did you mean 'site'?" in refused(tmp_path, SMALL, client="sites")
    assert "split-by" in refused(tmp_path, SMALL, split_by="ages")
    assert "to drop" in refused(tmp_path, SMALL, drop=["ages"])
    assert "both the label and the client" in refused(tmp_path, SMALL, client="died")
    assert "cannot be dropped" in refused(tmp_path, SMALL, drop=["died"])
    assert "no feature column" in refused(tmp_path, SMALL, drop=["age"])


@pytest.mark.parametrize(
    ("values", "positive"),
    [
        ([0, 1], "1"),
        ([0.0, 1.0], "1"),
        ([-1, 1], "1"),
        ([False, True], "True"),
        (["no", "Yes"], "Yes"),
        (["FALSE", "TRUE"], "TRUE"),
        (["negative", "positive"], "positive"),
        (["-", "+"], "+"),
        (["0", "1"], "1"),
    ],
)
def test_labels_that_need_no_hint(values: list[object], positive: str) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [values[0], values[1], values[0]]})
    table = from_frame(frame, label="y")
    assert table.positive == positive
    assert table.y.tolist() == [0, 1, 0]


@pytest.mark.parametrize("given", ["ill", "ILL"])
def test_positive_value_given(given: str) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": ["well", "ill", "unknown"]})
    assert from_frame(frame, label="y", positive=given).y.tolist() == [0, 1, 0]
    codes = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [0.0, 1.0, 2.0]})
    for two in (2, 2.0, "2", "2.0"):
        assert from_frame(codes, label="y", positive=two).y.tolist() == [0, 0, 1]


def test_labels_that_are_refused() -> None:
    def message(values: list[object], **options: object) -> str:
        frame = pd.DataFrame({"x": np.arange(len(values)), "y": values})
        with pytest.raises(InputError) as caught:
            from_frame(frame, label="y", **options)  # type: ignore[arg-type]
        return str(caught.value)

    assert "'alive' and 'dead'; say which one" in message(["dead", "alive"])
    assert "1 value, '0'" in message([0, 0])
    assert "3 values, '0', '1' and '2'" in message([0, 1, 2])
    assert "--positive" in message([0, 1, 2])
    assert "4 more" in message(list(range(10)))
    assert "no value 'x'" in message([0, 1], positive="x")
    assert "Every row" in message([1, 1], positive=1)
    assert "empty in 2 of 4 rows, the first at the table, row 2" in message([0, None, 1, None])
    assert "empty in 1 of 3 rows" in message(["yes", "?", "no"])


def test_clients_missing_and_numbered() -> None:
    frame = pd.DataFrame({"x": np.arange(8.0), "y": [0, 1] * 4, "c": [10, 10, 9, 9, None, None, 100, 100]})
    table = from_frame(frame, label="y", client="c")
    assert table.client_names == ("9", "10", "100", "(missing)")
    assert table.client.tolist() == [1, 1, 0, 0, 3, 3, 2, 2]
    assert from_frame(frame, label="y").client_names == ("all",)
    assert table.notes == ("2 rows have no value in 'c': they are a client of their own, '(missing)'.",)


def test_clients_that_may_be_one_are_noted() -> None:
    frame = pd.DataFrame({"x": np.arange(8.0), "y": [0, 1] * 4, "c": ["Bern", "Basel", "bern ", "Biel"] * 2})
    (note,) = from_frame(frame, label="y", client="c").notes
    assert note == "Clients whose names differ in case or spaces only are two: 'Bern' and 'bern'."


@pytest.mark.parametrize(
    ("values", "first", "kind", "instead"),
    [
        (["63,417", "5,1", "7,25"], "5,1", "number", "1234.5"),
        (["1,234", "1,234,567.5", "20,000"], "1,234", "number", "1234.5"),
        (["18.08.2021", "3.4.21", "19.08.2021 10:00"], "18.08.2021", "date", "2021-08-18"),
        (["09/17/2021", "9/8/2021", "2021/08/18"], "09/17/2021", "date", "2021-08-18"),
    ],
)
def test_measurements_that_are_not_read_are_noted(values, first, kind, instead) -> None:
    frame = pd.DataFrame({"x": values * 4, "y": [0, 1] * 6})
    (note,) = from_frame(frame, label="y").notes
    assert note == (
        f"The column 'x' is taken for text, but {first!r} looks like a {kind}: write it as {instead} if it is"
        " one."
    )
    assert not from_frame(frame.assign(x=["a", "1,5", "b"] * 4), label="y").notes


def test_small_clients(tmp_path: Path) -> None:
    text = SMALL + "c,70,0\nd,71,1\n"
    message = refused(tmp_path, text)
    assert "client 'c'" in message
    assert "only 1 row (and 1 more client" in message
    assert "small_clients=merge" in message
    path = write(tmp_path, text)
    kept = read_table(path, label="died", client="site", small_clients="keep")
    assert kept.client_names == ("a", "b", "c", "d")
    merged = read_table(path, label="died", client="site", small_clients="merge")
    assert merged.client_names == ("a", "b", "(small)")
    assert merged.client.tolist() == [0, 0, 1, 1, 2, 2]
    assert "2 clients" in merged.notes[0]
    one = write(tmp_path, SMALL + "c,70,0\n")
    merged = read_table(one, label="died", client="site", small_clients="merge")
    assert np.bincount(merged.client).min() >= 2
    assert "must be one of" in refused(tmp_path, SMALL, small_clients="drop")


def test_one_file_per_client(tmp_path: Path) -> None:
    a = write(tmp_path, "age,kind,died\n50,1,0\n61,2,1\n", "oslo.csv")
    b = write(tmp_path, "died,age,kind\n0,47,x\n1,58,1\n", "rome.csv")
    table = read_table([b, a], label="died")
    assert table.client_names == ("oslo", "rome")
    assert table.client.tolist() == [1, 1, 0, 0]
    assert table.features["kind"].tolist() == ["x", "1", "1", "2"]
    c = write(tmp_path, "age,died\n1,0\n2,1\n", "bonn.csv")
    with pytest.raises(InputError, match=r"bonn.csv has no column 'kind', which .*oslo.csv has"):
        read_table([a, c], label="died")
    with pytest.raises(InputError, match=r"bonn.csv has no column 'kind'"):
        read_table([c, a], label="died")
    assert read_table([a, c], label="died", drop=["kind"]).features.shape == (4, 1)
    with pytest.raises(InputError, match=r"oslo.csv is given twice"):
        read_table([a, a], label="died", client="kind")
    tabbed = write(tmp_path, a.read_text().replace(",", "\t"), "oslo.tsv")
    with pytest.raises(InputError, match="both the client"):
        read_table([a, tabbed], label="died")
    (tmp_path / "lima").mkdir()
    other = write(tmp_path / "lima", "age,kind,died\n50,1,0\n61,2,1\n", "oslo.csv")
    assert "lima/oslo" in read_table([a, other], label="died").client_names
    write(tmp_path, "age,kind,died\n50,1,0\ninf,2,1\n", "inf.csv")
    with pytest.raises(InputError, match=r"'age' has the infinite value inf at .*inf.csv, line 3"):
        read_table([a, tmp_path / "inf.csv"], label="died")


def test_order_column(tmp_path: Path) -> None:
    text = "when,age,died\n2024-01-02,1,0\n2024-01-01,2,1\n"
    table = read_table(write(tmp_path, text), label="died", split_by="when")
    assert table.order is not None
    assert table.order.tolist() == [19724.0, 19723.0]
    assert list(table.features) == ["age"]
    kept = read_table(write(tmp_path, text), label="died", split_by="when", keep_split_by=True)
    assert list(kept.features) == ["when", "age"]
    part = table.take(np.array([1]))
    assert part.order is not None
    assert part.order.tolist() == [19723.0]
    assert "empty in 1 rows" in refused(tmp_path, text + ",3,1\n", client=None, split_by="when")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [("2023", "2024"), ("2023-12", "2024-01"), ("2023Q4", "2024Q1"), ("2023-W09", "2023-W10"),
     ("2023/12/31", "2024/01/01"), ("20231231", "20240101"), ("2023-12-31 23:59:59", "2024-01-01 00:00:00")],
)  # fmt: skip
def test_text_that_sorts_by_time_is_an_order(tmp_path: Path, earlier: str, later: str) -> None:
    text = f"when,age,died\n{later},1,0\n{earlier},2,1\n"
    order = read_table(write(tmp_path, text), label="died", split_by="when").order
    assert order is not None
    assert order[0] > order[1]


@pytest.mark.parametrize("when", ["18.08.2021", "09/17/2021", "Jan", "v10", "2021-8-1", "S3"])
def test_text_that_does_not_sort_by_time_is_no_order(tmp_path: Path, when: str) -> None:
    text = f"when,age,died\n{when},1,0\n2021-08-18,2,1\n"
    message = refused(tmp_path, text, client=None, split_by="when")
    assert f"split-by column 'when' holds text as {when!r}, which has no order in time" in message


def test_text_in_a_numeric_column(tmp_path: Path) -> None:
    lines = [f"a,{i},{i % 2}" for i in range(20)]
    lines[12] = "a,12 years,0"
    text = "site,age,died\n" + "\n".join(lines)
    assert "column 'age' has '12 years' at" in (message := refused(tmp_path, text))
    assert "t.csv, line 14," in message
    lines.insert(3, "")  # blank lines count
    assert "line 15," in refused(tmp_path, "site,age,died\n" + "\n".join(lines))
    lines[6:10] = ["a,old,0", "a,old,1", "a,new,0", "a,new,1"]  # no longer nearly all numbers
    table = read_table(write(tmp_path, "site,age,died\n" + "\n".join(lines)), label="died", client="site")
    assert isinstance(table.features["age"].dtype, pd.CategoricalDtype)


def test_missing_markers_do_not_make_text(tmp_path: Path) -> None:
    markers = ["", "NA", "N/A", "nan", "null", "?", "-", "None", " ?"]
    lines = [f"{marker},{i % 2}" for i, marker in enumerate([*markers, "1", "2.5"])]
    table = read_table(write(tmp_path, "age,died\n" + "\n".join(lines)), label="died")
    assert table.features["age"].isna().sum() == len(markers)
    assert table.features["age"].sum() == 3.5
    assert column(["a", "?", None, "b"]).isna().tolist() == [False, True, True, False]


def test_empty_and_infinite_columns(tmp_path: Path) -> None:
    assert "'x' of" in (message := refused(tmp_path, "site,x,died\na,?,0\na,,1\n"))
    assert "--drop x" in message
    assert "infinite value -inf" in refused(tmp_path, "site,x,died\na,-inf,0\na,1,1\n")
    with pytest.raises(InputError, match=r"infinite value inf at the table, row 2"):
        column(["?", "inf", "3"])


def test_types_of_columns() -> None:
    assert column([True, False, True]).dtype == np.int8
    assert column(["True", None, "False"]).tolist()[::2] == [1.0, 0.0]
    assert column(pd.array([1, None, 3], dtype="Int32")).isna().tolist() == [False, True, False]
    assert column(pd.array([1, 2, 3], dtype="Int32")).dtype == np.int64
    assert column(pd.array([True, None, False], dtype="boolean")).sum() == 1
    assert column(np.array([1, 2, 3], dtype=np.float32)).dtype == np.float32
    assert column([decimal.Decimal("1.5"), None, decimal.Decimal(2)]).sum() == 3.5
    assert column([datetime.date(1970, 1, 2), None, datetime.date(1971, 1, 1)]).sum() == 366
    assert column(pd.to_datetime(["1970-01-02 00:00", "1970-01-03 12:00", "NaT"])).sum() == 3.5
    assert column(pd.to_datetime(["1970-01-02", "1970-01-03"]).tz_localize("UTC")).sum() == 3
    assert column(pd.to_timedelta(["36h", "1D"])).tolist() == [1.5, 1]
    assert column(["1970-01-02T00:00:00Z", "1970-01-03T12:00+12:00", "?"]).sum() == 3
    assert column(pd.Categorical([3, 1, 3])).tolist() == [3, 1, 3]
    text = column(["b", "a", None])
    assert isinstance(text.dtype, pd.CategoricalDtype)
    assert text.cat.categories.tolist() == ["a", "b"]
    with pytest.raises(InputError, match="nested"):
        column([[1], [2], [3]])
    with pytest.raises(InputError, match=r"'1970-02-31' at the table, row 3, which is not a date"):
        column(["1970-01-01", "1970-01-02", "1970-02-31"] + ["1970-01-05"] * 20)


def test_features_to_predict_on(tmp_path: Path) -> None:
    path = write(tmp_path, "extra,zone,age\nx,01,50\ny,02,\n")
    frame = read_features(path, ["age", "zone"], categorical=["zone"])
    assert list(frame) == ["age", "zone"]
    assert frame["zone"].tolist() == ["01", "02"]
    assert read_features(path, ["zone"])["zone"].tolist() == [1, 2]
    with pytest.raises(InputError, match=r"no column 'sex', the feature column"):
        read_features(path, ["age", "sex"])
    bad = write(tmp_path, "age\nold\n")
    with pytest.raises(InputError, match=r"'age' has 'old' at .*line 2"):
        read_features(bad, ["age"], categorical=[])
    empty = write(tmp_path, "age,zone\n,\n?,?\n")
    assert read_features(empty, ["age", "zone"], categorical=["zone"]).isna().all(axis=None)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "label", "client", "rows", "positives", "clients"),
    [
        ("heart-disease-uci/heart.csv", "disease", "hospital", 920, 509, 4),
        ("eicu-demo/icu.csv", "died", "hospitalid", 2179, 196, 186),
        ("freMTPL2/freMTPL2freq.parquet", "Claim", "Region", 678013, 34060, 22),
        ("creditcard/creditcard.parquet", "Class", None, 284807, 492, 1),
    ],
)
def test_published_tables(
    name: str, label: str, client: str | None, rows: int, positives: int, clients: int
) -> None:
    table = read_table(shared(name), label=label, client=client)
    assert (len(table), int(table.y.sum()), len(table.client_names)) == (rows, positives, clients)
    assert table.notes == ()
