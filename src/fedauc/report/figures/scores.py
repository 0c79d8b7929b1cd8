"""Test AUCs: all on one line, and method by method."""

from __future__ import annotations

from collections.abc import Sequence

from fedauc.report.load import Entry, Study
from fedauc.report.svg import NARROW, Scale, auc_limits, bars, breadth, dot, fit, grid_x, line, picture, text
from fedauc.report.text import auc


def ruler(study: Study, width: int) -> str:
    """Where the best method stands among the yardsticks, on one line."""
    best, others = study.best, study.others
    shown = [e for e in study.entries if e.auc is not None]
    ends = [v for e in shown if e.auc is not None for v in (e.auc, *((e.ci or ()) if e is best else ()))]
    low, high = auc_limits(ends, least=0.06) if study.compared else (min(0.5, *ends, 1.0), 1.0)
    sticks = sorted((e for e in study.yardsticks if e.auc is not None), key=lambda e: e.auc or 0)
    foot, deepest = 70.0, 0
    scale = Scale(low, high, 14, width - 14)
    body = [
        grid_x(scale, foot - 10, foot, 5 if width <= NARROW else 8),
        line(14, foot, width - 14, foot, "axis"),
    ]
    if low <= 0.5 and not study.compared:
        body.append(text(scale(0.5) - 12, foot + 32, "chance"))
        deepest = 1
    ends_at: list[float] = []  # where the last label of each line of labels ends
    for stick in sticks:
        x, words = scale(stick.auc or 0), f"{fit(stick.label, 150)} {auc(stick.auc)}"
        half = breadth(words) / 2
        middle = min(max(x, half), width - half)
        row = next((n for n, end in enumerate(ends_at) if end < middle - half), len(ends_at))
        ends_at[row : row + 1] = [middle + half + 10]
        deepest = max(deepest, row + 1)
        body.append(line(x, foot - 30, x, foot, f"{stick.colour} tick"))
        body.append(dot(x, foot - 30, 4, f"{stick.colour} fill"))
        body.append(text(middle, foot + 20 + 17 * (row + 1), words, "middle", "name"))
    for other in others:
        if other.auc is not None:
            body.append(dot(scale(other.auc), foot - 16, 5, f"{other.colour} soft", _hint(other)))
    if best.auc is not None:
        x, words = scale(best.auc), f"{fit(best.label, width - 90, 14)} {auc(best.auc)}"
        if best.ci:
            body.append(bars([(scale(best.ci[0]), scale(best.ci[1]))], foot - 22, 12, f"{best.colour} band"))
        body.append(dot(x, foot - 16, 8, f"{best.colour} fill ring", _hint(best)))
        half = breadth(words, 15) / 2
        body.append(text(min(max(x, half), width - half), 20, words, "middle", f"{best.colour} strong"))
    height = foot + 24 + 17 * deepest
    label = "Test AUC on one line: " + "; ".join(f"{e.label} {auc(e.auc)}" for e in shown)
    return picture(width, height, label, body)


def _hint(entry: Entry) -> str:
    spread = f" ± {entry.std:.3f}" if entry.std is not None else ""
    return f"{entry.label}: test AUC {auc(entry.auc)}{spread}"


def seed_dots(entries: Sequence[Entry], width: int) -> str:
    """One line per entry: a dot per seed, the mean as a bar, one standard deviation as a band."""
    entries = [e for e in entries if e.auc is not None]
    stacked = width <= NARROW
    step, top = (44, 6) if stacked else (34, 8)
    names = {e.label: fit(e.label, 220, 14) for e in entries}
    left = 14 if stacked else 22 + max((breadth(name, 14) for name in names.values()), default=0)
    right = width - (14 if stacked else 116)
    values = [v for e in entries for v in (*e.by_seed.values(), e.auc or 0)]
    ends = [(e.auc or 0) + way * (e.std or 0) for e in entries for way in (-1, 1)]
    values += [v for v in ends if 0 <= v <= 1]
    bottom = top + step * len(entries)
    scale = Scale(*auc_limits(values), left, right)
    body = [grid_x(scale, top, bottom, 5 if stacked else 8)]
    for n, e in enumerate(entries):
        assert e.auc is not None
        y = top + step * n + (30 if stacked else step / 2)
        label = f"{auc(e.auc)} ± {e.std:.3f}" if e.std is not None else auc(e.auc)
        base = y - 14 if stacked else y + 4
        name = "name strong" if not e.yardstick else "name"
        at, anchor = (2, "start") if stacked else (left - 18, "end")
        body.append(text(at, base, names[e.label], anchor, name, e.label))
        body.append(text(width - 2, base, label, "end", "number"))
        if e.std:
            body.append(bars([(scale(e.auc - e.std), scale(e.auc + e.std))], y - 6, 12, f"{e.colour} band"))
        body.append(bars([(scale(e.auc) - 1.5, scale(e.auc) + 1.5)], y - 9, 18, f"{e.colour} fill"))
        body += [
            dot(scale(value), y, 4.5, f"{e.colour} soft", f"{e.label}, seed {seed}: {auc(value)}")
            for seed, value in sorted(e.by_seed.items())
        ]
    body.append(text(right, bottom + 34, "test AUC", "end", "axis-name"))
    label = "Test AUC by method and seed: " + "; ".join(_hint(e) for e in entries)
    return picture(width, bottom + 40, label, body)
