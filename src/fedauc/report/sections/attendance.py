"""Who answered when in a real federation: in words, as a figure and in tables."""

from __future__ import annotations

from collections import Counter
from functools import partial

from fedauc.report.attendance import Attendance, Cycle, Site
from fedauc.report.figures.attendance import SHOWN_SITES, UP, attendance, merged
from fedauc.report.parts import figure, fold, howto, long, row, table
from fedauc.report.svg import NARROW, WIDE, bars, crosses, hatch, line, mark, responsive
from fedauc.report.text import NONE, count, esc, lasting, listing, plural, short

SHOWN_CYCLES = 200
SHOWN_NAMES = 12


def summary(log: Attendance) -> str:
    """``120 rounds in 40 cycles. The sites were asked 360 times and answered 351 times …``."""
    said = f"{plural(log.groups, 'group')} over " if log.groups > 1 else ""
    said += plural(len(log.rounds), "round")
    if 1 < len(log.cycles) < len(log.rounds):
        said += f" in {plural(len(log.cycles), 'cycle')}"
    took, asked = sum(site.took for site in log.sites), sum(site.asked for site in log.sites)
    said += f". The sites were asked {_times(asked)} and answered {_times(took)}"
    left_out = len(log.left_out)
    said += f"; {plural(left_out, 'round') if left_out else 'no round'} {_was(left_out)} left out"
    said += " because too few answered" if left_out else ""
    if log.failed:
        said += f", {plural(len(log.failed), 'round')} failed"
    said += f". The run was {f'resumed {_times(log.resumes)}' if log.resumes else 'never resumed'}"
    if log.waited is not None:
        said += f" and waited {lasting(log.waited)} in all for windows"
    return said


def _times(n: int) -> str:
    return {1: "once", 2: "twice"}.get(n, f"{count(n)} times")


def _was(n: int) -> str:
    return "were" if n > 1 else "was"


def drawn(log: Attendance, whose: str = "") -> str:
    """The figure and the folds with the tables; ``whose`` says which run it is, where there are several."""
    words = f"{whose}At the right, in how many of the rounds that a site was asked in it took part."
    if merged(log, NARROW) > 1:
        words += " A box " if merged(log, WIDE) > 1 else " On a narrow screen a box "
        words += "stands for several rounds, and is hatched from the top by the share that was missed."
    if log.left_out or log.failed:
        words += " What was sent in rounds that are left out was not used."
    if len(log.sites) > SHOWN_SITES:
        words += f" Of {count(len(log.sites))} sites the {SHOWN_SITES} that missed most are drawn."
    return figure(responsive(partial(attendance, log)), words, _legend(log)) + _sites(log) + _cycles(log)


def _legend(log: Attendance) -> str:
    boxes = [(2.0, 32.0)]
    keys = [
        (bars(boxes, 1, 12, "took"), "took part"),
        (bars(boxes, 1.6, 10.8, "missed") + hatch(boxes, 1.6, 10.8, "hatch"), "asked, but missed"),
        (bars(boxes, 1, 12, "track"), "not its turn"),
    ]
    if log.left_out or log.failed:
        keys.append((crosses([(17, 7)], 4, "cross"), "round left out"))
    if log.resumed:
        keys.append((line(17, 0, 17, 7, "resumption") + mark(17, 9, 4, UP, "resumed"), "run resumed"))
    items = "".join(
        f'<li><span class=nb><svg class="key" viewBox="0 0 34 14" aria-hidden="true">{shape}</svg>'
        f"{words}</span></li>"
        for shape, words in keys
    )
    return f'<ul class="legend">{items}</ul>'


def _words(inner: str) -> str:
    """What a cell holds where it is text, not a number."""
    return f'<span class="words">{inner}</span>'


def _sites(log: Attendance) -> str:
    heads = ["Site", *(["Group"] if log.groups > 1 else []), "Asked", "Took part", "Missed"]
    heads += ["Longest missed<br>in a row", _words("Most frequent reason")]
    rows = [row(long(site.name, 40), _site_cells(site, log.groups > 1)) for site in log.sites]
    words = (
        "Asked are the rounds in which it was the site's turn. The longest it was missed is in such rounds"
        " in a row, and from the first of them until the site answered again."
    )
    return fold(
        f"Site by site <small>{plural(len(log.sites), 'site')}</small>",
        f'<div class="roll">{table("Who took part, site by site", heads, rows)}</div>{howto(words)}',
    )


def _site_cells(site: Site, grouped: bool) -> list[str]:
    cells = [NONE if site.group is None else str(site.group)] if grouped else []
    cells += [count(site.asked), count(site.took), count(site.missed)]
    longest = site.longest
    if not longest.turns:
        return [*cells, NONE, _words(NONE)]
    lasted = lasting(longest.seconds) if longest.seconds is not None else ""
    small = ", ".join(filter(None, (lasted, "" if longest.back else "not back since")))
    cells.append(plural(longest.turns, "round") + (f"<small>{small}</small>" if small else ""))
    often = f"<small>{count(site.reasons)} of {count(site.missed)}</small>" if site.missed > 1 else ""
    said = f"{long(site.reason, 120)}{often}" if site.reason else "not recorded"
    return [*cells, _words(said)]


def _cycles(log: Attendance) -> str:
    if all(cycle.number is None for cycle in log.cycles):
        return ""
    shown, note = log.cycles, ""
    rows = [_cycle_row(cycle) for cycle in shown]
    if len(rows) > SHOWN_CYCLES:
        half = SHOWN_CYCLES // 2
        hidden = len(rows) - 2 * half
        rows = [*rows[:half], row(f"… {count(hidden)} more", [""] * 5), *rows[-half:]]
        note = f" Of {count(len(shown))} cycles the first {half} and the last {half} are shown."
    heads = ["Cycle", "Began (UTC)", _words("Took part"), _words("Missed"), "Waited", "Exchanges"]
    words = (
        "Waited is the time until windows opened; exchanges is the time that asking and answering took. Both"
        f" are with attempts that were repeated.{note}"
    )
    return fold(
        f"Cycle by cycle <small>{plural(len(log.cycles), 'cycle')}</small>",
        f'<div class="roll">{table("Who took part, cycle by cycle", heads, rows)}</div>{howto(words)}',
    )


def _cycle_row(cycle: Cycle) -> str:
    head = NONE if cycle.number is None else count(cycle.number)
    rounds = f"round {cycle.first}" if cycle.first == cycle.last else f"rounds {cycle.first} to {cycle.last}"
    head += f"<small>{rounds}</small>"
    head += f"<small>{count(cycle.left_out)} left out</small>" if cycle.left_out else ""
    took, missed = _who_took(cycle), _who_missed(cycle.took, cycle.missed)
    began = NONE if cycle.began is None else f"{cycle.began:%Y-%m-%d %H:%M}"
    cells = [began, _words(took), _words(missed), lasting(cycle.waited), lasting(cycle.seconds)]
    return row(head, cells)


def _who_took(cycle: Cycle) -> str:
    """Names, or ``all 30`` where many were asked and all of them answered."""
    if len(cycle.took) > SHOWN_NAMES and not cycle.missed:
        return f"all {count(len(cycle.took))}"
    return esc(listing([short(name, 24) for name in cycle.took], SHOWN_NAMES)) or "nobody"


def _who_missed(took: Counter[str], missed: Counter[str]) -> str:
    """Names; with how often where a site answered in other rounds of the cycle."""
    names = [
        short(name, 24) + (f" ({n} of {n + took[name]})" if took[name] else "") for name, n in missed.items()
    ]
    return esc(listing(names, 2 * SHOWN_NAMES)) or NONE
