"""Sites that come and go: who is asked when, how long they are waited for, and what a run makes of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.federation.sites import SETTINGS, SITES, Hours, Loopback

from fedauc.errors import InputError
from fedauc.experiments import runner
from fedauc.experiments.config import Config
from fedauc.federation import messages
from fedauc.federation.attendance import CLOSED, RETRY, REVOKED, Attendance, Failure
from fedauc.federation.calendar import Window
from fedauc.federation.coordinator import AGREED, prepared

HOUR = 3600.0
SOON, LATER = Window(open=("Mon 14:00-15:00",)), Window(open=("Mon 16:00-17:00",))
PAIRS = {"participation.assign": "order"}
"""Basel with Geneva, then Lugano with Zurich."""
NEVER = Window(open=("Mon 14:00-15:00",), maintenance=("2026-11-16..2026-12-31",))


class Door:
    """Sites that answer with their name, some of them only from a certain second on; it is Monday noon."""

    def __init__(self, back: Mapping[str, float] | None = None, refuse: tuple[str, ...] = ()) -> None:
        self.clock = Hours()
        self.begin = self.clock.now()
        self.back, self.refuse = dict(back or {}), refuse
        self.asked: list[tuple[float, str, float]] = []
        """Second, site, deadline."""

    @property
    def seconds(self) -> float:
        return (self.clock.now() - self.begin).total_seconds()

    def times(self, name: str) -> list[float]:
        return [second for second, who, _ in self.asked if who == name]

    def exchange(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Failure]:
        self.asked += [(self.seconds, name, deadline) for name in requests]
        return {name: self._reply(name) for name in requests}

    def _reply(self, name: str) -> bytes | Failure:
        if self.seconds < self.back.get(name, 0.0):
            return Failure("not reached", unreachable=True)
        return Failure("no") if name in self.refuse else name.encode()


def attending(door: Door, **settings: Any) -> Attendance:
    return Attendance(door, clock=door.clock, **settings)


def requests(*names: str) -> dict[str, bytes]:
    return dict.fromkeys(names, b"?")


class TestWindows:
    def test_all_are_waited_for_and_the_seconds_are_right(self):
        door = Door()
        windows = {"a": Window(open=("Mon 14:00-18:00",)), "b": Window(open=("Mon 16:30-20:00",))}
        attendance = attending(door, windows=windows)
        assert attendance.gather(["a", "b", "c"], 1.0) == 4.5 * HOUR == door.seconds
        assert attendance.gather(["a", "b", "c"], 1.0) == 0.0
        assert door.asked == []

    def test_without_windows_nobody_waits(self):
        door = Door()
        assert attending(door).gather(["a", "b"], 1.0) == 0.0

    def test_a_quorum_of_windows_is_enough_where_all_never_meet(self):
        door = Door()
        attendance = attending(door, windows={"a": SOON, "b": LATER})
        assert attendance.gather(["a", "b"], 0.6) is None
        assert door.seconds == 0
        assert attendance.gather(["a", "b"], 0.5) == 2 * HOUR
        assert attendance.open(["a", "b"]) == ["a"]

    def test_windows_that_never_open_are_not_waited_for(self):
        door = Door()
        attendance = attending(door, windows={"a": NEVER, "b": SOON})
        assert attendance.gather(["a"], 0.5) is None
        assert attendance.gather(["a", "b"], 0.5) == 2 * HOUR

    def test_whoever_is_closed_is_not_asked(self):
        door = Door()
        attendance = attending(door, windows={"a": SOON})
        assert attendance.ask(requests("a", "b")) == {"a": CLOSED, "b": b"b"}
        assert door.times("a") == []

    @pytest.mark.parametrize(
        ("closes", "deadline", "left"),
        [("12:10", 3600.0, 600.0), ("12:10", 300.0, 300.0), ("12:00:01", 3600.0, 1.0), ("18:00", 60.0, 60.0)],
    )
    def test_the_deadline_is_cut_by_a_closing_window(self, closes, deadline, left):
        door = Door()
        windows = {"a": Window(open=(f"Mon 11:00-{closes}",)), "b": Window()}
        attending(door, windows=windows, deadline=deadline).ask(requests("a", "b", "c"))
        assert {seconds for _, _, seconds in door.asked} == {left}

    def test_whoever_was_away_when_its_window_closed_is_not_waited_for_any_longer(self):
        door = Door({"a": 100})
        windows = {"a": Window(open=("Mon 11:00-12:00:05",))}
        replies = attending(door, windows=windows, grace=60).ask(requests("a"))
        assert replies["a"] == Failure("not reached", unreachable=True)
        assert 4.5 <= door.seconds <= 5.0


class TestGrace:
    def test_whoever_comes_back_in_time_is_included_and_nobody_else_asked_again(self):
        door = Door({"a": 5})
        assert attending(door, grace=10).ask(requests("a", "b")) == {"a": b"a", "b": b"b"}
        assert door.times("a") == [RETRY * i for i in range(11)]
        assert door.times("b") == [0.0]

    def test_whoever_does_not_come_back_is_given_up_after_the_grace_period(self):
        door = Door({"a": 100})
        replies = attending(door, grace=10).ask(requests("a", "b"))
        assert replies == {"a": Failure("not reached", unreachable=True), "b": b"b"}
        assert door.seconds == 10

    def test_an_absence_costs_one_grace_period(self):
        door = Door({"a": 50})
        attendance = attending(door, grace=10)
        attendance.ask(requests("a", "b"))
        before = len(door.asked)
        attendance.ask(requests("a", "b"))
        assert door.seconds == 10
        assert door.asked[before:] == [(10.0, "a", 3600.0), (10.0, "b", 3600.0)]
        door.clock.sleep(40)
        assert attendance.ask(requests("a")) == {"a": b"a"}
        door.back["a"] = 1000  # the next absence
        attendance.ask(requests("a"))
        assert door.seconds == 60

    def test_whoever_was_away_is_not_waited_for_beside_somebody_who_is(self):
        door = Door({"a": 1000, "b": 15})
        attendance = attending(door, grace=10)
        attendance.ask(requests("a"))
        known = len(door.times("a"))
        assert attendance.ask(requests("a", "b"))["b"] == b"b"
        assert len(door.times("a")) == known + 1

    def test_without_grace_everybody_is_asked_once(self):
        door = Door({"a": 100})
        attending(door, grace=0).ask(requests("a"))
        assert (door.times("a"), door.seconds) == ([0.0], 0.0)

    def test_a_refusal_is_an_answer(self):
        door = Door(refuse=("a",))
        attendance = attending(door)
        assert attendance.ask(requests("a")) == attendance.ask_all(requests("a")) == {"a": Failure("no")}
        assert (door.times("a"), door.seconds) == ([0.0, 0.0], 0.0)
        assert attendance.away == set()

    def test_every_time_a_site_is_asked_it_has_the_whole_deadline(self):
        door = Door({"a": 5})
        attending(door, grace=10, deadline=20.0).ask(requests("a"))
        assert {deadline for _, _, deadline in door.asked} == {20.0}

    def test_the_grace_period_is_no_longer_than_the_deadline_and_patience_can_be(self):
        door = Door({"a": 1000})
        attendance = attending(door, grace=10, deadline=4.0, patience=30)
        attendance.ask(requests("a"))
        assert door.seconds == 4
        attendance.ask_all(requests("a"))
        assert door.seconds == 34


class TestEverybody:
    def test_each_is_asked_when_its_window_opens(self):
        door = Door()
        windows = {"a": Window(open=("Tue 02:00-03:00",)), "b": SOON, "c": SOON}
        replies = attending(door, windows=windows).ask_all(requests("a", "b", "c", "d"))
        assert replies == {name: name.encode() for name in "abcd"}
        assert door.asked == [
            (0.0, "d", 3600.0),
            (2 * HOUR, "b", 3600.0),
            (2 * HOUR, "c", 3600.0),
            (14 * HOUR, "a", 3600.0),
        ]

    def test_whoever_cannot_be_reached_is_waited_for_with_patience(self):
        door = Door({"a": 100, "b": 700})
        replies = attending(door, grace=1, patience=600).ask_all(requests("a", "b", "c"))
        assert replies["a"] == b"a"
        assert replies["b"] == Failure("not reached", unreachable=True)
        assert door.seconds == 600
        assert door.times("c") == [0.0]

    def test_an_earlier_absence_does_not_count(self):
        door = Door({"a": 100})
        attendance = attending(door, grace=1, patience=600)
        attendance.ask(requests("a"))
        assert attendance.away == {"a"}
        assert attendance.ask_all(requests("a")) == {"a": b"a"}
        assert (door.seconds, attendance.away) == (100, set())

    def test_a_window_that_never_opens_is_said_and_the_others_answer(self):
        door = Door()
        replies = attending(door, windows={"a": NEVER, "b": SOON}).ask_all(requests("a", "b", "c"))
        assert replies == {"a": Failure("its window never opens"), "b": b"b", "c": b"c"}
        assert door.times("a") == []
        assert door.seconds == 2 * HOUR

    @pytest.mark.parametrize("ask", [Attendance.ask, Attendance.ask_all])
    def test_whoever_was_revoked_is_neither_asked_nor_waited_for(self, ask):
        door = Door({"a": 1000})
        attendance = attending(door, windows={"b": SOON}, gone=frozenset("ab"))
        assert ask(attendance, requests("a", "b", "c")) == {"a": REVOKED, "b": REVOKED, "c": b"c"}
        assert door.asked == [(0.0, "c", 3600.0)]


class Travellers(Loopback):
    """Sites of which some are away until a time."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.clock, self.back = Hours(), {}
        self.journal: list[dict[str, Any]] = []

    def leave(self, name: str, seconds: float) -> None:
        self.back[name] = self.clock.now() + timedelta(seconds=seconds)

    def exchange(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Failure]:
        self.down = {name for name, time in self.back.items() if self.clock.now() < time}
        return super().exchange(requests, deadline)

    def rated(self, part: str) -> list[int]:
        """Clients in the order in which they scored rows."""
        found = [messages.Rate.unpacked(m) for m in self.payloads if messages.kind_of(m) == "rate"]
        return [message.client for message in found if message.part == part]


