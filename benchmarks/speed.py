"""Rounds and examples per second of ours, a loop over clients, and the limit, measured in turns."""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import torch

from benchmarks.systems import Limit, Loop, Ours, systems
from benchmarks.work import SAMPLES, WORKS, Work
from fedauc.experiments.runner import SMALL

WARM_UP = 4  # turns that do not count (ours records its step in them)
TURN = 0.1  # seconds, at least, that a system is timed for in a turn


def measure(work: Work, turns: int) -> list[dict[str, Any]]:
    """A row per system, with the threads each takes by itself, and with those that serve it best.

    The loop and the limit take PyTorch's default (every core); ours takes one thread for small models, as a
    run does. Everything takes turns, so that whatever else the machine does falls on all alike: only the
    ratios of one run are worth comparing.
    """
    at_work = systems(work)
    cores = os.cpu_count() or 1
    small = sum(p.numel() for p in work.module().parameters()) <= SMALL
    default = {"ours": 1 if small else cores, "loop": cores, "limit": cores}
    threads = sorted({1, cores})
    times: dict[tuple[str, int], list[float]] = {(name, n): [] for name in at_work for n in threads}
    for turn in range(WARM_UP + turns):
        for name, n in times:
            torch.set_num_threads(n)
            seconds = _timed(at_work[name])
            if turn >= WARM_UP:
                times[name, n].append(seconds)
    median = {case: statistics.median(seconds) for case, seconds in times.items()}
    best = {name: min(median[name, n] for n in threads) for name in at_work}
    return [
        {
            "work": work.name,
            "device": "cpu",
            "system": name,
            "threads": default[name],
            "samples_per_s": SAMPLES / median[name, default[name]],
            "rounds_per_s": 1 / median[name, default[name]],
            "ratio_to_loop": median["loop", default["loop"]] / median[name, default[name]],
            "ratio_to_loop_best_threads": best["loop"] / best[name],
        }
        for name in at_work
    ]


def _timed(system: Ours | Loop | Limit) -> float:
    """Seconds of a round: the mean of as many as fill a turn."""
    rounds, start = 0, time.perf_counter()
    while (seconds := time.perf_counter() - start) < TURN:
        system.round()
        rounds += 1
    return seconds / rounds


def run(turns: int) -> list[dict[str, Any]]:
    """All rows of results.json."""
    return [row for work in WORKS for row in measure(work, turns)]
