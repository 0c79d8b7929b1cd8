"""Draws docs/figures/convergence.svg anew, prints its numbers: `python -m docs.convergence`, three minutes.

The problems and what theory says of them are those of tests/convergence; here they are run for longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tests.convergence import theory
from tests.convergence.problems import (
    Array,
    Auc,
    Problem,
    Rows,
    distance,
    federation,
    groups,
    iterates,
    settled,
)

from fedauc.report.svg import Scale, dot, line, path, text

TARGET = Path(__file__).parent / "figures" / "convergence.svg"
ETA, ROUNDS, FEW = 0.005, 400, (4, 16, 64)
STEPS = (1, 2, 4, 8, 16, 32, 64)
CYCLE_ETA, CYCLES, GROUPS = 0.02, 250, (2, 3, 6)
NOISE_ETAS, NOISE_STEPS, NOISE_BATCH, CLIENTS = (0.0025, 0.005, 0.01, 0.02), 4, 8, (2, 8, 32)
STYLE = """
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,Arial,"DejaVu Sans",sans-serif;fill:#3b4350}
.title{font-weight:600;font-size:15px;fill:#14181f}
.paper{fill:#fff}.grid{stroke:#e4e8ed}.axis{stroke:#858e9b}
.curve{fill:none;stroke-width:2;stroke-linejoin:round}circle{stroke:#fff;stroke-width:1}
.theory{fill:none;stroke:#5a6472;stroke-width:1.4;stroke-dasharray:2 4}
path.a{stroke:#d55e00;stroke-dasharray:8 4}circle.a{fill:#d55e00}text.a{fill:#b04a00}
path.b{stroke:#0072b2}circle.b{fill:#0072b2}text.b{fill:#005f99}
"""


class Measured(NamedTuple):
    """What the figure shows."""

    rounds: dict[tuple[str, int], Array]
    """Distances by round, of a preset with I local steps."""
    ends: dict[str, list[float]]
    """Of every I: where CODA+ settles, where theory says it does, and where CODASCA does."""
    cycles: dict[tuple[str, int], Array]
    """Distances by cycle, of a preset with K groups."""
    noise: dict[int, tuple[list[float], list[float]]]
    """Of M clients, for every η: the mean squared distance, and theory's."""


def errors(problem: Problem, preset: str, eta: float, steps: int, cycles: int, count: int = 0) -> Array:
    """‖z - z*‖ at the cycles' ends, from z = 0."""
    fed = federation(problem, preset, eta, steps, groups(count) if count else None)
    return np.asarray(distance(iterates(fed, problem, np.zeros(problem.size), cycles), problem))


def measured() -> Measured:
    problem = Auc()
    rounds = {(name, i): errors(problem, name, ETA, i, ROUNDS) for name in ("coda+", "codasca") for i in FEW}
    ends: dict[str, list[float]] = {"coda+": [], "theory": [], "codasca": []}
    for i in STEPS:
        ends["coda+"].append(distance(settled(federation(problem, "coda+", ETA, i), problem), problem))
        ends["theory"].append(float(np.linalg.norm(theory.drift(problem, ETA, i))))
        enough = int(32 / (ETA * min(i, 32) * problem.slowest[0])) + 60
        path = iterates(federation(problem, "codasca", ETA, i), problem, problem.optimum + 1e-3, enough)
        ends["codasca"].append(distance(path[-1], problem))
    cycles = {
        (name, k): errors(problem, name, CYCLE_ETA, 1, CYCLES, k)
        for name in ("cycp-minimax", "cycp-codasca")
        for k in GROUPS
    }
    return Measured(rounds, ends, cycles, {m: trembling(m) for m in CLIENTS})


def trembling(clients: int) -> tuple[list[float], list[float]]:
    problem, found, expected = Auc(Rows.alike(clients, 240, 30)), [], []
    for eta in NOISE_ETAS:
        fed = federation(problem, "coda+", eta, NOISE_STEPS, {"train.batch": NOISE_BATCH})
        warm_up = int(1.5 / (eta * NOISE_STEPS * problem.slowest[0])) + 10
        around = iterates(fed, problem, problem.optimum, warm_up + 200)[warm_up:]
        found.append(float(np.mean(distance(around, problem) ** 2)))
        expected.append(theory.trembling(problem, eta, NOISE_STEPS, NOISE_BATCH))
    return found, expected


class Panel(NamedTuple):
    """Where a panel is, and its axes; the vertical one is logarithmic."""

    x: Scale
    y: Scale

    @classmethod
    def at(cls, column: int, row: int, x: tuple[float, float], y: tuple[float, float], log: bool) -> Panel:
        left, top = 66.0 + 500 * column, 66.0 + 390 * row
        return cls(Scale(*x, left, left + 390, log), Scale(*y, top + 270, top, True))

    def frame(self, title: str, left: str, below: str, x: Sequence[float], y: Sequence[int]) -> list[str]:
        """Titles, a grid line for each power of ten in y, a tick for each x."""
        start, end, bottom, top = self.x.start, self.x.end, self.y.start, self.y.end
        body = [text(start - 44, top - 36, title, cls="title"), text(start - 44, top - 16, left)]
        for exponent in y:
            at = self.y(10.0**exponent)
            body += [line(start, at, end, at, "grid"), text(start - 8, at + 4, power(exponent), "end")]
        for value in x:
            at = self.x(value)
            body += [line(at, bottom, at, bottom + 5, "axis"), text(at, bottom + 21, f"{value:g}", "middle")]
        return [*body, line(start, bottom, end, bottom, "axis"), text(end, bottom + 42, below, "end")]

    def points(self, x: Sequence[float], y: Sequence[float] | Array) -> list[tuple[float, float]]:
        return [(self.x(a), self.y(max(b, self.y.low))) for a, b in zip(x, y, strict=True)]

    def curve(self, x: Sequence[float], y: Sequence[float] | Array, cls: str) -> str:
        return path(self.points(x, y), cls)

    def dots(self, x: Sequence[float], y: Sequence[float], cls: str) -> str:
        return "".join(dot(a, b, 4.5, cls) for a, b in self.points(x, y))

    def label(
        self, x: float, y: float, words: str, cls: str = "", anchor: str = "start", up: float = 7
    ) -> str:
        return text(self.x(x), self.y(y) - up, words, anchor, cls)


def power(exponent: int) -> str:
    """10⁻¹² and the like."""
    small = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{small}" if exponent else "1"


def by_round(m: Measured) -> list[str]:
    panel, rounds = Panel.at(0, 0, (0, ROUNDS), (1e-16, 10), False), range(ROUNDS + 1)
    title, left = "(a) Everybody in every round, I local steps", "distance to the saddle point"
    body = panel.frame(title, left, "rounds", range(0, ROUNDS + 1, 100), range(0, -17, -4))
    for (name, _), away in m.rounds.items():
        body.append(panel.curve(rounds, away, f"{'a' if name == 'coda+' else 'b'} curve"))
    for i, where in ((4, 230), (16, 150), (64, 50)):
        words = f"CODASCA, I = {i}" if i == 4 else f"I = {i}"
        body.append(panel.label(where + 10, m.rounds["codasca", i][where], words, "b"))
    highest = m.rounds["coda+", FEW[-1]][-1]
    return [*body, panel.label(ROUNDS, highest, "CODA+, from below I = 4, 16, 64", "a", "end", 20)]


def by_steps(m: Measured) -> list[str]:
    panel = Panel.at(1, 0, (1, 64), (1e-16, 10), True)
    title, left = "(b) What is left of it at the end", "distance to the saddle point"
    body = panel.frame(title, left, "I, local steps per round", STEPS, range(0, -17, -4))
    return [
        *body,
        panel.curve(STEPS[1:], m.ends["theory"][1:], "theory"),
        panel.dots(STEPS[1:], m.ends["coda+"][1:], "a"),
        panel.dots(STEPS, m.ends["codasca"], "b"),
        panel.label(64, 2e-4, "CODA+; dotted: theory, ∝ η(I - 1)", "a", "end"),
        panel.label(64, 3e-14, "CODASCA: rounding errors", "b", "end"),
    ]


def by_cycle(m: Measured) -> list[str]:
    panel, cycles = Panel.at(0, 1, (0, CYCLES), (1e-16, 10), False), range(CYCLES + 1)
    title, left = "(c) K groups that take turns, one local step", "distance to the saddle point"
    body = panel.frame(title, left, "cycles of K rounds", range(0, CYCLES + 1, 50), range(0, -17, -4))
    for (name, _), away in m.cycles.items():
        body.append(panel.curve(cycles, away, f"{'a' if name == 'cycp-minimax' else 'b'} curve"))
    for k, where in ((2, 140), (3, 185), (6, 90)):
        words = f"CyCp-CODASCA, K = {k}" if k == 2 else f"K = {k}"
        body.append(panel.label(where + 5, m.cycles["cycp-codasca", k][where], words, "b"))
    highest = m.cycles["cycp-minimax", GROUPS[-1]][-1]
    return [*body, panel.label(CYCLES, highest, "CyCp-Minimax, from below K = 2, 3, 6", "a", "end")]


def by_noise(m: Measured) -> list[str]:
    panel = Panel.at(1, 1, (0.002, 0.025), (1e-5, 0.1), True)
    title, left = "(d) Small batches, M clients that are alike", "mean squared distance to the saddle point"
    body = panel.frame(title, left, "η, the step size", NOISE_ETAS, range(-1, -6, -1))
    for clients, (found, expected) in m.noise.items():
        body += [panel.curve(NOISE_ETAS, expected, "theory"), panel.dots(NOISE_ETAS, found, "a")]
        body.append(panel.label(NOISE_ETAS[-1], found[-1], f"M = {clients}", "a", "end", 12))
    return [*body, panel.label(0.025, 1e-5, "CODA+; dotted: theory, ∝ η/M", "a", "end")]


def drawn(m: Measured) -> str:
    body = [*by_round(m), *by_steps(m), *by_cycle(m), *by_noise(m)]
    label = (
        "Four panels. The more local steps, the further from the saddle point CODA+ ends, and CODASCA always"
        " ends at it; the same with groups that take turns. With small batches the squared error is in"
        " proportion to the step size and to one over the number of clients."
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 980 800" width="980" height="800">'
        f"<title>{label}</title><style>{STYLE}</style>"
        f'<rect class="paper" width="980" height="800"/>{"".join(body)}</svg>\n'
    )


def numbers(m: Measured) -> str:
    lines = [f"{name} I={i}: {away[-1]:.2g} after {ROUNDS} rounds" for (name, i), away in m.rounds.items()]
    for i, plain, expected, corrected in zip(STEPS, *m.ends.values(), strict=True):
        lines.append(f"I={i}: CODA+ {plain:.3g} (theory {expected:.3g}), CODASCA {corrected:.2g}")
    lines += [f"{name} K={k}: {away[-1]:.2g} after {CYCLES} cycles" for (name, k), away in m.cycles.items()]
    for clients, (found, expected) in m.noise.items():
        for eta, a, b in zip(NOISE_ETAS, found, expected, strict=True):
            lines.append(f"M={clients} η={eta:g}: {a:.3g} (theory {b:.3g})")
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    result = measured()
    TARGET.write_text(drawn(result), encoding="utf-8")
    print(numbers(result))
