"""Runs a federation's server and sees its training through.

    folder/federation.toml   the plan                folder/kits/     certificates and settings
    folder/run/              the run, as `fedauc train` writes it, with participation.jsonl
    folder/status.json       what the supervisor knows, written anew every second

The training is a job on the server. Whatever ends it before it is done (the server, the job's process or this
machine may have died) costs what follows the last round: the job is submitted again and goes on from the
checkpoint. Only what cannot get better by itself ends the supervisor: a wrong setting, a full disk.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from fedauc.core import checkpoint
from fedauc.errors import InputError
from fedauc.federation import kits
from fedauc.federation.flare import JOURNAL, STOPPED, write_job
from fedauc.federation.kits import ATTENDANT, Kits
from fedauc.federation.plan import Plan

STATUS, RUN, PLAN, KITS, JOBS, LOGS = "status.json", "run", "plan.json", "kits", "jobs", "logs"
RUNNING = ("starting", "running", "recovering")
FRUITLESS = 5
"""Jobs that may end without a new round before the supervisor gives up."""
PAUSE = 2.0
"""Seconds before a job is submitted again."""
STARTING = 60.0
"""Seconds in which a server must have started."""


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

    def end(self) -> None:
        """Ask it to end, and all that it has started; whoever does not is killed."""
        if self.process is None:
            return
        family = _family(self.process.pid)
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.terminate()
        _, left = psutil.wait_procs(family, timeout=3)
        for member in left:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(left, timeout=5)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return []


class Folder:
    """A federation's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.plan = Plan.read(path)
        self.kits = Kits(self.path / KITS, self.plan.federation.host)
        self.run = self.path / RUN

    @property
    def revoked(self) -> list[str]:
        return kits.revoked(self.kits)

    def status(self) -> dict[str, Any]:
        """What the supervisor wrote last; `state` is `stopped` where none runs."""
        try:
            known = json.loads((self.path / STATUS).read_text())
        except (OSError, ValueError):
            known = {"state": "not started"}
        if known["state"] in RUNNING and not _is_supervisor(known.get("pid")):
            known["state"] = "died"
        return known

    def begin(self, plan: Plan) -> None:
        """Keep the plan of a run: what is changed in federation.toml later is for the next one."""
        self.run.mkdir(exist_ok=True)
        checkpoint.write_atomic(self.run / PLAN, json.dumps(plan.as_dict(), indent=2).encode())

    def begun(self) -> Plan:
        """The plan of the run that has begun, or else of the next one."""
        path = self.run / PLAN
        if not path.exists():
            return self.plan
        return Plan.from_dict(json.loads(path.read_text()), str(path))

    def rounds(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return _lines(self.run / "metrics.jsonl")

    def participation(self) -> list[dict[str, Any]]:
        return _lines(self.run / JOURNAL)


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    with suppress(FileNotFoundError):
        for line in path.read_text().splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
    return found


def _is_supervisor(pid: Any) -> bool:
    try:
        return isinstance(pid, int) and "federation" in " ".join(psutil.Process(pid).cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


class Supervisor:
    """Sees one run of a federation through."""

    def __init__(self, folder: Folder, plan: Plan, say: Callable[[str], None]) -> None:
        self.folder, self.plan, self.say = folder, plan, say
        logs = folder.path / LOGS
        self.server = Child("server", kits.server_command(folder.kits.server), logs / "server.log")
        attendant = folder.kits.site(ATTENDANT)
        self.attendant = Child("attendant", kits.site_command(attendant), logs / "attendant.log")
        self.job = Child("job", [], logs / "job.log")
        self.known: dict[str, Any] = {"pid": os.getpid(), "since": time.time(), "restarts": 0}
        self.stopping = self.renewing = False

    def run(self) -> dict[str, Any] | None:
        """Until the run is done; returns its result, None where it was told to stop before."""
        clear(self.folder)
        for port in (self.plan.federation.port, self.plan.federation.admin_port):
            _check_free(port)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._renew)
        self._note("starting", online=[])
        fruitless, rounds = 0, len(self.folder.rounds())
        try:
            while True:
                ended = self._job()
                if self.stopping:
                    self._note("stopped")
                    return None
                if (self.folder.run / "result.json").exists():
                    self._note("done")
                    return json.loads((self.folder.run / "result.json").read_text())
                if (reason := self._reason()) is not None:
                    self._note("failed", reason=reason)
                    raise InputError(f"The run has stopped: {reason}")
                now = len(self.folder.rounds())
                fruitless = fruitless + 1 if now <= rounds else 0
                rounds = now
                if fruitless >= FRUITLESS:
                    reason = f"{FRUITLESS} jobs in a row ended without a round ({ended})"
                    self._note("failed", reason=reason)
                    raise InputError(f"The run has stopped: {reason}; {self.server.log} may say why.")
                self.known["restarts"] += 1
                self._note("recovering", reason=ended)
                self.say(f"the job has ended ({ended}); it goes on from round {rounds}")
                self._wait(PAUSE)
        finally:
            for child in (self.job, self.attendant, self.server):
                child.end()

    def _job(self) -> str:
        """Have one job run to its end; how it ended."""
        for child in (self.server, self.attendant):
            if not child.alive:
                child.end()
                child.start()
        job = write_job(
            self.folder.path / JOBS, "fedauc", self.plan, self.folder.run, gone=self.folder.revoked
        )
        kit = self.folder.kits.admin
        self.job.command = [sys.executable, "-m", "fedauc.federation.submit", str(kit), str(job.absolute())]
        if (wrong := self._listening()) is not None:
            return wrong
        self.job.start(stdout=subprocess.PIPE)
        try:
            return self._followed()
        finally:
            self.job.end()

    def _listening(self) -> str | None:
        """Wait until the server takes connections; why it does not."""
        end = time.monotonic() + STARTING
        while not _takes_connections(self.server, self.plan.federation.port):
            if not self.server.alive:
                return "the server has ended"
            if time.monotonic() > end or self.stopping:
                return "the server does not take connections"
            time.sleep(0.2)
        return None

    def _followed(self) -> str:
        """What the job's process says, until something ends."""
        assert self.job.process is not None
        assert self.job.process.stdout is not None
        lines = selectors.DefaultSelector()
        lines.register(self.job.process.stdout, selectors.EVENT_READ)
        while not self.stopping:
            if self.renewing:
                self.renewing = False
                self.server.end()
                return "a site has been revoked"
            for child in (self.server, self.attendant):
                if not child.alive:
                    return f"the {child.name} has ended"
            if not lines.select(timeout=1.0):
                continue
            line = self.job.process.stdout.readline()
            if not line:
                return "no session with the server"
            said = json.loads(line)
            if "ended" in said:
                return f"job {said['ended'].lower()}"
            running = said["state"] not in ("WAITING", "SUBMITTED")
            online = [name for name in said["online"] if name != ATTENDANT]
            self._note("running" if running else "starting", online=online)
        return "told to stop"

    def _reason(self) -> str | None:
        """Why the coordinator has stopped by itself."""
        with suppress(FileNotFoundError, ValueError):
            return str(json.loads((self.folder.run / STOPPED).read_text())["reason"])
        return None

    def _note(self, state: str, **more: Any) -> None:
        self.known |= {"state": state, "seen": time.time()} | more
        with suppress(OSError):  # (a full disk is the run's affair)
            checkpoint.write_atomic(self.folder.path / STATUS, json.dumps(self.known).encode())

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def _renew(self, *_: object) -> None:
        self.renewing = True

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.stopping:
            time.sleep(0.1)


def _check_free(port: int) -> None:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("0.0.0.0", port))
        except OSError as error:
            raise InputError(f"Port {port} cannot be used: {error.strerror}.") from error


def _takes_connections(server: Child, port: int) -> bool:
    """Whether the server's own process listens."""
    if server.process is None:
        return False
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        found = psutil.Process(server.process.pid).net_connections(kind="tcp")
        return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in found)
    return False


def clear(folder: Folder) -> None:
    """End what a supervisor that was killed has left behind."""
    own = folder.kits
    mine = {str(kit) for kit in (own.server, own.site(ATTENDANT), own.admin)}
    left = [p for p in psutil.process_iter(["cmdline"]) if mine.intersection(p.info["cmdline"] or [])]
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=10)
