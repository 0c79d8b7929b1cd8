"""Small conversions: from whatever a run folder holds to numbers, and from numbers to readable text."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from typing import Any

NONE = "–"  # what a missing value looks like
MINUS = "−"


def esc(value: object) -> str:
    """Text that is safe inside HTML and inside attributes; control characters are dropped."""
    return html.escape("".join(c for c in str(value) if c.isprintable() or c in "\n\t"), quote=True)


def word(value: Any) -> str:
    """A name as it should be shown; empty where there is none."""
    return value.strip() if isinstance(value, str) else str(value) if num(value) is not None else ""


def num(value: Any) -> float | None:
    """A finite number, or None for anything else (None, NaN, infinities, text, booleans)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond all floats
        return None


def nums(values: Any) -> list[float]:
    """The finite numbers of a list."""
    return [x for x in (num(v) for v in as_list(values)) if x is not None]


def mean(values: Iterable[float | None]) -> float | None:
    kept = [v for v in values if v is not None]
    return sum(kept) / len(kept) if kept else None


def as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def as_dict(value: Any) -> dict[str, Any]:
    return {str(k): v for k, v in value.items()} if isinstance(value, dict) else {}


def auc(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def signed(value: float | None) -> str:
    if value is None:
        return NONE
    text = f"{abs(value):.3f}"
    return text if float(text) == 0 else f"{'+' if value > 0 else MINUS}{text}"


def count(value: float | None) -> str:
    return NONE if value is None else f"{round(value):,}"


def percent(part: float | None, whole: float | None) -> str:
    if part is None or not whole:
        return NONE
    share = 100 * part / whole
    if share == 0 or share >= 10:
        return f"{share:.0f} %"
    return f"{share:.1f} %" if share >= 1 else f"{share:.2g} %"


def size(value: float | None) -> str:
    """Bytes for people, in steps of 1,000."""
    if value is None:
        return NONE
    units = ["B", "kB", "MB", "GB", "TB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    unit = units[0]
    return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 99.95 else f"{value:.3g} {unit}"


def duration(value: float | None) -> str:
    if value is None:
        return NONE
    if value < 60:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    minutes, seconds = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def lasting(value: float | None) -> str:
    """A duration that may be days."""
    if value is None or value < 86_400:
        return duration(value)
    days, hours = divmod(round(value / 3600), 24)
    return f"{plural(days, 'day')} {hours} h" if hours else plural(days, "day")


def short(name: str, most: int) -> str:
    """A long name with its middle left out; both ends tell names apart."""
    if len(name) <= most:
        return name
    tail = (most - 1) // 2
    return f"{name[: most - 1 - tail]}…{name[len(name) - tail :]}"


def listing(items: list[str], most: int = 6) -> str:
    """``a``, ``a and b``, ``a, b and 3 more``."""
    if len(items) > most:
        items = [*items[: most - 1], f"{len(items) - most + 1} more"]
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def plural(n: float, word: str) -> str:
    return f"{count(n)} {word}{'' if round(n) == 1 else 's'}"
