"""The benchmark's own parts: who takes turns, what is kept, and the line to a peer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import peers, speed, systems, work

LINEAR = work.WORKS["linear"]
WORKER = """
from benchmarks.workers.turns import Turns
turns, rounds = Turns(), 0
while True:
    turns.wait(lambda: {"rounds": rounds})
    print("a framework that talks")
    rounds += 1
"""


class Steady:
    """A contender that needs the same time for every round, and may give up after a few."""

    def __init__(self, name: str, setting: str, seconds: float, last: int = -1) -> None:
        self.name, self.setting, self.seconds, self.left = name, setting, seconds, last
        self.closed = False

    def resume(self) -> None: ...
    def pause(self) -> None: ...

    def mean(self, least: float) -> float:
        return self.round()

    def round(self) -> float:
        if self.left == 0:
            raise peers.Absent("gave up")
        self.left -= 1
        return self.seconds

    def close(self) -> None:
        self.closed = True


def test_the_best_setting_counts_and_who_fails_is_noted() -> None:
    ours, failing = Steady("ours", "1 thread", 0.1), Steady("pfl", "1 thread", 1.0, last=20)
    loops = [Steady("loop", f"{n} threads", seconds) for n, seconds in ((1, 0.3), (2, 0.2), (4, 2.0))]
    contest = speed.Contest()
    contest.contenders += [ours, *loops, failing]
    contest.settle()
    assert contest.contenders == [ours, loops[1], failing]
    assert [loop.closed for loop in loops] == [True, False, True]
    times = [contest.turn() for _ in range(20)]
    assert failing.closed
    contest.notes |= dict.fromkeys(("flower", "limit"), "is not there")
    first, second, third, *_ = speed.rows(LINEAR, "cpu", times, contest)
    assert first["ours/loop"] == pytest.approx(2.0)
    assert "ours/pfl" not in first
    assert second["rounds_per_s"] == pytest.approx(5.0)
    assert second["samples_per_s"] == pytest.approx(5.0 * 10 * work.ROWS)
    assert third == {"work": "linear", "device": "cpu", "system": "pfl", "note": "gave up"}


def test_rows_of_other_works_and_devices_are_kept() -> None:
    def row(name: str, device: str, system: str, speed: float) -> dict[str, Any]:
        return {"work": name, "device": device, "system": system, "rounds_per_s": speed}

    old = [row("mlp", "cuda", "ours", 1.0), row("mlp", "cpu", "loop", 1.0), row("mlp", "cpu", "ours", 1.0)]
    new = [row("mlp", "cpu", "ours", 2.0), row("linear", "cpu", "ours", 2.0)]
    found = speed.merged(new, old)
    assert [(r["work"], r["device"], r["system"], r["rounds_per_s"]) for r in found] == [
        ("linear", "cpu", "ours", 2.0),
        ("mlp", "cpu", "ours", 2.0),
        ("mlp", "cpu", "loop", 1.0),
        ("mlp", "cuda", "ours", 1.0),
    ]
    lines = speed.summary(found)
    assert [line["loop"] for line in lines] == [None, 1.0, None]
    assert len({tuple(line) for line in lines}) == 1  # the same columns


@pytest.mark.slow
def test_rounds_without_peers() -> None:
    before = torch.get_num_threads()
    absent = dict.fromkeys(peers.PACKAGES, "could not be installed")
    found = {row["system"]: row for row in speed.measure(LINEAR, "cpu", turns=1, seconds=0.0, absent=absent)}
    assert torch.get_num_threads() == before
    assert tuple(found) == speed.SYSTEMS
    assert found["pfl"]["note"] == found["flower"]["note"] == "could not be installed"
    assert found["ours"].keys() >= {"ours/loop", "ours/limit", "samples_per_s", "rounds_per_s"}


def test_weights_that_differ_are_found() -> None:
    data = LINEAR.data()
    weights = systems.one_round(LINEAR, data, range(10))
    systems.agree(weights, systems.one_round(LINEAR, data, range(9, -1, -1)))
    with pytest.raises(AssertionError):
        systems.agree(weights, systems.one_round(LINEAR, data, range(1, 11)))


def test_a_worker_does_a_round_when_asked_and_ends_with_the_line(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER],
        cwd=peers.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
        process_group=0,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        for _ in range(3):
            worker.stdin.write("round\n")
            assert 0 < float(worker.stdout.readline()) < 60
        worker.stdin.write(f"weights {tmp_path / 'made.pt'}\n")
        assert worker.stdout.readline() == "saved\n"
        assert torch.load(tmp_path / "made.pt") == {"rounds": 3}
        worker.stdin.close()
        assert worker.wait(timeout=60) == -9
