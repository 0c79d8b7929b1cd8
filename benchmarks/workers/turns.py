"""A worker's end of the line: rounds are asked for on standard input, one at a time.

                      ← ready          once
    → round           ← 0.123          the round's seconds
    → weights FILE    ← saved          what the rounds have made

Where the line ends, so does the worker, with every process of its group.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import torch


class Turns:
    """Holds up a framework's own loop between rounds.

    Whatever else prints, prints to standard error: the line is for answers alone.
    """

    def __init__(self) -> None:
        self.line = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self.began: float | None = None

    def wait(self, made: Callable[[], dict[str, Any]]) -> None:
        """Before the first round and after every one: returns when another is asked for.

        `made` returns the weights, and the clients that took part in the last round.
        """
        self.line.write("ready\n" if self.began is None else f"{time.perf_counter() - self.began}\n")
        for request in sys.stdin:
            command, _, file = request.strip().partition(" ")
            if command == "round":
                self.began = time.perf_counter()
                return
            torch.save(made(), file)
            self.line.write("saved\n")
        os.killpg(0, signal.SIGKILL)
