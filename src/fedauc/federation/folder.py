"""The folder of a federation.

folder/federation.toml   the plan                folder/kits/     certificates and settings
folder/run/              the run, as `fedauc train` writes it, with participation.jsonl
folder/status.json       what the supervisor knows, written anew every second
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from fedauc.core import checkpoint
from fedauc.errors import InputError
from fedauc.federation import kits, plan
from fedauc.federation.kits import ADMIN, ATTENDANT, Kits
from fedauc.federation.plan import Address, Experiment, Plan

STATUS, RUN, PLAN, KITS, JOBS, LOGS = "status.json", "run", "plan.json", "kits", "jobs", "logs"
JOURNAL, STOPPED = "participation.jsonl", "stopped.json"
"""In the run's folder: a line for every exchange, and why the coordinator has stopped by itself."""
RUNNING = ("starting", "running", "recovering")
ENDING = 60.0
"""Seconds in which a supervisor must have ended."""


class Folder:
    """A federation's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.plan = Plan.read(path)
        self.kits = Kits(self.path / KITS, self.plan.federation.host)
        self.run = self.path / RUN

    @classmethod
    def new(
        cls,
        path: Path,
        address: Address,
        experiment: Experiment,
        sites: Sequence[str],
        columns: Mapping[str, str],
    ) -> Folder:
        """Begin a federation: its plan, and a kit for everybody."""
        if (path / plan.FILE).exists():
            raise InputError(f"{path} already holds a federation.")
        text = plan.written(address, experiment, sites, columns)
        kits.provision(path / KITS, address.host, address.port, address.admin_port, sites)
        path.chmod(0o700)
        (path / plan.FILE).write_text(text)
        return cls(path)

    def add(self, site: str) -> None:
        """A further organisation, for the next run: a kit, and its lines in the plan."""
        if site in self.plan.sites:
            raise InputError(f"{site} is a site of this federation already.")
        address, every = self.plan.federation, [*self.plan.sites, site]
        kits.provision(self.kits.folder, address.host, address.port, address.admin_port, every)
        grouped = any(other.group for other in self.plan.sites.values())
        text = (self.path / plan.FILE).read_text().rstrip()
        (self.path / plan.FILE).write_text(f"{text}\n\n{plan.named(site, 1 if grouped else None)}\n")
        self.plan = Plan.read(self.path)

    def site(self, name: str) -> Path:
        """A site's kit."""
        if name not in self.plan.sites:
            raise InputError(f"{name} is no site of this federation: {', '.join(self.plan.names)}.")
        return self.kits.site(name)

    def pack(self, name: str, out: Path) -> Path:
        """A site's kit as one file, with what it must know of the federation."""
        if name in self.revoked:
            raise InputError(f"{name} has been revoked: add the organisation under another name.")
        return kits.packed(self.site(name), self.plan, out)

    def revoke(self, name: str) -> None:
        """Refuse a site from now on, also in a run that has begun."""
        self.site(name)
        if name in self.revoked:
            raise InputError(f"{name} is refused already.")
        kits.revoke(self.kits, name)
        self.restart_server()

    def renew(self, sites: Sequence[str]) -> None:
        """New certificates for these sites, or else for the coordinator: its server and its own commands."""
        for name in sites:
            self.site(name)
        kits.renew(self.kits, sites or (self.plan.federation.host, ATTENDANT, ADMIN))
        if not sites:
            self.restart_server()

    def ending(self, now: datetime) -> dict[str, datetime]:
        """Whose certificates end soon, and when; the coordinator's own is named after its server."""
        named = {self.plan.federation.host: self.kits.server}
        named |= {name: self.kits.site(name) for name in self.plan.names if name not in self.revoked}
        found = {name: kits.ends(kit) for name, kit in named.items()}
        return {name: end for name, end in found.items() if end - now < kits.SOON}

    def restart_server(self) -> None:
        """Have a supervisor that runs start its server anew."""
        known = self.status()
        if known["state"] in RUNNING:
            os.kill(known["pid"], signal.SIGHUP)

    @property
    def revoked(self) -> list[str]:
        return kits.revoked(self.kits)

    def status(self) -> dict[str, Any]:
        """What the supervisor wrote last; `state` is `died` where it runs no more."""
        try:
            known = json.loads((self.path / STATUS).read_text())
        except (OSError, ValueError):
            known = {"state": "not started"}
        if known["state"] in RUNNING and not _is_supervisor(known.get("pid")):
            known["state"] = "died"
        return known

    def stop(self) -> None:
        """End the supervisor, with its server and its job."""
        known = self.status()
        if known["state"] not in RUNNING:
            raise InputError(f"{self.path} is not being run ({known['state']}).")
        os.kill(known["pid"], signal.SIGTERM)
        end = time.monotonic() + ENDING
        while self.status()["state"] in RUNNING:
            if time.monotonic() > end:
                raise InputError(f"The supervisor (process {known['pid']}) does not end.")
            time.sleep(0.2)

    def check_idle(self) -> None:
        """One supervisor at a time."""
        if self.status()["state"] in RUNNING:
            raise InputError(
                f"{self.path} is being run already: `fedauc federation status` says how it goes."
            )

    def begin(self, chosen: Plan) -> None:
        """Keep the plan of a run: what is changed in federation.toml later is for the next one."""
        self.run.mkdir(exist_ok=True)
        checkpoint.write_atomic(self.run / PLAN, json.dumps(chosen.as_dict(), indent=2).encode())

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
