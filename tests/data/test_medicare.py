"""Medicare's files by provider and the list of exclusions, on tiny files as they are published."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedauc.cli import app
from fedauc.data.rows import Bundle
from fedauc.data.sources import SOURCES, load_source
from fedauc.data.sources import medicare as m
from fedauc.data.synthetic import STATES, YEARS
from fedauc.errors import InputError

# Columns of a file by provider in the order in which CMS writes them: of the release of June 2024, which has
# more chronic conditions; without the gender of that of November 2025.
COLUMNS = (
    *("Rndrng_NPI", "Rndrng_Prvdr_Last_Org_Name", "Rndrng_Prvdr_First_Name", "Rndrng_Prvdr_MI"),
    *("Rndrng_Prvdr_Crdntls", "Rndrng_Prvdr_Gndr", "Rndrng_Prvdr_Ent_Cd", "Rndrng_Prvdr_St1"),
    *("Rndrng_Prvdr_St2", "Rndrng_Prvdr_City", "Rndrng_Prvdr_State_Abrvtn", "Rndrng_Prvdr_State_FIPS"),
    *("Rndrng_Prvdr_Zip5", "Rndrng_Prvdr_RUCA", "Rndrng_Prvdr_RUCA_Desc", "Rndrng_Prvdr_Cntry"),
    *("Rndrng_Prvdr_Type", "Rndrng_Prvdr_Mdcr_Prtcptg_Ind", "Tot_HCPCS_Cds", "Tot_Benes", "Tot_Srvcs"),
    *("Tot_Sbmtd_Chrg", "Tot_Mdcr_Alowd_Amt", "Tot_Mdcr_Pymt_Amt", "Tot_Mdcr_Stdzd_Amt", "Drug_Sprsn_Ind"),
    *("Drug_Tot_HCPCS_Cds", "Drug_Tot_Benes", "Drug_Tot_Srvcs", "Drug_Sbmtd_Chrg", "Drug_Mdcr_Alowd_Amt"),
    *("Drug_Mdcr_Pymt_Amt", "Drug_Mdcr_Stdzd_Amt", "Med_Sprsn_Ind", "Med_Tot_HCPCS_Cds", "Med_Tot_Benes"),
    *("Med_Tot_Srvcs", "Med_Sbmtd_Chrg", "Med_Mdcr_Alowd_Amt", "Med_Mdcr_Pymt_Amt", "Med_Mdcr_Stdzd_Amt"),
    *("Bene_Avg_Age", "Bene_Age_LT_65_Cnt", "Bene_Age_65_74_Cnt", "Bene_Age_75_84_Cnt"),
    *("Bene_Age_GT_84_Cnt", "Bene_Feml_Cnt", "Bene_Male_Cnt", "Bene_Race_Wht_Cnt", "Bene_Race_Black_Cnt"),
    *("Bene_Race_API_Cnt", "Bene_Race_Hspnc_Cnt", "Bene_Race_NatInd_Cnt", "Bene_Race_Othr_Cnt"),
    *("Bene_Dual_Cnt", "Bene_Ndual_Cnt", "Bene_CC_BH_ADHD_OthCD_V1_Pct", "Bene_CC_PH_Diabetes_V2_Pct"),
    "Bene_Avg_Risk_Scre",
)
EXCLUSIONS = (
    "LASTNAME,FIRSTNAME,MIDNAME,BUSNAME,GENERAL,SPECIALTY,UPIN,NPI,DOB,ADDRESS,CITY,STATE,ZIP,EXCLTYPE,"
    "EXCLDATE,REINDATE,WAIVERDATE,WVRSTATE"
)
SEEN_FEW, CONVICTED, LOAN, REVOKED, EARLIER, UNKNOWN = range(1003000126, 1003000132)
CAPITAL, ISLAND, SOLDIER = 1003000200, 1003000201, 1003000202
STATE_OF = {CAPITAL: "DC", ISLAND: "PR", SOLDIER: "AE", SEEN_FEW: "WY", CONVICTED: "FL", LOAN: "FL"}


def provider(npi: int, year: int, **changes: str) -> dict[str, str]:
    """A line of a file: all that is published of one provider in one year."""
    number = npi % 1000 + year % 10
    values = dict.fromkeys(COLUMNS, "") | {name: f"{number + len(name)}.5" for name in m.NUMBERS}
    values |= {"Rndrng_NPI": str(npi), "Rndrng_Prvdr_Last_Org_Name": "Núñez, Md", "Rndrng_Prvdr_Gndr": "F"}
    values |= {"Rndrng_Prvdr_Ent_Cd": "I", "Rndrng_Prvdr_St1": '12 "Old" Main St, Apt 3'}
    values |= {"Rndrng_Prvdr_State_Abrvtn": STATE_OF.get(npi, "TX"), "Rndrng_Prvdr_RUCA": "1.0"}
    return values | {"Rndrng_Prvdr_Type": "Internal Medicine", "Rndrng_Prvdr_Cntry": "US"} | changes


def write_year(
    folder: Path, year: int, rows: Sequence[dict[str, str]], columns: Sequence[str] = COLUMNS
) -> Path:
    path = folder / f"MUP_PHY_R24_P07_V10_D{year % 100}_Prov.csv"
    with path.open("w", encoding="latin-1", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([row[name] for name in columns] for row in rows)
    return path


def excluded(npi: object, reason: str, date: str) -> str:
    cells = ["NÚÑEZ", "ANA", "", "", "PHYSICIAN (MD, DO)", "INTERNAL MEDICINE", "", str(npi), "19600101"]
    cells += ["1 MAIN ST", "MIAMI", "FL", "33101", reason, date, "00000000", "00000000", ""]
    return ",".join(f'"{cell}"' for cell in cells)


def write_exclusions(folder: Path, *rows: str) -> Path:
    path = folder / "UPDATED.csv"
    path.write_bytes("\r\n".join((EXCLUSIONS, *rows, "")).encode("latin-1"))
    return path


LISTED = (
    excluded("0000000000", "1128a1", "20210101"),
    excluded(CONVICTED, "1128a1", "20190520"),
    excluded(LOAN, "1128b14", "20220101"),
    excluded(REVOKED, "1128b4  ", "20230220"),
    excluded(EARLIER, "1128a3", "20160101"),
    excluded(CAPITAL, "1128a1", "20230101"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six files and the list; a provider of each kind in every year."""
    home = tmp_path / "medicare"
    home.mkdir()
    for year in YEARS:
        rows = [
            provider(
                SEEN_FEW,
                year,
                Tot_Benes="12",
                Bene_Feml_Cnt="",
                Drug_Sprsn_Ind="*",
                Rndrng_Prvdr_RUCA="10.1",
                Tot_Sbmtd_Chrg="1,234,567.50" if year == 2018 else "1234567.50",
            ),
            provider(CONVICTED, year, Rndrng_Prvdr_RUCA="" if year == 2020 else "1"),
            provider(LOAN, year, Rndrng_Prvdr_Type="Podiatry", Rndrng_Prvdr_Gndr="M"),
            provider(REVOKED, year, Rndrng_Prvdr_Ent_Cd="O", Rndrng_Prvdr_Gndr=""),
            provider(EARLIER, year),
            provider(CAPITAL, year),
            provider(ISLAND, year),
            provider(SOLDIER, year),
        ]
        if year == 2022:
            rows.append(provider(UNKNOWN, year, Rndrng_Prvdr_Type="Hospice and Palliative Care"))
        write_year(home, year, rows)
    write_exclusions(home, *LISTED)
    return home


