"""Clients at their own sites compute what clients in one process compute, and what is wrong stays outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.contract.federations import Run, built, tensors
from tests.federation.sites import Hours

from fedauc.core import checkpoint
from fedauc.core.loop import Federation, advance, begin
from fedauc.core.tree import Tree
from fedauc.data.federated import FederatedData
from fedauc.experiments.presets import PRESETS
from fedauc.federation.attendance import Attendance, Failure
from fedauc.federation.messages import Answer, Refused, Task
from fedauc.federation.remote import Remote, TooFew
from fedauc.federation.worker import Forgotten, Worker
from fedauc.transports import LocalTransport

Tamper = Callable[[str, bytes], bytes | Failure]


class Loopback:
    """Sites in this process; every request and every answer passes as bytes."""

    def __init__(self, fed: Federation, params: Tree, folder: Path) -> None:
        names = fed.data.names
        self.folder, self.names = folder, names
        self.sites = {
            name: Worker("run", fed.method, params, _rows(fed.data, i), len(names), folder / name)
            for i, name in enumerate(names)
        }
        self.tamper: Tamper = lambda _, answer: answer
        self.requests: list[tuple[str, bytes]] = []
        self.lines: list[dict] = []
        """The journal."""

    @property
    def faults(self) -> list[tuple[int, str, str]]:
        """(round, site, reason) of everybody who was missed."""
        return [(line["round"], *missed) for line in self.lines for missed in line["missed"].items()]

    def exchange(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Failure]:
        self.requests += requests.items()
        found: dict[str, bytes | Failure] = {}
        for name, request in requests.items():
            try:
                found[name] = self.tamper(name, self.sites[name].answer(Task.unpacked(request)))
            except Refused as reason:
                found[name] = Failure(str(reason))
        return found


def _rows(data: FederatedData, client: int) -> FederatedData:
    """A site's rows; `build` wants both classes, which a client need not have."""
    rows = torch.from_numpy(data.order[data.start[client] : data.start[client + 1]])
    counts = data.counts[client : client + 1]
    return FederatedData(
        data.x[rows],
        data.y[rows],
        np.arange(len(rows)),
        np.array([0, len(rows)]),
        counts,
        [data.names[client]],
        first=client,
    )


def remote(run: Run, folder: Path, **settings) -> tuple[Run, Loopback]:
    """The same run with its clients at their sites."""
    link = Loopback(run.fed, run.params, folder)
    shape = tuple(run.fed.data.x.shape[1:])
    attendance = Attendance(link, clock=Hours(), grace=settings.pop("grace", 0), patience=5)
    transport = Remote(attendance, "run", shape, run.fed.data.names, journal=link.lines.append, **settings)
    return Run(replace(run.fed, transport=transport), run.params), link


def looped(name: str, settings: dict | None = None, dtype: torch.dtype = torch.float32) -> Run:
    run = built(name, settings or {})
    data = replace(run.fed.data, x=run.fed.data.x.to(dtype), y=run.fed.data.y.to(dtype))
    params = {n: value.to(dtype) for n, value in run.params.items()}
    return Run(replace(run.fed, data=data, transport=LocalTransport("loop")), params)


def same(a, b) -> None:
    """All that the server has, to the last bit."""
    first, second = (tensors(state._replace(memory=type(state.memory)())) for state in (a, b))
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


@pytest.mark.parametrize("name", PRESETS)
def test_bit_for_bit_what_one_process_computes(name, tmp_path):
    run = looped(name)
    federated, link = remote(run, tmp_path)
    a, b = run.start(), federated.start()
    while a.round < min(run.fed.rounds, 2 * run.fed.roster.cycle_length + 1):
        (a, seen), (b, heard) = run.advance(a), federated.advance(b)
        same(a, b)
        np.testing.assert_array_equal(seen.mean_loss, heard.mean_loss)  # NaN where nothing was trained
    assert a.ledger == b.ledger
    assert link.faults == []
    assert all(len(data) > 0 for _, data in link.requests)


STAGED = {"schedule.stage_cycles": 1, "schedule.decay": 0.5}


def test_what_sites_keep_goes_along_with_the_stages(tmp_path):
    run = looped("codasca", STAGED)
    federated, _ = remote(run, tmp_path)
    same(run.after(run.fed.rounds), federated.after(run.fed.rounds))


def test_a_task_delivered_twice_is_answered_from_the_store(tmp_path, monkeypatch):
    federated, link = remote(looped("codasca"), tmp_path)
    federated.after(4)
    name, request = link.requests[-1]
    site = link.sites[name]
    first = site.answer(Task.unpacked(request))
    monkeypatch.setattr(LocalTransport, "made", lambda *_: pytest.fail("trained again"))
    assert site.answer(Task.unpacked(request)) == first


