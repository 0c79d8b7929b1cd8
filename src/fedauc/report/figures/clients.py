"""AUC client by client."""

from __future__ import annotations

from collections.abc import Sequence

from fedauc.report.clients import Client
from fedauc.report.load import Entry
from fedauc.report.svg import (
    NARROW,
    Scale,
    auc_limits,
    breadth,
    dot,
    fit,
    grid_x,
    grid_y,
    line,
    mark,
    picture,
    text,
)
from fedauc.report.text import auc, count, short

LABELLED_CLIENTS = 30  # with more clients, the chart shows AUC against positives instead of one line each


def client_dots(shown: Sequence[tuple[Entry, list[Client]]], width: int) -> str:
    """AUC per client: one line each for few clients, AUC against positives for many."""
    entry, lead = shown[0]
    if all(c.auc is None for c in lead):
        return ""
    if not labelled(lead):
        return _client_cloud(shown[0], width)
    if len(lead) > LABELLED_CLIENTS:
        shown = [(entry, [c for c in lead if c.auc is not None]), *shown[1:]]
    return _client_lines(shown, width)


def labelled(clients: list[Client]) -> bool:
    """Few enough for a line each, leaving out the undefined if need be."""
    return len(clients) <= LABELLED_CLIENTS or sum(c.auc is not None for c in clients) <= LABELLED_CLIENTS


def _radius(client: Client, most: float, largest: float) -> float:
    return 2.5 + (largest - 2.5) * min((client.rows or 0) / most, 1) ** 0.5 if most else 4


def _hint(c: Client) -> str:
    return f"{c.name}: AUC {auc(c.auc)}, {count(c.rows)} rows, {count(c.positives)} positives"


def _client_lines(shown: Sequence[tuple[Entry, list[Client]]], width: int) -> str:
    lead = shown[0][1]
    slim = width <= NARROW
    names = {c.name: fit(c.name, 100 if slim else 230) for c in lead}
    left = 10 + max(breadth(name) for name in names.values())
    right, top, step = width - 14.0, 8.0, 24
    bottom = top + step * len(lead)
    most = max((c.rows or 0 for c in lead), default=0)
    values = [c.auc for _, clients in shown for c in clients if c.auc is not None]
    scale = Scale(*auc_limits(values, least=0.1), left + 12, right - 8)
    places = {c.name: top + step * (n + 0.5) for n, c in enumerate(lead)}
    body = [grid_x(scale, top, bottom, 4 if slim else 8)]
    overall = shown[0][0].auc
    if overall is not None and scale.low <= overall <= scale.high:
        body.append(line(scale(overall), top, scale(overall), bottom, f"{shown[0][0].colour} level"))
    for client in lead:
        y = places[client.name]
        body.append(line(left, y, right, y, "row"))
        body.append(text(left - 8, y + 4, names[client.name], "end", "name", client.name))
        if client.auc is None:
            words = "undefined" if slim else f"undefined: {short(client.why, 60)}"
            body.append(text(left + 4, y + 4, words, cls="note"))
    for entry, clients in reversed(shown):
        for c in clients:
            if c.auc is not None and c.name in places:
                hint = f"{entry.label}, {_hint(c)}"
                cls = f"{entry.colour} {'soft' if entry is shown[0][0] else 'open'}"
                form = entry.form if len(shown) > 1 else 0
                body.append(mark(scale(c.auc), places[c.name], _radius(c, most, 9), form, cls, hint))
    body.append(text(right, bottom + 34, "test AUC on the client's rows", "end", "axis-name"))
    known = [c for c in lead if c.auc is not None]
    span = f", from {auc(known[0].auc)} to {auc(known[-1].auc)}" if known else ""
    label = f"Test AUC of {len(lead)} clients{span}; the table below has the numbers"
    return picture(width, bottom + 40, label, body)


def _client_cloud(shown: tuple[Entry, list[Client]], width: int) -> str:
    entry, clients = shown
    known = [c for c in clients if c.auc is not None]
    slim = width <= NARROW
    left, right, top, bottom = 46.0, width - 20.0, 26.0, 270.0 if slim else 340.0
    most = max(c.rows or 0 for c in known)
    positives = [max(c.positives or 1, 1) for c in known]
    xs = Scale(min(positives) * 0.9, max(positives) * 1.1, left + 6, right, log=True)
    ys = Scale(*auc_limits([c.auc or 0 for c in known], least=0.1), bottom, top)
    body = [grid_y(ys, left, right, 5), grid_x(xs, bottom, bottom + 4, 4 if slim else 8, count, whole=True)]
    body.append(line(left, bottom, right, bottom, "axis"))
    if entry.auc is not None:
        body.append(line(left, ys(entry.auc), right, ys(entry.auc), f"{entry.colour} level"))
    for c, x in sorted(zip(known, positives, strict=True), key=lambda pair: -(pair[0].rows or 0)):
        radius = _radius(c, most, 6 if slim else 9)
        body.append(dot(xs(x), ys(c.auc or 0), radius, f"{entry.colour} soft", _hint(c)))
    body += [
        text(left, 12, "test AUC on the client's rows", cls="axis-name"),
        text(right, bottom + 34, "positives in the client's test rows (log scale)", "end", "axis-name"),
    ]
    span = f"{auc(known[0].auc)} to {auc(known[-1].auc)}"
    label = f"Test AUC of {len(known)} clients against their positives, {span}"
    return picture(width, bottom + 40, label, body)
