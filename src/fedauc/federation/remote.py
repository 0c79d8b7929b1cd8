"""The transport of a real federation: tasks go out, answers come in, and are folded as in-process ones are.

It is given a `Link`, which is all that an engine has to provide. Whoever does not answer in time, or not as
agreed, is left out of the round's cohort, with a line in `faults`; a round with too few answers fails. With
everybody there, the bits are those of `train.mode=loop`: one client after another, summed in the same pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import torch

from fedauc.core import tree
from fedauc.core.loop import Skipped
from fedauc.core.method import Gathered, Method, Upload
from fedauc.core.store import Store
from fedauc.core.tree import Tree
from fedauc.data.federated import Draws, FederatedData
from fedauc.errors import InputError
from fedauc.federation.messages import Answer, Message, Refused, Task, checked, digest, norm_of
from fedauc.federation.worker import sent
from fedauc.methods.base import of, under
from fedauc.transports.local import Carried, Collected, Exchange, LocalTransport, Made, collected, halved

M = TypeVar("M", bound=Message)

ACCEPTED = "accepted"
"""All that the coordinator knows of a client's memory: the round in which it was kept."""


class Failure(NamedTuple):
    """Why a site has not answered."""

    reason: str


class Link(Protocol):
    """What an engine provides."""

    def exchange(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Failure]:
        """Send every named site its request; returns what came back within `deadline` seconds."""


class Fault(NamedTuple):
    """What went wrong with a site in a round."""

    round: int
    site: str
    reason: str


class TooFew(InputError):
    """Fewer sites than the quorum have answered."""


@dataclass(frozen=True)
class Remote:
    """The clients of a cohort at their own sites."""

    link: Link
    run: str
    shape: tuple[int, ...]
    """Of a row."""
    sites: Sequence[str]
    """Names, by client number."""
    deadline: float = 3600.0
    """Seconds for a task."""
    attempts: int = 1
    """How often a site is asked that does not answer."""
    quorum: float = 1.0
    """Share of a cohort that must have answered."""
    absent: Literal["stop", "skip"] = "stop"
    """What becomes of a round with fewer answers: it ends the run, which can be resumed, or is left out."""
    largest: float = 1e6
    """Norm of what a client sends, in norms of the iterate (but at least 1)."""
    faults: list[Fault] = field(default_factory=list, compare=False)
    saved: dict[int, int] = field(default_factory=dict, compare=False)
    """By client, the last accepted round in the checkpoint."""
    likes: dict[Any, Tree] = field(default_factory=dict, compare=False, repr=False)

    def bind(self, expected: int) -> Remote:
        """The transport for a run of so many local steps."""
        return self

    def staged(self, memory: Store, method: Method) -> Store:
        """What clients keep changes at the clients when a stage begins."""
        return memory

    def committed(self, memory: Store) -> None:
        """A checkpoint with this memory is on the disk."""
        self.saved.update({client: int(kept[ACCEPTED]) for client, kept in memory.items()})

    def exchange(self, what: Exchange) -> Carried:
        """One exchange: send tasks, wait, check and fold the answers."""
        cohort, knobs = what.cohort, what.knobs
        tasks = self._tasks(what)
        made = self._accepted(what, tasks, self._replies(tasks, knobs.round))
        if len(made) < max(1, self.quorum * len(tasks)):
            if self.absent == "skip":
                raise Skipped
            missing = ", ".join(name for name in tasks if name not in made)
            raise TooFew(
                f"Only {len(made)} of {len(tasks)} sites have answered in round {knobs.round + 1}, without"
                f" {missing}; the same command with --resume goes on."
            )
        answered = [position for position, name in enumerate(tasks) if name in made]
        present = what._replace(cohort=cohort.part(np.array(answered)))
        each = list(made.values())

        def one(part: slice, depth: int) -> Collected:
            return collected(each[part.start], present, part, depth)

        found = halved(0, len(each), 0, lambda _: 1, one)
        kept = {ACCEPTED: torch.tensor(knobs.round)} if what.method.memory_init(what.z) else {}
        return found._replace(memory=[kept] * len(each)).carried(present.cohort)

    def _replies(self, tasks: Mapping[str, Task], round: int) -> dict[str, bytes | Failure]:
        """Everybody's reply; who fails is asked again, and every failure is noted."""
        replies: dict[str, bytes | Failure] = {}
        requests = {name: task.packed() for name, task in tasks.items()}
        for attempt in range(1, self.attempts + 1):
            replies |= self.link.exchange(requests, self.deadline)
            failed = {name: reply for name in requests if isinstance(reply := replies.get(name), Failure)}
            if attempt == self.attempts or not failed:
                break
            self.faults.extend(Fault(round, name, failure.reason) for name, failure in failed.items())
            requests = {name: requests[name] for name in failed}
        return replies

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
    ) -> dict[str, Made]:
        """What is as agreed, in the order of the cohort."""
        largest = self.largest * max(norm_of(what.z), 1.0)
        like, made = self._like(what), {}
        for name, task in tasks.items():
            try:
                made[name] = _made(checked(opened(replies.get(name), Answer), task, like, largest))
            except Refused as reason:
                self.faults.append(Fault(what.knobs.round, name, str(reason)))
        return made

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
