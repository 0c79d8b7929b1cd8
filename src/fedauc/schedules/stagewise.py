"""Stagewise schedules: η_s = η₀·decay^(s-1), E_s = E₀·growth^(s-1) (Alg. 2 and 4 of CyCp, CODA+).

A constant schedule is the special case of one stage (`stage_cycles=None`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedauc.errors import InputError
from fedauc.schedules.base import Stage
from fedauc.schedules.theory import grown_steps, positive


@dataclass(frozen=True)
class Stagewise:
    """S stages of E_s cycles each, I local steps per round, until `cycles` are done."""

    eta: float = 0.1
    """η₀, the step size of the first stage."""
    steps: int = 10
    """I, local steps per round."""
    cycles: int = 40
    """Cycles in all stages together."""
    stage_cycles: int | None = None
    """E₀, cycles of the first stage; one stage for everything where not said."""
    decay: float = 0.3
    """What the step size is multiplied with from stage to stage."""
    growth: float = 1.0
    """What the number of cycles is multiplied with from stage to stage."""
    interval: Literal["constant", "growing"] = "constant"
    """Local steps of later stages: always I, or growing as 1/√η_s (Theorem 4.5)."""

    def __post_init__(self) -> None:
        positive(self, "eta", "decay", "growth")
        for name in ("steps", "stage_cycles"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} must be at least 1.")

    def bind(self, cycle_length: int, active: float) -> Stagewise:
        return self

    def at(self, cycle: int) -> Stage:
        if self.stage_cycles is None:
            return Stage(0, self.eta, self.steps, cycle == 0)
        start, length, s = 0, self.stage_cycles, 0
        while cycle >= start + length:
            start += length
            s += 1
            length = max(1, round(self.stage_cycles * self.growth**s))
        eta = self.eta * self.decay**s
        steps = self.steps if self.interval == "constant" else grown_steps(self.steps, self.eta, eta)
        return Stage(s, eta, steps, cycle == start)
