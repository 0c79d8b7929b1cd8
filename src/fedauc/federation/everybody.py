"""All sites of a federation, to be asked something at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from fedauc.errors import InputError
from fedauc.federation.attendance import Attendance
from fedauc.federation.messages import Message, Refused
from fedauc.federation.remote import opened

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Everybody:
    """All sites of a federation, to be asked something at once."""

    attendance: Attendance
    sites: tuple[str, ...]
    """Names; a site's number is its place."""
    traffic: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes down and up."""

    def ask(self, request: Callable[[int], Message], reply: type[M]) -> list[M]:
        """Everybody's reply, in the order of the sites; all must answer."""
        found, wrong = self.asked(request, reply, patient=True)
        if wrong:
            reasons = "; ".join(f"{self.sites[i]}: {reason}" for i, reason in wrong.items())
            raise InputError(f"The training cannot begin without all sites: {reasons}.")
        return [found[i] for i in range(len(self.sites))]

    def asked(
        self, request: Callable[[int], Message], reply: type[M], *, patient: bool, quorum: float = 0.0
    ) -> tuple[dict[int, M], dict[int, str]]:
        """The replies by site, and why others gave none; `patient`: each site's window is waited for, or else
        a quorum of those that are open."""
        asked = [request(i) for i in range(len(self.sites))]
        requests = {name: message.packed() for name, message in zip(self.sites, asked, strict=True)}
        attendance = self.attendance
        replies = attendance.ask_all(requests) if patient else attendance.ask(requests, quorum)
        found: dict[int, M] = {}
        wrong: dict[int, str] = {}
        for i, name in enumerate(self.sites):
            answer = replies.get(name)
            try:
                message = opened(answer, reply)
                if (message.run, message.client) != (asked[i].run, i):
                    raise Refused("an answer for another run or of another site")
                found[i] = message
                self.traffic[0] += len(requests[name])
                self.traffic[1] += len(answer) if isinstance(answer, bytes) else 0
            except Refused as reason:
                wrong[i] = str(reason)
        return found, wrong
