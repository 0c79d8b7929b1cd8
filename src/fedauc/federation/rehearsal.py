"""A federation on one machine: every organisation a process of its own, with its own kit and mutual TLS.

For demonstrations, tests and measurements: everything goes through the commands that people use, and whatever
can happen to a process can be done to it here.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from fedauc.federation import kits, processes
from fedauc.federation.folder import KITS, Folder
from fedauc.federation.plan import FILE
from fedauc.federation.processes import Child
from fedauc.federation.state import now

PATIENCE = 120.0
"""Seconds that something may take."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now, and that no outgoing connection will be given."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as trial, suppress(OSError):
            trial.bind(("0.0.0.0", port))
            if port not in found:
                found.append(port)
    return found


class Rehearsal:
    """The coordinator and its sites; leaving the context ends them all."""

    def __init__(self, folder: Path, tables: Mapping[str, Path]) -> None:
        self.home = folder.absolute()
        self.tables = {name: path.absolute() for name, path in tables.items()}
        self.coordinator = self.home / "coordinator"
        self.sites: dict[str, Child] = {}
        self.supervisor: Child | None = None

    def __enter__(self) -> Rehearsal:
        return self

    def __exit__(self, *_: object) -> None:
        for child in (self.supervisor, *self.sites.values()):
            if child is not None:
                child.end(patience=0)
        processes.end(self.processes())

    def processes(self) -> list[psutil.Process]:
        """Everything that runs for this federation, whoever has started it."""
        return processes.naming(lambda argument: str(self.home) in argument)

    def init(self, label: str, positive: str, *options: str, rounds: Mapping[str, Any] | None = None) -> None:
        """`federation init`, with settings of [rounds] changed, and every site's kit in its own folder."""
        ports = dict(zip(("--port", "--admin-port"), map(str, free_ports(2)), strict=True))
        named = [part for name in self.tables for part in ("--site", name)]
        given = [part for option in ports.items() for part in option]
        self.home.mkdir(parents=True, exist_ok=True)
        call(
            "federation",
            "init",
            self.coordinator,
            *named,
            *given,
            "--label",
            label,
            "--positive",
            positive,
            *options,
        )
        self.change({f"{name} = ": f"{name} = {value}  # " for name, value in (rounds or {}).items()})
        for name in self.tables:
            self.hand_over(name)

    def change(self, texts: Mapping[str, str]) -> None:
        """Replace texts in federation.toml."""
        path = self.coordinator / FILE
        content = path.read_text()
        for old, new in texts.items():
            assert content.count(old) == 1, f"{old!r} is in {path} {content.count(old)} times"
            content = content.replace(old, new)
        path.write_text(content)

    def hand_over(self, name: str) -> None:
        (self.home / name).mkdir(exist_ok=True)
        self.folder.pack(name, self.kit(name))

    def route(self, name: str) -> Proxy:
        """Have a site that has not joined yet reach the server by a connection that can be cut."""
        port = self.folder.plan.federation.port
        proxy = Proxy(port)
        path = kits.unpacked(self.kit(name)) / "startup" / "fed_client.json"
        text = path.read_text()
        assert text.count(f":{port}") == 1
        path.write_text(text.replace(f":{port}", f":{proxy.port}"))
        return proxy

    def kit(self, name: str) -> Path:
        return self.home / name / f"{name}.zip"

    def join(self, *names: str, **environment: str) -> None:
        """Have sites join, all of them where none is named."""
        for name in names or self.tables:
            command = ["site", "join", self.kit(name), "--data", self.tables[name]]
            log = self.home / name / "join.log"
            self.sites[name] = Child(name, _command(command), log, environment)
            self.sites[name].start()

    def start(self, command: str = "start") -> None:
        arguments = ["federation", command, self.coordinator]
        self.supervisor = Child("supervisor", _command(arguments), self.home / "supervisor.log")
        self.supervisor.start()

    def wait(self, patience: float = PATIENCE) -> int:
        """Until the supervisor ends; its exit status."""
        assert self.supervisor is not None
        return self.supervisor.wait(patience)

    def stop(self) -> None:
        call("federation", "stop", self.coordinator)

    @property
    def run(self) -> Path:
        return self.folder.run

    @property
    def folder(self) -> Folder:
        return Folder(self.coordinator)

    @property
    def round(self) -> int:
        """The last round that was committed."""
        rounds = self.folder.rounds()
        return rounds[-1]["round"] if rounds else 0

    def status(self) -> dict[str, Any]:
        return now(self.folder)

    def until(self, true: Callable[[], bool], patience: float = PATIENCE) -> float:
        """Wait for something; seconds that it took."""
        begin = time.monotonic()
        while not true():
            if time.monotonic() - begin > patience:
                raise TimeoutError(f"not within {patience:.0f} s; {self.home} has the logs")
            time.sleep(0.05)
        return time.monotonic() - begin

    def until_round(self, number: int, patience: float = PATIENCE) -> float:
        return self.until(lambda: self.round >= number, patience)

    def _found(self, *words: str) -> list[psutil.Process]:
        return [p for p in self.processes() if all(any(w in part for part in p.cmdline()) for w in words)]

    def client(self, name: str) -> psutil.Process:
        """The process in which a site trains, without the one that starts it again."""
        (found,) = self._found("client_train", f"uid={name}")
        return found

    def server(self) -> psutil.Process:
        (found,) = self._found("server_train")
        return found

    def server_job(self) -> psutil.Process:
        """The coordinator's own process."""
        return self.coordinators()[0]

    def coordinators(self) -> list[psutil.Process]:
        """One, while a job runs."""
        return self._found("runner_process", str(self.coordinator / KITS))

    def kill(self, process: psutil.Process) -> None:
        process.send_signal(signal.SIGKILL)
        with suppress(psutil.TimeoutExpired):
            process.wait(10)

    def kill_site(self, name: str) -> None:
        """Everything of a site, at once."""
        self.sites.pop(name).end(patience=0)


class Proxy:
    """A connection that can be cut: nothing gets through, and nobody is told; what was open before is closed
    when it is mended, as a firewall does that has forgotten it."""

    def __init__(self, server: int) -> None:
        self.server = server
        self.open: list[socket.socket] = []
        self.through = threading.Event()
        self.through.set()
        self.listener = socket.create_server(("127.0.0.1", free_ports(1)[0]))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self.through.clear()

    def mend(self) -> None:
        while self.open:
            _close(self.open.pop())
        self.through.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.server))
                except OSError:
                    near.close()
                    continue
                self.open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.through.wait()
                target.sendall(data)
        _close(source)
        _close(target)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def call(*arguments: Any) -> str:
    """A command of fedauc; what it printed."""
    done = subprocess.run(_command(arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"fedauc {' '.join(map(str, arguments))}: {done.stderr.strip() or done.stdout.strip()}"
        )
    return done.stdout


def _command(arguments: Sequence[Any]) -> list[str]:
    return [sys.executable, "-m", "fedauc", *map(str, arguments)]
