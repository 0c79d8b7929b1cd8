"""Federations of real processes: NVIDIA FLARE on loopback, with mutual TLS, and what happens to processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from tests.federation.sites import SITES, Hours, written

from fedauc.core.checkpoint import previous, read_tensors
from fedauc.errors import InputError
from fedauc.experiments import runner
from fedauc.experiments.config import Config

pytest.importorskip("nvflare", reason="nvflare is not installed: pip install 'fedauc[nvflare]'")

from fedauc.federation import kits
from fedauc.federation.flare import DATA, Busy, only_one
from fedauc.federation.rehearsal import Rehearsal, call, free_ports

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("flare")]
OPTIONS = ("--method", "codasca", "--model", "mlp", "--set", "hidden=[5]", "--set", "steps=3")


@pytest.fixture(scope="module")
def federation(tmp_path_factory) -> Iterator[Rehearsal]:
    """Four sites that have joined, and a coordinator that has not started."""
    folder = tmp_path_factory.mktemp("federation")
    with Rehearsal(folder / "here", written(folder)) as found:
        found.init("ill", "1", *OPTIONS, "--set", "cycles=100")
        found.join()
        yield found


def missed(federation: Rehearsal, site: str) -> list[str]:
    lines = federation.folder.participation()
    return [line["missed"][site] for line in lines if site in line.get("missed", {})]


def took_part(federation: Rehearsal, site: str) -> int:
    return sum(site in line.get("took_part", []) for line in federation.folder.participation())


def test_killed_at_every_place_it_ends_with_the_model_of_one_process(federation, tmp_path):
    """A site inside a round, the coordinator's process, the server: all are back within a minute, nothing
    that was committed is lost, and as all sites have answered in all rounds the bits are the same."""
    federation.start()
    federation.until_round(5)
    site = federation.client("basel")
    site.suspend()  # now it is inside a round, or the next one waits for it
    time.sleep(0.5)
    federation.kill(site)
    assert federation.until_round(federation.round + 3) < 60
    federation.kill(federation.server_job())
    assert federation.until_round(federation.round + 3) < 60
    federation.kill(federation.server())
    assert federation.until_round(federation.round + 3) < 60
    federation.stop()
    assert federation.wait() == 0
    assert federation.status()["state"] == "stopped"
    federation.start("resume")
    assert federation.wait() == 0
    rounds = [line["round"] for line in federation.folder.rounds()]
    assert rounds == list(range(1, 201))
    about = json.loads(json.dumps(federation.folder.begun().config.as_dict()))
    about["data"]["path"] = [str(path) for path in federation.tables.values()]
    one = runner.run(Config.from_dict(about), tmp_path / "one")
    many = json.loads((federation.run / "result.json").read_text())
    assert many["test_auc"] == one["test_auc"]
    here, there = (read_tensors(path / "model.safetensors")[0] for path in (tmp_path / "one", federation.run))
    assert here.keys() == there.keys()
    assert all(torch.equal(value, there[name]) for name, value in here.items())
    resumed = [line for line in federation.folder.participation() if line.get("event") == "resumed"]
    assert len(resumed) == 3
    assert "Who took part when" in (federation.run / "report.html").read_text()


def accepted(context: ssl.SSLContext, port: int) -> bool:
    """Whether the server talks to somebody with this context."""
    try:
        with (
            socket.create_connection(("localhost", port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as wrapped,
        ):
            wrapped.sendall(b"GET / HTTP/1.1\r\n\r\n")
            return bool(wrapped.recv(100))
    except (ssl.SSLError, ConnectionError):
        return False


@contextmanager
def stranger(kit: Path, name: str, table: Path) -> Iterator[Path]:
    """A client with this kit that says it is `name`; its log."""
    log = kit.parent / f"{name}.log"
    command = [part if not part.startswith("uid=") else f"uid={name}" for part in kits.site_command(kit)]
    with open(log, "wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env=os.environ | {DATA: str(table)}, start_new_session=True
        )
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_slow_and_revoked_sites_strangers_and_a_full_disk(federation, tmp_path):
    shutil.rmtree(federation.run, ignore_errors=True)
    federation.change({"cycles": "cycles = 3000\n# "})
    federation.change(
        {"deadline = 3600": "deadline = 2", "grace = 30": "grace = 1", "quorum = 1.0": "quorum = 0.5"}
    )
    federation.start()
    federation.until_round(5)

    # Slow beyond the deadline: the round goes on with the quorum, and the site comes back.
    slow = federation.client("geneva")
    slow.suspend()
    federation.until(lambda: len(missed(federation, "geneva")) > 1)
    before = took_part(federation, "geneva")
    slow.resume()
    assert federation.until(lambda: took_part(federation, "geneva") > before + 1) < 60

    # Nobody joins without a key of this federation, or under another's name.
    server = federation.home / "coordinator/logs/server.log"
    port = federation.folder.plan.federation.port
    context = ssl.create_default_context(cafile=federation.home / "basel/basel/startup/rootCA.pem")
    assert not accepted(context, port)
    other = kits.provision(tmp_path / "other", "localhost", port, *free_ports(1), ["basel"])
    copy = tmp_path / "copy"
    shutil.copytree(federation.home / "zurich/zurich", copy)
    joined = server.read_text().count("joined")
    with (
        stranger(other.site("basel"), "basel", federation.tables["basel"]) as wrong,
        stranger(copy, "lugano", federation.tables["lugano"]) as claims,
    ):
        federation.until(lambda: "CERTIFICATE_VERIFY_FAILED" in wrong.read_text().upper())
        # The server says it: whether a client notices depends on what it was just sending.
        refused = "authenticated as 'zurich' but claimed endpoint 'lugano'"
        federation.until(lambda: refused in server.read_text())
        assert "Successfully registered" not in claims.read_text()
        assert "Successfully registered" not in wrong.read_text()
    assert server.read_text().count("joined") == joined

    # New certificates: the server starts anew, and the sites connect again by themselves.
    call("federation", "renew", federation.coordinator)
    federation.until(lambda: federation.status()["restarts"] == 1)
    before = {name: took_part(federation, name) for name in SITES}
    assert federation.until(lambda: all(took_part(federation, n) > k + 1 for n, k in before.items())) < 60

    # A revoked site is refused, and the run goes on without it.
    call("federation", "revoke", "zurich", federation.coordinator)
    federation.until(lambda: federation.status()["restarts"] == 2)
    federation.until_round(federation.round + 10)
    before = took_part(federation, "zurich"), len(missed(federation, "zurich"))
    federation.until_round(federation.round + 20)
    assert (took_part(federation, "zurich"), len(missed(federation, "zurich"))) == before
    (_,) = federation.coordinators()  # one job, whatever was submitted before
    assert next(row for row in federation.status()["sites"] if row["site"] == "zurich")["revoked"]

    # The coordinator's disk is full: it stops, says so, and the last checkpoint is whole.
    part = federation.run / "checkpoint.safetensors.part"
    while not part.is_symlink():
        try:
            os.symlink("/dev/full", part)
        except FileExistsError:
            time.sleep(0.001)
    assert federation.wait() == 2
    assert "No space left" in (federation.home / "supervisor.log").read_text()
    assert federation.status()["state"] == "failed"
    last = read_tensors(federation.run / "checkpoint.safetensors")[1]["round"]
    assert read_tensors(previous(federation.run / "checkpoint.safetensors"))[1]["round"] == last - 1
    assert not [p for p in federation.processes() if "server_train" in " ".join(p.cmdline())]


def test_a_kit_holds_what_its_owner_needs_and_is_closed_to_others(tmp_path):
    made = kits.provision(tmp_path / "kits", "localhost", 8002, 8003, ["a", "b"])
    assert (tmp_path / "kits").stat().st_mode & 0o077 == 0
    for kit in (made.site("a"), made.site("b")):
        settings = json.loads((kit / "local" / "resources.json").read_text())
        assert settings["class_allow_list"] == [kits.MEMBER]
        assert settings["allow_log_streaming"] is False
        assert not any("log" in component["path"].lower() for component in settings["components"])
        assert (kit / "startup" / "client.key").stat().st_mode & 0o077 == 0
    assert made.site("a") != made.site("b")
    server = (made.server / "local" / "resources.json").read_text()
    assert kits.STORES not in server


@pytest.mark.parametrize("sites", [["a b"], ["../x"], [""], ["a", "a"], ["localhost"], ["attendant"]])
def test_names_that_cannot_be_used(sites, tmp_path):
    with pytest.raises(InputError, match="name"):
        kits.provision(tmp_path / "kits", "localhost", 8002, 8003, sites)


def test_a_job_waits_for_the_one_that_is_about_to_end(tmp_path):
    """Two jobs never write to the folder of one run."""
    out = tmp_path / "run"
    with only_one(out, Hours()):
        began = (clock := Hours()).now()
        with pytest.raises(Busy, match="another job writes"), only_one(out, clock):
            pass
        assert clock.now() - began > timedelta(seconds=59)
    with only_one(out, Hours()):
        pass
