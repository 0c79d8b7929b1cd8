"""Learning curves and ROC curves."""

from __future__ import annotations

import numpy as np

from fedauc.report.clients import stages_of
from fedauc.report.load import Entry, Run, Study
from fedauc.report.svg import NARROW, Scale, auc_limits, dot, grid_x, grid_y, line, path, picture, text, thin
from fedauc.report.text import as_dict, auc, count, num, nums, size

MOST_BANDS = 6  # with more curves, only the best method gets its band
Curve = list[tuple[float, float, float, float]]  # x, mean, lowest, highest over the seeds


def curve_of(entry: Entry, by: str) -> Curve:
    """Valid AUC over the seeds, by ``round`` or by ``bytes`` travelled, where all seeds were evaluated."""
    runs = [r for r in (_evaluated(run) for run in entry.runs) if r]
    if not runs:
        return []
    common = set.intersection(*(set(r) for r in runs)) or set(runs[0])
    runs = [r for r in runs if common <= set(r)]
    curve = []
    for number in sorted(common):
        values = [r[number][0] for r in runs]
        travelled = [b for b in (r[number][1] for r in runs) if b is not None]
        if by == "bytes" and not travelled:
            continue
        x = sum(travelled) / len(travelled) if by == "bytes" else float(number)
        curve.append((x, sum(values) / len(values), min(values), max(values)))
    return curve


def _evaluated(run: Run) -> dict[int, tuple[float, float | None]]:
    found = {}
    for row in run.metrics:
        value = num(row.get("valid_auc"))
        if value is not None:
            ways = [b for b in (num(row.get("bytes_up")), num(row.get("bytes_down"))) if b is not None]
            found[int(row["round"])] = (value, sum(ways) if ways else None)
    return found


def learning(study: Study, by: str, width: int) -> str:
    """Valid AUC by round or by bytes; empty where no round was evaluated."""
    curves = [(e, curve_of(e, by)) for e in reversed(study.entries)]
    curves = [(e, c) for e, c in curves if c]
    if not curves:
        return ""
    slim = width <= NARROW
    left, right, top, bottom = 46.0, width - 14.0, 26.0, 250.0 if slim else 320.0
    first, last = min(c[0][0] for _, c in curves), max(c[-1][0] for _, c in curves)
    shortest = min(c[-1][0] for _, c in curves)
    log = by == "bytes" and first > 0 and last > 40 * shortest
    xs = Scale(first if log else 0, last or 1, left, right, log)
    ys = Scale(*auc_limits([v for _, c in curves for p in c for v in p[1:]]), bottom, top)
    body = [
        grid_y(ys, left, right, 5),
        grid_x(xs, bottom, bottom + 4, 4 if slim else 8, size if by == "bytes" else count),
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
        points = thin([(xs(x), ys(y)) for x, y, _, _ in curve], most)
        body.append(path(points, f"{e.colour} curve{' lead' if e is study.best else ''}"))
        if len(points) <= 12:
            body += [dot(x, y, 3, f"{e.colour} fill") for x, y in points]
    if not study.compared:
        body += _best_mark(study.best, curves[0][1], xs, ys, by)
    where = "bytes travelled, up and down" + (" (log scale)" if log else "") if by == "bytes" else "round"
    body += [
        text(left, 12, "valid AUC", cls="axis-name"),
        text(right, bottom + 34, where, "end", "axis-name"),
    ]
    ends = "; ".join(f"{e.label} ends at {auc(c[-1][1])}" for e, c in reversed(curves))
    return picture(width, bottom + 40, f"Learning curves, valid AUC by {by}: {ends}", body)


def _stage_lines(run: Run, xs: Scale, top: float, bottom: float) -> list[str]:
    starts = [number for number, _ in stages_of(run)][1:]
    return [line(xs(x), top, xs(x), bottom, "stage") for x in starts] if len(starts) <= 40 else []


def _best_mark(entry: Entry, curve: Curve, xs: Scale, ys: Scale, by: str) -> list[str]:
    """A ring at the round whose model was kept."""
    number = entry.runs[0].number("best_round")
    rounds = [p[0] for p in curve_of(entry, "round")]
    if number is None or number not in rounds or len(rounds) != len(curve):
        return []
    x, y = curve[rounds.index(number)][:2]
    place = "end" if xs(x) > (xs.start + xs.end) / 2 else "start"
    words = f"best: {auc(y)} in round {count(number)}"
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


def roc(study: Study, most: float, width: int) -> str:
    """ROC curves up to a false alarm rate of ``most``; empty where no run holds one."""
    curves = [(e, c) for e in reversed(study.entries) if (c := roc_of(e)) is not None]
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
        body.append(path(points, f"{e.colour} curve{' lead' if e is study.best else ''}"))
    body += [
        text(left, 12, "positives found", cls="axis-name"),
        text(right, bottom + 34, "false alarms among negatives", "end", "axis-name"),
    ]
    names = "; ".join(f"{e.label}, AUC {auc(e.auc)}" for e, _ in reversed(curves))
    return picture(width, bottom + 40, f"ROC curves up to a false alarm rate of {most:g}: {names}", body)