def load(folder: Path) -> Bundle:
    return load_source("medicare", root=folder.parent)


def table(bundle: Bundle, part: str = "train") -> pd.DataFrame:
    x = getattr(bundle, part).x
    assert isinstance(x, pd.DataFrame)
    return x


def test_years_states_and_labels(folder: Path) -> None:
    bundle = load(folder)
    assert bundle.client_names == STATES
    assert bundle.valid is not None
    assert bundle.test is not None
    assert [len(part) for part in (bundle.train, bundle.valid, bundle.test)] == [20, 5, 6]
    # A year after the other, each with the five providers in the fifty states. The conviction of 2019 counts
    # until then, the licence that was revoked in 2023 always; a loan, an exclusion of 2016 and DC's never do.
    assert bundle.train.y.reshape(4, 5).tolist() == [[0, 1, 0, 1, 0]] * 3 + [[0, 0, 0, 1, 0]]
    assert bundle.valid.y.tolist() == [0, 0, 0, 1, 0]
    assert bundle.test.y.tolist() == [0, 0, 0, 1, 0, 0]
    assert bundle.train.client is not None
    assert [STATES[code] for code in bundle.train.client[:5]] == ["WY", "FL", "FL", "TX", "TX"]
    assert (bundle.train.y.dtype, bundle.train.classes.dtype, bundle.train.client.dtype) == (
        np.int8,
        np.int64,
        np.int64,
    )
    assert (bundle.train.classes == bundle.train.y).all()


