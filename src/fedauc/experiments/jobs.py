"""Several runs: one after another, or some at the same time, each in its own process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import active_children, get_context, parent_process
from typing import Any, Protocol, TypeVar

import torch

from fedauc.errors import InputError, OutOfMemory
from fedauc.experiments.assembly import Prepared
from fedauc.experiments.config import Config
from fedauc.experiments.prepare import prepare
from fedauc.experiments.runner import Silent, Watch
from fedauc.experiments.settings import DataSettings
from fedauc.transports import ranks
from fedauc.transports.memory import sufficing


class Job(Protocol):
    """Something to be done with a configuration."""

    @property
    def config(self) -> Config: ...


J = TypeVar("J", bound=Job)
R = TypeVar("R")
Do = Callable[[J, Watch | None], R]


def each(
    work: Sequence[J],
    do: Do[J, R],
    jobs: int = 1,
    watch: Watch | None = None,
    after: Callable[[J, R], None] = lambda job, made: None,
    known: Callable[[J], R | None] = lambda job: None,
) -> list[R]:
    """What came of every piece of work, in its order; `do` is a function of a module where `jobs` > 1.

    `after` is told of a piece when it is done, whichever is done first; `known` gives what came of it before.
    """
    if jobs > 1 and ranks.here().size > 1:
        raise InputError("--jobs starts processes of its own: under torchrun leave it out.")
    done: dict[int, R] = {}

    def ended(i: int, made: R) -> None:
        done[i] = made
        after(work[i], made)

    for i, job in enumerate(work):
        if (before := known(job)) is not None:
            ended(i, before)
    todo = [i for i in range(len(work)) if i not in done]
    if jobs == 1:
        _in_turn(work, todo, do, watch or Silent(), ended)
    elif todo:
        _beside(work, todo, do, jobs, watch or Silent(), ended)
    return [done[i] for i in range(len(work))]


def _in_turn(
    work: Sequence[J], todo: Sequence[int], do: Do[J, R], watch: Watch, ended: Callable[[int, R], None]
) -> None:
    """By seed and data, so that the same rows are prepared once."""
    order = sorted(todo, key=lambda i: (work[i].config.seed, repr(work[i].config.data)))
    try:
        for place, i in enumerate(order, start=1):
            ended(i, do(work[i], Numbered(watch, place, len(order)) if len(order) > 1 else watch))
    finally:
        _prepared.cache_clear()  # (a file may have changed when it is asked for again)


def _beside(
    work: Sequence[J],
    todo: Sequence[int],
    do: Do[J, R],
    jobs: int,
    watch: Watch,
    ended: Callable[[int, R], None],
) -> None:
    """So many at the same time. An error, or Ctrl-C, ends all of them at once: whatever was interrupted can
    be resumed."""
    watch.several(len(todo), min(jobs, len(todo)))
    others = active_children()
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _with_parent)
    try:
        with _deaf():
            begun = {pool.submit(_alone, do, work[i]): i for i in todo}
        for future in as_completed(begun):
            watch.one_less()
            ended(begun[future], future.result())
    except BaseException as error:
        for process in active_children():
            if process not in others:
                process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise OutOfMemory(
                "The process of a run was killed from outside, as a system does that has no memory left:"
                " fewer --jobs need less. What was finished is kept."
            ) from error
        raise
    finally:
        watch.end()
    pool.shutdown()


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that begin now do not hear a terminal's Ctrl-C, which is for the one that began them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Numbered:
    """A watch that says which of several runs it is."""

    def __init__(self, watch: Watch, place: int, of: int, what: str = "") -> None:
        self.watch, self.name = watch, f"{what}{place} of {of}"

    def begin(self, title: str, rounds: int, done: int) -> None:
        self.watch.begin(f"{self.name} · {title}", rounds, done)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.watch, name)


def _with_parent() -> None:
    """End this process when its parent is gone: one that was killed cannot say so, and runs take hours."""
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _alone(do: Do[J, R], job: J) -> R:
    """In a process of its own, with one CPU thread."""
    torch.set_num_threads(1)
    return do(job, None)


def prepared(config: Config) -> Prepared:
    """The rows of a configuration; those of the last one are kept."""
    with sufficing(config.device):
        return _prepared(config.data, config.seed, config.device)


@lru_cache(maxsize=1)
def _prepared(data: DataSettings, seed: int, device: str) -> Prepared:
    return prepare(data, seed, device)
