"""Runs in processes of their own, and what becomes of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import pytest
from filelock import FileLock, Timeout

from fedauc.experiments.config import Config
from fedauc.experiments.jobs import each
from fedauc.experiments.runner import Silent, Watch

HOME = Path(__file__).parents[2]


class Work(NamedTuple):
    config: Config
    path: Path


def hold(work: Work, watch: object) -> None:
    """Keep a file locked for as long as the process lives."""
    with FileLock(work.path):
        work.path.with_suffix(".begun").touch()
        time.sleep(600)


def main(folder: str) -> None:
    config = Config.resolve("fedavg", {"data.source": "medicare-like"})
    each([Work(config, Path(folder) / f"{i}.lock") for i in (0, 1)], hold, jobs=2)


def name(work: Work, watch: Watch | None) -> str:
    assert watch is not None
    watch.begin("run", 1, 0)
    return work.path.name


class Seen(Silent):
    def __init__(self) -> None:
        self.said: list[object] = []

    def begin(self, title: str, rounds: int, done: int) -> None:
        self.said.append(title)

    def several(self, runs: int, at_once: int) -> None:
        self.said.append((runs, at_once))

    def one_less(self) -> None:
        self.said.append(-1)

    def end(self) -> None:
        self.said.append("end")


def alone(work: Work, watch: Watch | None) -> str:
    assert watch is None
    return work.path.name


@pytest.mark.parametrize(
    ("jobs", "do", "said"), [(1, name, ["1 of 2 · run", "2 of 2 · run"]), (2, alone, [(2, 2), -1, -1, "end"])]
)
def test_what_is_known_is_not_done_again_and_the_rest_is_counted(jobs, do, said):
    config = Config.resolve("fedavg", {"data.source": "medicare-like"})
    work, watch, after = [Work(config, Path(each)) for each in "abc"], Seen(), []

    def known(job: Work) -> str | None:
        return "known" if job.path.name == "b" else None

    made = each(work, do, jobs, watch, lambda job, made: after.append(made), known)
    assert made == ["a", "known", "c"]
    assert after[0] == "known"
    assert sorted(after) == ["a", "c", "known"]
    assert watch.said == said


def fail(work: Work, watch: Watch | None) -> None:
    raise RuntimeError(work.path.name)


@pytest.mark.slow
def test_an_error_ends_no_other_process_of_the_program():
    config = Config.resolve("fedavg", {"data.source": "medicare-like"})
    other = get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True)
    other.start()
    try:
        with pytest.raises(RuntimeError, match=r"^[ab]$"):
            each([Work(config, Path(name)) for name in "ab"], fail, jobs=2)
        other.join(0.5)
        assert other.is_alive()
    finally:
        other.kill()
        other.join()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a process that is killed leaves no orphans there")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_the_one_that_started_them(tmp_path, how):
    """When it is killed, and when a terminal's Ctrl-C reaches all of them: then one of them speaks."""
    code = f"from tests.experiments.test_jobs import main; main({str(tmp_path)!r})"
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=HOME, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    begun = [tmp_path / f"{i}.begun" for i in (0, 1)]
    try:
        for _ in range(1200):
            if all(file.exists() for file in begun):
                break
            time.sleep(0.1)
        with pytest.raises(Timeout):  # they are at work
            FileLock(tmp_path / "0.lock", timeout=0).acquire()
        if how == signal.SIGINT:
            os.killpg(parent.pid, how)
            said = parent.communicate(timeout=60)[1]
            assert said.count("Traceback") == 1
            assert said.rstrip().endswith("KeyboardInterrupt")
    finally:
        parent.kill()
        parent.wait(30)
    for i in (0, 1):
        with FileLock(tmp_path / f"{i}.lock", timeout=30):
            pass
