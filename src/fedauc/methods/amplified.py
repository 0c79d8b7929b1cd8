"""Amplified updates: at the end of every cycle the server goes on in the direction that the cycle took.

    server, at a cycle's end (P rounds)          x ← x₀ + γ (x - x₀),      x₀ ← x

x₀ is the iterate at the end of the cycle before. One cycle is what it takes to hear everybody, so the sum of
its updates is an unbiased direction, which single rounds are not.

Wang & Ji, "A unified analysis of federated learning with arbitrary client participation", NeurIPS 2022
(amplified FedAvg); Crawshaw & Liu, NeurIPS 2024 (amplified SCAFFOLD: around `ControlVariates`). γ = 1 is the
wrapped method itself.

Where this departs from the papers, and why: P is always one cycle of the participation; running statistics
are not amplified, nor is what a phase between rounds does (CODA's dual step).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedauc.core import tree
from fedauc.core.method import Aggregate, Cohort, Knobs, Method, moved
from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.methods.base import Beneath, Wrapper


class Server(NamedTuple):
    inner: Any
    anchor: Tree
    """x₀, the iterate at the last cycle's end."""

    @property
    def z(self) -> Tree:
        return self.inner.z


@dataclass(frozen=True)
class Amplified(Wrapper):
    """Each cycle's change is multiplied."""

    inner: Method
    amplify: float = 1.5
    """γ, what a cycle's change is multiplied with; 1 changes nothing."""

    def __post_init__(self) -> None:
        if self.amplify <= 0:
            raise InputError(f"amplify={self.amplify} must be positive.")

    def beneath(self, phase: Method) -> Method:
        return Followed(phase)

    def server_init(self, params: Tree, counts: NDArray[np.int64]) -> Server:
        inner = self.inner.server_init(params, counts)
        return Server(inner, tree.learned(inner.z))

    def server_update(self, s: Server, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Server:
        inner = self.inner.server_update(s.inner, aggregate, cohort, knobs)
        if not knobs.cycle_end:
            return Server(inner, s.anchor)
        change = tree.sub(tree.learned(inner.z), s.anchor)
        z = self.projected(inner.z | tree.add(s.anchor, change, self.amplify))
        return Server(moved(inner, z), tree.learned(z))

    def server_stage(self, s: Server) -> Server:
        """A stage may start elsewhere than the last one ended."""
        inner = self.inner.server_stage(s.inner)
        return Server(inner, tree.learned(inner.z))


@dataclass(frozen=True)
class Followed(Beneath):
    """An earlier phase of a round (CODA's dual estimate): x₀ moves along, so its step is not amplified."""

    def server_update(self, s: Server, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Server:
        after: Server = super().server_update(s, aggregate, cohort, knobs)
        change = tree.sub(tree.learned(after.z), tree.learned(s.z))
        return after._replace(anchor=tree.add(s.anchor, change))
