"""Columns of the published tables that belong to images."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fedauc.errors import InputError


def read_columns(path: Path, columns: Mapping[str, type]) -> pd.DataFrame:
    """These columns of a CSV file, packed (gz) or not. Text may be missing, and is empty then; numbers may be
    where they are floats."""
    kinds = {name: str if kind is str else "float64" for name, kind in columns.items()}
    try:
        table = pd.read_csv(path, usecols=list(columns), dtype=kinds, index_col=False, encoding="utf-8-sig")
    except (OSError, EOFError, zlib.error, ValueError) as error:  # (pandas' own errors are ValueErrors)
        raise InputError(f"{path} cannot be read as the published table ({error}).") from error
    if table.empty:
        raise InputError(f"{path} has no rows.")
    for name, kind in columns.items():
        if kind is str:
            table[name] = table[name].fillna("")
        elif kind is int:
            if table[name].isna().any():
                raise InputError(f"The column {name!r} of {path} is empty in some rows.")
            table[name] = table[name].astype("int64")
    return table
