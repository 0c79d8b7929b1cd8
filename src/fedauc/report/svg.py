"""Hand-written SVG: scales, axes and marks. Colours come from the page's style sheet (``currentColor``),
so figures follow the light or dark scheme; no ids, no randomness, so the same run gives the same bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedauc.report.text import esc, short

WIDE, HALF, NARROW = 1000, 460, 350
Points = Sequence[tuple[float, float]]


def responsive(draw: Callable[[int], str], wide: int = WIDE) -> str:
    """The same figure drawn twice, for a desk and for a phone; the style sheet shows one of them."""
    return f'<div class="wide">{draw(wide)}</div><div class="narrow">{draw(NARROW)}</div>'


def picture(width: float, height: float, label: str, body: list[str]) -> str:
    return (
        f'<svg role="img" aria-label="{esc(label)}" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'style="max-width:{_n(width)}px">{"".join(body)}</svg>'
    )


@dataclass(frozen=True)
class Scale:
    """From values to pixels, linear or logarithmic; values outside are held at the ends."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (self.end - self.start) * ((value - low) / (high - low) if high > low else 0.5)

    def ticks(self, most: int, whole: bool = False) -> list[float]:
        """About ``most`` round numbers within the ends; with ``whole`` only integers, each once."""
        if whole:
            found = sorted({round(tick) for tick in self._ticks(most, 1)})
            return [float(n) for n in found if self.low <= n <= self.high] or [self.low]
        return self._ticks(most, 0)

    def _ticks(self, most: int, least: float) -> list[float]:
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            marks = [m * 10.0**d for d in decades for m in (1, 2, 5) if self.low <= m * 10.0**d <= self.high]
            whole = [m for m in marks if round(math.log10(m), 6).is_integer()]
            marks = marks if len(marks) <= most or len(whole) < 2 else whole
            return marks[:: math.ceil(len(marks) / most)] if marks else [self.low, self.high]
        step = max(_step(self.high - self.low, most), least)
        first = math.ceil(self.low / step - 1e-9)
        return [round(n * step, 10) for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _step(span: float, most: int) -> float:
    rough = max(span, 1e-12) / max(most, 1)
    unit = 10 ** math.floor(math.log10(rough))
    return next(m * unit for m in (1, 2, 5, 10) if m * unit >= rough * (1 - 1e-9))


def auc_limits(values: Sequence[float], least: float = 0.02) -> tuple[float, float]:
    """Ends of an AUC axis: a little room around the values, on round numbers, within 0 and 1."""
    if not values:
        return 0.5, 1.0
    low, high = min(values), max(values)
    room = max(0.06 * (high - low), (least - (high - low)) / 2, 0.002)
    step = _step(high - low + 2 * room, 8)
    low, high = math.floor((low - room) / step) * step, math.ceil((high + room) / step) * step
    return max(low, 0.0), min(high, 1.0)


def decimals(ticks: Sequence[float]) -> Callable[[float], str]:
    """Labels with as many decimals as the ticks need."""
    gaps = [b - a for a, b in itertools.pairwise(ticks)]
    digits = max(0, -math.floor(math.log10(min(gaps)) + 1e-9)) if gaps else 2
    return lambda value: f"{value:.{digits}f}"


def text(x: float, y: float, words: str, anchor: str = "start", cls: str = "", hint: str = "") -> str:
    attributes = f' class="{cls}"' if cls else ""
    attributes += f' text-anchor="{anchor}"' if anchor != "start" else ""
    title = f"<title>{esc(hint)}</title>" if hint else ""
    return f'<text x="{_n(x)}" y="{_n(y)}"{attributes}>{title}{esc(words)}</text>'


def breadth(words: str, height: float = 13) -> float:
    """About how wide the words are, erring on the wide side: the reader's font is not known."""
    ems = (
        0.4 if c in "iljtfrI.,:;|!'()[] " else 1.0 if c in "mwMW@%…" or ord(c) > 0x2E7F else 0.72
        for c in words
    )
    return height * 0.92 * sum(ems)


def fit(words: str, room: float, height: float = 13) -> str:
    """The words, with their middle left out if they are wider than the room there is."""
    most = len(words)
    while most > 3 and breadth(short(words, most), height) > room:
        most -= 1 + max(0, most - 60)
    return short(words, most)


def line(x1: float, y1: float, x2: float, y2: float, cls: str) -> str:
    return f'<path class="{cls}" d="M{_n(x1)} {_n(y1)}L{_n(x2)} {_n(y2)}"/>'


def dot(x: float, y: float, r: float, cls: str, hint: str = "") -> str:
    title = f"<title>{esc(hint)}</title>" if hint else ""
    return f'<circle class="{cls}" cx="{_n(x)}" cy="{_n(y)}" r="{_n(r)}">{title}</circle>'


# Marks by form, as corners on a unit circle; a circle has none.
_ARM = 0.34
_CORNERS: tuple[tuple[tuple[float, float], ...], ...] = (
    (),
    ((0, -1.15), (1.15, 0), (0, 1.15), (-1.15, 0)),  # diamond
    ((-0.87, -0.87), (0.87, -0.87), (0.87, 0.87), (-0.87, 0.87)),  # square
    ((-1.1, -0.8), (1.1, -0.8), (0, 1.15)),  # triangle downwards
    ((-1.1, 0.8), (1.1, 0.8), (0, -1.15)),  # triangle upwards
    (
        *((-_ARM, -1.15), (_ARM, -1.15), (_ARM, -_ARM), (1.15, -_ARM), (1.15, _ARM), (_ARM, _ARM)),
        *((_ARM, 1.15), (-_ARM, 1.15), (-_ARM, _ARM), (-1.15, _ARM), (-1.15, -_ARM), (-_ARM, -_ARM)),
    ),  # plus
)


def mark(x: float, y: float, r: float, form: int, cls: str, hint: str = "") -> str:
    """A dot in one of the forms that tell methods apart without their colours."""
    corners = _CORNERS[form % len(_CORNERS)]
    if not corners:
        return dot(x, y, r, cls, hint)
    return path([(x + r * a, y + r * b) for a, b in corners], cls, True, hint)


def path(points: Points, cls: str, closed: bool = False, hint: str = "", number: int | None = None) -> str:
    """A line or area; ``number`` is what the script knows it by."""
    if not points:
        return ""
    d = f"M{'L'.join(f'{_n(x)} {_n(y)}' for x, y in points)}{'Z' if closed else ''}"
    known = f' data-e="{number}"' if number is not None else ""
    return (
        f'<path class="{cls}"{known} d="{d}"><title>{esc(hint)}</title></path>'
        if hint
        else (f'<path class="{cls}"{known} d="{d}"/>')
    )


def bars(spans: Sequence[tuple[float, float]], y: float, height: float, cls: str) -> str:
    """Filled boxes of one height as a single path; each span is (start, end)."""
    d = "".join(f"M{_n(a)} {_n(y)}h{_n(b - a)}v{_n(height)}h{_n(a - b)}z" for a, b in spans)
    return f'<path class="{cls}" d="{d}"/>' if d else ""


def hatch(spans: Sequence[tuple[float, float]], y: float, height: float, cls: str, step: int = 4) -> str:
    """Slanting lines inside such boxes, as a single path; lines of neighbours are in step."""
    d = []
    for a, b in spans:
        for total in range(math.ceil((a + y) / step) * step, math.ceil(b + y + height), step):
            x1, x2 = max(a, total - y - height), min(b, total - y)
            if x2 - x1 > 0.5:
                d.append(f"M{_n(x1)} {_n(total - x1)}L{_n(x2)} {_n(total - x2)}")
    return f'<path class="{cls}" d="{"".join(d)}"/>' if d else ""


def crosses(middles: Points, r: float, cls: str) -> str:
    """Crosses of one size, as a single path."""
    arms = "l{0} {0}m-{0} 0l{0} -{0}".format(_n(2 * r))
    d = "".join(f"M{_n(x - r)} {_n(y - r)}{arms}" for x, y in middles)
    return f'<path class="{cls}" d="{d}"/>' if d else ""


def grid_x(
    scale: Scale,
    top: float,
    bottom: float,
    most: int,
    show: Callable[[float], str] | None = None,
    whole: bool = False,
) -> str:
    """Vertical grid lines with their labels below."""
    ticks = scale.ticks(most, whole)
    show = show or decimals(ticks)
    marks = []
    for tick in ticks:
        x = scale(tick)
        marks.append(line(x, top, x, bottom, "grid") + text(x, bottom + 16, show(tick), "middle"))
    return "".join(marks)


def grid_y(
    scale: Scale, left: float, right: float, most: int, show: Callable[[float], str] | None = None
) -> str:
    """Horizontal grid lines with their labels to the left."""
    ticks = scale.ticks(most)
    show = show or decimals(ticks)
    marks = []
    for tick in ticks:
        y = scale(tick)
        marks.append(line(left, y, right, y, "grid") + text(left - 8, y + 4, show(tick), "end"))
    return "".join(marks)


def thin(points: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most about ``most`` points of a line: of each stretch its first, lowest, highest and last."""
    if len(points) <= most:
        return points
    chunk = math.ceil(len(points) / max(most // 4, 1))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), chunk):
        part = range(start, min(start + chunk, len(points)))
        lowest, highest = min(part, key=lambda i: points[i][1]), max(part, key=lambda i: points[i][1])
        kept += [points[i] for i in sorted({part[0], lowest, highest, part[-1]})]
    return kept


def _n(value: float) -> str:
    """A coordinate with one decimal and no trailing zero."""
    shown = f"{value:.1f}"
    return shown[:-2] if shown.endswith(".0") else shown
