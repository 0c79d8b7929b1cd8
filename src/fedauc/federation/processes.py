"""Processes of this machine: start them, look after them, and end them with all that they have started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from fedauc.errors import InputError


@dataclass
class Child:
    """A process that this one has started, with all that it starts itself."""

    name: str
    command: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self, stdout: int | None = None) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=stdout or log,
                stderr=log,
                cwd=self.log.parent,
                env=os.environ | {"OMP_NUM_THREADS": "1"} | self.environment,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def wait(self, patience: float) -> int:
        """Until it ends by itself; its exit status."""
        assert self.process is not None
        return self.process.wait(patience)

    def end(self, patience: float = 3.0) -> None:
        """Ask it to end, and all that it has started; whoever does not in this time is killed."""
        if self.process is None:
            return
        end(family(self.process.pid), patience)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None

    def listens(self, port: int) -> bool:
        """Whether its own process takes connections there."""
        if self.process is None:
            return False
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            found = psutil.Process(self.process.pid).net_connections(kind="tcp")
            return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in found)
        return False


def family(pid: int) -> list[psutil.Process]:
    """A process and its descendants; nobody, where it has ended."""
    try:
        process = psutil.Process(pid)
        return [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return []


def naming(wanted: Callable[[str], bool]) -> list[psutil.Process]:
    """Every other process with such an argument."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if process.pid != os.getpid() and any(map(wanted, process.info["cmdline"] or []))
    ]


def end(processes: Sequence[psutil.Process], patience: float = 0.0) -> None:
    """Ask them to end, and kill whoever is left after so many seconds; at once, where these are none."""
    left = list(processes)
    if patience:
        _tell(left, signal.SIGTERM)
        _, left = psutil.wait_procs(left, timeout=patience)
    _tell(left, signal.SIGKILL)
    psutil.wait_procs(left, timeout=10)


def _tell(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def is_free(port: int) -> None:
    """A port that somebody has is an error that says so."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("0.0.0.0", port))
        except OSError as error:
            raise InputError(f"Port {port} cannot be used: {error.strerror}.") from error


def told(*numbers: int) -> threading.Event:
    """Set when one of these signals comes."""
    event = threading.Event()
    for number in numbers:
        signal.signal(number, lambda *_: event.set())
    return event
