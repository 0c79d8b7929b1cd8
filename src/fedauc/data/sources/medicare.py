"""Medicare Part B by provider and year, and which providers were excluded for fraud.

A row is one provider in one year, as in CMS's "Medicare Physician & Other Practitioners - by Provider", of
which there is a CSV file a year: that of 2022 is called MUP_PHY_R25_P07_V20_D22_Prov.csv, R25 being the
release. Labels come from OIG's List of Excluded Individuals/Entities (LEIE, UPDATED.csv), by NPI. Clients
are the fifty states; rows from elsewhere (DC, territories, military and foreign addresses) are left out.
2017 to 2020 are for training, 2021 for validation, 2022 for testing.

The paper that has these data (000, "Insurance") says no more than that. What is taken here:

- An exclusion counts if its reason is one of the seven that Herland, Bauder and Khoshgoftaar take for fraud
  (doi 10.1186/s40537-019-0181-8, Table 2): `REASONS`. Others, such as a loan that is not paid back, do not.
- A row is positive up to and including the year in which the exclusion began, which is the end of billing.
- Features are what kind of provider it is, and those totals and counts of beneficiaries that every release
  names alike. Chronic conditions are defined and named otherwise in releases from 2024 on, and counts by
  race are mostly empty: both are left out. Releases from 2025 on do not say the provider's gender: it is a
  feature where all six files have it.

UPDATED.csv lists who is excluded on its day. Who has been reinstated since is not in it any more and counts
as ordinary, so the number of positives depends on that day.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv

from fedauc.data.download import where_to_get
from fedauc.data.rows import Bundle, Rows
from fedauc.data.sources.files import missing
from fedauc.data.sources.labels import choose_excluded
from fedauc.data.synthetic import STATES, TEST_YEAR, VALID_YEAR, YEARS
from fedauc.errors import InputError

FOLDERS = ("cms", "leie")
LEIE = "UPDATED.csv"
EXCLUSION = ("NPI", "EXCLTYPE", "EXCLDATE")
REASONS = {
    "1128a1": "conviction of a crime related to Medicare or Medicaid",
    "1128a2": "conviction of abuse or neglect of patients",
    "1128a3": "felony conviction of health care fraud",
    "1128b4": "licence revoked, suspended or surrendered",
    "1128b7": "fraud, kickbacks and other prohibited activities",
    "1128c3gi": "conviction of two mandatory exclusion offences",
    "1128c3gii": "conviction of three or more mandatory exclusion offences",
}

NPI = "Rndrng_NPI"
STATE = "Rndrng_Prvdr_State_Abrvtn"
GENDER = "Rndrng_Prvdr_Gndr"
CATEGORIES = ("Rndrng_Prvdr_Type", GENDER, "Rndrng_Prvdr_Ent_Cd", "Rndrng_Prvdr_RUCA")
_AMOUNTS = ("Sbmtd_Chrg", "Mdcr_Alowd_Amt", "Mdcr_Pymt_Amt", "Mdcr_Stdzd_Amt")
_PART = ("Tot_HCPCS_Cds", "Tot_Benes", "Tot_Srvcs", *_AMOUNTS)
NUMBERS = (
    *("Tot_HCPCS_Cds", "Tot_Benes", "Tot_Srvcs", *(f"Tot_{amount}" for amount in _AMOUNTS)),
    *(f"{part}_{what}" for part in ("Drug", "Med") for what in _PART),
    "Bene_Avg_Age",
    "Bene_Age_LT_65_Cnt",
    "Bene_Age_65_74_Cnt",
    "Bene_Age_75_84_Cnt",
    "Bene_Age_GT_84_Cnt",
    "Bene_Feml_Cnt",
    "Bene_Male_Cnt",
    "Bene_Dual_Cnt",
    "Bene_Ndual_Cnt",
    "Bene_Avg_Risk_Scre",
)
SUPPRESSED = ("", "*", "#")  # counts of fewer than 11 beneficiaries, and what would give such a count away
BLOCK = 2**24
"""Bytes of a file that are read at once."""


@dataclass(frozen=True)
class Found:
    """The files, and how each spells its columns."""

    years: dict[int, Path]
    leie: Path
    features: tuple[str, ...]
    spelt: dict[Path, dict[str, str]]


def load_medicare(source: str, root: Path, positive: str) -> Bundle:
    """The six years, one after the other; features are numbers and categories, and may be missing."""
    choose_excluded(source, positive)
    found = list_medicare(source, root)
    last = _last_year(found)
    codes: dict[str, dict[str, int]] = {name: {} for name in CATEGORIES}
    codes[STATE] = {state: code for code, state in enumerate(STATES)}
    read = {year: _year(found, year, last, codes) for year in YEARS}
    parts = ([y for y in YEARS if y < VALID_YEAR], [VALID_YEAR], [TEST_YEAR])
    train, valid, test = (_rows([read.pop(year) for year in part], found, codes) for part in parts)
    if not train.y.any():
        raise InputError(
            f"{source!r} has no positive training row: {found.leie} lists no NPI of"
            f" {found.years[YEARS[0]].name} or the three years after it as excluded for fraud in that year or"
            " later."
        )
    return Bundle(source, train, valid, test, STATES, found.features)


def list_medicare(source: str, root: Path) -> Found:
    """Find the files, and look whether they have the columns."""
    years = {
        year: _find(source, root, rf".*_D{year % 100}_Prov\.csv", f"MUP_PHY_*_D{year % 100}_Prov.csv")
        for year in YEARS
    }
    leie = _find(source, root, re.escape(LEIE), LEIE)
    headers = {path: _header(path) for path in (*years.values(), leie)}
    features = (*NUMBERS, *CATEGORIES)
    gender = {path: GENDER.lower() in headers[path] for path in years.values()}
    if not any(gender.values()):
        features = tuple(name for name in features if name != GENDER)
    for path, header in headers.items():
        for name in EXCLUSION if path == leie else (NPI, STATE, *features):
            if name.lower() in header:
                continue
            if name == GENDER:
                other = next(path.name for path, there in gender.items() if there)
                raise InputError(
                    f"{path} has no column {name!r}, which {other} has: take all six years from one release."
                )
            where = where_to_get(source, LEIE if path == leie else "")
            raise InputError(
                f"{path} has no column {name!r}, which the published file has; get it from {where}."
            )
    return Found(years, leie, features, headers)


def _find(source: str, root: Path, pattern: str, name: str) -> Path:
    """The file whose name fits, in the first of the usual folders that has one."""
    places = [source, *FOLDERS, "."]
    for folder in (root / place for place in places):
        fits = (path for path in folder.glob("*.*") if re.fullmatch(pattern, path.name, re.IGNORECASE))
        found = sorted(path for path in fits if path.is_file())
        if len(found) > 1:
            names = " and ".join(path.name for path in found)
            raise InputError(f"{folder} has {names}: leave only the one to use there.")
        if found:
            return found[0]
    raise missing(source, root, places, name)


def _header(path: Path) -> dict[str, str]:
    """How a file spells its columns, by their names in small letters: releases differ in that."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        try:
            names = next(csv.reader(file), [])
        except csv.Error:  # not text at all
            names = []
    return {name.strip().lower(): name for name in names}


