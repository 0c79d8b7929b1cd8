"""What several processes want at once is made by one of them, and what one of them writes is its own."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from filelock import Timeout

from fedauc import locks
from fedauc.errors import InputError
from fedauc.locks import by_one, held


def _made(path, name):
    with by_one(path):
        if not path.exists():
            time.sleep(0.2)
            path.write_text(name)
            return True
    return False


def test_one_makes_what_the_others_wait_for(tmp_path):
    path = tmp_path / "new folder" / "made.json"
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        made = list(pool.map(_made, [path] * 3, "abc"))
    assert made.count(True) == 1
    assert path.read_text() == "abc"[made.index(True)]


def _counted(path):
    for _ in range(100):
        with by_one(path):
            path.write_text(str(int(path.read_text()) + 1))


def test_nobody_comes_between(tmp_path):
    path = tmp_path / "count"
    path.write_text("0")
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        list(pool.map(_counted, [path] * 4))
    assert path.read_text() == "400"
    assert list(tmp_path.iterdir()) == [path]  # and no lock


def test_a_folder_is_refused_and_freed(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    with held(tmp_path / "new"):
        with (
            pytest.raises(InputError, match=r"Another process is writing into .*new; wait"),
            held(tmp_path / "new"),
        ):
            pass
        with held(tmp_path / "new", first=False):  # of several that train together
            pass
    with held(tmp_path / "new"):
        pass
    assert list((tmp_path / "new").iterdir()) == []


def test_a_killed_process_holds_nothing(tmp_path):
    code = "import sys, time; from pathlib import Path; from fedauc.locks import held\n"
    code += "with held(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        os.kill(process.pid, signal.SIGKILL)
    with held(tmp_path):
        pass


def test_somebody_elses_patience_is_not_ours(tmp_path):
    with pytest.raises(Timeout), held(tmp_path):
        raise Timeout("another.lock")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP])
def test_a_drive_without_locks_refuses_nobody(tmp_path, monkeypatch, answer):
    def flock(*_):
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(fcntl, "flock", flock)
    with held(tmp_path), held(tmp_path), by_one(tmp_path / "file"):
        pass
