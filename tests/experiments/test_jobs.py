"""Runs in processes of their own, and what becomes of them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from filelock import FileLock, Timeout

from fedauc.experiments.config import Config
from fedauc.experiments.jobs import each

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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a process that is killed leaves no orphans there")
def test_processes_end_with_the_one_that_started_them(tmp_path):
    code = f"from tests.experiments.test_jobs import main; main({str(tmp_path)!r})"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=HOME)
    begun = [tmp_path / f"{i}.begun" for i in (0, 1)]
    try:
        for _ in range(1200):
            if all(file.exists() for file in begun):
                break
            time.sleep(0.1)
        with pytest.raises(Timeout):  # they are at work
            FileLock(tmp_path / "0.lock", timeout=0).acquire()
    finally:
        parent.kill()
        parent.wait(30)
    for i in (0, 1):
        with FileLock(tmp_path / f"{i}.lock", timeout=30):
            pass
