"""Who answered when in a real federation, from the lines of ``participation.jsonl``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fedauc.report.load import Entry, Run
from fedauc.report.text import as_dict, as_list, num, word

MOST = 10**9  # rounds; a larger number is no number of a round


@dataclass(frozen=True)
class Exchange:
    """One line: what was asked of a group, and who answered."""

    round: int
    cycle: int | None
    began: datetime | None
    waited: float | None  # seconds, until the group's window opened
    seconds: float | None
    took: list[str]
    missed: dict[str, str]  # with the reason
    outcome: str

    @property
    def start(self) -> float | None:
        return None if self.began is None else self.began.timestamp()

    @property
    def end(self) -> float | None:
        return None if self.start is None else self.start + (self.seconds or 0)


@dataclass(frozen=True)
class Streak:
    """Turns in a row that a site missed, until it answered again or the record ended."""

    turns: int = 0
    seconds: float | None = None
    back: bool = True

    @property
    def rank(self) -> tuple[int, float]:
        return self.turns, self.seconds or 0


@dataclass(frozen=True)
class Site:
    name: str
    group: int | None  # from 1; None if it is in no group
    took: int
    missed: int
    longest: Streak
    reason: str  # the most frequent
    reasons: int  # how often it was that

    @property
    def asked(self) -> int:
        return self.took + self.missed


@dataclass(frozen=True)
class Cycle:
    number: int | None
    began: datetime | None
    first: int  # round
    last: int
    left_out: int
    took: Counter[str]
    missed: Counter[str]
    waited: float | None
    seconds: float | None


@dataclass(frozen=True)
class Attendance:
    """A round is its last line; earlier ones are attempts, which count only for the time they took."""

    groups: int
    sites: list[Site]  # by group; those in no group last
    rounds: list[Exchange]
    cycles: list[Cycle]
    resumes: int
    resumed: list[int]  # the rounds the run went on with, where they are known
    waited: float | None

    @property
    def left_out(self) -> list[int]:
        return [r.round for r in self.rounds if r.outcome == "skipped"]

    @property
    def failed(self) -> list[int]:
        return [r.round for r in self.rounds if r.outcome == "failed"]


def attended(entry: Entry) -> tuple[Run, Attendance] | None:
    """The best of the entry's runs that recorded who answered."""
    runs = sorted(entry.runs, key=lambda run: -(run.number("test_auc") or 0))
    return next(((run, found) for run in runs if (found := attendance_of(run))), None)


def attendance_of(run: Run) -> Attendance | None:
    """None where no round can be read."""
    lines = [line for line in map(_exchange, run.log) if line]
    if not lines:
        return None
    rounds = [line for _, line in sorted({line.round: line for line in lines}.items())]
    groups = [[name for c in as_list(g) if (name := word(c))] for g in as_list(run.result.get("groups"))]
    return Attendance(
        groups=len(groups),
        sites=_sites(groups, rounds),
        rounds=rounds,
        cycles=_cycles(lines, rounds),
        resumes=sum(map(_resumes, run.log)),
        resumed=_resumed(run.log),
        waited=_total([line.waited for line in lines]),
    )


def _exchange(row: dict[str, Any]) -> Exchange | None:
    number = num(row.get("round"))
    if number is None or not 0 <= number <= MOST or word(row.get("event")):
        return None
    cycle = num(row.get("cycle"))
    took = list(dict.fromkeys(filter(None, map(word, as_list(row.get("took_part"))))))
    missed = row.get("missed")
    reasons = as_dict(missed) if isinstance(missed, dict) else {word(name): "" for name in as_list(missed)}
    return Exchange(
        round=int(number),
        cycle=None if cycle is None else int(cycle),
        began=_time(row.get("began")),
        waited=_positive(row.get("waited")),
        seconds=_positive(row.get("seconds")),
        took=took,
        missed={n: word(why) for name, why in reasons.items() if (n := name.strip()) and n not in took},
        outcome=word(row.get("outcome")) or "done",
    )


def _time(value: Any) -> datetime | None:
    """In UTC, which it is where nothing else is said."""
    try:
        found = datetime.fromisoformat(word(value))
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _positive(value: Any) -> float | None:
    found = num(value)
    return None if found is None or found < 0 else found


def _total(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _resumes(row: dict[str, Any]) -> bool:
    return word(row.get("event")) == "resumed"


def _resumed(log: list[dict[str, Any]]) -> list[int]:
    """With which rounds the run went on: after the event's, or else that of the line that follows it."""
    found = []
    for n, row in enumerate(log):
        if _resumes(row):
            after = _positive(row.get("round"))
            later = (line.round for line in map(_exchange, log[n + 1 :]) if line)
            number = next(later, None) if after is None else int(after) + 1
            found += [] if number is None else [number]
    return found


def _sites(groups: list[list[str]], rounds: list[Exchange]) -> list[Site]:
    """All sites of the groups, and others that were asked."""
    group_of: dict[str, int | None] = {}
    for n, names in enumerate(groups, 1):
        for name in names:
            group_of.setdefault(name, n)
    for line in rounds:
        for name in (*line.took, *line.missed):
            group_of.setdefault(name, None)
    turns: dict[str, list[Exchange]] = {name: [] for name in group_of}
    for line in rounds:
        for name in (*line.took, *line.missed):
            turns[name].append(line)
    end = rounds[-1].end
    return [_site(name, group, turns[name], end) for name, group in group_of.items()]


def _site(name: str, group: int | None, turns: list[Exchange], end: float | None) -> Site:
    missed = [line for line in turns if name in line.missed]
    why = Counter(reason for line in missed if (reason := line.missed[name]))
    reason, reasons = why.most_common(1)[0] if why else ("", 0)
    longest = max(_streaks(name, turns, end), key=lambda s: s.rank, default=Streak())
    return Site(name, group, len(turns) - len(missed), len(missed), longest, reason, reasons)


def _streaks(name: str, turns: list[Exchange], end: float | None) -> list[Streak]:
    found: list[Streak] = []
    row: list[Exchange] = []
    for line in turns:
        if name in line.missed:
            row.append(line)
        elif row:
            found.append(Streak(len(row), _between(row[0].start, line.start)))
            row = []
    if row:
        found.append(Streak(len(row), _between(row[0].start, end), back=False))
    return found


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None or end < start else end - start


def _cycles(lines: list[Exchange], rounds: list[Exchange]) -> list[Cycle]:
    """Cycle by cycle; numbers are shown from 1, as rounds are."""
    add = 1 if any(line.cycle == 0 for line in lines) else 0
    counted: dict[int | None, list[Exchange]] = {}
    tried: dict[int | None, list[Exchange]] = {}
    for line in rounds:
        counted.setdefault(line.cycle, []).append(line)
    for line in lines:
        tried.setdefault(line.cycle, []).append(line)
    return [
        Cycle(
            number=None if number is None else number + add,
            began=min((line.began for line in tried[number] if line.began), default=None),
            first=own[0].round,
            last=own[-1].round,
            left_out=sum(line.outcome in ("skipped", "failed") for line in own),
            took=Counter(name for line in own for name in line.took),
            missed=Counter(name for line in own for name in line.missed),
            waited=_total([line.waited for line in tried[number]]),
            seconds=_total([line.seconds for line in tried[number]]),
        )
        for number, own in counted.items()
    ]
