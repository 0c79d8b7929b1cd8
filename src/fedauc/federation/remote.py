"""The transport of a real federation: tasks go out, answers come in, and are folded as in-process ones are.

It asks sites through their `Attendance`, which knows an engine's link. Whoever does not answer in time, or
not as agreed, is left out of the round's cohort, with a line in the journal; a round with too few answers is
tried again, skipped, or ends the run. With everybody there, the bits are those of `train.mode=loop`: one
client after another, summed in the same pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from fedauc.core import tree
from fedauc.core.loop import Skipped
from fedauc.core.method import Gathered, Method, Upload
from fedauc.core.store import Store
from fedauc.core.tree import Tree
from fedauc.data.federated import Draws, FederatedData
from fedauc.errors import InputError
from fedauc.federation.attendance import RETRY, Attendance, Failure
from fedauc.federation.messages import Answer, Message, Refused, Task, checked, digest, norm_of
from fedauc.federation.worker import sent
from fedauc.methods.base import of, under
from fedauc.transports.local import Carried, Collected, Exchange, LocalTransport, Made, collected, halved

M = TypeVar("M", bound=Message)

ACCEPTED = "accepted"
"""All that the coordinator knows of a client's memory: the round in which it was kept."""


Absent = Literal["retry", "skip", "stop"]
"""What becomes of a round with fewer answers than the quorum: it is tried again for as long as the federation
is patient and then ends the run, which can be resumed; it is left out; or it ends the run at once."""


class TooFew(InputError):
    """Fewer sites than the quorum have answered."""


