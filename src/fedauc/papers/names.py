"""How cells and the files of their results are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

RESULTS, CURVES, DONE = "results.json", "curves.json", "measured.json"
KEY = ("table", "method", "dataset", "setting")
NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
SPELT = str.maketrans({"η": "eta", "λ": "lambda"})
"""Letters of cells' names that few keyboards have."""


def name_of(row: Mapping[str, Any]) -> str:
    """Names a cell within its table."""
    return "/".join(row[part].replace(" ", "") for part in KEY[1:] if row[part])


def place_of(row: Mapping[str, Any]) -> list[list[Any]]:
    """Where a cell stands among others: by its names, and by the numbers in them (I=4 before I=12)."""
    return [
        [float(part) if k % 2 else part for k, part in enumerate(NUMBER.split(row[name]))] for name in KEY
    ]


def like(name: str, pattern: str) -> bool:
    """Whether a cell is meant: by its whole name, or by its beginning or its end."""
    name, pattern = (each.casefold().replace(" ", "").translate(SPELT) for each in (name, pattern))
    return fnmatch(name, pattern) or fnmatch(name, f"{pattern}/*") or fnmatch(name, f"*/{pattern}")