# ---------------------------------------------------------------------------------------------- reading files


@dataclass(frozen=True)
class Lines:
    """Some columns of some consecutive lines of a file, as text."""

    path: Path
    first: int
    columns: dict[str, pa.Array]

    def texts(self, name: str) -> list[str]:
        """Stripped, empty where missing."""
        return _texts(self.columns[name])

    def numbers(self, name: str, kind: pa.DataType) -> np.ndarray:
        """NaN where missing; 1,234.50 and $1,234.50 are numbers too: some ways to export write them."""
        column = self.columns[name]
        try:
            values = column.cast(kind).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            values = np.array([self._number(name, row) for row in range(len(column))], kind.to_pandas_dtype())
        if len(infinite := np.flatnonzero(np.isinf(values))):
            raise self.bad(name, int(infinite[0]), "a number")
        return values

    def _number(self, name: str, row: int) -> float:
        (text,) = _texts(self.columns[name][row : row + 1])
        try:
            return float(text.replace(",", "").replace("$", "") or "nan")
        except ValueError:
            raise self.bad(name, row, "a number") from None

    def codes(self, name: str, known: dict[str, int]) -> np.ndarray:
        """The code of each text in `known`, which takes in new ones; -1 where missing."""
        encoded = self.columns[name].dictionary_encode()
        texts = [_plain(text) for text in _texts(encoded.dictionary)]
        codes = [known.setdefault(text, len(known)) if text else -1 for text in texts]
        return np.array([*codes, -1], np.int32)[encoded.indices.fill_null(len(codes)).to_numpy()]

    def bad(self, name: str, row: int, what: str) -> InputError:
        (text,) = _texts(self.columns[name][row : row + 1])
        return InputError(
            f"{self.path} has {text!r} in the column {name!r} at line {self.first + row},"
            f" which is not {what}."
        )


