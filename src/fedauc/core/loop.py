"""The loop: one round after another. Nothing else happens in a round.

The schedule says which stage, how many steps and which step size; participation picks the clients; the
method says what travels and what is computed; the transport carries it out; the ledger counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core import averaging, rng, tree, weighting
from fedauc.core.averaging import Averaged, Output
from fedauc.core.ledger import Ledger, sizes
from fedauc.core.method import Cohort, Knobs, Method, Phase, moved
from fedauc.core.store import Store
from fedauc.core.tree import Tree
from fedauc.core.uplink import Uplink
from fedauc.core.weighting import Balance, ClientWeight, Weighting
from fedauc.data.federated import Draws, FederatedData
from fedauc.participation.base import Participation, Roster
from fedauc.schedules.base import Schedule, Stage
from fedauc.transports.local import Carried, Exchange, LocalTransport


@dataclass(frozen=True)
class Federation:
    """Everything that defines a run: rule × objective × participation × schedule × transport × data."""

    method: Method
    data: FederatedData
    participation: Participation
    schedule: Schedule
    transport: Transport = field(default_factory=LocalTransport)
    batch: int = 32
    client_weight: ClientWeight = "uniform"
    balance: Balance = "aggregate"
    output: Output = "last"
    memory: float = 1.0
    """Horizon of the moving average, in cycles."""
    seed: int = 0
    uplink: Uplink | None = None
    """How long clients need to send; None: only bytes are counted."""
    roster: Roster = field(init=False)
    weighting: Weighting = field(init=False)

    def __post_init__(self) -> None:
        roster = self.participation.bind(self.data.clients, self.seed)
        object.__setattr__(self, "roster", roster)
        object.__setattr__(self, "schedule", self.schedule.bind(roster.cycle_length, roster.active))
        if self.method.draw == "stratified":
            weights = weighting.by_class(self.data.counts, self.client_weight, self.balance)
        else:
            weights = weighting.by_client(self.data.counts, self.client_weight)
        object.__setattr__(self, "weighting", weights)
        object.__setattr__(self, "transport", self.transport.bind(self.rounds * self.schedule.at(0).steps))
        for phase in self.method.phases(True):  # what cannot work fails here
            if phase.participation is not None:
                phase.participation.bind(self.data.clients, self.seed)
        self.times(np.arange(1), 0)

    def via(self, transport: Transport) -> Federation:
        """The same federation, carried out by another transport."""
        return replace(self, transport=transport)

    @property
    def rounds(self) -> int:
        return self.schedule.cycles * self.roster.cycle_length

    def cohort(self, server: Any, round: int, roster: Roster | None = None) -> Cohort:
        """Who takes part in a round and what each counts for."""
        weights, importance = self.weighting, self.method.importance(server)
        if importance is not None:
            weights = weighting.by_importance(self.data.counts, importance.numpy(force=True))
        return weights.cohort(roster or self.roster, round, lambda clients: self.times(clients, round))

    def times(self, clients: NDArray[np.int64], round: int) -> NDArray[np.float64]:
        """Seconds that these clients need to send a model in this round."""
        if self.uplink is None:
            return np.zeros(len(clients))
        return self.uplink.times(clients, self.data.clients, round, self.seed)


class Transport(Protocol):
    """Carries tasks to the clients and back what they made of them."""

    def bind(self, expected: int) -> Transport:
        """The transport for a run of so many local steps."""

    def staged(self, memory: Store, method: Method) -> Store:
        """What clients still keep when a stage begins."""

    def committed(self, memory: Store) -> None:
        """A checkpoint with this memory is on the disk."""

    def exchange(self, what: Exchange) -> Carried:
        """One exchange: send down, I local steps, collect."""


class Skipped(Exception):
    """Too few clients were there for a round, which is to be left out."""


class RunState(NamedTuple):
    """What a run is at a round's end; a checkpoint holds exactly this."""

    round: int
    server: Any
    memory: Store
    """Of the clients that have any: what they keep between rounds."""
    averaged: Averaged
    ledger: Ledger


