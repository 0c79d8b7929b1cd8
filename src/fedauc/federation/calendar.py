"""When organisations can take part.

An organisation has opening hours in its own time zone and days on which it is away. The hours are wall times:
20:00-06:00 lasts nine or eleven hours in the nights in which the clocks change. A wall time that such a night
has twice is the first of the two; one that it leaves out is the moment at which the clocks change.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from fedauc.errors import InputError, nearest

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAYS = "[a-z]+(?:-[a-z]+)?"
_TIME = "(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?"
OPENING = re.compile(
    rf"(?P<days>{_DAYS}(?:,{_DAYS})*)?(?:(?:^|\s+)(?P<start>{_TIME})-(?P<stop>{_TIME}|24:00(?::00)?))?", re.I
)
DAY = timedelta(days=1)
MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
"""Begin of the week by which `alike` orders; no clocks change in it."""


class Opening(NamedTuple):
    """Seconds of wall time after the midnight with which the weekday begins."""

    weekday: int
    start: int
    stop: int


@dataclass(frozen=True)
class Window:
    """When an organisation can take part."""

    timezone: str = "UTC"
    """IANA name, as in Europe/Zurich."""
    open: tuple[str, ...] = ()
    """Openings: `Mon-Fri 20:00-06:00` (the days are those on which it begins), `Sat,Sun` (whole days),
    `22:00-04:30` (every day). None: always."""
    maintenance: tuple[str, ...] = ()
    """Local days without an opening: `2026-12-24`, or `2026-12-24..2026-12-27` with both."""

    def __post_init__(self) -> None:
        for name in ("open", "maintenance"):
            if isinstance(value := getattr(self, name), str):
                raise InputError(f"{name}={value!r} must be a list, even of one.")
        _zone(self.timezone)
        self._openings()
        for text in self.maintenance:
            _absence(text)

    def is_open(self, at: datetime) -> bool:
        """Whether it is open at this time."""
        at = _utc(at)
        return any(start <= at < stop for start, stop in self._spans(at, at))

    def closes(self, at: datetime) -> datetime | None:
        """When the present opening ends, in UTC; None: not within the next 8 days."""
        at = _utc(at)
        limit = at + 8 * DAY
        for start, stop in self._spans(at, limit):
            if start <= at < stop:
                return stop if stop <= limit else None
        raise ValueError(f"The window is closed at {at.isoformat()}.")

    def opens(self, at: datetime, horizon: timedelta) -> datetime | None:
        """`at` itself if open, or the next opening, in UTC; None: not within the horizon."""
        now = _utc(at)
        for start, stop in self._spans(now, now + horizon):
            if now < stop:
                return at if start <= now else start if start <= now + horizon else None
        return None

    def _openings(self) -> frozenset[Opening]:
        return frozenset().union(*map(_opening, self.open or ("Mon-Sun",)))

    def _spans(self, begin: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
        """All the time from `begin` to `end`, and some more, that is open: in order, apart, in UTC."""
        zone = _zone(self.timezone)
        first = begin.astimezone(zone).date() - DAY  # whose nights run into the day
        last = end.astimezone(zone).date()
        days = [first + n * DAY for n in range((last - first).days + 1)]
        openings = [(day, each) for day in days for each in self._openings() if each.weekday == day.weekday()]
        change: Counter[datetime] = Counter()
        for day, opening in openings:
            change[_instant(day, opening.start, zone)] += 1
            change[_instant(day, opening.stop, zone)] -= 1
        for since, until in map(_absence, self.maintenance):
            if since <= last and until >= first:  # an absence outweighs all openings
                change[_instant(max(since, first), 0, zone)] -= len(openings) + 1
                change[_instant(min(until, last) + DAY, 0, zone)] += len(openings) + 1
        turns, level, was = [], 0, False
        for when in sorted(change):
            level += change[when]
            if (level > 0) != was:
                turns.append(when)
                was = not was
        return list(pairwise(turns))[::2]


def together(
    windows: Mapping[str, Window],
    now: datetime,
    quorum: float,
    horizon: timedelta,
    patience: timedelta | None = None,
) -> tuple[datetime, frozenset[str]] | None:
    """The earliest time (in UTC) at which all are open, or else the earliest at which the most are, if these
    are at least the quorum's share; and who is open then. None: never within the horizon. Once a quorum is
    open, others are waited for no longer than `patience`, where that is given."""
    now = _utc(now)
    end = now + horizon
    best: tuple[datetime, frozenset[str]] = now, frozenset()
    turns: defaultdict[datetime, set[str]] = defaultdict(set)
    for name, window in windows.items():
        for start, stop in window._spans(now, now + horizon):
            if now < stop:
                turns[max(start, now)].add(name)
                turns[stop].add(name)
    present: frozenset[str] = frozenset()
    for when in sorted(turns):
        if when > end:
            break
        present ^= turns[when]
        if len(present) > len(best[1]):
            best = when, present
            if patience is not None and len(present) / len(windows) >= quorum:
                end, patience = min(end, when + patience), None
    enough = best[1] and len(best[1]) / len(windows) >= quorum
    return best if enough or not windows else None


def alike(windows: Mapping[str, Window]) -> list[list[str]]:
    """Groups of names whose windows are the same, but for maintenance, ordered by when in the (UTC) week,
    from Monday 00:00 on, they are first open (at the same time: by name); names sorted in a group."""
    groups: defaultdict[tuple[str, frozenset[Opening]], list[str]] = defaultdict(list)
    for name in sorted(windows):
        window = windows[name]
        groups[window.timezone if window.open else "UTC", window._openings()].append(name)

    def order(names: list[str]) -> tuple[datetime, list[str]]:
        return replace(windows[names[0]], maintenance=()).opens(MONDAY, 7 * DAY) or MONDAY, names

    return sorted(groups.values(), key=order)


def _utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise InputError(f"The time {at.isoformat()} must have a time zone.")
    return at.astimezone(UTC)


def _zone(name: str) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)  # UTC needs no time zone database
    except (KeyError, ValueError, TypeError, OSError):
        hint = nearest(str(name), available_timezones())
        hint = hint if "Did you mean" in hint else " Names are like 'Europe/Zurich'."  # not all 600
        raise InputError(f"There is no time zone {name!r}.{hint}") from None


def _instant(day: date, seconds: int, zone: tzinfo) -> datetime:
    """A local wall time in UTC."""
    local = datetime.combine(day, time(), zone) + timedelta(seconds=seconds)
    first, second = (local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    if first <= second:
        return first
    after = local.replace(fold=1).utcoffset()  # the wall time is left out: find when the clocks change
    between = range(int(second.timestamp()), int(first.timestamp()) + 1)
    turn = bisect_left(between, True, key=lambda t: datetime.fromtimestamp(t, zone).utcoffset() == after)
    return datetime.fromtimestamp(between[turn], UTC)


@cache
def _opening(text: str) -> frozenset[Opening]:
    """The openings that a text such as `Mon-Fri 20:00-06:00` describes."""
    match = OPENING.fullmatch(re.sub(r"\s*([,-])\s*", r"\1", str(text).strip()))
    wrong = f"open={text!r} is no opening such as 'Mon-Fri 20:00-06:00', 'Sat,Sun' or '22:00-04:30'"
    if not match or not match[0]:
        raise InputError(f"{wrong}.")
    start, stop = _seconds(match["start"] or "00:00"), _seconds(match["stop"] or "24:00")
    stop += 86400 if stop <= start else 0
    days: set[int] = set()
    for part in (match["days"] or "Mon-Sun").split(","):
        ends = [name.capitalize() for name in part.split("-")]
        for name in ends:
            if name not in DAYS:
                raise InputError(f"{wrong}: there is no day {name!r}.{nearest(name, DAYS)}")
        first, last = DAYS.index(ends[0]), DAYS.index(ends[-1])
        days.update((first + n) % 7 for n in range((last - first) % 7 + 1))
    return frozenset(Opening(day, start, stop) for day in days)


def _seconds(text: str) -> int:
    hours, minutes, *seconds = map(int, text.split(":"))
    return 3600 * hours + 60 * minutes + sum(seconds)


@cache
def _absence(text: str) -> tuple[date, date]:
    """The first and the last day of a text such as `2026-12-24..2026-12-27`."""
    try:
        days = [date.fromisoformat(each.strip()) for each in str(text).split("..")]
    except ValueError:
        days = []
    if not 1 <= len(days) <= 2:
        raise InputError(f"maintenance={text!r} is no date such as 2026-12-24 or 2026-12-24..2026-12-27.")
    if days[-1] < days[0]:
        raise InputError(f"maintenance={text!r} ends before it begins.")
    return days[0], days[-1]
