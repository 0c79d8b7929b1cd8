"""Learning curves and ROC curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedauc.report.clients import stages_of
from fedauc.report.load import Entry, Run, Study
from fedauc.report.svg import (
    HALF,
    Scale,
    auc_limits,
    dot,
    grid_x,
    grid_y,
    line,
    mark,
    path,
    picture,
    text,
    thin,
)
from fedauc.report.text import as_dict, auc, count, num, nums, size

MOST_BANDS = 6  # with more curves, only the best method gets its band
MOST_MARKS = 12  # with more points, a curve among others is marked at a few of them
By = Literal["round", "bytes", "time"]
What = Literal["valid_auc", "worst_accuracy"]
NAMES: dict[str, str] = {"valid_auc": "valid AUC", "worst_accuracy": "accuracy of the worst client"}
Bright = Sequence[Entry]  # those in colour; the others are grey
Curve = list[tuple[float, float, float, float]]  # x, mean, lowest, highest over the seeds


def curve_of(entry: Entry, by: By, what: What = "valid_auc") -> Curve:
    """``what`` over the seeds, by ``round``, by ``bytes`` travelled or by seconds of the uplinks (``time``),
    where all seeds were evaluated."""
    runs = [r for r in (_evaluated(run, by, what) for run in entry.runs) if r]
    if not runs:
        return []
    common = set.intersection(*(set(r) for r in runs)) or set(runs[0])
    runs = [r for r in runs if common <= set(r)]
    curve = []
    for number in sorted(common):
        places, values = zip(*(r[number] for r in runs), strict=True)
        curve.append((sum(places) / len(runs), sum(values) / len(runs), min(values), max(values)))
    return curve


def _evaluated(run: Run, by: By, what: What) -> dict[int, tuple[float, float]]:
    """x and y of the rounds where both are known."""
    if by == "time" and not any(num(row.get("seconds_up")) for row in run.metrics):
        return {}
    found = {}
    for row in run.metrics:
        y = num(row.get(what))
        ways = [num(row.get(key)) for key in _KEYS[by]]
        known = [way for way in ways if way is not None]
        if y is not None and known:
            found[int(row["round"])] = (sum(known), y)
    return found


_KEYS: dict[str, tuple[str, ...]] = {
    "round": ("round",),
    "bytes": ("bytes_up", "bytes_down"),
    "time": ("seconds_up",),
}


def learning(study: Study, bright: Bright, by: By, what: What, width: int) -> str:
    """Valid AUC or ``what`` by round, bytes or time; empty where no round was evaluated."""
    curves = [(e, c) for e in reversed(study.entries) if (c := curve_of(e, by, what))]  # the best on top
    if not curves:
        return ""
    unit = ""
    if by == "time":
        per, unit = clock(max(c[-1][0] for _, c in curves))
        curves = [(e, [(x / per, y, low, high) for x, y, low, high in c]) for e, c in curves]
    slim = width <= HALF
    left, right, top, bottom = 46.0, width - 14.0, 26.0, 250.0 if slim else 320.0
    first, last = min(c[0][0] for _, c in curves), max(c[-1][0] for _, c in curves)
    shortest = min(c[-1][0] for _, c in curves)
    log = by != "round" and first > 0 and last > 40 * shortest
    xs = Scale(first if log else 0, last or 1, left, right, log)
    ys = Scale(*auc_limits([v for _, c in curves for p in c for v in p[1:]]), bottom, top)
    show = {"round": count, "bytes": size, "time": (lambda value: f"{value:g}") if log else None}[by]
    body = [
        grid_y(ys, left, right, 5),
        grid_x(xs, bottom, bottom + 4, 5 if slim else 8, show, whole=by == "round"),
    ]
    body.append(line(left, bottom, right, bottom, "axis"))
    if not study.compared and by == "round":
        body += _stage_lines(study.best.runs[0], xs, top, bottom)
    most = 120 if slim else 240
    for e, curve in curves:
        upper = thin([(xs(x), ys(high)) for x, _, _, high in curve], most // 2)
        lower = thin([(xs(x), ys(low)) for x, _, low, _ in curve], most // 2)
        if len(e.runs) > 1 and len(curve) > 1 and (len(curves) <= MOST_BANDS or e is study.best):
            body.append(path([*upper, *reversed(lower)], f"{e.colour} band", closed=True))
    for e, curve in curves:
        points = [(xs(x), ys(y)) for x, y, _, _ in curve]
        body.append(_line(study, e, thin(points, most if e in bright else most // 2), bright))
        if e in bright:
            body += [
                mark(x, y, 3.2, e.form, f"{e.colour} fill")
                for x, y in _marked(points, bright.index(e), len(bright))
            ]
    if not study.compared and what == "valid_auc":
        body += _kept_mark(study.best, curves[0][1], xs, ys)
    where = {
        "round": "round",
        "bytes": "bytes travelled, up and down",
        "time": f"communication time in {unit}",
    }[by] + (" (log scale)" if log else "")
    body += [
        text(left, 12, NAMES[what], cls="axis-name"),
        text(right, bottom + 34, where, "end", "axis-name"),
    ]
    ends = "; ".join(f"{e.label} ends at {auc(c[-1][1])}" for e, c in reversed(curves))
    along = "communication time" if by == "time" else by
    return picture(width, bottom + 40, f"Learning curves, {NAMES[what]} by {along}: {ends}", body)


def _line(study: Study, entry: Entry, points: list[tuple[float, float]], bright: Bright) -> str:
    """A curve, without dashes where it is the only one; those that are not in colour say whose they are, and
    the script can colour them."""
    if entry in bright:
        lead = " lead" if entry is study.best else ""
        return path(points, f"{entry.colour} curve{lead}{' solo' if len(bright) == 1 else ''}")
    return path(points, f"{entry.colour} curve faint", hint=entry.label, number=study.entries.index(entry))


def _marked(points: list[tuple[float, float]], turn: int, of: int) -> list[tuple[float, float]]:
    """Where a curve is marked: everywhere if it has few points; else, among others, at five of them, and not
    at the same ones as the others."""
    if len(points) <= MOST_MARKS or of == 1:
        return points if len(points) <= MOST_MARKS else []
    return [points[int((n + (turn + 0.5) / of) * len(points) / 5)] for n in range(5)]


def clock(most: float) -> tuple[float, str]:
    """The unit for times up to ``most`` seconds, in seconds, and its name."""
    units = ((0.1, 0.001, "milliseconds"), (300.0, 1.0, "seconds"), (10800.0, 60.0, "minutes"))
    return next(((per, name) for below, per, name in units if most < below), (3600.0, "hours"))


def _stage_lines(run: Run, xs: Scale, top: float, bottom: float) -> list[str]:
    starts = [number for number, _ in stages_of(run)][1:]
    return [line(xs(x), top, xs(x), bottom, "stage") for x in starts] if len(starts) <= 40 else []


def _kept_mark(entry: Entry, curve: Curve, xs: Scale, ys: Scale) -> list[str]:
    """A ring at the round whose model was kept."""
    number = entry.runs[0].number("best_round")
    rounds = [p[0] for p in curve_of(entry, "round")]
    if number is None or number not in rounds or len(rounds) != len(curve):
        return []
    x, y = curve[rounds.index(number)][:2]
    place = "end" if xs(x) > (xs.start + xs.end) / 2 else "start"
    words = f"kept: {auc(y)} in round {count(number)}"
    above = ys(y) - 14 if ys(y) - 14 > ys.end else ys(y) + 24
    return [dot(xs(x), ys(y), 6, f"{entry.colour} open"), text(xs(x), above, words, place, "note")]


def roc_of(entry: Entry) -> tuple[np.ndarray, np.ndarray] | None:
    """The entry's ROC curve, over several seeds the mean hit rate at each false alarm rate."""
    found = []
    for run in entry.runs:
        roc = as_dict(as_dict(run.result.get("test")).get("roc"))
        x, y = nums(roc.get("fpr")), nums(roc.get("tpr"))
        if len(x) == len(y) >= 2:
            found.append((np.array([0.0, *x, 1.0]), np.array([0.0, *y, 1.0])))
    if not found:
        return None
    if len(found) == 1 and len(found[0][0]) <= 260:
        return found[0]
    grid = np.unique(
        np.concatenate([np.geomspace(1e-4, 2e-3, 12), np.linspace(0, 0.1, 81), np.linspace(0.1, 1, 91)])
    )
    heights = np.mean([np.interp(grid, x, y) for x, y in found], axis=0)
    return np.concatenate([[0.0], grid]), np.concatenate([[0.0], heights])


