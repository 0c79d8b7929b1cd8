"""What a schedule says for a cycle."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Stage(NamedTuple):
    """The settings in force in a cycle."""

    number: int
    """s, counted from 0."""
    eta: float
    steps: int
    first: bool
    """Whether the cycle is the first of its stage."""


class Schedule(Protocol):
    """A frozen dataclass of settings; `at` is a pure function of the cycle."""

    cycles: int
    eta: float

    def bind(self, cycle_length: int, active: float) -> Schedule:
        """The schedule for K rounds a cycle and M clients a round, where it depends on them."""

    def at(self, cycle: int) -> Stage:
        """The stage that cycle `cycle` (from 0) belongs to."""
