"""Which group of clients took part in which round."""

from __future__ import annotations

from fedauc.report.clients import Participation
from fedauc.report.svg import NARROW, Scale, bars, grid_x, line, picture, text
from fedauc.report.text import count, percent, short

SHOWN_GROUPS = 24
SHOWN_TURNS = 60  # turns of groups that can be told apart in the strip of a phone


def legible_rounds(part: Participation) -> int:
    """How many rounds fit the strip: all, or the first so many if groups change too often to see."""
    rounds = part.by_round
    turns = [n for n in range(1, len(rounds)) if rounds[n][1] != rounds[n - 1][1]]
    return len(rounds) if len(turns) < 1.5 * SHOWN_TURNS else turns[SHOWN_TURNS - 1]


def timeline(part: Participation, width: int) -> str:
    """Which group took part in which round, and in how many of all rounds."""
    rounds = part.by_round[: legible_rounds(part)]
    groups = min(len(part.groups), SHOWN_GROUPS)
    begin, end = rounds[0][0], rounds[-1][0] + 1
    slim = width <= NARROW
    left, right, top = 62.0, width - (48.0 if slim else 92.0), 20.0
    step = 20 if groups <= 12 else 14
    bottom = top + step * groups
    xs = Scale(begin, end, left, right)
    body = []
    for group in range(groups):
        y = top + step * group
        spans: list[tuple[float, float]] = []
        for number, took in rounds:
            if group in took:
                a, b = xs(number), xs(number + 1)
                spans[-1:] = [(spans[-1][0], b)] if spans and spans[-1][1] == a else [*spans[-1:], (a, b)]
        share = sum(group in took for _, took in part.by_round)
        body.append(bars([(left, right)], y + 2, step - 4, "track"))
        body.append(text(left - 8, y + step / 2 + 4, f"group {group + 1}", "end", "name"))
        body.append(bars(spans, y + 2, step - 4, "took"))
        whole = len(part.by_round)
        often = percent(share, whole) if slim else f"{count(share)} of {count(whole)}"
        body.append(text(right + 10, y + step / 2 + 4, often, cls="number"))
    if 1 < len(part.stages) <= (5 if slim else 14):
        for number, name in part.stages:
            if begin <= number < end:
                body.append(line(xs(number), top - 4, xs(number), bottom, "stage"))
                body.append(text(xs(number), top - 8, f"stage {short(name, 12)}", cls="note"))
    middles = Scale(begin, end - 1, xs(begin + 0.5), xs(end - 0.5))  # a round is a box, named at its middle
    body.append(grid_x(middles, bottom, bottom + 4, 4 if slim else 10, count, whole=True))
    body.append(text(right, bottom + 34, "round", "end", "axis-name"))
    label = f"Which of {len(part.groups)} groups took part in rounds {begin} to {end - 1}"
    return picture(width, bottom + 40, label, body)
