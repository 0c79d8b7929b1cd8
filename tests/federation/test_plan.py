"""What federation.toml says, and what is wrong with it."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.federation.sites import SETTINGS, SITES, Hours, Loopback
from tests.federation.sites import written as tables

from fedauc.core.checkpoint import read_tensors
from fedauc.errors import InputError
from fedauc.experiments import runner
from fedauc.federation.attendance import Attendance
from fedauc.federation.calendar import Window
from fedauc.federation.coordinator import prepared
from fedauc.federation.plan import FILE, Address, Experiment, Organisation, Plan, written
from fedauc.federation.scores import Share

BASIC: dict[str, Any] = {
    "federation": {"name": "hearts"},
    "experiment": {"label": "ill", "positive": "1"},
    "sites": {name: {} for name in SITES},
}


def plan(**changes: Any) -> Plan:
    """A plan with some values by their dotted keys, `__` for a dot."""
    content = copy.deepcopy(BASIC)
    for key, value in changes.items():
        *path, last = key.split("__")
        where = content
        for part in path:
            where = where.setdefault(part, {})
        where[last] = value
    return Plan.from_dict(content, FILE)


def test_what_is_not_said_is_as_documented():
    found = plan()
    assert found.experiment.method == "cycp-pairwise"
    assert (found.rounds.quorum, found.rounds.absent, found.rounds.groups) == (1.0, "retry", "named")
    assert found.share == Share()
    assert found.names == sorted(SITES)
    assert found.windows == {}
    assert found.groups is None
    assert found.config.sections["participation"]["group_of"] is None
    assert found.config.train.mode == "loop"
    assert (found.config.data.label, found.config.data.positive) == ("ill", "1")


def test_settings_are_as_on_the_command_line():
    found = plan(experiment__settings={"schedule.cycles": 3, "train.batch": "16"}, experiment__seed=7)
    assert found.config.sections["schedule"]["cycles"] == 3
    assert (found.config.train.batch, found.config.seed) == (16, 7)


def test_windows_are_those_of_sites_that_are_not_always_there():
    found = plan(
        sites__basel={"timezone": "Europe/Zurich", "open": ["Mon-Fri 20:00-06:00"]},
        sites__geneva={"maintenance": ["2026-12-24"]},
        sites__lugano={"timezone": "Europe/Rome"},
    )
    assert found.windows == {
        "basel": Window("Europe/Zurich", ("Mon-Fri 20:00-06:00",)),
        "geneva": Window(maintenance=("2026-12-24",)),
    }


class TestGroups:
    def test_named_ones_come_in_the_order_of_their_names(self):
        groups = dict(zip(SITES, ("west", "east", "west", "north"), strict=True))
        found = plan(**{f"sites__{name}": {"group": group} for name, group in groups.items()})
        assert found.groups == [["geneva"], ["zurich"], ["basel", "lugano"]]
        participation = found.config.sections["participation"]
        assert participation["name"] == "cyclic"
        assert participation["group_of"] == (2, 0, 2, 1)  # in the order of the sites' names

    def test_the_order_in_the_file_does_not_matter(self):
        content = copy.deepcopy(BASIC)
        content["sites"] = {name: {"group": name[0]} for name in reversed(SITES)}
        found = Plan.from_dict(content, FILE)
        assert found.groups == [["basel"], ["geneva"], ["lugano"], ["zurich"]]
        assert found.config.sections["participation"]["group_of"] == (0, 1, 2, 3)

    def test_those_of_the_calendar_are_the_sites_with_the_same_window(self):
        night, day = {"open": ["20:00-06:00"]}, {"open": ["Mon-Fri 08:00-18:00"]}
        found = plan(
            rounds__groups="calendar",
            sites__basel=night,
            sites__geneva=day | {"maintenance": ["2026-12-24"]},
            sites__lugano=night | {"group": "ignored"},
            sites__zurich=day,
        )
        assert found.groups == [["basel", "lugano"], ["geneva", "zurich"]]  # Monday 00:00 is in the night
        assert found.config.sections["participation"]["group_of"] == (0, 1, 0, 1)

    def test_a_calendar_without_windows_is_one_group(self):
        assert plan(rounds__groups="calendar").groups == [sorted(SITES)]

    def test_dealt_ones_are_the_methods_affair(self):
        found = plan(rounds__groups="dealt", sites__basel={"group": "a"})
        assert found.groups is None
        assert found.config.sections["participation"]["group_of"] is None


def test_the_groups_and_the_model_are_those_of_one_process(tmp_path):
    files = tables(tmp_path)
    groups = dict(zip(SITES, ("b", "a", "b", "b"), strict=True))
    mine = {
        key: value for key, value in SETTINGS.items() if key.startswith(("model.", "schedule.", "train."))
    }
    found = plan(
        experiment__model="mlp",
        experiment__settings=mine | {"schedule.cycles": 2},
        **{f"sites__{name}": {"group": group} for name, group in groups.items()},
    )
    here = found.config.changed({"data.path": [str(path) for path in files.values()]})
    one = runner.run(here, tmp_path / "here")
    link = Loopback(files, tmp_path / "sites")
    attendance = Attendance(link, found.windows, clock=Hours())
    known = prepared(found.config, attendance, found.names, tmp_path / "there", found.share)
    many = runner.run(found.config, tmp_path / "there", prepared=known)
    assert many["groups"] == one["groups"] == found.groups == [["geneva"], ["basel", "lugano", "zurich"]]
    assert (many["test_auc"], many["valid_auc"]) == (one["test_auc"], one["valid_auc"])
    models = [read_tensors(tmp_path / name / "model.safetensors")[0] for name in ("here", "there")]
    assert models[0].keys() == models[1].keys()
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())


WRONG = [
    ({"more": 1}, "more"),
    ({"federation__prt": 1}, "federation.prt"),
    ({"federation__port": "x"}, "federation.port"),
    ({"experiment": {}}, "experiment.label"),
    ({"experiment": {"label": "ill"}}, "experiment.positive"),
    ({"experiment__positive": 1}, "experiment.positive"),
    ({"experiment__drop": "age"}, "experiment.drop"),
    ({"experiment__seed": "x"}, "experiment.seed"),
    ({"experiment__epochs": 3}, "experiment.epochs"),
    ({"experiment__method": "cycp-pairwize"}, "'cycp-pairwize'"),
    ({"experiment__model": "forest"}, "'forest'"),
    ({"experiment__settings": {"schedule.ata": 1}}, "'schedule.ata'"),
    ({"experiment__settings": {"schedule.eta": "fast"}}, "schedule.eta='fast'"),
    ({"rounds__quorum": 0}, "rounds.quorum=0.0"),
    ({"rounds__quorum": 1.1}, "rounds.quorum=1.1"),
    ({"rounds__quorum": "half"}, "rounds.quorum"),
    ({"rounds__deadline": 0}, "rounds.deadline=0.0"),
    ({"rounds__grace": -1}, "rounds.grace=-1.0"),
    ({"rounds__patience": -0.5}, "rounds.patience=-0.5"),
    ({"rounds__absent": "wait"}, "rounds.absent"),
    ({"rounds__groups": "some"}, "rounds.groups"),
    ({"rounds__deadlin": 1}, "rounds.deadlin"),
    ({"share__form": "rows"}, "share.form"),
    ({"share__bin": 5}, "share.bin"),
    ({"share__bins": 1.5}, "share.bins"),
    ({"columns__age": "float"}, "columns.age"),
    ({"sites": {}}, "sites"),
    ({"sites": ["basel"]}, "sites"),
    ({"sites__basel": {"group": "a"}}, "geneva, lugano, zurich"),
    ({"sites__basel": {"timezone": "Europe/Bsel"}}, "sites.basel: There is no time zone 'Europe/Bsel'"),
    ({"sites__geneva": {"open": ["Mun"]}}, "sites.geneva: open='Mun'"),
    ({"sites__geneva": {"open": "Mon"}}, "sites.geneva.open"),
    ({"sites__geneva": {"maintenance": ["24.12."]}}, "sites.geneva: maintenance='24.12.'"),
    ({"sites__geneva": {"opens": []}}, "sites.geneva.opens"),
]


@pytest.mark.parametrize(("changes", "named"), WRONG, ids=[named for _, named in WRONG])
def test_what_is_wrong_is_named_in_one_line(changes, named):
    with pytest.raises(InputError) as error:
        plan(**changes)
    text = str(error.value)
    assert text.startswith(f"{FILE}: ")
    assert named in text
    assert len(text.splitlines()) == 1


def test_groups_that_are_not_used_need_not_be_complete():
    plan(sites__basel={"group": "a"}, rounds__groups="calendar")


class TestFile:
    def test_there_is_none(self, tmp_path):
        with pytest.raises(InputError, match=r"federation\.toml does not exist; `fedauc federation init"):
            Plan.read(tmp_path)

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"[federation", "is no TOML"),
            (b"a = \xff", "is no TOML"),
            (b"more = 1", "federation: Field required"),
        ],
    )
    def test_it_is_nonsense(self, content, why, tmp_path):
        path = tmp_path / FILE
        path.write_bytes(content)
        with pytest.raises(InputError, match=why) as error:
            Plan.read(tmp_path)
        assert str(error.value).startswith(str(path))
        assert len(str(error.value).splitlines()) == 1

    def test_what_is_written_is_read(self, tmp_path):
        address = Address("Hearts “of” Zürich", "fl.hospital.example", 9002, 9003)
        experiment = Experiment(
            label='the "label"',
            positive="ja\\nein",
            model="mlp",
            drop=("Größe", "a.b", "tab\there", "two\nlines"),
            seed=3,
            settings={"schedule.eta": 0.25, "model.hidden": [5, 3], "train.batch": 16},
        )
        sites = ("st.gallen", "a-b", "x", "la-chaux-de-fonds")
        columns = {"age": "number", "Größe in m": "number", 'he said "no"': "text", "ward.1": "any"}
        (tmp_path / FILE).write_text(written(address, experiment, sites, columns))
        found = Plan.read(tmp_path)
        assert found.federation == address
        assert found.experiment == experiment
        assert found.columns == columns
        assert found.groups == [["a-b", "la-chaux-de-fonds"], ["st.gallen", "x"]]
        assert found.rounds == plan().rounds
        assert found.share == Share()

    def test_without_columns_nothing_is_asked_for(self):
        found = tomllib.loads(written(Address(), Experiment("ill", "1"), ["a", "b", "c"], {}))
        assert found["columns"] == {}
        assert {name: site["group"] for name, site in found["sites"].items()} == {
            "a": "group-1",
            "b": "group-1",
            "c": "group-2",
        }

    def test_one_site_is_a_federation(self):
        text = written(Address(), Experiment("ill", "1"), ["a"], {})
        assert Plan.from_dict(tomllib.loads(text), FILE).groups == [["a"]]

    @given(st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF, exclude_characters="\x7f"), min_size=1))
    def test_any_text_is_written_as_it_is(self, text):
        content = written(Address(), Experiment(text, text, drop=(text,)), ["a"], {text: "any"})
        found = tomllib.loads(content)
        assert found["experiment"]["label"] == found["experiment"]["positive"] == text
        assert found["experiment"]["drop"] == [text]
        assert found["columns"] == {text: "any"}


def test_a_plan_travels_as_json():
    found = plan(
        sites__basel={"timezone": "Europe/Zurich", "open": ["Sat,Sun"], "maintenance": ["2026-12-24"]},
        experiment__drop=["age"],
        experiment__settings={"model.hidden": [5]},
        experiment__model="mlp",
        share={"form": "histogram", "bins": 64},
        columns={"age": "number"},
    )
    again = Plan.from_dict(json.loads(json.dumps(found.as_dict())), "a kit")
    assert again == found
    assert isinstance(again.sites["basel"], Organisation)
    assert again.config == found.config


def test_paths_are_part_of_every_sentence(tmp_path):
    path = Path(tmp_path, FILE)
    path.write_text('[federation]\n[experiment]\nlabel = "ill"\npositive = "1"\n[sites]\n')
    with pytest.raises(InputError, match="The federation has no sites") as error:
        Plan.read(tmp_path)
    assert str(error.value).startswith(f"{path}: ")
