"""A site's own limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.federation.sites import SETTINGS, SITES, Hours, Loopback

from fedauc.errors import InputError
from fedauc.experiments import runner
from fedauc.experiments.config import Config
from fedauc.federation import messages, policy
from fedauc.federation.attendance import Attendance
from fedauc.federation.coordinator import prepared
from fedauc.federation.messages import Refused
from fedauc.federation.policy import Policy


def limits(folder: Path, text: str) -> Path:
    path = folder / "limits.toml"
    path.write_text(text)
    return path


class TestRead:
    def test_everything(self, tmp_path):
        text = 'methods = ["cycp-*", "codasca"]\nrounds_per_day = 500\nshare = "histogram"\nown_auc = false\n'
        expected = Policy(("cycp-*", "codasca"), 500, "histogram", own_auc=False)
        assert Policy.read(limits(tmp_path, text)) == expected

    def test_nothing_said_is_nothing_forbidden(self, tmp_path):
        assert Policy.read(limits(tmp_path, "# none\n")) == Policy()

    @pytest.mark.parametrize(
        ("text", "named"),
        [
            ('method = ["cycp-*"]', "no setting method"),
            ("rounds_per_day = true", "rounds_per_day: "),
            ('rounds_per_day = "5"', "rounds_per_day: "),
            ("rounds_per_day = -3", "rounds_per_day = -3"),
            ("bins = 0", "bins = 0"),
            ('methods = "cycp-*"', "methods: "),
            ("methods = [1]", r"methods\.0: "),
            ('rounds_per_day = "many"', "rounds_per_day: "),
            ("rounds_per_day = 1.5", "rounds_per_day: "),
            ('share = "everything"', "share: "),
            ("share = true", "share: "),
            ('own_auc = "perhaps"', "own_auc: "),
            ("[limits]\nshare = 'nothing'", "no setting limits"),
            ("share = ", "is no TOML: "),
            ("share: nothing", "is no TOML: "),
        ],
    )
    def test_nonsense_is_named_in_one_line(self, text, named, tmp_path):
        path = limits(tmp_path, text)
        with pytest.raises(InputError, match=named) as error:
            Policy.read(path)
        assert str(error.value).startswith(str(path))
        assert len(str(error.value).splitlines()) == 1

    @pytest.mark.parametrize("name", ["missing.toml", "."])
    def test_a_file_that_cannot_be_read_is_named(self, name, tmp_path):
        path = tmp_path / name
        with pytest.raises(InputError, match="cannot be read") as error:
            Policy.read(path)
        assert str(error.value).startswith(str(path))


@pytest.mark.parametrize(
    ("patterns", "method", "allowed"),
    [
        (("*",), "fedavg", True),
        (("cycp-*",), "cycp-pairwise", True),
        (("cycp-*",), "codasca", False),
        (("cycp-*", "codasca"), "codasca", True),
        (("codasca",), "two-stage-codasca", False),
        (("cycp-?auc",), "cycp-pauc", True),
        ((), "fedavg", False),
    ],
)
def test_methods_are_allowed_by_pattern(patterns, method, allowed):
    if allowed:
        Policy(patterns).check_method(method)
    else:
        with pytest.raises(Refused, match=f"do not allow the method {method}"):
            Policy(patterns).check_method(method)


def test_what_is_shared_is_the_least_of_what_is_wanted_and_allowed():
    forms = ("scores", "histogram", "nothing")
    for i, allowed in enumerate(forms):
        for j, wanted in enumerate(forms):
            assert Policy(share=allowed).form(wanted) == forms[max(i, j)]
    with pytest.raises(Refused, match="not known"):
        Policy().form("rows")


class Day(datetime):
    """A calendar in the hand of a test."""

    today = datetime(2026, 11, 16, 23, 59, tzinfo=UTC)

    @classmethod
    def now(cls, tz=None):
        return cls.today.astimezone(tz)


@pytest.fixture
def day(monkeypatch) -> Iterator[type[Day]]:
    monkeypatch.setattr(policy, "datetime", Day)
    monkeypatch.setattr(Day, "today", Day.today)
    return Day


class TestRounds:
    def test_as_many_as_allowed_and_again_the_next_day(self, day, tmp_path):
        for _ in range(3):
            Policy(rounds_per_day=3).count_round(tmp_path)  # every time as after a restart
        for _ in range(2):
            with pytest.raises(Refused, match="3 rounds a day"):
                Policy(rounds_per_day=3).count_round(tmp_path)
        day.today = datetime(2026, 11, 17, 0, 0, tzinfo=UTC)
        Policy(rounds_per_day=3).count_round(tmp_path)
        assert json.loads((tmp_path / "rounds.json").read_text()) == {"day": "2026-11-17", "rounds": 1}

    def test_the_day_is_the_one_in_utc(self, day, tmp_path):
        Policy(rounds_per_day=1).count_round(tmp_path)
        day.today = datetime.fromisoformat("2026-11-17T00:30:00+01:00")
        with pytest.raises(Refused):
            Policy(rounds_per_day=1).count_round(tmp_path)

    def test_another_limit_holds_from_the_next_round_on(self, day, tmp_path):
        for _ in range(3):
            Policy(rounds_per_day=3).count_round(tmp_path)
        Policy(rounds_per_day=4).count_round(tmp_path)
        with pytest.raises(Refused):
            Policy(rounds_per_day=2).count_round(tmp_path)

    def test_none_at_all(self, tmp_path):
        with pytest.raises(Refused, match="0 rounds a day"):
            Policy(rounds_per_day=0).count_round(tmp_path / "site")
        assert not (tmp_path / "site").exists()

    def test_without_a_limit_nothing_is_written(self, tmp_path):
        Policy().count_round(tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_damaged_count_begins_anew(self, tmp_path):
        (tmp_path / "rounds.json").write_text("{")
        Policy(rounds_per_day=1).count_round(tmp_path)
        with pytest.raises(Refused):
            Policy(rounds_per_day=1).count_round(tmp_path)


def trained(link: Loopback, out: Path, **settings) -> dict:
    """4 rounds; Basel with Geneva, then Lugano with Zurich."""
    lines: list[dict] = settings.setdefault("lines", [])
    shorter = {"schedule.cycles": 2, "participation.assign": "order"}
    config = Config.resolve("cycp-minimax", SETTINGS | shorter)
    attendance = Attendance(link, clock=Hours())
    known = prepared(config, attendance, SITES, out, journal=settings.pop("lines").append, **settings)
    return runner.run(config, out, prepared=known) | {"lines": lines}


def test_a_method_that_is_not_allowed_is_refused_before_the_table_is_read(files, tmp_path):
    link = Loopback(files | {"basel": tmp_path / "none.csv"}, tmp_path, {"basel": Policy(("codasca",))})
    reason = "basel: the site's limits do not allow the method cycp-minimax"
    with pytest.raises(InputError, match=reason):
        trained(link, tmp_path / "run")


def test_a_site_that_has_trained_enough_is_missed_but_still_scores(day, files, tmp_path):
    link = Loopback(files, tmp_path / "sites", {"geneva": Policy(rounds_per_day=1)})
    result = trained(link, tmp_path / "run", quorum=0.5)
    missed = [line["missed"] for line in result["lines"]]
    assert missed == [{}, {}, {"geneva": "the site's limits allow 1 rounds a day"}, {}]
    assert result["per_client"][1]["auc"] is not None


def test_a_task_that_is_repeated_is_not_counted_twice(day, files, tmp_path):
    link = Loopback(files, tmp_path / "sites", {"geneva": Policy(rounds_per_day=2)})
    trained(link, tmp_path / "run")
    tasks = [data for data in link.payloads[::2] if messages.kind_of(data) == "task"]
    last = [data for data in tasks if messages.Task.unpacked(data).client == 1][-1]
    answer = link.sites["geneva"].answer(last)
    link.restart()
    assert link.sites["geneva"].answer(last) == answer
    count = tmp_path / "sites" / "geneva" / "rounds.json"
    assert json.loads(count.read_text())["rounds"] == 2


@pytest.mark.parametrize("pattern", ["Codasca", "nonsense-*", ""])
def test_a_pattern_that_no_method_is_like_is_a_mistake(pattern):
    with pytest.raises(InputError, match="there is no method"):
        Policy((pattern,))
