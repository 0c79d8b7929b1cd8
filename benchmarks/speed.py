"""Rounds and examples per second of ours, of others at the same work, and of the limit, in turns."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch

from benchmarks import peers, systems
from benchmarks.peers import Absent, Peer
from benchmarks.work import WORKS, Work
from fedauc.data.federated import FederatedData

SYSTEMS = ("ours", "loop", "pfl", "pfl-processes", "flower", "limit")
WARM_UP = 2  # turns that do not count (in them ours compiles its step or records it)
TRIES = 3  # turns in which the settings of a system compete
HOPELESS = 3.0  # a setting so many times slower than its system's best is given up at once
TURN = 0.1  # seconds, at least, that a system is timed for in a turn
LONG = 1.0  # seconds of a round from which on bringing back what it needs is no part of it worth avoiding
LEAST = 3  # turns, however long they take

Row = dict[str, Any]


class Contender(Protocol):
    """A system with a setting: threads, processes, or an engine."""

    name: str
    setting: str

    def resume(self) -> None: ...
    def round(self) -> float: ...
    def mean(self, least: float) -> float: ...
    def pause(self) -> None: ...
    def close(self) -> None: ...


class Contest:
    """Everyone on the same work, one after another; who fails is out, and it is noted why."""

    def __init__(self) -> None:
        self.contenders: list[Contender] = []
        self.notes: dict[str, str] = {}

    def turn(self) -> dict[Contender, float]:
        """Seconds of a round of every contender."""
        seconds = {}
        for contender in list(self.contenders):
            try:
                seconds[contender] = _timed(contender)
            except Absent as reason:
                self.notes[contender.name] = str(reason)
                self.drop(contender)
        return seconds

    def settle(self) -> None:
        """Leave every system with the setting that serves it best."""
        for _ in range(WARM_UP):
            self._narrow(self.turn(), slower=HOPELESS)
        tries = [self.turn() for _ in range(TRIES)]
        medians = {c: statistics.median(turn[c] for turn in tries) for c in self.contenders}
        self._narrow(medians, slower=1.0)

    def _narrow(self, seconds: dict[Contender, float], slower: float) -> None:
        """Drop what is so many times slower than the same system in another setting."""
        for contender, own in seconds.items():
            if own > slower * min(s for c, s in seconds.items() if c.name == contender.name):
                self.drop(contender)

    def drop(self, contender: Contender) -> None:
        self.contenders.remove(contender)
        contender.close()


def run(names: tuple[str, ...], device: str, turns: int, seconds: float) -> Iterator[list[Row]]:
    """The rows of one work after another on a device."""
    absent = peers.absent(device)
    for name in names:
        yield measure(WORKS[name], device, turns, seconds, absent)


def measure(work: Work, device: str, turns: int, seconds: float, absent: dict[str, str]) -> list[Row]:
    """A row per system, with the setting that serves it best; of absent peers, why they are.

    Everything takes turns, so that whatever else the machine does falls on all alike: only ratios within a
    turn are worth comparing, and their median over the turns is what is reported. No turn begins later than
    `seconds` after the first.
    """
    with contest(work, device, absent) as contesting:
        _say(f"{work.name}: choosing settings")
        contesting.settle()
        _say(f"{work.name}: measuring")
        times, begin = [], time.monotonic()
        while len(times) < LEAST or (len(times) < turns and time.monotonic() - begin < seconds):
            times.append(contesting.turn())
        return rows(work, device, times, contesting)


def rows(work: Work, device: str, times: list[dict[Contender, float]], contest: Contest) -> list[Row]:
    """What the turns say of every system."""
    present = {contender.name: contender for contender in contest.contenders}
    ours = present["ours"]
    found: list[Row] = []
    for name in SYSTEMS:
        row: Row = {"work": work.name, "device": device, "system": name}
        if name in present:
            one = present[name]
            seconds = statistics.median(turn[one] for turn in times)
            row |= {
                "setting": one.setting,
                "samples_per_s": work.samples / seconds,
                "rounds_per_s": 1 / seconds,
            }
        else:
            row["note"] = contest.notes.get(name, "needs more than one core")
        found.append(row)
    found[0] |= {
        f"ours/{name}": statistics.median(turn[present[name]] / turn[ours] for turn in times)
        for name in SYSTEMS[1:]
        if name in present
    }
    return found


@contextmanager
def contest(work: Work, device: str, absent: dict[str, str]) -> Iterator[Contest]:
    """All systems at the start line, and at home again whatever happens."""
    data, before = work.data(device), torch.get_num_threads()
    threads = sorted({1, os.cpu_count() or 1})
    contest = Contest()
    contest.notes |= {system: why for name, why in absent.items() for system in peers.SYSTEMS[name]}
    contest.contenders += systems.contenders(work, data, threads)
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        try:
            for name in peers.PACKAGES:
                if name not in absent:
                    start(name, work, data, Path(folder), contest)
            yield contest
        finally:
            while contest.contenders:
                contest.drop(contest.contenders[-1])
            torch.set_num_threads(before)


def start(name: str, work: Work, data: FederatedData, folder: Path, contest: Contest) -> None:
    """A peer in every setting."""
    task = peers.task(work, data, folder)
    for system, setting in peers.settings(name, work):
        _say(f"{work.name}: starting {name}, {setting}")
        try:
            contest.contenders.append(checked(Peer(system, name, setting, task), work, data))
        except Absent as reason:
            contest.notes[system] = str(reason)


def checked(peer: Peer, work: Work, data: FederatedData) -> Peer:
    """The peer after a first round, which must make of the weights what the loop makes of them."""
    try:
        peer.round()
        made = peer.made()
        systems.agree(made["weights"], systems.one_round(work, data, made["clients"]))
    except AssertionError as difference:
        peer.close()
        raise Absent("does not compute what the loop computes") from difference
    except Absent:
        peer.close()
        raise
    peer.pause()
    return peer


def merged(new: list[Row], old: list[Row]) -> list[Row]:
    """The new rows, and the old ones of other works and devices, sorted."""

    def key(row: Row) -> tuple[str, int, int]:
        return row["device"], list(WORKS).index(row["work"]), SYSTEMS.index(row["system"])

    return [row for _, row in sorted(({key(r): r for r in old} | {key(r): r for r in new}).items())]


def summary(rows: list[Row]) -> list[Row]:
    """A line per work and device: everyone's rounds per second, and what ours is of them."""
    lines = []
    for ours in (row for row in rows if row["system"] == "ours"):
        work, device = ours["work"], ours["device"]
        speeds = {
            r["system"]: r.get("rounds_per_s") for r in rows if (r["work"], r["device"]) == (work, device)
        }
        ratios = {f"ours/{name}": ours.get(f"ours/{name}") for name in SYSTEMS[1:]}
        lines.append({"work": work, "device": device} | {name: speeds.get(name) for name in SYSTEMS} | ratios)
    return lines


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _timed(contender: Contender) -> float:
    """Seconds of a round: the mean of as many as fill a turn, after one that brings back what it needs."""
    contender.resume()
    try:
        first = contender.round()
        return first if first >= LONG else contender.mean(TURN)
    finally:
        contender.pause()
