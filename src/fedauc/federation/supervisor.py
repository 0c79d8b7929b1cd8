"""Runs a federation's server and sees its training through.

The training is a job on the server. Whatever ends it before it is done (the server, the job's process or this
machine may have died) costs what follows the last round: the job is submitted again and goes on from the
checkpoint. Only what cannot get better by itself ends the supervisor: a wrong setting, a full disk.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fedauc.core import checkpoint
from fedauc.errors import InputError
from fedauc.federation import kits, processes
from fedauc.federation.flare import write_job
from fedauc.federation.folder import JOBS, LOGS, STATUS, STOPPED, Folder
from fedauc.federation.kits import ATTENDANT
from fedauc.federation.plan import Plan
from fedauc.federation.processes import Child

FRUITLESS = 5
"""Jobs that may end without a new round before the supervisor gives up."""
TELL = 60.0
"""Seconds between two lines on how far it is."""
PAUSE = 2.0
"""Seconds before a job is submitted again."""
STARTING = 60.0
"""Seconds in which a server must have started."""


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
        self.rounds = plan.config.rounds(len(plan.sites))
        self.told = time.monotonic()
        self.stopping = processes.told(signal.SIGTERM, signal.SIGINT)
        self.renewing = processes.told(signal.SIGHUP)

    def run(self) -> dict[str, Any] | None:
        """Until the run is done; returns its result, None where it was told to stop before."""
        clear(self.folder)
        for port in (self.plan.federation.port, self.plan.federation.admin_port):
            processes.is_free(port)
        address, expected = self.plan.federation, set(self.plan.sites) - set(self.folder.revoked)
        self.say(f"server on {address.host}, port {address.port}; waiting for {len(expected)} sites")
        self._note("starting", online=[])
        fruitless, rounds = 0, len(self.folder.rounds())
        try:
            while True:
                ended = self._job()
                if self.stopping.is_set():
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
                self.stopping.wait(PAUSE)
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
        while not self.server.listens(self.plan.federation.port):
            if not self.server.alive:
                return "the server has ended"
            if time.monotonic() > end or self.stopping.wait(0.2):
                return "the server does not take connections"
        return None

    def _followed(self) -> str:
        """What the job's process says, until something ends."""
        assert self.job.process is not None
        assert self.job.process.stdout is not None
        lines = selectors.DefaultSelector()
        lines.register(self.job.process.stdout, selectors.EVENT_READ)
        while not self.stopping.is_set():
            if self.renewing.is_set():
                self.renewing.clear()
                self.server.end()
                return "certificates or refused sites have changed"
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
            self._tell(online)
            self._note("running" if running else "starting", online=online)
        return "told to stop"

    def _tell(self, online: list[str]) -> None:
        """Who comes and goes and, once a minute, how far it is."""
        before = set(self.known["online"]) - set(self.folder.revoked)
        for name in sorted(before ^ (now := set(online) - set(self.folder.revoked))):
            self.say(f"{name} is online" if name in now else f"{name} has gone")
        if time.monotonic() - self.told > TELL and (rounds := self.folder.rounds()):
            self.told = time.monotonic()
            aucs = [row["valid_auc"] for row in rounds if row.get("valid_auc") is not None]
            auc = f", validation AUC {aucs[-1]:.4f}" if aucs else ""
            self.say(f"round {rounds[-1]['round']} of {self.rounds}{auc}")

    def _reason(self) -> str | None:
        """Why the coordinator has stopped by itself."""
        with suppress(FileNotFoundError, ValueError):
            return str(json.loads((self.folder.run / STOPPED).read_text())["reason"])
        return None

    def _note(self, state: str, **more: Any) -> None:
        self.known |= {"state": state, "seen": time.time()} | more
        with suppress(OSError):  # (a full disk is the run's affair)
            checkpoint.write_atomic(self.folder.path / STATUS, json.dumps(self.known).encode())


def clear(folder: Folder) -> None:
    """End what a supervisor that was killed has left behind."""
    own = folder.kits
    mine = {str(kit) for kit in (own.server, own.site(ATTENDANT), own.admin)}
    processes.end(processes.naming(lambda argument: argument in mine))
