"""Kits for the members of a federation: certificates, addresses, and what may run.

A kit is a folder that one party gets and no other may see: its certificate and key, the address of the
server, and settings. They are made by NVIDIA FLARE's own provisioning, and then made stricter: a site's
process may load our executor and nothing else, no code that comes with a job is run, nobody can list or read
a site's files from outside, and logs stay where they are written (by default FLARE 2.9 sends a site's error
log to the server).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from fedauc.core import checkpoint
from fedauc.errors import InputError
from fedauc.federation.plan import Plan

PROJECT = "fedauc"
ADMIN = "coordinator@fedauc.org"
VALID_DAYS = 3650
"""Of the root certificate, by which further sites are added; FLARE ends those of server and sites after 360
days, and `renew` makes new ones."""
RENEWED = timedelta(days=360)
SOON = timedelta(days=30)
"""Before the end of a certificate: whoever can renew it is told."""
COORDINATOR, MEMBER, IDLE = (f"fedauc.federation.flare.{name}" for name in ("Coordinator", "Member", "Idle"))
ATTENDANT = "attendant"
"""A client beside the server that has nothing to do: FLARE schedules no job without one."""
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
REVOKED = "disabled_clients.json"
"""In the server's kit, as FLARE reads it."""
CERTIFICATE, ROOT = "startup/client.crt", "startup/rootCA.pem"
UNPACKED = "unpacked.sha256"
"""In an unpacked kit: from which file."""
ABOUT = "federation.json"
"""In a site's kit: what the site must know of the federation."""
CLIENT = "nvflare.private.fed.app.client.client_train"
"""The module that a site's process runs."""
LOGGING = "nvflare.app_common.logging."
STORES = "/tmp/nvflare/"
"""Where FLARE keeps jobs by default: moved into the server's kit."""


@dataclass(frozen=True)
class Kits:
    """The kits of a federation, in the coordinator's folder."""

    folder: Path
    host: str

    @property
    def made(self) -> list[Path]:
        """Every provisioning makes a folder with all kits; whoever has one goes on with it."""
        return sorted((self.folder / PROJECT).glob("prod_*"))

    def _kit(self, name: str) -> Path:
        found = [folder / name for folder in self.made if (folder / name).is_dir()]
        if not found:
            raise InputError(f"There is no kit of {name} in {self.folder}.")
        return found[0]

    @property
    def server(self) -> Path:
        return self._kit(self.host)

    @property
    def admin(self) -> Path:
        return self._kit(ADMIN)

    def site(self, name: str) -> Path:
        return self._kit(name)


def provision(folder: Path, host: str, port: int, admin_port: int, sites: Sequence[str]) -> Kits:
    """Make the kits of a federation; in a folder that has some already, those of further sites."""
    for name in sites:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            raise InputError(f"{name!r} cannot be a site's name: letters, digits, hyphens and _ only.")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", host):
        raise InputError(f"{host!r} cannot be a server's name: letters, digits, dots and hyphens only.")
    for name in (host, ATTENDANT, *sites):
        if [host, ATTENDANT, *sites].count(name) > 1:
            raise InputError(f"{name!r} is the name of two: every site, and the server, needs its own.")
    folder = folder.absolute()
    kits = Kits(folder, host)
    if folder.exists() and any(folder.iterdir()) and not kits.made:
        raise InputError(f"{folder} is not empty; a federation's kits go into a folder of their own.")
    before = {kit.name for made in kits.made for kit in made.iterdir()}
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # the root certificate's key is in here
    _provisioned(folder, _project(host, port, admin_port, sites))
    classes = {host: COORDINATOR, ATTENDANT: IDLE} | dict.fromkeys(sites, MEMBER)
    for name, allowed in classes.items():
        if name not in before:
            _restrict(kits._kit(name), allowed)
    return kits


def _provisioned(folder: Path, project: Mapping[str, Any]) -> Path:
    """FLARE's own provisioning; the folder with all kits that it has made."""
    path = folder / "project.yml"
    path.write_text(yaml.safe_dump(dict(project)))
    command = [
        sys.executable,
        "-m",
        "nvflare.cli",
        "provision",
        "-p",
        str(path),
        "-w",
        str(folder),
        "--force",
    ]
    before = set((folder / PROJECT).glob("prod_*"))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    made = set((folder / PROJECT).glob("prod_*")) - before
    if done.returncode or len(made) != 1:
        said = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[0]
        raise InputError(f"The kits cannot be made: {said}")
    for each in folder.rglob("*"):
        if each.suffix in (".key", ".json") and each.is_file():
            each.chmod(0o600)
    return made.pop()


def renew(kits: Kits, names: Sequence[str]) -> None:
    """New certificates in the kits of these members, for the keys that they have.

    The keys stay, because the tokens by which sites are known to a running federation are signed with them.
    """
    state = kits.folder / PROJECT / "state" / "cert.json"
    known = json.loads(state.read_text())
    issuer = load_pem_private_key(known["root_pri_key"].encode(), None)
    assert isinstance(issuer, RSAPrivateKey)
    root = x509.load_pem_x509_certificate(known["root_cert"].encode())
    for name in names:
        old = x509.load_pem_x509_certificate(known[name]["cert"].encode())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(old.subject)
            .issuer_name(old.issuer)
            .public_key(old.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(min(now + RENEWED, root.not_valid_after_utc))
        )
        for each in old.extensions:
            builder = builder.add_extension(each.value, each.critical)
        made = builder.sign(issuer, SHA256()).public_bytes(Encoding.PEM)
        known[name]["cert"] = made.decode()
        checkpoint.write_atomic(state, json.dumps(known).encode())
        checkpoint.write_atomic(_certificate(kits._kit(name)), made)