def roc(study: Study, bright: Bright, most: float, width: int) -> str:
    """ROC curves up to a false alarm rate of ``most``; empty where no run holds one."""
    curves = [(e, c) for e in reversed(study.entries) if (c := roc_of(e)) is not None]  # the best on top
    if not curves:
        return ""
    left, right, top = 42.0, width - 14.0, 26.0
    bottom = top + (right - left)
    xs, ys = Scale(0, most, left, right), Scale(0, 1, bottom, top)
    body = [grid_y(ys, left, right, 5), grid_x(xs, top, bottom, 5), line(left, bottom, right, bottom, "axis")]
    body.append(line(xs(0), ys(0), xs(most), ys(most), "chance"))
    for e, (x, y) in curves:
        inside = x <= most
        points = [(xs(a), ys(b)) for a, b in zip(x[inside], y[inside], strict=True)]
        if most < 1:
            points.append((xs(most), ys(float(np.interp(most, x, y)))))
        body.append(_line(study, e, points, bright))
    body += [
        text(left, 12, "positives found", cls="axis-name"),
        text(right, bottom + 34, "false alarms among negatives", "end", "axis-name"),
    ]
    names = "; ".join(f"{e.label}, AUC {auc(e.auc)}" for e, _ in reversed(curves))
    return picture(width, bottom + 40, f"ROC curves up to a false alarm rate of {most:g}: {names}", body)
