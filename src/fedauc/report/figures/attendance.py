"""Which site answered in which round."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from fedauc.report.attendance import Attendance, Site
from fedauc.report.svg import (
    NARROW,
    Scale,
    bars,
    breadth,
    crosses,
    fit,
    grid_x,
    hatch,
    line,
    mark,
    picture,
    text,
)
from fedauc.report.text import count

SHOWN_SITES = 40
BOX = 6  # least width of a box: one round, or several where they do not fit
APART = 9  # boxes of that width and more stand apart
LEAST, REST = 5, 3  # heights in a box of many rounds, of what was missed and of the rest, however little
UP = 4  # the form of the mark where the run was resumed
Cells = dict[int, tuple[int, int]]  # by column: how often a site answered, and missed


@dataclass(frozen=True)
class Columns:
    begin: int
    last: int
    per: int  # rounds in a column
    xs: Scale

    def of(self, number: int) -> int:
        return (number - self.begin) // self.per

    @property
    def width(self) -> float:
        return self.xs(self.begin + self.per) - self.xs(self.begin)

    def span(self, column: int) -> tuple[float, float]:
        start = self.xs.start + column * self.width
        return start, start + self.width - (1.5 if self.width >= APART else 0)


def shown_sites(log: Attendance) -> list[Site]:
    """All, or those that were missed most."""
    kept = sorted(log.sites, key=lambda site: -site.missed)[:SHOWN_SITES]
    return [site for site in log.sites if site in kept]


def merged(log: Attendance, width: int) -> int:
    """How many rounds a box of the figure stands for."""
    return _columns(log, *_sides(log, width)).per


def attendance(log: Attendance, width: int) -> str:
    """Sites as rows, rounds as columns: filled, hatched where missed, empty where it was not its turn."""
    left, right = _sides(log, width)
    columns = _columns(log, left, right)
    cells = _cells(log, columns)
    sites = shown_sites(log)
    step = 20 if len(sites) <= 12 else 17
    body, y = [], 4.0
    headed = len({site.group for site in sites}) > 1 and len({site.group for site in sites}) < len(sites)
    for n, site in enumerate(sites):
        if n == 0 or site.group != sites[n - 1].group:
            y += 6 if n else 0
            if headed:
                body.append(
                    text(left - 8, y + 13, f"group {site.group}" if site.group else "in no group", "end")
                )
                y += 18
        body += _row(site, cells.get(site.name, {}), columns, y, step, left)
        body.append(text(columns.xs.end + 8, y + step / 2 + 4, _often(site, width), cls="number"))
        y += step
    body += _left_out(log, columns, y + 6, step, left)
    y += step + 6 if log.left_out or log.failed else 0
    body += _resumed(log, columns, y)
    body.append(_axis(columns, y + (12 if log.resumed else 2), width))
    label = f"Which of {len(log.sites)} sites took part in rounds {columns.begin} to {columns.last}"
    return picture(width, y + (52 if log.resumed else 42), label, body)


def _sides(log: Attendance, width: int) -> tuple[float, float]:
    """Where the columns begin and end, with room for names and numbers."""
    sites = shown_sites(log)
    names = max(breadth(site.name) for site in sites) if sites else 0
    numbers = max(breadth(_often(site, width), 12) for site in sites) if sites else 0
    return min(max(names, 68), 96 if width <= NARROW else 190) + 8, width - numbers - 8


def _often(site: Site, width: int) -> str:
    if not site.asked:
        return "–"
    return f"{site.took}/{site.asked}" if width <= NARROW else f"{count(site.took)} of {count(site.asked)}"


def _columns(log: Attendance, left: float, right: float) -> Columns:
    begin, last = log.rounds[0].round, log.rounds[-1].round
    per = math.ceil((last + 1 - begin) / ((right - left) // BOX))
    many = math.ceil((last + 1 - begin) / per)
    right = min(right, left + 40 * many)  # boxes of few rounds stay boxes
    return Columns(begin, last, per, Scale(begin, begin + many * per, left, right))


def _cells(log: Attendance, columns: Columns) -> dict[str, Cells]:
    cells: dict[str, Cells] = defaultdict(dict)
    for exchange in log.rounds:
        column = columns.of(exchange.round)
        for name in exchange.took:
            took, missed = cells[name].get(column, (0, 0))
            cells[name][column] = took + 1, missed
        for name in exchange.missed:
            took, missed = cells[name].get(column, (0, 0))
            cells[name][column] = took, missed + 1
    return cells


def _row(site: Site, cells: Cells, columns: Columns, y: float, step: float, left: float) -> list[str]:
    """Each box is divided: hatched from the top as far as the share that was missed, filled below."""
    height = step - 4
    took = [column for column, (n, _) in sorted(cells.items()) if n]
    by_height: dict[int, list[int]] = defaultdict(list)
    for column, (answered, missed) in sorted(cells.items()):
        if missed:
            by_height[_missed_height(answered, missed, height)].append(column)
    drawn = [
        text(left - 8, y + step / 2 + 4, fit(site.name, left - 8), "end", "name", hint=site.name),
        bars([(columns.xs.start, columns.xs.end)], y + 2, height, "track"),
        bars(_spans(took, columns), y + 2, height, "took"),
    ]
    for top, which in by_height.items():
        spans = _spans(which, columns)
        inner = [(a + 0.6, b - 0.6) for a, b in spans]
        if top < height:  # a gap, as the colours of both are dark
            drawn.append(bars([(a - 1, b + 1) for a, b in spans], y + 2, top + 1, "gap"))
        drawn.append(bars(inner, y + 2.6, top - 1.2, "missed"))
        drawn.append(hatch(inner, y + 2.6, top - 1.2, "hatch"))
    return drawn


def _spans(which: list[int], columns: Columns) -> list[tuple[float, float]]:
    """From where to where; neighbours that touch are one span."""
    spans: list[tuple[float, float]] = []
    for column in which:
        a, b = columns.span(column)
        if spans and abs(spans[-1][1] - a) < 0.01:
            a = spans.pop()[0]
        spans.append((a, b))
    return spans


def _missed_height(took: int, missed: int, height: float) -> int:
    if not took or not missed:
        return 0 if took else int(height)
    return int(min(max(round(height * missed / (took + missed)), LEAST), height - REST))


def _left_out(log: Attendance, columns: Columns, y: float, step: float, left: float) -> list[str]:
    """A cross in each column with rounds that do not count."""
    numbers = [*log.left_out, *log.failed]
    if not numbers:
        return []
    spans = [columns.span(column) for column in sorted({columns.of(n) for n in numbers})]
    middles = [((a + b) / 2, y + step / 2) for a, b in spans]
    return [
        text(left - 8, y + step / 2 + 4, "left out", "end"),
        line(columns.xs.start, y + step / 2, columns.xs.end, y + step / 2, "grid"),
        crosses(middles, min(4, columns.width / 2 - 0.4), "cross"),
        text(columns.xs.end + 8, y + step / 2 + 4, count(len(numbers)), cls="number"),
    ]


def _resumed(log: Attendance, columns: Columns, y: float) -> list[str]:
    places = sorted({columns.xs(n) for n in log.resumed})
    return [line(x, 2, x, y + 2, "resumption") + mark(x, y + 6, 4, UP, "resumed") for x in places]


def _axis(columns: Columns, y: float, width: int) -> str:
    """A round is named at the middle of its box."""
    xs, half = columns.xs, 0.5 * columns.per
    first, last = columns.begin, columns.last
    middles = Scale(first, last, xs(first + min(0.5, half)), xs(last + 0.5))
    most = max(2, min(4 if width <= NARROW else 10, int((xs.end - xs.start) // 34)))
    drawn = grid_x(middles, y, y + 4, most, count, whole=True)
    words = "round" if columns.per == 1 else f"round, {count(columns.per)} to a box"
    if xs.end - xs.start < 60:
        return drawn + text(xs.start, y + 34, words, cls="axis-name")
    return drawn + text(xs.end, y + 34, words, "end", "axis-name")