class After:
    """Does something after a round."""

    def __init__(self, what: Mapping[int, Any]) -> None:
        self.what = what

    def begin(self, *_) -> None: ...
    def end(self) -> None: ...

    def round(self, record, auc, traffic) -> None:
        self.what.get(record.round, lambda: None)()


def crash() -> None:
    raise KeyboardInterrupt


def trained(link: Travellers, out: Path, after: Mapping[int, Any] | None = None, **more: Any) -> dict:
    """8 rounds of two groups, validated after every second one."""
    resume, patience = more.pop("resume", False), more.pop("patience", 20)
    config = Config.resolve(more.pop("method", "cycp-minimax"), SETTINGS | more.pop("settings", {}))
    attendance = Attendance(link, clock=link.clock, grace=2, patience=patience)
    more = {"quorum": 0.5} | more
    ready = prepared(config, attendance, SITES, out, journal=link.journal.append, **more)
    return runner.run(config, out, prepared=ready, resume=resume, watch=After(after or {}))


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def undisturbed(files, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("undisturbed")
    return trained(Travellers(files, folder / "sites"), folder / "run")


def test_whoever_is_away_at_validation_is_left_out_and_back_for_the_next(files, tmp_path):
    link = Travellers(files, tmp_path / "sites")
    after = {1: lambda: link.leave("zurich", HOUR), 2: lambda: link.back.clear()}
    result = trained(link, tmp_path / "run", after)
    assert result["rounds"] == 8
    assert link.rated("valid")[:7] == [0, 1, 2, 0, 1, 2, 3]
    assert Counter(link.rated("valid"))[3] == Counter(link.rated("valid"))[0] - 1
    assert all(line["valid_auc"] is not None for line in lines(tmp_path / "run")[1::2])
    assert all(row["why"] is None for row in result["per_client"] if row["client"] != "lugano")


def test_an_absence_within_the_quorum_is_in_the_journal_and_costs_one_grace_period(files, tmp_path):
    link = Travellers(files, tmp_path / "sites")
    after = {2: lambda: link.leave("basel", HOUR), 6: link.back.clear}
    trained(link, tmp_path / "run", after, settings=PAIRS)
    assert [line["outcome"] for line in link.journal] == ["done"] * 8
    missed = {line["round"]: line["missed"] for line in link.journal if line["missed"]}
    assert missed == {3: {"basel": "not reached"}, 5: {"basel": "not reached"}}
    assert (link.clock.now() - Hours().now()).total_seconds() == 2.0


def test_a_round_without_quorum_is_left_out(files, tmp_path):
    link = Travellers(files, tmp_path / "sites")
    after = {2: lambda: [link.leave(name, HOUR) for name in SITES[:2]], 4: link.back.clear}
    trained(link, tmp_path / "run", after, absent="skip", settings=PAIRS)
    assert [line["outcome"] for line in link.journal] == ["done"] * 2 + ["skipped"] + ["done"] * 5
    assert [line["clients"] for line in lines(tmp_path / "run")] == [2, 2, 0, 2, 2, 2, 2, 2]


def test_a_run_that_ended_without_quorum_goes_on_with_that_round(files, tmp_path):
    link = Travellers(files, tmp_path / "sites")
    after = {2: lambda: [link.leave(name, HOUR) for name in SITES[:2]]}
    with pytest.raises(
        InputError, match=r"0 of 2 .* in round 3 .*; resuming the run goes on with that round"
    ):
        trained(link, tmp_path / "run", after, settings=PAIRS)
    assert len(lines(tmp_path / "run")) == 2
    link.back.clear()
    assert trained(link, tmp_path / "run", resume=True, settings=PAIRS)["rounds"] == 8
    assert [line["round"] for line in link.journal] == [1, 2, 3, 3, 4, 5, 6, 7, 8]


def test_everybody_is_waited_for_at_the_end(files, tmp_path, undisturbed):
    link = Travellers(files, tmp_path / "sites")
    after = {7: lambda: [link.leave(name, 1000) for name in ("geneva", "lugano")]}
    result = trained(link, tmp_path / "run", after, patience=2000, absent="skip")
    assert result["test"]["rows"] == undisturbed["test"]["rows"]
    assert (link.clock.now() - Hours().now()).total_seconds() >= 1000
    for row, known in zip(result["per_client"], undisturbed["per_client"], strict=True):
        assert (row["rows"], row["why"]) == (known["rows"], known["why"])


def test_a_site_that_never_comes_back_is_named_in_the_result(files, tmp_path, undisturbed):
    link = Travellers(files, tmp_path / "sites")
    result = trained(link, tmp_path / "run", {5: lambda: link.leave("zurich", 100 * HOUR)})
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    *others, last = result["per_client"]
    assert (last["rows"], last["auc"], last["why"]) == (0, None, "not reached")
    assert last["train_rows"] == undisturbed["per_client"][3]["train_rows"]
    assert result["test"]["rows"] == sum(row["rows"] for row in others)
    assert [row["rows"] for row in others] == [row["rows"] for row in undisturbed["per_client"][:3]]
    assert result["data"]["clients"] == 4


def test_preparation_waits_for_everybody_and_names_who_is_missing(files, tmp_path):
    link = Travellers(files, tmp_path / "sites")
    link.leave("geneva", 10)
    trained(link, tmp_path / "run")
    assert (link.clock.now() - Hours().now()).total_seconds() == 10
    other = Travellers(files, tmp_path / "others")
    other.leave("geneva", HOUR)
    with pytest.raises(
        InputError, match=r"The training cannot begin without all sites: geneva: not reached\."
    ):
        trained(other, tmp_path / "other")
    assert not (tmp_path / "other" / AGREED).exists()


def test_a_restarted_coordinator_goes_on_without_preparing_again(files, tmp_path):
    link = Travellers(files, tmp_path / "sites")
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        trained(link, out, {5: crash})
    before = Counter(map(messages.kind_of, link.payloads))
    assert before["start"] == before["split"] == before["fitted"] == 4
    link.payloads.clear()
    link.restart()
    link.leave("zurich", 100 * HOUR)
    result = trained(link, out, resume=True)
    kinds = Counter(map(messages.kind_of, link.payloads))
    assert kinds.keys() == {"task", "answer", "rate", "rated"}
    assert result["rounds"] == 8
    assert result["per_client"][3]["why"] == "not reached"


def test_what_was_agreed_for_another_experiment_is_refused(files, tmp_path):
    link = Travellers(files, tmp_path / "sites")
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        trained(link, out, {1: crash})
    link.payloads.clear()
    with pytest.raises(InputError, match=r"agreed\.json belongs to another experiment or other sites"):
        trained(link, out, settings={"seed": 1})
    config = Config.resolve("cycp-minimax", SETTINGS)
    with pytest.raises(InputError, match=r"agreed\.json belongs to another experiment or other sites"):
        prepared(config, Attendance(link, clock=link.clock), SITES[::-1], out)
    assert link.payloads == []


@pytest.mark.parametrize("text", ["", '{"run":', "nonsense"])
def test_a_damaged_agreement_is_named(text, files, tmp_path):
    path = tmp_path / AGREED
    path.write_text(text)
    with pytest.raises(InputError, match=r"is damaged .*remove it to agree anew") as error:
        trained(Travellers(files, tmp_path / "sites"), tmp_path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", SITES)
def test_validation_waits_for_a_quorum_as_rounds_do(name, files, undisturbed, tmp_path):
    """A site that is just being restarted when a round is validated is waited for: the model that is kept
    depends on its rows."""
    link = Travellers(files, tmp_path / "sites")
    after = {3: lambda: link.leave(name, 10)}  # longer than the grace of a round
    found = trained(link, tmp_path / "run", after, quorum=1.0, absent="retry")
    assert Counter(link.rated("valid")) == Counter(
        {i: len(lines(tmp_path / "run")) // 2 + 1 for i in range(4)}
    )
    for key in ("valid_auc", "best_round", "test_auc", "per_client"):
        assert found[key] == undisturbed[key]
