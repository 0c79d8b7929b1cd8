"""The protocol of a method: what travels down, what a client does, what travels up, how it is folded in.

A method is a frozen dataclass whose fields are its hyper-parameters, and a handful of pure functions on
tensors. The client functions are written for *one* client, unbatched; the transport decides whether to
loop them, to `torch.func.vmap` them over the cohort, or to ship them to another machine. They never
change their arguments and draw nothing: examples and passive scores are drawn outside (`core.rng`).

    server ─ broadcast, address ─► client_init ─► client_step × I ─► client_finish ─ Upload ─► server_update
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core.tree import Tree

if TYPE_CHECKING:
    from fedauc.participation.base import Participation

Draw = Literal["stratified", "natural"]
"""How local batches are drawn: half positives and half negatives, or as the rows come."""


class Batch(NamedTuple):
    """One local step's examples at one client (or, with a leading axis, at each client of a cohort).

    `weight` carries the normalisation: with class-stratified draws the weights of the positives sum to c⁺,
    those of the negatives to c⁻ (what the client's class parts count for, `core.weighting`); with natural
    draws they sum to 1. An objective is therefore always a weighted *sum* over the batch.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    row: Tensor
    """Which of its client's rows of its class an example is, from 0; for state that is kept per example."""


class Knobs(NamedTuple):
    """What the schedule sets for a round. Only `eta` reaches the arithmetic, and it is a tensor."""

    eta: Tensor
    steps: int
    batch: int
    round: int
    cycle: int
    stage: int
    cycle_length: int
    """K, rounds of a cycle."""
    new_stage: bool = False
    """Whether a stage begins with this round; the first round begins none."""

    @property
    def cycle_end(self) -> bool:
        """Whether this is the last round of its cycle."""
        return (self.round + 1) % self.cycle_length == 0


class Gathered(NamedTuple):
    """Rows that are concatenated over clients; only those with `keep` travel."""

    values: Tensor
    keep: Tensor


class Upload(NamedTuple):
    """What a client sends. `mean` and `sum` are summed with weights (so secure aggregation stays possible and
    the server's memory does not grow with M), `gather` is concatenated."""

    mean: Tree
    """Folded with ŵ, which corrects for those who are absent: estimates of a sum over all clients."""
    gather: dict[str, Gathered]
    sum: Tree = {}  # noqa: RUF012 (never changed)
    """Folded with ω, without that correction: changes of what the server keeps on behalf of all clients."""


class Cohort(NamedTuple):
    """Who takes part in a round and what each counts for (`core.weighting`)."""

    clients: NDArray[np.int64]
    weight: NDArray[np.float64]
    """ŵ = Kω/π: the factor of the client's upload in `mean`."""
    omega: NDArray[np.float64]
    """ω: what the client counts for among all; its factor in `sum`."""
    local: NDArray[np.float64]
    """[M, 2] c⁻, c⁺: what the class parts count for in the client's own objective."""
    share: NDArray[np.float64]
    """[M, 2] K·C±/π: the client's share in the two class expectations, corrected for its participation."""

    def part(self, which: slice | NDArray[np.int64]) -> Cohort:
        """Some of its clients."""
        clients, weight, omega, local, share = self
        return Cohort(clients[which], weight[which], omega[which], local[which], share[which])


class Pool(NamedTuple):
    """Gathered rows of a round: the values, and whose they are (index into the cohort)."""

    values: Tensor
    owner: Tensor


class Aggregate(NamedTuple):
    """A round's uploads, folded by the transport."""

    mean: Tree
    gather: dict[str, Pool]
    sum: Tree = {}  # noqa: RUF012 (never changed)


@runtime_checkable
class Method(Protocol):
    """See the module's docstring. S, D, C, L below are NamedTuples of trees of the method's own.

    `methods.base.Rule` has the defaults of what most rules do not need.
    """

    @property
    def draw(self) -> Draw:
        """How local batches are drawn, `stratified` or `natural`."""

    def phases(self, new_stage: bool) -> tuple[Phase, ...]:
        """The exchanges of a round, one after another; the last one is the method's own."""

    def server_init(self, params: Tree, counts: NDArray[np.int64]) -> Any:
        """S: the server's state; its field `z` is the iterate (model and the objective's own variables).
        Counts [N, 2] are the clients' negatives and positives."""

    def importance(self, s: Any) -> Tensor | None:
        """[N] what clients count for where the method decides it (λ); None: as `core.weighting` says."""

    def memory_init(self, z: Tree) -> Tree:
        """C: what a client keeps between rounds (a control variate, shaped like z); {} for nothing."""

    def memory_stage(self, c: Tree) -> Tree:
        """What a client still keeps when a stage begins."""

    def broadcast(self, s: Any) -> Any:
        """D: exactly what travels down to every client of the cohort."""

    def address(self, s: Any, cohort: Cohort, knobs: Knobs, seed: int) -> Tree:
        """What travels down to each client by itself, with a leading client axis; {} for nothing."""

    def client_init(self, d: Any, own: Tree, c: Tree) -> Any:
        """L: the client's working state, from the broadcast, what is addressed to it and its memory."""

    def client_step(self, l: Any, batch: Batch, eta: Tensor) -> tuple[Any, Tree]:
        """One iteration of the pseudo-code; the second value is kept for every step (scores, loss)."""

    def client_finish(self, d: Any, l: Any, c: Tree, outs: Tree, knobs: Knobs) -> tuple[Upload, Tree]:
        """What travels up and the new memory; `outs` are the steps' second values, stacked."""

    def server_update(self, s: Any, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Any:
        """Fold a round's uploads into the server's state."""

    def server_stage(self, s: Any) -> Any:
        """A new stage begins at the iterate s.z (proximal anchor and the like)."""

    def projected(self, z: Tree) -> Tree:
        """z inside its bounds; after every step and every change of the iterate."""


class Phase(NamedTuple):
    """An exchange of a round: whose functions are called, and who takes part in it."""

    method: Method
    participation: Participation | None = None
    """None: the federation's own."""


def moved(s: Any, z: Tree) -> Any:
    """A server's state at another iterate; a wrapper's iterate is that of the method it wraps."""
    return s._replace(z=z) if "z" in s._fields else s._replace(inner=moved(s.inner, z))
