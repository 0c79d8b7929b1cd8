"""Validation beside training.

The next round needs nothing of what follows a round: scoring and ranking the validation rows, choosing the
model, a line of metrics.jsonl, a checkpoint on the disk. With many validation rows and a small model that
takes longer than the round itself, so it is done on a thread of its own while training goes on.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

import numpy as np
import torch

from fedauc import metrics
from fedauc.core.tree import Tree
from fedauc.errors import Untrainable
from fedauc.experiments.assembly import Part
from fedauc.experiments.config import Config
from fedauc.experiments.selection import Candidate, Selection, first
from fedauc.models import Model

IN_FLIGHT = 2
"""Large tasks that may wait or run; then training waits, so that the states they hold stay few."""


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Beside:
    """Tasks that are carried out one after another, in order, on one thread beside the caller's.

    They get as many CPU threads as training has, because the last bits of a score can depend on that. Where
    there are not enough cores for both (training that takes all of them is slowed down by more than what a
    task takes), and training is not on a GPU, every task is carried out at once by the caller.

    Whatever happens to the caller, leaving the context waits for the tasks that were handed over, so an
    interrupted run has written what it has trained. After a task that fails no other is begun; its error is
    raised at the next `do`, or at the end, in place of an error that the caller ran into meanwhile.

    On a GPU the tasks have a stream of their own. It waits for what the caller had asked of the device when
    it handed the task over, and a task is over when the stream is idle, so what it reads is never reused.

    Where training is not `alone` on this machine but at sites, tasks ask the same sites and take turns too.
    """

    def __init__(self, device: str, threads: int, alone: bool = True) -> None:
        on_gpu = torch.device(device).type == "cuda"
        self.pool = None
        if alone and (on_gpu or 2 * threads <= cores()):
            self.pool = ThreadPoolExecutor(1, "fedauc-validation", torch.set_num_threads, (threads,))
        self.stream = torch.cuda.Stream(device) if on_gpu else None
        self.tasks: deque[Future[None]] = deque()
        self.large: deque[Future[None]] = deque()
        self.failed = False

    def __enter__(self) -> Beside:
        return self

    def do(self, task: Callable[[], None], *, large: bool) -> None:
        """Hand a task over. A small one is carried out at once if that leaves the order and the GPU alone."""
        while self.tasks and self.tasks[0].done():
            self.tasks.popleft().result()
        if self.pool is None or not (large or self.tasks or self.stream):
            return task()
        if large:
            while len(self.large) >= IN_FLIGHT:
                self.large.popleft().result()
        ready = None
        if self.stream is not None:
            ready = torch.cuda.current_stream(self.stream.device).record_event()
        self.tasks.append(self.pool.submit(self._run, task, ready))
        if large:
            self.large.append(self.tasks[-1])

    def _run(self, task: Callable[[], None], ready: torch.cuda.Event | None) -> None:
        if self.failed:
            return
        try:
            if self.stream is None or ready is None:
                task()
                return
            with torch.cuda.stream(self.stream):
                self.stream.wait_event(ready)
                task()
                self.stream.synchronize()
        except BaseException:
            self.failed = True
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.pool is None:
            return
        try:
            while self.tasks:
                self.tasks.popleft().result()
        except Exception:
            if error is None or isinstance(error, Exception):  # an interruption stays one
                raise
        finally:
            self.pool.shutdown(cancel_futures=True)


class Validated(NamedTuple):
    """How good the current output is on the validation rows."""

    auc: float | None
    """None: the clients that were there do not have both classes."""
    worst_accuracy: float | None
    """Of the client whose rows are classified worst (positive where the score is above 0)."""
    chosen: float | None
    """The AUC of the output that would be chosen now; None: none was ever validated."""


def validated(
    model: Model, z: Tree, round: int, valid: Part, config: Config, selection: Selection | None, last: bool
) -> tuple[Selection | None, Validated]:
    """The selection with the current output taken in, and how good it is; the last one waits for clients."""
    found = valid.scored(model, z, patient=last)
    scores = found.scores
    if not np.isfinite(scores).all():
        eta = config.sections["schedule"]["eta"]
        raise Untrainable(
            f"The model of {config.method} is no longer finite after round {round}: the step size"
            f" schedule.eta={eta} is too large for these data; try a third of it."
        )
    if not 0 < found.y.sum() < len(found.y):
        return selection, Validated(None, None, selection and selection.choice.auc)
    now = Candidate(z, metrics.auc(scores, found.y), round)
    selection = first(now, found) if selection is None else selection.after(now, found)
    worst = metrics.worst_accuracy(scores > 0, found.y, found.client)
    return selection, Validated(now.auc, worst, selection.choice.auc)
