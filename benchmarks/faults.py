"""What a federation of real processes survives, and how long it takes.

    python -m benchmarks.faults                  # every fault once → faults.json, docs/faults.md's table
    python -m benchmarks.faults --soak           # 4 sites, 300 rounds, a random fault every 20 → soak.json
    python -m benchmarks.faults --steady 600     # memory of all processes, for ten minutes without a fault

Recovery is the time from the fault to the second round that is committed after it, with all four sites needed
in their rounds (`quorum = 1.0`); with a smaller quorum rounds go on meanwhile. The soak compares the final
model with that of one process, bit for bit, and looks for processes, files and memory that were left behind.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.federation import tables
from fedauc.core.checkpoint import read_tensors
from fedauc.experiments import records, runner
from fedauc.experiments.config import Config
from fedauc.federation.rehearsal import Proxy, Rehearsal

HERE = Path(__file__).parent
OPTIONS = ("--method", "codasca", "--model", "mlp", "--set", "hidden=[5]", "--set", "steps=3")
SITES = 4
CUT = 60.0
"""Seconds of a network cut, where every fault is measured."""


@dataclass
class Setting:
    """A federation that trains, and the connection of its first site."""

    federation: Rehearsal
    proxy: Proxy
    cut: float
    generator: random.Random

    def site(self) -> str:
        return self.generator.choice(sorted(self.federation.tables))

    def kill_client(self) -> None:
        """Only the process in which a site trains; `site join` starts it again."""
        self.federation.kill(self.federation.client(self.site()))

    def kill_site(self) -> None:
        """All of a site's processes; somebody starts it again."""
        name = self.site()
        self.federation.kill_site(name)
        self.federation.join(name)

    def kill_job(self) -> None:
        """The coordinator's own process; the supervisor submits the job again."""
        self.federation.kill(self.federation.server_job())

    def kill_server(self) -> None:
        """FLARE's server; the supervisor starts it again."""
        self.federation.kill(self.federation.server())

    def kill_supervisor(self) -> None:
        """The supervisor and all that it has started; somebody resumes."""
        supervisor = self.federation.supervisor
        assert supervisor is not None
        supervisor.end(patience=0)
        self.federation.start("resume")

    def freeze(self) -> None:
        """A site hangs for five seconds."""
        client = self.federation.client(self.site())
        client.suspend()
        time.sleep(5)
        client.resume()

    def cut_off(self) -> None:
        """Nothing gets through between one site and the server for a while."""
        self.proxy.cut()
        time.sleep(self.cut)
        self.proxy.mend()


FAULTS: dict[str, Callable[[Setting], None]] = {
    "a site's training process killed": Setting.kill_client,
    "all processes of a site killed, started again at once": Setting.kill_site,
    "the coordinator's process killed": Setting.kill_job,
    "the server killed": Setting.kill_server,
    "supervisor, server and coordinator killed, resumed at once": Setting.kill_supervisor,
    "a site hangs for 5 s": Setting.freeze,
    "network between a site and the server cut": Setting.cut_off,
}


def started(folder: Path, cycles: int, cut: float, seed: int) -> Setting:
    federation = Rehearsal(folder / "here", tables(folder, SITES))
    federation.init("y", "1", *OPTIONS, "--set", f"cycles={cycles}")
    proxy = federation.route("site-0")
    federation.join()
    federation.start()
    federation.until_round(3)
    return Setting(federation, proxy, cut, random.Random(seed))


def recovered(setting: Setting, name: str) -> float:
    """Seconds from a fault's end to the second round after it."""
    FAULTS[name](setting)
    return setting.federation.until_round(setting.federation.round + 2)


def table(only: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    setting = started(folder, 20_000, CUT, 0)
    path = HERE / "faults.json"
    found = json.loads(path.read_text()) if only and path.exists() else {}
    with setting.federation:
        for name in (name for name in FAULTS if only in name):
            found[name] = [round(recovered(setting, name), 1) for _ in range(2)]
            print(name, found[name], flush=True)
        before = setting.federation.round
        setting.federation.stop()
        assert setting.federation.round >= before
    path.write_text(json.dumps(found, indent=2) + "\n")
    shutil.rmtree(folder, ignore_errors=True)


def soak(seed: int, rounds: int = 300, every: int = 20) -> None:
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    setting = started(folder, rounds // 2, 5.0, seed)
    federation, caused = setting.federation, []
    with federation:
        count = len(federation.processes())
        early = memory(federation)
        for mark in range(every, rounds - every // 2, every):
            federation.until_round(mark)
            name = setting.generator.choice(list(FAULTS))
            seconds = round(recovered(setting, name), 1)
            caused.append({"round": mark, "fault": name, "seconds": seconds})
            print(caused[-1], flush=True)
            if mark == every:
                early = memory(federation)
        late = memory(federation)
        if federation.wait(600):
            sys.exit((folder / "here/supervisor.log").read_text())
        plan = federation.folder.begun()
        about = json.loads(json.dumps(plan.config.as_dict()))
        about["data"]["path"] = [str(path) for path in federation.tables.values()]
        alone = runner.run(Config.from_dict(about), folder / "one")
        result = records.read_json(federation.run / "result.json")
        one, many = (read_tensors(path / "model.safetensors")[0] for path in (folder / "one", federation.run))
        same = one.keys() == many.keys() and all(torch.equal(value, many[n]) for n, value in one.items())
        here = sorted(path.name for path in federation.run.iterdir())
        kept = {
            name: len(list((federation.home / name / name / "fedauc").rglob("memory-*")))
            for name in federation.tables
        }
        after = len(federation.processes())
    found = {
        "seed": seed,
        "rounds": rounds,
        "faults": caused,
        "slowest_recovery": max(fault["seconds"] for fault in caused),
        "same_bits_as_one_process": same,
        "best_round": [alone["best_round"], result["best_round"]],
        "processes_while_training": count,
        "processes_after": after,  # the sites stay joined
        "processes_in_the_end": len(federation.processes()),
        "memory_mb_early": early,
        "memory_mb_late": late,
        "files_of_the_run": here,
        "memories_kept_by_site": kept,
    }
    print(json.dumps(found, indent=2))
    (HERE / "soak.json").write_text(json.dumps(found, indent=2) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    if not same or found["processes_in_the_end"]:
        sys.exit("the soak has failed")


def memory(federation: Rehearsal) -> dict[str, float]:
    """Resident memory by process, in MB."""
    found = {name: federation.client(name).memory_info().rss / 1e6 for name in federation.tables}
    found["server"] = federation.server().memory_info().rss / 1e6
    found["coordinator"] = federation.server_job().memory_info().rss / 1e6
    return {name: round(value) for name, value in found.items()}


def steady(seconds: float) -> None:
    """Memory in a long run without faults."""
    folder = Path(tempfile.mkdtemp(prefix="steady-"))
    setting = started(folder, 1_000_000, 0.0, 0)
    with setting.federation as federation:
        begin = time.monotonic()
        while (passed := time.monotonic() - begin) < seconds:
            print(f"{passed:.0f} s, round {federation.round}: {memory(federation)}", flush=True)
            time.sleep(30)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--only", default="", help="faults whose name has this in it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steady", type=float, metavar="SECONDS")
    given = parser.parse_args()
    if given.soak:
        soak(given.seed)
    elif given.steady:
        steady(given.steady)
    else:
        table(given.only)


if __name__ == "__main__":
    main()