def _texts(column: pa.Array) -> list[str]:
    cells = column.cast(pa.binary()).to_pylist()
    return ["" if cell is None else cell.decode("utf-8", "replace").strip() for cell in cells]


def _plain(text: str) -> str:
    """The same for 1 and 1.0, which both are written for a rural-urban code."""
    return f"{float(text):g}" if re.fullmatch(r"\d+\.\d*", text) else text


def _lines(found: Found, path: Path, columns: Sequence[str]) -> Iterator[Lines]:
    """A file, a block at a time."""
    names = [found.spelt[path][name.lower()] for name in columns]
    convert = pa_csv.ConvertOptions(
        include_columns=names,
        column_types=dict.fromkeys(names, pa.string()),
        check_utf8=False,  # names and addresses are not always UTF-8
        strings_can_be_null=True,
        null_values=list(SUPPRESSED),
    )
    read, first = pa_csv.ReadOptions(block_size=BLOCK), 2
    try:
        with pa_csv.open_csv(path, read_options=read, convert_options=convert) as reader:
            for batch in reader:
                yield Lines(path, first, dict(zip(columns, batch.columns, strict=True)))
                first += batch.num_rows
    except pa.ArrowException as error:
        reason = re.sub(r"(got \d+): .*", r"\1", " ".join(str(error).split())).rstrip(".")  # not the row
        raise InputError(f"{path} is not a whole CSV file ({reason}); fetch it again.") from error


def _last_year(found: Found) -> pd.Series:
    """By NPI, when an exclusion for fraud began; where there are several, the latest."""
    last: dict[int, int] = {}
    for lines in _lines(found, found.leie, EXCLUSION):
        columns = (lines.texts(name) for name in EXCLUSION)
        for row, (npi, reason, date) in enumerate(zip(*columns, strict=True)):
            if reason.lower() not in REASONS:
                continue
            if not re.fullmatch(r"[0-9]*", npi):
                raise lines.bad("NPI", row, "a number")
            if not re.fullmatch(r"[0-9]{8}", date):
                raise lines.bad("EXCLDATE", row, "a date (yyyymmdd)")
            if int(npi or "0"):  # 0000000000: not known
                last[int(npi)] = max(last.get(int(npi), 0), int(date[:4]))
    return pd.Series(last, dtype=np.int64)


def _year(
    found: Found, year: int, last: pd.Series, codes: Mapping[str, dict[str, int]]
) -> dict[str, np.ndarray]:
    """The rows of the fifty states: features (codes where they are categories), y, and the client."""
    columns: dict[str, list[np.ndarray]] = defaultdict(list)
    path = found.years[year]
    for lines in _lines(found, path, (NPI, STATE, *found.features)):
        state = lines.codes(STATE, codes[STATE])
        here = (state >= 0) & (state < len(STATES))
        npi = np.nan_to_num(lines.numbers(NPI, pa.float64())[here]).astype(np.int64)
        began = np.append(last.to_numpy(), 0)[last.index.get_indexer(npi)]  # 0: not excluded
        columns["y"].append((began >= year).astype(np.int8))
        columns["client"].append(state[here].astype(np.int64))
        for name in found.features:
            if name in NUMBERS:
                columns[name].append(lines.numbers(name, pa.float32())[here])
            else:
                columns[name].append(lines.codes(name, codes[name])[here])
    if not any(map(len, columns["y"])):
        raise InputError(f"{path} has no row from one of the fifty states.")
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def _rows(
    years: Sequence[dict[str, np.ndarray]], found: Found, codes: Mapping[str, Mapping[str, int]]
) -> Rows:
    """One year after the other."""

    def joined(name: str) -> np.ndarray:
        parts = [year.pop(name) for year in years]  # a column at a time, so that no more is held twice
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    x: dict[str, np.ndarray | pd.Categorical] = {}
    for name in found.features:
        x[name] = joined(name) if name in NUMBERS else _categorical(joined(name), codes[name])
    y, client = joined("y"), joined("client")
    return Rows(pd.DataFrame(x, copy=False), y, y.astype(np.int64), client)


def _categorical(codes: np.ndarray, known: Mapping[str, int]) -> pd.Categorical:
    """With all texts of all years as categories, sorted."""
    texts = sorted(known)
    place = np.full(len(texts) + 1, -1, dtype=np.int32)
    place[[known[text] for text in texts]] = np.arange(len(texts))
    return pd.Categorical.from_codes(place[codes], categories=pd.Index(texts, dtype=object))