class RoundRecord(NamedTuple):
    """What is reported of a round."""

    round: int
    cycle: int
    stage: int
    group: int
    clients: int
    eta: float
    mean_loss: Tensor
    """Of the clients' steps, where it was computed: asking for its value waits for the round."""

    @property
    def loss(self) -> float:
        return float(self.mean_loss)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain numbers."""
        values = self._asdict()
        del values["mean_loss"]
        return values | {"loss": self.loss}


def begin(fed: Federation, params: Tree) -> RunState:
    """The state before the first round. Clients say how many rows of each class they have."""
    server = fed.method.server_init(params, fed.data.counts)
    ledger = Ledger()
    ledger.up({"setup: class counts": fed.data.counts.nbytes}, fed.data.clients)
    if fed.method.draw == "stratified":
        ledger.down({"setup: class weights": fed.weighting.local.nbytes}, fed.data.clients)
    return RunState(0, server, Store(), averaging.start(server.z), ledger)


def advance(fed: Federation, state: RunState) -> tuple[RunState, RoundRecord]:
    """One round: the exchanges of the method's phases, which nearly always are one."""
    length = fed.roster.cycle_length
    cycle, group = divmod(state.round, length)
    stage = fed.schedule.at(cycle)
    new_stage = stage.first and group == 0 and state.round > 0
    if new_stage:
        state = _new_stage(fed, state)
    server, memory, ledger = state.server, state.memory, state.ledger.copy()
    knobs = _knobs(fed, state, stage, server, new_stage)
    *before, last = fed.method.phases(new_stage)
    try:
        for number, phase in enumerate(before, start=1):
            server, memory, _, _ = _exchange(fed, phase, number, server, memory, knobs, ledger)
        server, memory, cohort, loss = _exchange(fed, last, 0, server, memory, knobs, ledger)
    except Skipped:
        nobody = RoundRecord(state.round + 1, cycle, stage.number, group, 0, stage.eta, knobs.eta * math.nan)
        return state._replace(round=state.round + 1, ledger=ledger), nobody
    averaged = averaging.follow(state.averaged, server.z, fed.output, fed.memory * length)
    record = RoundRecord(state.round + 1, cycle, stage.number, group, len(cohort.clients), stage.eta, loss)
    return RunState(state.round + 1, server, memory, averaged, ledger), record


def _exchange(
    fed: Federation,
    phase: Phase,
    number: int,
    server: Any,
    memory: Store,
    knobs: Knobs,
    ledger: Ledger,
) -> tuple[Any, Store, Cohort, Tensor]:
    """One exchange with the clients that a phase asks for; phases draw independently of each other."""
    method, roster, seed = phase.method, fed.roster, fed.seed
    if number:
        seed = rng.derived(fed.seed, rng.PHASE, number)
    if phase.participation is not None:
        roster = phase.participation.bind(fed.data.clients, seed)
    cohort = fed.cohort(server, knobs.round, roster)
    draws = Draws(fed.data, cohort, method.draw, knobs.steps, knobs.batch, seed, knobs.round)
    known = memory if number == 0 else Store()  # only the method's own phase keeps anything
    before = [known.get(int(i)) or method.memory_init(server.z) for i in cohort.clients]
    down, own = method.broadcast(server), method.address(server, cohort, knobs, seed)
    m = len(cohort.clients)
    ledger.down({name: size * m for name, size in sizes(down).items()}, m)
    ledger.down(sizes(own), 0)
    what = Exchange(method, server.z, down, own, before, draws, cohort, knobs, number)
    carried = fed.transport.exchange(what)
    cohort = carried.cohort
    ledger.up(carried.size, len(cohort.clients))
    ledger.wait(fed.times(cohort.clients, knobs.round), carried.sent, tree.nbytes(server.z), fed.uplink)
    server = method.server_update(server, carried.aggregate, cohort, knobs)
    if number == 0 and any(carried.memory):
        memory = memory.updated(zip(cohort.clients.tolist(), carried.memory, strict=True))
    return server, memory, cohort, carried.loss


def rounds(fed: Federation, state: RunState) -> Iterator[tuple[RunState, RoundRecord]]:
    """All rounds from a state to the end of the schedule."""
    while state.round < fed.rounds:
        state, record = advance(fed, state)
        yield state, record


def _new_stage(fed: Federation, state: RunState) -> RunState:
    """A stage's average is where the next stage starts; otherwise it starts from the last iterate."""
    server, averaged = state.server, state.averaged
    if fed.output == "average":
        server = moved(server, averaged.z)
        averaged = averaging.start(averaged.z)
    memory = fed.transport.staged(state.memory, fed.method)
    return state._replace(server=fed.method.server_stage(server), averaged=averaged, memory=memory)


def _knobs(fed: Federation, state: RunState, stage: Stage, server: Any, new_stage: bool) -> Knobs:
    like = next(iter(server.z.values()))
    eta = like.new_full((), stage.eta)
    length = fed.roster.cycle_length
    cycle = state.round // length
    return Knobs(eta, stage.steps, fed.batch, state.round, cycle, stage.number, length, new_stage)
