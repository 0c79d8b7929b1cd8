"""Kits for the members of a federation: certificates, addresses, and what may run.

A kit is a folder that one party gets and no other may see: its certificate and key, the address of the
server, and settings. They are made by NVIDIA FLARE's own provisioning, and then made stricter: a site's
process may load our executor and nothing else, no code that comes with a job is run, nobody can list or read
a site's files from outside, and logs stay where they are written (by default FLARE 2.9 sends a site's error
log to the server).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedauc.errors import InputError

PROJECT = "fedauc"
ADMIN = "coordinator@fedauc.org"
VALID_DAYS = 3650
"""Of the root certificate; FLARE's own default, 360, ends long federations."""
COORDINATOR, MEMBER = ("fedauc.federation.flare.Coordinator", "fedauc.federation.flare.Member")
RIGHTS = {
    "submit_job": "any",
    "manage_job": "any",
    "download_job": "any",
    "view": "any",
    "clone_job": "none",
    "operate": "none",
    "shell_commands": "none",
    "byoc": "none",
}
"""Of the coordinator's administrator, the only one there is: no commands, no code."""
LOGGING = "nvflare.app_common.logging."
STORES = "/tmp/nvflare/"
"""Where FLARE keeps jobs by default: moved into the server's kit."""


@dataclass(frozen=True)
class Kits:
    """The kits of a federation, in the coordinator's folder."""

    folder: Path
    host: str

    @property
    def _made(self) -> Path:
        return self.folder / PROJECT / "prod_00"

    @property
    def server(self) -> Path:
        return self._made / self.host

    @property
    def admin(self) -> Path:
        return self._made / ADMIN

    def site(self, name: str) -> Path:
        return self._made / name


def provision(folder: Path, host: str, port: int, admin_port: int, sites: Sequence[str]) -> Kits:
    """Make the kits of a new federation in an empty folder."""
    for name in (*sites, host):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", name):
            raise InputError(
                f"{name!r} cannot be the name of a site or a server: letters, digits, dots and hyphens only."
            )
    if len({*sites, host}) < len(sites) + 1:
        raise InputError("Every site, and the server, needs a name of its own.")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; a federation's kits go into a folder of their own.")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # the root certificate's key is in here
    project = folder / "project.yml"
    project.write_text(yaml.safe_dump(_project(host, port, admin_port, sites)))
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(project), "-w", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    kits = Kits(folder, host)
    if done.returncode or not kits.server.is_dir():
        said = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[0]
        raise InputError(f"The kits cannot be made: {said}")
    for path in folder.rglob("*"):
        if path.suffix in (".key", ".json") and path.is_file():
            path.chmod(0o600)
    _restrict(kits.server, COORDINATOR)
    for name in sites:
        _restrict(kits.site(name), MEMBER)
    return kits


def server_command(kit: Path) -> list[str]:
    """Starts the server in the foreground."""
    return _command("nvflare.private.fed.app.server.server_train", kit, "fed_server.json", "org=coordinator")


def site_command(kit: Path) -> list[str]:
    """Starts a site in the foreground; `flare.DATA` in its environment names the table."""
    name = kit.name
    return _command(
        "nvflare.private.fed.app.client.client_train", kit, "fed_client.json", f"uid={name}", f"org={name}"
    )


def _command(module: str, kit: Path, config: str, *more: str) -> list[str]:
    settings = ["secure_train=true", "config_folder=config", *more]
    return [sys.executable, "-m", module, "-m", str(kit.absolute()), "-s", config, "--set", *settings]


def _project(host: str, port: int, admin_port: int, sites: Sequence[str]) -> dict[str, Any]:
    server = {"name": host, "type": "server", "org": "coordinator", "fed_learn_port": port}
    server["admin_port"] = admin_port
    clients = [{"name": n, "type": "client", "org": n, "allow_log_streaming": False} for n in sites]
    admin = {"name": ADMIN, "type": "admin", "org": "coordinator", "role": "project_admin"}
    made_by = "nvflare.lighter.impl"
    return {
        "api_version": 3,
        "name": PROJECT,
        "description": "fedauc",
        "participants": [server, *clients, admin],
        "builders": [
            {
                "path": f"{made_by}.workspace.WorkspaceBuilder",
                "args": {"template_file": "master_template.yml"},
            },
            {"path": f"{made_by}.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
            {"path": f"{made_by}.cert.CertBuilder", "args": {"root_valid_days": VALID_DAYS}},
            {"path": f"{made_by}.signature.SignatureBuilder", "args": {}},
        ],
    }


def _restrict(kit: Path, allowed: str) -> None:
    """The settings that are in force (`resources.json`), from those that were provisioned."""
    local = kit / "local"
    settings = json.loads((local / "resources.json.default").read_text())
    settings |= {"class_list_enforcement_mode": "enforce", "class_allow_list": [allowed]}
    settings["components"] = [c for c in settings["components"] if not c["path"].startswith(LOGGING)]
    if "allow_log_streaming" in settings:
        settings["allow_log_streaming"] = False
    rights = {"format_version": "1.0", "permissions": {"project_admin": RIGHTS}}
    (local / "authorization.json").write_text(json.dumps(rights, indent=2))
    text = json.dumps(settings, indent=2).replace(STORES, f"{kit.absolute()}/store/")
    (local / "resources.json").write_text(text)
