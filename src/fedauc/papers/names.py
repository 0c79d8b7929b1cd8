"""How cells and the files of their results are called."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

RESULTS, CURVES, DONE = "results.json", "curves.json", "measured.json"
KEY = ("table", "method", "dataset", "setting")


def name_of(row: Mapping[str, Any]) -> str:
    """Names a cell within its table."""
    return "/".join(row[part].replace(" ", "") for part in KEY[1:] if row[part])


def like(name: str, pattern: str) -> bool:
    """Whether a cell is meant: by its whole name, or by its beginning or its end."""
    name, pattern = name.casefold(), pattern.casefold().replace(" ", "")
    return fnmatch(name, pattern) or fnmatch(name, f"{pattern}/*") or fnmatch(name, f"*/{pattern}")
