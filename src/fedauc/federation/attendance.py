"""Who is there: windows, absences, and how long they are waited for.

Sites are asked through a link, each when its window is open. Within a round a site that cannot be reached is
asked again for `grace` seconds, once per absence: whoever is still away the next time is asked, but not
waited for. Preparation, and the test at the end, wait for everybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

from fedauc.federation.calendar import Window, together

HORIZON = timedelta(days=8)
"""A window that does not open within it never does."""
RETRY = 0.5
"""Seconds before a site that cannot be reached is asked again."""


class Failure(NamedTuple):
    """Why a site has not answered."""

    reason: str
    unreachable: bool = False
    """It was not there, or went away; a site that refuses is there."""


REVOKED, CLOSED = Failure("it has been revoked"), Failure("its window is closed")


class Link(Protocol):
    """What an engine provides."""

    def exchange(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Failure]:
        """Send every named site its request; returns what came back within `deadline` seconds."""


class Clock:
    """The time, and waiting."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True)
class Attendance:
    """The sites of a federation, as they come and go."""

    link: Link
    windows: Mapping[str, Window] = field(default_factory=dict)
    """Of sites that are not always there."""
    deadline: float = 3600.0
    """Seconds that a site has for an answer."""
    grace: float = 30.0
    """Seconds that a site is waited for within a round when it cannot be reached."""
    patience: float = 600.0
    """The same where everybody is needed."""
    gone: frozenset[str] = frozenset()
    """Sites that have been revoked: nobody asks them, and nobody waits for them."""
    clock: Clock = field(default_factory=Clock)
    tell: Callable[[dict[str, Any]], None] = field(default=lambda line: None, compare=False)
    """Is told of whom it waits for."""
    away: set[str] = field(default_factory=set)
    """Sites that could not be reached when they were asked last."""

    def open(self, sites: Sequence[str]) -> list[str]:
        """Those whose window is open now."""
        now = self.clock.now()
        return [name for name in sites if name not in self.windows or self.windows[name].is_open(now)]

    def gather(self, sites: Sequence[str], quorum: float) -> float | None:
        """Wait until the sites' windows are open, or a quorum's and patience has ended; seconds waited,
        None: that is never."""
        begin = self.clock.now()
        windows = {name: self.windows.get(name, Window()) for name in sites}
        patience = timedelta(seconds=self.patience)
        if (found := together(windows, begin, quorum, HORIZON, patience)) is None:
            return None
        if found[0] <= begin:
            return 0.0
        self._until(found[0], sites)
        return (self.clock.now() - begin).total_seconds()

    def ask(self, requests: Mapping[str, bytes], quorum: float = 0.0) -> dict[str, bytes | Failure]:
        """What the sites say that are open now; a quorum of these is waited for while there is patience."""
        return self._asked(requests, min(self.grace, self.deadline), quorum)

    def ask_all(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        """What everybody says, each within its own window."""
        replies: dict[str, bytes | Failure] = {name: REVOKED for name in requests if name in self.gone}
        waiting = {name: request for name, request in requests.items() if name not in self.gone}
        while waiting:
            here = self.open(list(waiting))
            if here:
                self.away.difference_update(here)
                replies |= self._asked({name: waiting.pop(name) for name in here}, self.patience)
            if waiting:
                opening = [self.windows[name].opens(self.clock.now(), HORIZON) for name in waiting]
                if not (times := [time for time in opening if time is not None]):
                    break
                self._until(min(times), list(waiting))
        return replies | {name: Failure("its window never opens") for name in waiting}

    def _asked(
        self, requests: Mapping[str, bytes], wait: float, quorum: float = 0.0
    ) -> dict[str, bytes | Failure]:
        """Ask until all have answered or the time is over; a refusal is an answer."""
        here = [name for name in self.open(list(requests)) if name not in self.gone]
        replies: dict[str, bytes | Failure] = {
            name: REVOKED if name in self.gone else CLOSED for name in requests if name not in here
        }
        waited = {name for name in here if name in self.away}  # (long enough, the last time)
        begin, pending = self.clock.now(), here
        while pending:
            found = self.link.exchange({name: requests[name] for name in pending}, self._left(pending))
            replies |= found
            gone = {n for n in pending if isinstance(r := found.get(n), Failure) and r.unreachable}
            self.away.difference_update(set(pending) - gone)
            self.away.update(gone)
            seconds = (self.clock.now() - begin).total_seconds()
            few = sum(isinstance(replies[name], bytes) for name in here) / len(here) < quorum
            if few and seconds < self.patience:
                again = sorted(gone)
            else:
                again = sorted(gone - waited) if seconds < wait else []
            if again:
                self.clock.sleep(RETRY)
            pending = self.open(again)
        return replies

    def _left(self, sites: Sequence[str]) -> float:
        """Seconds until the deadline, or the end of the first window."""
        now = self.clock.now()
        ends = [now + timedelta(seconds=self.deadline)]
        windows = [self.windows[name] for name in sites if name in self.windows]
        ends += [end for w in windows if w.is_open(now) and (end := w.closes(now)) is not None]
        return max((min(ends) - now).total_seconds(), 1.0)

    def _until(self, time: datetime, sites: Sequence[str]) -> None:
        closed = sorted(set(sites) - set(self.open(sites)))
        until = time.astimezone(UTC).isoformat(timespec="seconds")
        self.tell({"event": "waiting", "sites": closed, "until": until})
        while (left := (time - self.clock.now()).total_seconds()) > 0:
            self.clock.sleep(min(left, 60.0))