def test_an_answer_that_got_lost_leaves_no_trace(tmp_path):
    """The site's control variate is that of the last accepted round."""
    run = looped("codasca", {"participation.groups": 1})
    undisturbed, _ = remote(run, tmp_path / "a")
    disturbed, link = remote(run, tmp_path / "b", quorum=0.5)
    state = disturbed.after(2)
    lost = run.fed.data.names[3]
    link.tamper = lambda name, answer: Failure("the connection broke") if name == lost else answer
    state, record = disturbed.advance(state)
    assert record.clients == len(run.fed.data.names) - 1
    assert link.faults == [(3, lost, "the connection broke")]
    link.tamper = lambda _, answer: answer
    disturbed.advance(state)
    (last,) = [Task.unpacked(data) for name, data in link.requests[-7:] if name == lost]
    assert last.accepted == 1
    same(undisturbed.after(2), disturbed.after(2))


@pytest.mark.parametrize("name", ["codasca", "cycp-pairwise"])
def test_a_coordinator_that_goes_on_from_a_checkpoint(name, tmp_path):
    """Rounds after the checkpoint are repeated; sites that have gone further go back."""
    run = looped(name)
    federated, _ = remote(run, tmp_path)
    state = federated.start()
    for _ in range(4):
        state, _ = federated.advance(state)
    checkpoint.save_state(tmp_path / "saved", state, {}, {})
    federated.fed.transport.committed(state.memory)
    for _ in range(3):
        state, _ = federated.advance(state)
    again, _, _ = checkpoint.load_state(tmp_path / "saved", federated.start(), "cpu")
    restarted, _ = remote(run, tmp_path)
    restarted.fed.transport.committed(again.memory)
    while again.round < 9:
        again, _ = restarted.advance(again)
    same(run.after(9), again)


def test_what_is_not_needed_again_is_removed(tmp_path):
    federated, link = remote(looped("codasca", {"participation.groups": 1}), tmp_path)
    state = federated.start()
    for _ in range(6):
        state, _ = federated.advance(state)
        federated.fed.transport.committed(state.memory)
    for name in link.names:
        kept = sorted(path.name for path in (tmp_path / name).iterdir())
        assert kept == ["answer-0.safetensors", *(f"memory-{round}.safetensors" for round in (3, 4, 5))]


def test_a_site_that_has_lost_what_it_kept_says_so(tmp_path):
    federated, link = remote(looped("codasca", {"participation.groups": 1}), tmp_path, quorum=0.5)
    state = federated.after(2)
    name = link.names[0]
    for path in (tmp_path / name).iterdir():
        path.unlink()
    federated.advance(state)
    assert [site for _, site, _ in link.faults] == [name]
    with pytest.raises(Forgotten):
        link.sites[name].answer(
            Task.unpacked(next(data for who, data in reversed(link.requests) if who == name))
        )


def changed(change: Callable[[Tree], Tree]) -> Callable[[bytes], bytes]:
    def apply(data: bytes) -> bytes:
        answer = Answer.unpacked(data)
        return replace(answer, tensors=change(dict(answer.tensors))).packed()

    return apply


def first(value: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[bytes], bytes]:
    """An answer of which the last tensor, a change of the iterate, is wrong."""
    return changed(lambda t: t | {(name := max(t)): value(t[name])})


