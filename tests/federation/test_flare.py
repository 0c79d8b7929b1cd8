"""A federation of real processes: NVIDIA FLARE on loopback, with mutual TLS."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch
from tests.federation.sites import SETTINGS, SITES, written

from fedauc.core.checkpoint import read_tensors
from fedauc.errors import InputError
from fedauc.experiments import runner
from fedauc.experiments.config import Config

pytest.importorskip("nvflare", reason="nvflare is not installed: pip install 'fedauc[nvflare]'")
psutil = pytest.importorskip("psutil")

from fedauc.federation import kits  # noqa: E402
from fedauc.federation.flare import DATA, write_job  # noqa: E402

PATIENCE = 90.0


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]


@contextmanager
def running(command: list[str], log: Path, **environment: str) -> Iterator[None]:
    """A process that ends, with all that it has started, when the context does."""
    with open(log, "w") as file:
        process = psutil.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=os.environ | environment | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            yield
        finally:
            family = [*process.children(recursive=True), process]
            for member in family:
                if member.is_running():
                    member.kill()
            psutil.wait_procs(family, timeout=10)


@pytest.fixture(scope="module")
def federation(tmp_path_factory) -> Iterator[tuple[Path, kits.Kits]]:
    """The tables, and a server and four sites that run."""
    folder = tmp_path_factory.mktemp("federation")
    written(folder)
    made = kits.provision(folder / "kits", "localhost", *free_ports(2), SITES)
    with ExitStack() as stack:
        stack.enter_context(running(kits.server_command(made.server), folder / "server.log"))
        for name in SITES:
            command = kits.site_command(made.site(name))
            table = str(folder / f"{name}.csv")
            stack.enter_context(running(command, folder / f"{name}.log", **{DATA: table}))
        yield folder, made


SUBMIT = """
import json, sys, time
from nvflare.fuel.flare_api.flare_api import new_secure_session
admin, kit, job, sites, patience = sys.argv[1:]
end = time.monotonic() + float(patience)
while True:
    try:
        session = new_secure_session(admin, kit, timeout=10)
        if len(session.get_system_info().client_info) == int(sites):
            break
        session.close()
    except Exception:
        if time.monotonic() > end:
            raise
    time.sleep(0.5)
number = session.submit_job(job)
while "FINISHED" not in (status := session.get_job_meta(number).get("status") or ""):
    if time.monotonic() > end:
        break
    time.sleep(0.3)
print("status", status)
session.close()
"""


def submitted(made: kits.Kits, job: Path) -> str:
    """How a job ended; the session is in a process of its own, since it leaves threads behind."""
    command = [sys.executable, "-c", SUBMIT, kits.ADMIN, str(made.admin), str(job), str(len(SITES))]
    done = subprocess.run([*command, str(PATIENCE)], capture_output=True, text=True, timeout=2 * PATIENCE)
    lines = [line for line in done.stdout.splitlines() if line.startswith("status")]
    assert lines, done.stderr[-2000:]
    return lines[-1].removeprefix("status ")


together = pytest.mark.xdist_group("flare")


@together
@pytest.mark.slow
def test_processes_with_tls_end_with_the_model_of_one_process(federation):
    folder, made = federation
    method = "codasca"
    config = Config.resolve(method, SETTINGS)
    out = folder / f"{method}-apart"
    begin = time.monotonic()
    assert submitted(made, write_job(folder / "jobs", method, config, SITES, out)) == "FINISHED:COMPLETED"
    assert time.monotonic() - begin < PATIENCE
    files = [str(folder / f"{name}.csv") for name in SITES]
    one = runner.run(Config.resolve(method, SETTINGS | {"data.path": files}), folder / f"{method}-together")
    many = json.loads((out / "result.json").read_text())
    assert many["test_auc"] == one["test_auc"]
    here, there = (
        read_tensors(path / "model.safetensors")[0] for path in (folder / f"{method}-together", out)
    )
    assert here.keys() == there.keys()
    assert all(torch.equal(value, there[name]) for name, value in here.items())


@together
@pytest.mark.slow
def test_a_site_runs_no_other_class(federation):
    """A job that names a class of FLARE's own ends before it has begun."""
    folder, made = federation
    job = write_job(folder / "jobs", "other", Config.resolve("cycp-minimax", SETTINGS), SITES, folder / "x")
    client = job / "app" / "config" / "config_fed_client.json"
    client.write_text(client.read_text().replace(kits.MEMBER, "nvflare.app_common.np.np_trainer.NPTrainer"))
    status = submitted(made, job)
    assert "COMPLETED" not in status
    assert "ComponentNotAuthorized" in (folder / "basel.log").read_text()
    assert not (folder / "x").exists()


@together
@pytest.mark.slow
def test_no_code_comes_with_a_job(federation):
    folder, made = federation
    job = write_job(folder / "jobs", "code", Config.resolve("cycp-minimax", SETTINGS), SITES, folder / "y")
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "own.py").write_text("print('here')\n")
    assert "COMPLETED" not in submitted(made, job)
    assert not (folder / "y").exists()


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
    with pytest.raises(InputError, match="not empty"):
        kits.provision(tmp_path / "kits", "localhost", 8002, 8003, ["a"])


@pytest.mark.parametrize("sites", [["a b"], ["../x"], [""], ["a", "a"], ["localhost"]])
def test_names_that_cannot_be_used(sites, tmp_path):
    with pytest.raises(InputError, match="name"):
        kits.provision(tmp_path / "kits", "localhost", 8002, 8003, sites)
