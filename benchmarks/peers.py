"""Other people's frameworks: their environment, and a process for each that does a round when asked to."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import venv
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from benchmarks.work import BATCH, ETA, ROWS, Work
from fedauc.data.federated import FederatedData

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".bench-env"
PYTHON = HOME / "bin" / "python"
PACKAGES = {"pfl": "pfl[pytorch]==0.6.0", "flower": "flwr[simulation]==1.41.0"}
SYSTEMS = {"pfl": ("pfl", "pfl-processes"), "flower": ("flower",)}
PATIENCE = 180  # seconds for a start or a round
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}


class Absent(Exception):
    """A peer that cannot take part, and why."""


def settings(name: str, work: Work) -> list[tuple[str, str]]:
    """(system, setting): the ways in which a peer is run; of a system's several the best one counts.

    pfl runs in one process unless it is set up otherwise; with a process per core it is a system of its own.
    """
    cores = os.cpu_count() or 1
    if name == "flower":
        return [("flower", "run_simulation"), ("flower", "start_simulation")]
    alone = [("pfl", "1 thread"), ("pfl", f"{cores} threads")] if cores > 1 else [("pfl", "1 thread")]
    several = min(cores, work.per_round)
    return [*alone, ("pfl-processes", f"{several} processes")] if several > 1 else alone


def absent(device: str) -> dict[str, str]:
    """The peers that cannot take part, and why; the others are installed where they were not yet."""
    if device != "cpu":
        return dict.fromkeys(PACKAGES, "is measured on the CPU alone")
    notes = {}
    for name in PACKAGES:
        try:
            install(name)
        except Absent as reason:
            notes[name] = str(reason)
    return notes


def install(name: str) -> None:
    """A peer into the peers' environment, where it is not there yet."""
    done = HOME / f"{name}.installed"
    wanted = [f"torch=={torch.__version__.partition('+')[0]}", PACKAGES[name]]
    if done.exists() and done.read_text().split() == wanted:
        return
    print(f"installing {PACKAGES[name]} into {HOME.name} (a minute or more)", file=sys.stderr)
    try:
        if not PYTHON.exists():
            venv.create(HOME, with_pip=True)
        pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1"]
        for packages in (wanted[:1], wanted):  # torch first, as `make setup` does
            subprocess.run([*pip, *packages], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise Absent(f"could not be installed: {said[-1] if said else error}") from error
    done.write_text("\n".join(wanted))


def task(work: Work, data: FederatedData, folder: Path) -> Path:
    """A file with everything a peer needs: rows of clients as they lie, the network, and the settings."""
    file = folder / "task.pt"
    by_client = (work.clients, ROWS)
    torch.save(
        {
            "x": data.x.view(*by_client, *work.shape),
            "y": data.y.view(by_client),
            "network": work.module(),
            "eta": ETA,
            "batch": BATCH,
            "per_round": work.per_round,
        },
        file,
    )
    return file


class Peer:
    """A framework in a process group of its own, which is stopped while it is not its turn: a contender of
    `benchmarks.speed`."""

    def __init__(self, system: str, name: str, setting: str, task: Path) -> None:
        self.name, self.setting, self.folder = system, setting, task.parent
        count, _, unit = setting.partition(" ")
        processes = int(count) if unit == "processes" else 1
        threads = count if unit.startswith("thread") else "1"
        command = [str(PYTHON), "-m", "benchmarks.workers", name, str(task)]
        command.append(setting if name == "flower" else threads)
        env = (
            os.environ
            | QUIET
            | {"OMP_NUM_THREADS": threads, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
        )
        if processes > 1:
            env["PFL_WORKER_ADDRESSES"] = ",".join([_address()] * processes)
        self.log = self.folder / f"{name}-{setting.replace(' ', '-')}.log"
        self.processes: list[subprocess.Popen[str]] = []
        try:
            for rank in range(processes):
                self.processes.append(self._start(command, env | {"PFL_WORKER_RANK": str(rank)}))
            self._answer()
        except BaseException:
            self.close()
            raise

    def _start(self, command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        first = not self.processes
        with self.log.open("a") as log:
            return subprocess.Popen(
                command,
                cwd=ROOT,
                env=env,
                stdin=subprocess.PIPE if first else subprocess.DEVNULL,
                stdout=subprocess.PIPE if first else log,
                stderr=log,
                text=True,
                bufsize=1,
                process_group=0 if first else self.processes[0].pid,
            )

    def round(self) -> float:
        """One round; its seconds, by the worker's clock."""
        return float(self._asked("round"))

    def mean(self, least: float) -> float:
        """Seconds of a round, the mean of as many as take `least` seconds."""
        seconds = [self.round()]
        while sum(seconds) < least:
            seconds.append(self.round())
        return sum(seconds) / len(seconds)

    def made(self) -> dict[str, Any]:
        """The weights after the last round, and the clients that took part in it."""
        file = self.folder / "made.pt"
        self._asked(f"weights {file}")
        return torch.load(file)

    def resume(self) -> None:
        os.killpg(self.processes[0].pid, signal.SIGCONT)

    def pause(self) -> None:
        """Ray's many processes are never quite idle."""
        os.killpg(self.processes[0].pid, signal.SIGSTOP)

    def close(self) -> None:
        """End every process of the group, once."""
        if self.processes:
            with suppress(ProcessLookupError):
                os.killpg(self.processes[0].pid, signal.SIGKILL)
        while self.processes:
            self.processes.pop().wait()

    def _asked(self, request: str) -> str:
        line = self.processes[0].stdin
        assert line is not None
        try:
            line.write(f"{request}\n")
        except BrokenPipeError:
            raise self._failed("ended") from None
        return self._answer()

    def _answer(self) -> str:
        line = self.processes[0].stdout
        assert line is not None
        if not select.select([line], [], [], PATIENCE)[0]:
            raise self._failed(f"said nothing for {PATIENCE} s")
        if not (answer := line.readline().strip()):
            raise self._failed("ended")
        return answer

    def _failed(self, what: str) -> Absent:
        said = self.log.read_text().strip().splitlines()
        return Absent(f"{what}; its last words: {said[-1] if said else 'none'}")


def _address() -> str:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
