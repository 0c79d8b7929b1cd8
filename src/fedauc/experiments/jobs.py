"""Several runs: one after another, or some at the same time, each in its own process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import get_context, parent_process
from typing import Protocol, TypeVar

import torch

from fedauc.errors import InputError
from fedauc.experiments.assembly import Prepared
from fedauc.experiments.config import Config
from fedauc.experiments.prepare import prepare
from fedauc.experiments.runner import Watch
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
) -> list[R]:
    """What came of every piece of work, in its order; `do` is a function of a module where `jobs` > 1.

    `after` is told of a piece when it is done, whichever is done first.
    """
    if jobs == 1:  # by seed and data, so that the same rows are prepared once
        order = sorted(range(len(work)), key=lambda i: (work[i].config.seed, repr(work[i].config.data)))
        done = {}
        try:
            for i in order:
                done[i] = do(work[i], watch)
                after(work[i], done[i])
        finally:
            _prepared.cache_clear()  # (a file may have changed when it is asked for again)
        return [done[i] for i in range(len(work))]
    if ranks.here().size > 1:
        raise InputError("--jobs starts processes of its own: under torchrun leave it out.")
    with ProcessPoolExecutor(jobs, get_context("spawn"), _with_parent) as pool:
        begun = {pool.submit(_alone, do, job): job for job in work}
        try:
            for ended in as_completed(begun):
                after(begun[ended], ended.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # (what has begun is finished, the rest is not)
            raise
        return [future.result() for future in begun]


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