def test_features(folder: Path) -> None:
    bundle = load(folder)
    assert bundle.feature_names == (*m.NUMBERS, *m.CATEGORIES)
    assert len(m.NUMBERS) == len(set(m.NUMBERS)) == 31
    assert set(m.NUMBERS) < set(COLUMNS)
    x, test = table(bundle), table(bundle, "test")
    assert tuple(x.columns) == bundle.feature_names
    assert (x.dtypes[list(m.NUMBERS)] == np.float32).all()
    assert x["Tot_Benes"].tolist()[::5] == [12.0] * 4
    assert x["Tot_Sbmtd_Chrg"].tolist()[::5] == [1234567.5] * 4  # one of them as 1,234,567.50
    assert x["Bene_Feml_Cnt"].isna().tolist() == [True, False, False, False, False] * 4
    assert x["Med_Tot_Srvcs"][1] == CONVICTED % 1000 + 7 + len("Med_Tot_Srvcs") + 0.5
    for name in m.CATEGORIES:
        assert x[name].dtype == test[name].dtype == table(bundle, "valid")[name].dtype
    kinds = ["Hospice and Palliative Care", "Internal Medicine", "Podiatry"]
    assert x["Rndrng_Prvdr_Type"].cat.categories.tolist() == kinds
    assert test["Rndrng_Prvdr_Type"].tolist() == [kinds[i] for i in (1, 1, 2, 1, 1, 0)]
    assert x["Rndrng_Prvdr_RUCA"].tolist()[:5] == ["10.1", "1", "1", "1", "1"]
    assert x["Rndrng_Prvdr_RUCA"].isna().tolist() == [False] * 16 + [True] + [False] * 3
    assert x["Rndrng_Prvdr_Gndr"].tolist()[1:3] == ["F", "M"]
    assert x["Rndrng_Prvdr_Gndr"].isna().tolist()[:5] == [False, False, False, True, False]
    some = bundle.train.take(np.array([3, 1]))
    assert isinstance(some.x, pd.DataFrame)
    assert some.x["Rndrng_Prvdr_Ent_Cd"].tolist() == ["O", "I"]
    assert len(bundle.train.take(bundle.train.y == 1)) == 7
    assert len(bundle.train.take(slice(2))) == 2


def test_blocks_of_a_file_make_no_difference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load(folder)
    monkeypatch.setattr(m, "BLOCK", 1500)
    again = load(folder)
    assert (whole.train.y == again.train.y).all()
    pd.testing.assert_frame_equal(table(whole), table(again))


