"""The loop: one round after another. Nothing else happens in a round.

The schedule says which stage, how many steps and which step size; participation picks the clients; the
method says what travels and what is computed; the transport carries it out; the ledger counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from fedauc.core import averaging, weighting
from fedauc.core.averaging import Averaged, Output
from fedauc.core.ledger import Ledger
from fedauc.core.method import Knobs, Method
from fedauc.core.tree import Tree
from fedauc.core.weighting import Balance, ClientWeight, Weighting
from fedauc.data.federated import Draws, FederatedData
from fedauc.participation.base import Participation, Roster
from fedauc.schedules.base import Schedule, Stage
from fedauc.transports.local import LocalTransport


@dataclass(frozen=True)
class Federation:
    """Everything that defines a run: rule × objective × participation × schedule × transport × data."""

    method: Method
    data: FederatedData
    participation: Participation
    schedule: Schedule
    transport: LocalTransport = field(default_factory=LocalTransport)
    batch: int = 32
    client_weight: ClientWeight = "uniform"
    balance: Balance = "aggregate"
    output: Output = "last"
    memory: float = 1.0
    """Horizon of the moving average, in cycles."""
    seed: int = 0
    roster: Roster = field(init=False)
    weighting: Weighting = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "roster", self.participation.bind(self.data.clients, self.seed))
        if self.method.draw == "stratified":
            weights = weighting.by_class(self.data.counts, self.client_weight, self.balance)
        else:
            weights = weighting.by_client(self.data.counts, self.client_weight)
        object.__setattr__(self, "weighting", weights)

    @property
    def rounds(self) -> int:
        return self.schedule.cycles * self.roster.cycle_length


class RunState(NamedTuple):
    """What a run is at a round's end; a checkpoint holds exactly this."""

    round: int
    server: Any
    memory: dict[int, Tree]
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
    loss: float


def begin(fed: Federation, params: Tree) -> RunState:
    """The state before the first round. Clients say how many rows of each class they have."""
    server = fed.method.server_init(params)
    ledger = Ledger()
    ledger.up({"setup: class counts": fed.data.counts.nbytes}, fed.data.clients)
    if fed.method.draw == "stratified":
        ledger.down({"setup: class weights": fed.weighting.local.nbytes}, fed.data.clients)
    return RunState(0, server, {}, averaging.start(server.z), ledger)


def advance(fed: Federation, state: RunState) -> tuple[RunState, RoundRecord]:
    """One round."""
    length = fed.roster.cycle_length
    cycle, group = divmod(state.round, length)
    stage = fed.schedule.at(cycle)
    server, averaged = state.server, state.averaged
    if stage.first and group == 0 and state.round > 0:
        server, averaged = _new_stage(fed, server, averaged)
    knobs = _knobs(fed, state, stage, server)
    cohort = fed.weighting.cohort(fed.roster, state.round)
    draws = Draws(fed.data, cohort, fed.method.draw, stage.steps, fed.batch, fed.seed, state.round)
    memory = [state.memory.get(int(i)) or fed.method.memory_init(server.z) for i in cohort.clients]
    ledger = state.ledger.copy()
    aggregate, kept, loss = fed.transport.exchange(
        fed.method, server, memory, draws, cohort, knobs, fed.seed, ledger
    )
    server = fed.method.server_update(server, aggregate, cohort, knobs)
    memories = state.memory
    if any(kept):
        memories = memories | {int(i): new for i, new in zip(cohort.clients, kept, strict=True)}
    averaged = averaging.follow(averaged, server.z, fed.output, fed.memory * length)
    record = RoundRecord(state.round + 1, cycle, stage.number, group, len(kept), stage.eta, loss)
    return RunState(state.round + 1, server, memories, averaged, ledger), record


def rounds(fed: Federation, state: RunState) -> Iterator[tuple[RunState, RoundRecord]]:
    """All rounds from a state to the end of the schedule."""
    while state.round < fed.rounds:
        state, record = advance(fed, state)
        yield state, record


def _new_stage(fed: Federation, server: Any, averaged: Averaged) -> tuple[Any, Averaged]:
    """A stage's average is where the next stage starts; otherwise it starts from the last iterate."""
    if fed.output == "average":
        server = server._replace(z=averaged.z)
        averaged = averaging.start(averaged.z)
    return fed.method.server_stage(server), averaged


def _knobs(fed: Federation, state: RunState, stage: Stage, server: Any) -> Knobs:
    like = next(iter(server.z.values()))
    eta = torch.tensor(stage.eta, dtype=like.dtype, device=like.device)
    cycle, _ = divmod(state.round, fed.roster.cycle_length)
    return Knobs(eta, stage.steps, fed.batch, state.round, cycle, stage.number, fed.roster.cycle_length)