@dataclass(frozen=True)
class Remote:
    """The clients of a cohort at their own sites."""

    attendance: Attendance
    run: str
    shape: tuple[int, ...]
    """Of a row."""
    sites: Sequence[str]
    """Names, by client number."""
    quorum: float = 1.0
    """Share of a cohort that must have answered."""
    absent: Absent = "stop"
    largest: float = 1e6
    """Norm of what a client sends, in norms of the iterate (but at least 1)."""
    journal: Callable[[dict[str, Any]], None] = field(default=lambda line: None, compare=False)
    """Is told of every exchange: who took part, and who was missed."""
    newest: dict[int, int] = field(default_factory=dict, compare=False)
    """By client, the last accepted round in the last checkpoint."""
    saved: dict[int, int] = field(default_factory=dict, compare=False)
    """The same in the checkpoint before it, which is used where the last one is damaged."""
    likes: dict[Any, Tree] = field(default_factory=dict, compare=False, repr=False)

    def bind(self, expected: int) -> Remote:
        """The transport for a run of so many local steps."""
        return self

    def staged(self, memory: Store, method: Method) -> Store:
        """What clients keep changes at the clients when a stage begins."""
        return memory

    def committed(self, memory: Store) -> None:
        """A checkpoint with this memory is on the disk."""
        self.saved.update(self.newest)
        self.newest.update({client: int(kept[ACCEPTED]) for client, kept in memory.items()})

    def exchange(self, what: Exchange) -> Carried:
        """One exchange: wait for the sites, send tasks, check and fold the answers."""
        every = self._tasks(what)
        tasks = {name: task for name, task in every.items() if name not in self.attendance.gone}
        if not tasks:
            raise Skipped
        made = self._answers(what, tasks)
        answered = [position for position, name in enumerate(every) if name in made]
        present = what._replace(cohort=what.cohort.part(np.array(answered)))
        each = list(made.values())

        def one(part: slice, depth: int) -> Collected:
            return collected(each[part.start], present, part, depth)

        found = halved(0, len(each), 0, lambda _: 1, one)
        kept = {ACCEPTED: torch.tensor(what.knobs.round)} if what.method.memory_init(what.z) else {}
        return found._replace(memory=[kept] * len(each)).carried(present.cohort)

    def _answers(self, what: Exchange, tasks: Mapping[str, Task]) -> dict[str, Made]:
        """What a quorum has made of its tasks, in the order of the cohort."""
        requests = {name: task.packed() for name, task in tasks.items()}
        clock = self.attendance.clock
        first = clock.now()
        while True:
            waited = self.attendance.gather(list(requests), self.quorum)
            began = clock.now()
            replies: Mapping[str, bytes | Failure] = {}
            if waited is not None:
                replies = self.attendance.ask(requests)
            made, missed = self._accepted(what, tasks, replies)
            outcome = "done" if made and len(made) / len(tasks) >= self.quorum else "failed"
            again = self.absent == "retry" and waited is not None and self._patient(first)
            if outcome == "failed" and self.absent == "skip":
                outcome = "skipped"
            self._note(what, began, waited or 0.0, made, missed, outcome)
            if outcome == "done":
                return made
            if outcome == "skipped":
                raise Skipped
            if not again:
                reasons = "; ".join(f"{name}: {reason}" for name, reason in missed.items())
                raise TooFew(
                    f"Only {len(made)} of {len(tasks)} sites have answered in round {what.knobs.round + 1}"
                    f" ({reasons}); resuming the run goes on with that round."
                )
            clock.sleep(RETRY)

    def _patient(self, first: datetime) -> bool:
        return (self.attendance.clock.now() - first).total_seconds() < self.attendance.patience

    def _note(
        self,
        what: Exchange,
        began: datetime,
        waited: float,
        made: Mapping[str, Made],
        missed: Mapping[str, str],
        outcome: str,
    ) -> None:
        knobs = what.knobs
        self.journal(
            {
                "round": knobs.round + 1,
                "cycle": knobs.cycle,
                "group": knobs.round % knobs.cycle_length,
                "began": began.isoformat(timespec="seconds"),
                "waited": round(waited, 3),
                "seconds": round((self.attendance.clock.now() - began).total_seconds(), 3),
                "took_part": list(made),
                "missed": dict(missed),
                "outcome": outcome,
            }
        )

    def _tasks(self, what: Exchange) -> dict[str, Task]:
        knobs, cohort = what.knobs, what.cohort
        numbers = {name: value for name, value in knobs._asdict().items() if name != "eta"}
        down = tree.flatten(what.down, "down") | {"eta": knobs.eta}
        common, tasks = digest(self.run, what.phase, numbers["round"], down), {}
        for i, client in enumerate(cohort.clients.tolist()):
            own = under("own", {name: value[i] for name, value in what.own.items()})
            accepted = int(what.memory[i].get(ACCEPTED, torch.tensor(-1)))
            tasks[self.sites[client]] = Task(
                tensors=down | own,
                run=self.run,
                client=client,
                phase=what.phase,
                seed=what.draws.seed,
                **numbers,
                negatives=float(cohort.local[i, 0]),
                positives=float(cohort.local[i, 1]),
                accepted=accepted,
                saved=self.saved.get(client, -1),
                key=digest(common, client, accepted, cohort.local[i].tolist(), own),
            )
        return tasks

    def _accepted(
        self, what: Exchange, tasks: Mapping[str, Task], replies: Mapping[str, bytes | Failure]
    ) -> tuple[dict[str, Made], dict[str, str]]:
        """What is as agreed, and of everybody else why not."""
        largest = self.largest * max(norm_of(what.z), 1.0)
        like = self._like(what)
        made: dict[str, Made] = {}
        missed: dict[str, str] = {}
        for name, task in tasks.items():
            try:
                made[name] = _made(checked(opened(replies.get(name), Answer), task, like, largest))
            except Refused as reason:
                missed[name] = str(reason)
        return made, missed

    def _like(self, what: Exchange) -> Tree:
        """Names, types and shapes of an answer: what comes of a step on two empty rows."""
        key = (what.phase, what.knobs.new_stage)
        if key not in self.likes:
            x = next(iter(what.z.values())).new_zeros(2, *self.shape)
            data = FederatedData.build(x, torch.tensor([0, 1]), np.zeros(2, dtype=np.int64), ["nobody"])
            one, knobs = what.cohort.part(np.array([0])), what.knobs._replace(steps=1, batch=2)
            cohort = one._replace(clients=np.zeros(1, dtype=np.int64), local=np.ones((1, 2)))
            draws = Draws(data, cohort, what.method.draw, 1, 2, 0, 0)
            own = {name: value[:1] for name, value in what.own.items()}
            memory = [what.method.memory_init(what.z)]
            dry = what._replace(own=own, memory=memory, draws=draws, cohort=cohort, knobs=knobs)
            self.likes[key] = sent(LocalTransport("loop").made(dry, slice(0, 1)))
        return self.likes[key]


def opened(reply: bytes | Failure | None, kind: type[M]) -> M:
    """The message in a reply, which is refused where there is none."""
    if not isinstance(reply, bytes):
        raise Refused("no answer" if reply is None else reply.reason)
    return kind.unpacked(reply)


def _made(answer: Answer) -> Made:
    """An answer as the work of one client, with a leading client axis."""
    mean, total, rows = (
        {name: value[None] for name, value in of(part, answer.tensors).items()}
        for part in ("mean", "sum", "gather")
    )
    gather = {name: Gathered(v, torch.ones(v.shape[:2], dtype=torch.bool)) for name, v in rows.items()}
    return Made(Upload(mean, gather, total), {}, answer.tensors["loss"][None])
