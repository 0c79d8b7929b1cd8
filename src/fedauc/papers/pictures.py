"""The papers' figures as pictures: curves of runs, or what came of each setting, drawn from papers/PAPER.

A picture has panels, a panel has a line per method or per setting, each the mean of its seeds with their
standard deviation around it. Whatever has not been run is left out. A method looks the same in all pictures
of a paper; settings have what methods leave over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedauc.core.checkpoint import write_atomic
from fedauc.papers.names import CURVES, RESULTS, like, name_of
from fedauc.papers.rows import rows_of
from fedauc.report.svg import Scale, auc_limits, dot, grid_x, grid_y, line, path, text

WORDS = {
    "seconds_up": "seconds of uplinks",
    "round": "rounds",
    "step": "local steps",
    "valid_auc": "validation AUC",
    "ours": "test AUC",
    "test_worst": "test accuracy of the worst class",
    "test_mean": "average test accuracy",
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a5c00", "#39424e", "#56b4e9", "#8c1f66")
DASHES = ("", "9 4", "2 3", "12 3 2 3", "5 2", "8 3 1 3 1 3", "16 4", "4 6")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, KEY = 496, 330, 62, 20, 34, 52, 26
STYLE = """
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,Arial,"DejaVu Sans",sans-serif;fill:#3b4350}
.title{font-weight:600;fill:#14181f}.paper{fill:#fff}.grid{stroke:#e4e8ed}.axis{stroke:#858e9b}
.curve{fill:none;stroke-width:2;stroke-linejoin:round}.spread{opacity:.13}.dot{stroke:#fff}
"""


@dataclass(frozen=True)
class Panel:
    """Cells of a table like a pattern, and what is drawn against what."""

    title: str
    table: str
    cells: str
    x: str
    """A column of the curves, or what a setting `NAME=NUMBER` names."""
    y: str
    """A column of the curves, or `ours`."""
    by: str = "method"
    """What has a line of its own: `method` or `setting`."""


@dataclass(frozen=True)
class Picture:
    name: str
    """Of the file."""
    panels: tuple[Panel, ...]


class Line(NamedTuple):
    """Of one method or setting."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]


Lines = Mapping[str, Line]


def draw(pictures: Iterable[Picture], folder: Path, methods: Sequence[str] = ()) -> list[Path]:
    """Draw what results and curves of a paper allow; the pictures that have changed."""
    rows, curves = (rows_of(folder / file) for file in (RESULTS, CURVES))
    drawn = []
    for picture in pictures:
        panels = [(panel, _lines(panel, rows, curves)) for panel in picture.panels]
        panels = [(panel, lines) for panel, lines in panels if lines]
        if panels:
            target = folder / f"{picture.name}.svg"
            image = _drawn(picture.name, panels, methods)
            if not target.exists() or target.read_text(encoding="utf-8") != image:
                write_atomic(target, image.encode())
                drawn.append(target)
    return drawn


def _lines(panel: Panel, rows: Sequence[Any], curves: Sequence[Any]) -> dict[str, Line]:
    def chosen(every: Sequence[Any]) -> list[Any]:
        return [each for each in every if each["table"] == panel.table and like(name_of(each), panel.cells)]

    if panel.y != "ours":
        return _along(panel, chosen(curves))
    found: dict[str, list[tuple[float, float, float]]] = {}
    for row in chosen(rows):
        if row["ours_mean"] is not None:
            x = float(row["setting"].partition(f"{panel.x}=")[2].split()[0])
            found.setdefault(row[panel.by], []).append((x, row["ours_mean"], row["ours_std"] or 0.0))
    return {name: Line(*np.array(sorted(points)).T) for name, points in found.items()}


def _along(panel: Panel, curves: Sequence[Any]) -> dict[str, Line]:
    """The mean of the seeds, as far as all of them go."""
    found: dict[str, list[tuple[Any, Any]]] = {}
    for each in curves:
        for curve in each["curves"]:
            if panel.x in curve and panel.y in curve:  # (a seed of results.json may have none)
                found.setdefault(each[panel.by], []).append((curve[panel.x], curve[panel.y]))
    lines = {}
    for name, seeds in found.items():
        length = min(len(x) for x, _ in seeds)
        x, y = (np.array([columns[k][:length] for columns in seeds], dtype=float) for k in (0, 1))
        spread = y.std(axis=0, ddof=1) if len(seeds) > 1 else np.zeros(length)
        lines[name] = Line(x.mean(axis=0), y.mean(axis=0), spread)
    return lines


def _drawn(name: str, panels: Sequence[tuple[Panel, Lines]], methods: Sequence[str]) -> str:
    present = dict.fromkeys(name for _, lines in panels for name in lines)
    known = [method for method in methods if method in present]
    others = [name for name in present if name not in methods]
    numbers = {method: number for number, method in enumerate(methods) if method in present}
    numbers |= dict(zip(others, (n for n in count() if n not in set(numbers.values())), strict=False))
    columns = min(2, len(panels))
    width = columns * WIDTH
    key: list[str] = []
    across: float = LEFT
    top = KEY
    for label in (*known, *others):
        room = 50 + 9 * len(label)
        if across + room > width or (known and label == next(iter(others), None)):
            across, top = LEFT, top + 20
        key.append(_stroke([(across, top - 8), (across + 30, top - 8)], numbers[label]))
        key.append(text(across + 36, top - 4, label))
        across += room
    height = top + 10 + -(-len(panels) // columns) * HEIGHT
    body = []
    for place, (panel, lines) in enumerate(panels):
        row, column = divmod(place, columns)
        heights = [mean for beside, found in panels if _alike(panel, beside) for mean in _means(found)]
        limits = auc_limits(heights)
        body += _panel(panel, lines, numbers, limits, column * WIDTH, top + 10 + row * HEIGHT)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{name}" {size}>'
        f'<style>{STYLE}</style><rect class="paper" width="{width}" height="{height}"/>'
        f"{''.join(key + body)}</svg>\n"
    )


def _alike(one: Panel, other: Panel) -> bool:
    """Whether heights are compared: those of two methods with the same settings are."""
    return one == other or (one.by == other.by == "setting" and (one.table, one.y) == (other.table, other.y))


def _means(lines: Lines) -> list[float]:
    return [float(y) for line in lines.values() for y in line.mean]


def _panel(
    panel: Panel,
    lines: Lines,
    numbers: Mapping[str, int],
    limits: tuple[float, float],
    left: float,
    top: float,
) -> list[str]:
    xs = np.concatenate([line.x for line in lines.values()])
    points = panel.y == "ours"
    low, high = limits
    begin, end, up, down = left + LEFT, left + WIDTH - RIGHT, top + TOP, top + HEIGHT - BOTTOM
    first = float(xs.min()) if points else 0.0
    across = Scale(first, float(xs.max()), begin, end, log=points and first > 0)
    upwards = Scale(low, high, down, up)
    body = [grid_x(across, up, down, 6, _short), grid_y(upwards, begin, end, 6)]
    body += [line(begin, down, end, down, "axis"), text(left + LEFT, top + 20, panel.title, cls="title")]
    body.append(text((begin + end) / 2, down + 36, WORDS.get(panel.x, panel.x), "middle"))
    body.append(text(end, top + 20, WORDS[panel.y], "end"))
    for name, (x, mean, spread) in lines.items():
        number = numbers[name]
        upper = [(across(a), upwards(b)) for a, b in zip(x, mean + spread, strict=True)]
        lower = [(across(a), upwards(b)) for a, b in zip(x, mean - spread, strict=True)]
        area = path([*upper, *lower[::-1]], "spread", closed=True)
        body.append(f'<g fill="{COLOURS[number % len(COLOURS)]}">{area}</g>')
        middle = [(across(a), upwards(b)) for a, b in zip(x, mean, strict=True)]
        body.append(_stroke(middle, number))
        if points:
            dots = "".join(dot(a, b, 4, "dot") for a, b in middle)
            body.append(f'<g fill="{COLOURS[number % len(COLOURS)]}">{dots}</g>')
    return body


def _stroke(points: Sequence[tuple[float, float]], number: int) -> str:
    dashes = DASHES[number % len(DASHES)]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<g stroke="{COLOURS[number % len(COLOURS)]}"{dashed}>{path(points, "curve")}</g>'


def _short(value: float) -> str:
    return f"{value:g}" if value < 10_000 else f"{value / 1000:g}k"
