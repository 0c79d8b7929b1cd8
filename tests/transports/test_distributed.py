"""Several processes that train together are one process; real processes, talking over gloo."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.contract.federations import built
from tests.experiments.tables import claims_csv
from tests.transports import worker

from fedauc.errors import InputError
from fedauc.experiments import compare, runner
from fedauc.experiments.config import Config

ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
DATA = ("--label", "fraud", "--client", "state")


def environment(**more: str) -> dict[str, str]:
    """The tests' own, one thread for each process."""
    kept = {name: v for name, v in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | more


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def torchrun(*arguments: str) -> list[str]:
    return [*TORCHRUN, "--master-port", str(free_ports(1)[0]), *arguments]


def said(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("name", worker.SOME)
def test_parts_of_a_cohort_are_the_cohort(name):
    expected = worker.trained(built(name, worker.SOME[name]))
    for parts in (2, 4):
        found = worker.trained(built(name, worker.SOME[name] | {"train.parts": parts}))
        assert_close(found, expected)
    with pytest.raises(InputError, match="must be 1, 2 or 4"):
        built(name, {"train.parts": 3})


@pytest.mark.slow
def test_processes_together_get_what_one_gets(tmp_path):
    """Two for every preset, three and four for some: all of them the same, and the same as one process that
    computes its clients in as many parts; three parts there are not, so three are only close."""
    sizes = [f"{size}:{port}" for size, port in zip((4, 3, 2), free_ports(3), strict=True)]
    command = [sys.executable, str(ROOT / "tests/transports/worker.py"), str(tmp_path)]
    workers = [subprocess.Popen([*command, str(rank), *sizes], env=environment()) for rank in range(4)]
    try:
        assert [process.wait(300) for process in workers] == [0, 0, 0, 0]
    finally:
        for process in workers:
            process.kill()
    for size in (2, 3, 4):
        found = [torch.load(tmp_path / f"{size}-{rank}.pt") for rank in range(size)]
        for name, settings in worker.cases(size).items():
            one = worker.trained(built(name, settings | {"train.parts": 1 if size == 3 else size}))
            first, *others = (each[name] for each in found)
            for other in others:
                assert_same(first, other, name)
            if size == 3:
                assert_close(first, one)
            else:
                assert_same(first, one, name)


def assert_same(a, b, name):
    assert a["ledger"] == b["ledger"], name
    assert a["records"] == b["records"], name
    assert a["tensors"].keys() == b["tensors"].keys(), name
    for key, value in a["tensors"].items():
        assert value.numpy().tobytes() == b["tensors"][key].numpy().tobytes(), f"{name}: {key}"


def assert_close(a, b):
    assert a["ledger"] == b["ledger"]
    torch.testing.assert_close(a["tensors"], b["tensors"], rtol=1e-12, atol=1e-12)


def timeless(value):
    """Without what a clock says, and without the setting that the two differ in."""
    if isinstance(value, dict):
        return {name: timeless(inner) for name, inner in value.items() if name not in ("seconds", "parts")}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def curve(folder):
    return [timeless(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.slow
def test_a_run_whose_processes_died_goes_on_and_is_a_run_of_one_process(tmp_path):
    """A method that keeps something at the clients, after a warm-up by another."""
    path, shared, alone = claims_csv(tmp_path), tmp_path / "shared", tmp_path / "alone"
    settings = {"model.hidden": (8,), "cycles": 120, "warmup_cycles": 3, "eval_every": 2}
    command = torchrun(
        "-m", "fedauc", "train", "--data", str(path), *DATA, "--out", str(shared),
        "--method", "two-stage-codasca", "--model", "mlp",
        *(part for name, value in settings.items() for part in ("--set", f"{name}={value}")),
    )  # fmt: skip
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 120
        while not (shared / "checkpoint.safetensors").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(second(process.pid), signal.SIGKILL)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode != 0
    assert output == ""
    assert errors.count("fedauc: ") == 1
    assert "with --resume goes on" in errors
    assert not (shared / "result.json").exists()

    resumed = said([*command, "--resume"])
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.count("test AUC") == resumed.stdout.count("report: ") == 1
    config = Config.resolve(
        "two-stage-codasca",
        {"data.path": [str(path)], "data.label": "fraud", "data.client": "state", "model": "mlp", "parts": 2}
        | settings,
    )
    expected = runner.run(config, alone)
    assert timeless(json.loads((shared / "result.json").read_text())) == timeless(expected)
    assert curve(shared) == curve(alone)
    assert curve(shared / "warmup") == curve(alone / "warmup")
    assert files(shared) == files(alone)
    a, b = (load_file(folder / "model.safetensors") for folder in (shared, alone))
    assert {name: value.numpy().tobytes() for name, value in a.items()} == {
        name: value.numpy().tobytes() for name, value in b.items()
    }


def second(agent):
    """The process with rank 1 among those that torchrun has started."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if parent == agent and b"RANK=1" in variables:
                return int(entry.name)
    raise AssertionError("there is no second process")


@pytest.mark.slow
def test_a_comparison_is_shared_out_run_by_run(tmp_path):
    path = claims_csv(tmp_path)
    methods = ["cycp-minimax", "cycp-pairwise"]
    compared = said(torchrun(
        "-m", "fedauc", "compare", "--data", str(path), *DATA, "--seeds", "1", "--methods", ",".join(methods),
        "--set", "cycles=3", "--out", str(tmp_path / "shared"),
    ))  # fmt: skip
    assert compared.returncode == 0, compared.stderr
    assert compared.stdout.count("clients-alone") == 1
    overrides = {"data.path": [str(path)], "data.label": "fraud", "data.client": "state", "cycles": 3}
    expected = compare.compare(methods, overrides | {"parts": 2}, [0], tmp_path / "alone")
    found = json.loads((tmp_path / "shared/compare.json").read_text())
    assert timeless(found) == timeless(json.loads(json.dumps(expected)))
    assert files(tmp_path / "shared") - {"report.html"} == files(tmp_path / "alone")


def test_one_process_that_cannot_read_its_file_ends_all(tmp_path):
    """On another machine a file may be missing."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "if os.environ['RANK'] == '1':\n"
        "    sys.argv = [text.replace('claims.csv', 'missing.csv') for text in sys.argv]\n"
        "from fedauc.cli import main\n"
        "main()\n"
    )
    path = claims_csv(tmp_path)
    failed = said(torchrun(str(script), "train", "--data", str(path), *DATA, "--out", str(tmp_path / "run")))
    assert failed.returncode != 0
    assert failed.stdout == ""
    assert failed.stderr.count("fedauc: ") == 1
    assert "missing.csv does not exist" in failed.stderr
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_what_every_process_finds_is_said_once(tmp_path):
    """Also where something else than torchrun has started them."""
    (port,) = free_ports(1)
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "fedauc", "train", "--data", str(claims_csv(tmp_path)), *DATA]
    command += ["--set", "cycels=3", "--out", str(tmp_path / "run")]
    processes = [
        subprocess.Popen(command, env=environment(RANK=rank, **place), stderr=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    errors = "".join(process.communicate(timeout=120)[1] for process in processes)
    assert [process.returncode for process in processes] == [2, 2]
    assert errors.count("fedauc: ") == 1
    assert "Did you mean 'cycles'?" in errors
    assert not (tmp_path / "run").exists()