def test_other_releases(folder: Path) -> None:
    """Without the gender, as since 2025, with other capital letters, with a byte order mark, elsewhere."""
    before = load(folder)
    root = folder.parent
    (root / "cms").mkdir()
    for path in folder.glob("MUP*"):
        with path.open(encoding="latin-1", newline="") as file:
            lines = list(csv.reader(file))
        gender = lines[0].index("Rndrng_Prvdr_Gndr")
        lines[0] = [name.replace("Bene_Feml_Cnt", "BENE_FEML_CNT") for name in lines[0]]
        with (root / "cms" / path.name.lower()).open("w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file).writerows(line[:gender] + line[gender + 1 :] for line in lines)
        path.unlink()
    (folder / "UPDATED.csv").rename(root / "updated.csv")
    after = load_source("medicare", root=root, positive="EXCLUDED")
    assert after.feature_names == tuple(name for name in m.NUMBERS + m.CATEGORIES if name != m.GENDER)
    pd.testing.assert_frame_equal(table(before).drop(columns=m.GENDER), table(after))


def test_several_exclusions_of_one_provider(folder: Path) -> None:
    more = (
        excluded(CONVICTED, "1128b7", "20200101"),
        excluded(EARLIER, "1128c3Gii", "20170101"),
        excluded("", "1128a1", "20200101"),
    )
    write_exclusions(folder, *LISTED, *more)
    assert load(folder).train.y.reshape(4, 5).tolist() == [[0, 1, 0, 1, 1]] + [[0, 1, 0, 1, 0]] * 3


def test_only_the_excluded_are_positive(folder: Path) -> None:
    with pytest.raises(InputError, match="In 'medicare' the positive class is 'excluded'"):
        load_source("medicare", root=folder.parent, positive="ordinary")


def sentence(folder: Path) -> str:
    with pytest.raises(InputError) as error:
        load(folder)
    return str(error.value).replace(str(folder), "DIR")


def test_what_is_missing_is_said(folder: Path) -> None:
    leie = folder / "UPDATED.csv"
    leie.unlink()
    said = sentence(folder)
    assert said.startswith("UPDATED.csv of 'medicare' is missing: it is neither in ")
    assert "folders medicare, cms, leie; get it from https://oig.hhs.gov/" in said
    for path in folder.glob("*_D19_*"):
        path.unlink()
    said = sentence(folder)
    assert said.startswith("MUP_PHY_*_D19_Prov.csv of 'medicare' is missing: ")
    assert "get it from https://data.cms.gov/provider-summary-by-type-of-service/" in said
    assert said.endswith("and put it into DIR.")
    with pytest.raises(InputError, match=r"_D19_Prov\.csv of 'medicare' is missing: .* get it from https"):
        load_source("medicare", root=folder.parent, download=True)
    listed = SOURCES["medicare"].listed
    assert listed is not None
    with pytest.raises(InputError, match=r"MUP_PHY_\*_D19_Prov\.csv of 'medicare' is missing"):
        listed(folder.parent)


NAME = "MUP_PHY_R24_P07_V10_D{}_Prov.csv"


def test_bad_files(folder: Path) -> None:
    good = [provider(SEEN_FEW, 2021), provider(REVOKED, 2021)]
    path = write_year(folder, 2021, good, [name for name in COLUMNS if name != "Tot_Benes"])
    where = (
        "which the published file has; get it from https://data.cms.gov/provider-summary-by-type-of-service/"
    )
    assert sentence(folder).startswith(f"DIR/{path.name} has no column 'Tot_Benes', {where}")
    write_year(folder, 2021, good, [name for name in COLUMNS if name != m.GENDER])
    assert sentence(folder) == (
        f"DIR/{path.name} has no column 'Rndrng_Prvdr_Gndr', which {NAME.format(17)} has: take all six years "
        "from one release."
    )
    write_year(folder, 2021, [*good, provider(LOAN, 2021, Tot_Srvcs="many")])
    assert sentence(folder) == (
        f"DIR/{path.name} has 'many' in the column 'Tot_Srvcs' at line 4, which is not a number."
    )
    write_year(folder, 2021, [*good, provider(LOAN, 2021, Tot_Srvcs="1e99")])
    assert sentence(folder).startswith(f"DIR/{path.name} has '1e99' in the column 'Tot_Srvcs' at line 4")
    write_year(folder, 2021, [provider(SEEN_FEW, 2021, Rndrng_NPI="1003A"), *good])
    assert sentence(folder).startswith(f"DIR/{path.name} has '1003A' in the column 'Rndrng_NPI' at line 2")
    for rows in ([], [provider(CAPITAL, 2021)]):
        write_year(folder, 2021, rows)
        assert sentence(folder) == f"DIR/{path.name} has no row from one of the fifty states."
    for content in (b"", b"<html>\nNot found\n</html>", b"PK\x03\x04\x00\xff" * 99):
        path.write_bytes(content)
        assert sentence(folder).startswith(f"DIR/{path.name} has no column 'Rndrng_NPI', {where}")
    write_year(folder, 2021, good)
    path.write_bytes(path.read_bytes()[:-300])
    assert sentence(folder) == (
        f"DIR/{path.name} is not a whole CSV file (CSV parse error: Expected {len(COLUMNS)} columns, got"
        " 56); fetch it again."
    )
    path.rename(folder / "mup_phy_r25_p07_v20_d21_prov.CSV")
    write_year(folder, 2021, good)
    assert sentence(folder) == (
        f"DIR has {path.name} and mup_phy_r25_p07_v20_d21_prov.CSV: leave only the one to use there."
    )


def test_bad_exclusions(folder: Path) -> None:
    for npi, date, where, what in (
        ("100300O126", "20200101", "'100300O126' in the column 'NPI'", "a number"),
        (LOAN, "1/1/2020", "'1/1/2020' in the column 'EXCLDATE'", "a date (yyyymmdd)"),
    ):
        write_exclusions(folder, LISTED[1], excluded(npi, "1128a1", date))
        assert sentence(folder) == f"DIR/UPDATED.csv has {where} at line 3, which is not {what}."
    write_exclusions(folder, LISTED[2], excluded(CONVICTED, "1128a1", "00000000"))
    assert sentence(folder) == (
        f"'medicare' has no positive training row: DIR/UPDATED.csv lists no NPI of {NAME.format(17)} or the "
        "three years after it as excluded for fraud in that year or later."
    )
    (folder / "UPDATED.csv").write_text("NPI,EXCLDATE\n1003000126,20200101\n")
    assert sentence(folder) == (
        "DIR/UPDATED.csv has no column 'EXCLTYPE', which the published file has; get it from "
        "https://oig.hhs.gov/exclusions/exclusions_list.asp."
    )


def test_training_on_them(tmp_path: Path) -> None:
    """From the files to a model, by the command line."""
    home, frauds = tmp_path / "medicare", []
    home.mkdir()
    rng = np.random.default_rng(0)
    for year in YEARS:
        rows = []
        for i, state in enumerate(STATES * 2):
            npi, bills = 1_100_000_000 + i, 60.0 * (i % 7 == 0) + 10 * rng.random()
            rows.append(provider(npi, year, Rndrng_Prvdr_State_Abrvtn=state, Tot_Srvcs=f"{bills:.1f}"))
            rows[-1]["Bene_Feml_Cnt"] = "" if i % 3 else "20"
            rows[-1]["Rndrng_Prvdr_Ent_Cd"] = "IO"[i % 2]
            if i % 7 == 0 and year == YEARS[0]:
                frauds.append(excluded(npi, "1128a1", "20240101"))
        write_year(home, year, rows)
    write_exclusions(home, *frauds)
    given = ["train", "--data", "medicare", "--data-root", tmp_path, "--model", "linear", "--set", "cycles=2"]
    done = CliRunner().invoke(app, [*map(str, given), "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["test_auc"] > 0.9
    assert {row["client"] for row in result["per_client"]} == set(STATES)
    plan = json.loads((tmp_path / "run/preprocess.json").read_text())["plan"]
    assert {"Tot_Srvcs", "Bene_Feml_Cnt", "Rndrng_Prvdr_Ent_Cd"} <= {column["name"] for column in plan}
