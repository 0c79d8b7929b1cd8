"""A site's rounds: it is given a task, trains on its own rows, and answers.

Two things are kept in the site's folder, each written atomically before the answer leaves:

    answer-PHASE.safetensors   the last answer; a task that is delivered twice gets it again, without training
    memory-ROUND.safetensors   what the method keeps at the client after a round (a control variate)

A task says of which round the coordinator has *accepted* this site's answer, and the site goes on from what
it kept in that round: an answer that got lost on the way, or came too late, leaves no trace in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedauc.core import checkpoint, tree
from fedauc.core.method import Cohort, Knobs, Method
from fedauc.core.tree import Tree
from fedauc.data.federated import Draws, FederatedData
from fedauc.errors import InputError
from fedauc.federation.messages import Answer, Refused, Task
from fedauc.methods.base import of, under
from fedauc.transports.local import Exchange, LocalTransport, Made


class Forgotten(Refused):
    """The site does not have what it kept in the round that the coordinator names."""


@dataclass(frozen=True)
class Worker:
    """One organisation's rounds of one run."""

    run: str
    method: Method
    params: Tree
    """Start values of the model: they say which names, types and shapes an iterate has."""
    data: FederatedData
    """The rows of this client, and its number."""
    clients: int
    """Of the whole federation."""
    folder: Path
    transport: LocalTransport = field(default_factory=lambda: LocalTransport("loop"))

    def knows(self, task: Task) -> bool:
        """Whether the answer to this very task is in the store."""
        return _stored(self._stored(task), task.key) is not None

    def answer(self, task: Task) -> bytes:
        """What came of a task; a task that is not as agreed is refused."""
        if task.run != self.run or task.client != self.data.first:
            raise Refused("a task for another run or another site")
        self.folder.mkdir(parents=True, exist_ok=True)
        stored = self._stored(task)
        if (before := _stored(stored, task.key)) is not None:
            return before
        made = self._trained(task)
        if made.memory:
            kept = tree.unstack(made.memory, 0)
            checkpoint.write_tensors(self._memory(task.round), kept, {"stage": task.stage})
        reply = Answer(sent(made), self.run, task.client, task.round, task.phase, task.key).packed()
        checkpoint.write_atomic(stored, reply)
        self._forget(task.saved)
        return reply

    def _trained(self, task: Task) -> Made:
        *before, last = self.method.phases(task.new_stage)
        if task.phase not in range(len(before) + 1):
            raise Refused(f"a task of phase {task.phase}, which this method does not have")
        method = (last, *before)[task.phase].method
        server = self.method.server_init(self.params, np.ones((self.clients, 2), dtype=np.int64))
        down = method.broadcast(server)
        expected = tree.flatten(down, "down") | {"eta": next(iter(self.params.values())).new_zeros(())}
        own = of("own", task.tensors)
        _as_agreed({n: v for n, v in task.tensors.items() if not n.startswith("own/")}, expected)
        knobs = Knobs(task.tensors["eta"], *(getattr(task, name) for name in Knobs._fields[1:]))
        one = np.ones(1)
        local = np.array([[task.negatives, task.positives]])
        cohort = Cohort(np.array([task.client]), one, one, local, np.ones((1, 2)))
        draws = Draws(self.data, cohort, method.draw, task.steps, task.batch, task.seed, task.round)
        memory = self._kept(task, server.z) if task.phase == 0 else method.memory_init(server.z)
        received = tree.unflatten(down, task.tensors, "down")
        each = {name: value[None] for name, value in own.items()}
        what = Exchange(method, server.z, received, each, [memory], draws, cohort, knobs, task.phase)
        return self.transport.made(what, slice(0, 1))

    def _kept(self, task: Task, z: Tree) -> Tree:
        """What this client kept in the last accepted round."""
        start = self.method.memory_init(z)
        if task.accepted < 0 or not start:
            return start
        try:
            memory, about = checkpoint.read_tensors(self._memory(task.accepted))
        except InputError as error:
            raise Forgotten(f"what was kept in round {task.accepted} is lost") from error
        for _ in range(task.stage - about["stage"]):
            memory = self.method.memory_stage(memory)
        return memory

    def _stored(self, task: Task) -> Path:
        return self.folder / f"answer-{task.phase}.safetensors"

    def _memory(self, round: int) -> Path:
        return self.folder / f"memory-{round}.safetensors"

    def _forget(self, before: int) -> None:
        for path in self.folder.glob("memory-*.safetensors"):
            if int(path.stem.removeprefix("memory-")) < before:
                path.unlink(missing_ok=True)


def sent(made: Made) -> Tree:
    """What travels of one client's work: of gathered rows those that are kept."""
    upload = made.upload
    mean, total = ({n: v[0] for n, v in values.items()} for values in (upload.mean, upload.sum))
    rows = {name: each.values[0][each.keep[0]] for name, each in upload.gather.items()}
    return under("mean", mean) | under("sum", total) | under("gather", rows) | {"loss": made.loss[0]}


def _stored(path: Path, key: str) -> bytes | None:
    """The stored answer to this very task."""
    try:
        data = path.read_bytes()
        return data if Answer.unpacked(data).task == key else None
    except (OSError, Refused):
        return None


def _as_agreed(found: Tree, expected: Tree) -> None:
    def form(value: Tensor) -> tuple[torch.dtype, torch.Size]:
        return value.dtype, value.shape

    if {n: form(v) for n, v in found.items()} != {n: form(v) for n, v in expected.items()}:
        raise Refused("a task whose tensors are not those of this experiment")