def _certificate(kit: Path) -> Path:
    (path,) = (kit / "startup").glob("*.crt")
    return path


def ends(kit: Path) -> datetime:
    """When a kit's certificate is not valid any more."""
    return x509.load_pem_x509_certificate(_certificate(kit).read_bytes()).not_valid_after_utc


def revoke(kits: Kits, site: str) -> None:
    """Let the server refuse a site from its next start on; its certificate stays valid elsewhere."""
    path = kits.server / REVOKED
    known = revoked(kits)
    content = {"disabled_clients": sorted({*known, site})}
    checkpoint.write_atomic(path, json.dumps(content, indent=2).encode())


def revoked(kits: Kits) -> list[str]:
    """Sites that the server refuses."""
    try:
        return list(json.loads((kits.server / REVOKED).read_text())["disabled_clients"])
    except FileNotFoundError:
        return []


def packed(kit: Path, plan: Plan, out: Path) -> Path:
    """A site's kit as one file, with what the site must know of the federation; only for its owner's eyes."""
    out.unlink(missing_ok=True)
    with (
        open(out, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for folder in ("startup", "local"):
            for path in sorted((kit / folder).rglob("*")):
                if path.is_file():
                    archive.write(path, f"{kit.name}/{path.relative_to(kit)}")
        known = {"site": kit.name, "plan": plan.as_dict()}
        archive.writestr(f"{kit.name}/{ABOUT}", json.dumps(known, indent=2))
    return out


def about(kit: Path) -> tuple[str, Plan]:
    """The site's name, and the plan that its kit came with."""
    path = kit / ABOUT
    try:
        known = json.loads(path.read_text())
        return known["site"], Plan.from_dict(known["plan"], str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{kit} is no kit of a site: {path.name} cannot be read.") from error


def unpacked(path: Path) -> Path:
    """The folder of a kit: beside its file, where it is unpacked once.

    A later file of the same federation (a renewed certificate, a changed plan) replaces what came with the
    first one; what the site keeps there stays.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist: it is the kit that the coordinator has sent.")
    if path.is_dir():
        if not (path / "startup" / "client.key").is_file():
            raise InputError(f"{path} is no kit of a site.")
        return path
    try:
        with zipfile.ZipFile(path) as archive:
            name = _top(archive)
            if name is None:
                raise InputError(f"{path} is no kit of a site.")
            folder = path.parent / name
            if folder.exists() and (folder / ROOT).read_bytes() != archive.read(f"{name}/{ROOT}"):
                raise InputError(
                    f"{folder} holds a kit of another federation than {path}; move it away first."
                )
            number = hashlib.sha256(path.read_bytes()).hexdigest()
            if not folder.exists() or (folder / UNPACKED).read_text() != number:
                with tempfile.TemporaryDirectory(dir=path.parent) as beside:  # (closed to others)
                    archive.extractall(beside)
                    (Path(beside) / name / UNPACKED).write_text(number)
                    for each in Path(beside).rglob("*"):
                        each.chmod(0o700 if each.is_dir() else 0o600)
                    _moved(Path(beside) / name, folder)
            return folder
    except InputError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} cannot be read as a kit: {error}.") from error


def _top(archive: zipfile.ZipFile) -> str | None:
    """The one folder of an archive that is a kit."""
    names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    if len(tops) != 1 or any(".." in Path(name).parts or name.startswith("/") for name in names):
        return None
    (top,) = tops
    needed = ("startup/client.key", CERTIFICATE, ROOT, ABOUT)
    return top if {f"{top}/{name}" for name in needed} <= set(names) else None


def _moved(source: Path, folder: Path) -> None:
    """As a whole where nothing is there yet, or else file by file, what names the archive last."""
    if not folder.exists():
        os.replace(source, folder)
        return
    files = [path for path in source.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda file: file.name == UNPACKED):
        target = folder / path.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        os.replace(path, target)


def server_command(kit: Path) -> list[str]:
    """Starts the server in the foreground."""
    return _command("nvflare.private.fed.app.server.server_train", kit, "fed_server.json", "org=coordinator")


def site_command(kit: Path) -> list[str]:
    """Starts a site in the foreground; `flare.DATA` in its environment names the table."""
    name = kit.name
    return _command(
        CLIENT,
        kit,
        "fed_client.json",
        f"uid={name}",
        f"org={_org(name)}",
    )


def _org(name: str) -> str:
    """The name in letters that FLARE allows for an organisation."""
    return re.sub(r"[^A-Za-z0-9]", "_", name)


def _command(module: str, kit: Path, config: str, *more: str) -> list[str]:
    settings = ["secure_train=true", "config_folder=config", *more]
    return [sys.executable, "-m", module, "-m", str(kit.absolute()), "-s", config, "--set", *settings]


def _project(host: str, port: int, admin_port: int, sites: Sequence[str]) -> dict[str, Any]:
    server = {"name": host, "type": "server", "org": "coordinator", "fed_learn_port": port}
    server["admin_port"] = admin_port
    clients = [
        {"name": n, "type": "client", "org": _org(n), "allow_log_streaming": False}
        for n in (*sites, ATTENDANT)
    ]
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
    if allowed == MEMBER:
        settings["components"].append({"id": "fedauc", "path": MEMBER, "args": {}})
    if "allow_log_streaming" in settings:
        settings["allow_log_streaming"] = False
    rights = {"format_version": "1.0", "permissions": {"project_admin": RIGHTS}}
    (local / "authorization.json").write_text(json.dumps(rights, indent=2))
    text = json.dumps(settings, indent=2).replace(STORES, f"{kit.absolute()}/store/")
    (local / "resources.json").write_text(text)