WRONG = {
    "NaN": (first(lambda v: v * float("nan")), "not finite"),
    "infinity": (first(lambda v: v + float("inf")), "not finite"),
    "another shape": (first(lambda v: v[None]), "another shape"),
    "another type": (first(lambda v: v.double()), "another type"),
    "absurd": (first(lambda v: v + 1e12), "norm"),
    "too few": (changed(lambda t: dict(list(t.items())[1:])), "other tensors"),
    "too many": (changed(lambda t: t | {"mean/more": torch.ones(1)}), "other tensors"),
    "truncated": (lambda data: data[: len(data) // 2], "cannot be read"),
    "nothing": (lambda data: b"", "cannot be read"),
    "nonsense": (lambda data: bytes(range(256)) * 4, "cannot be read"),
    "an old round": (lambda data: replace(Answer.unpacked(data), round=0).packed(), "another round"),
    "another task": (lambda data: replace(Answer.unpacked(data), task="").packed(), "another task"),
    "another's": (lambda data: replace(Answer.unpacked(data), client=2).packed(), "another client"),
    "another run": (lambda data: replace(Answer.unpacked(data), run="other").packed(), "another run"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_answer_is_refused_and_the_round_goes_on(what, tmp_path):
    change, reason = WRONG[what]
    federated, link = remote(looped("cycp-minimax", {"participation.groups": 1}), tmp_path, quorum=0.5)
    state = federated.after(1)
    bad = link.names[1]
    link.tamper = lambda name, answer: change(answer) if name == bad else answer
    state, record = federated.advance(state)
    ((round, site, why),) = link.faults
    assert (round, site) == (2, bad)
    assert reason in why
    assert record.clients == len(link.names) - 1
    assert all(torch.isfinite(value).all() for value in tensors(state).values())


def test_too_few_answers_end_the_round(tmp_path):
    federated, link = remote(looped("cycp-minimax", {"participation.groups": 1}), tmp_path, quorum=0.9)
    link.tamper = lambda name, answer: Failure("late") if name in link.names[:2] else answer
    with pytest.raises(TooFew, match=r"5 of 7 .* \(client-0: late; client-1: late\)"):
        advance(federated.fed, begin(federated.fed, federated.params))


def test_a_round_without_quorum_can_be_left_out(tmp_path):
    run = looped("codasca", {"participation.groups": 1})
    federated, link = remote(run, tmp_path, absent="skip")
    before = federated.after(2)
    link.tamper = lambda name, answer: Failure("late") if name == link.names[2] else answer
    after, record = federated.advance(before)
    assert (after.round, record.clients) == (3, 0)
    assert np.isnan(record.loss)
    same(before, after)
    link.tamper = lambda _, answer: answer
    _, record = federated.advance(after)
    assert record.clients == len(link.names)
    assert Task.unpacked(link.requests[-1][1]).accepted == 1


def test_who_fails_is_asked_again_and_answers_from_the_store(tmp_path, monkeypatch):
    run = looped("codasca", {"participation.groups": 1})
    federated, link = remote(run, tmp_path, grace=10)
    left, lost = [2], link.names[4]

    def twice(name: str, answer: bytes) -> bytes | Failure:
        if name == lost and left[0]:
            left[0] -= 1
            return Failure("the connection broke", unreachable=True)
        return answer

    link.tamper = twice
    same(run.after(2), federated.after(2))
    assert link.faults == []
    assert [name for name, _ in link.requests].count(lost) == 4


@pytest.mark.parametrize("field", ["run", "client"])
def test_a_task_for_somebody_else_is_refused(field, tmp_path):
    federated, link = remote(looped("cycp-minimax"), tmp_path)
    federated.after(1)
    name, request = link.requests[0]
    task = Task.unpacked(request)
    other = replace(task, **{field: "other" if field == "run" else task.client + 1})
    with pytest.raises(Refused, match="another"):
        link.sites[name].answer(other)


def test_a_task_with_other_tensors_is_refused(tmp_path):
    federated, link = remote(looped("cycp-minimax"), tmp_path)
    federated.after(1)
    name, request = link.requests[0]
    task = Task.unpacked(request)
    for tensors_ in (
        {},
        task.tensors | {"down/more": torch.ones(1)},
        {n: v.double() for n, v in task.tensors.items()},
    ):
        with pytest.raises(Refused, match="not those of this experiment"):
            link.sites[name].answer(replace(task, tensors=tensors_, key="another"))


def test_a_round_is_tried_again_while_there_is_patience(tmp_path):
    """Whoever has answered answers again from the store, so the bits are those of one process."""
    run = looped("codasca", {"participation.groups": 1})
    federated, link = remote(run, tmp_path, absent="retry")
    left, slow = [3], link.names[1]

    def later(name: str, answer: bytes) -> bytes | Failure:
        if name == slow and left[0]:
            left[0] -= 1
            return Failure("no answer within the deadline")
        return answer

    link.tamper = later
    same(run.after(2), federated.after(2))
    assert [line["outcome"] for line in link.lines] == ["failed"] * 3 + ["done"] * 2
    left[0] = 100
    with pytest.raises(TooFew, match="6 of 7"):
        federated.advance(federated.after(0))


def test_a_site_that_was_revoked_is_not_asked(tmp_path):
    run = looped("cycp-minimax", {"participation.groups": 1})
    federated, link = remote(run, tmp_path)
    gone = replace(federated.fed.transport.attendance, gone=frozenset([link.names[0]]))
    fed = replace(federated.fed, transport=replace(federated.fed.transport, attendance=gone))
    _, record = advance(fed, begin(fed, federated.params))
    assert record.clients == len(link.names) - 1
    assert link.names[0] not in [name for name, _ in link.requests]
    assert link.faults == []
