"""A site's first steps: its kit is unpacked, and its table is held against the plan."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedauc.errors import InputError
from fedauc.federation import kits
from fedauc.federation.joining import FEW, _compared, examine
from fedauc.federation.plan import Plan

COLUMNS = {"age": "number", "cost": "number", "ward": "text"}


def plan(columns: dict[str, str] | None = None, **experiment: Any) -> Plan:
    content = {
        "federation": {},
        "experiment": {"label": "ill", "positive": "1"} | experiment,
        "sites": {"basel": {}, "geneva": {}},
        "columns": COLUMNS if columns is None else columns,
    }
    return Plan.from_dict(content, "federation.toml")


def frame(positives: int = 20, rows: int = 60) -> pd.DataFrame:
    generator = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "age": generator.normal(60, 9, rows),
            "cost": generator.integers(1, 1000, rows),
            "ward": generator.choice(["a", "b", "c"], rows),
            "ill": (np.arange(rows) < positives).astype(int),
        }
    )


def saved(table: pd.DataFrame, folder: Path) -> Path:
    path = folder / "basel.csv"
    table.to_csv(path, index=False)
    return path


class TestExamined:
    def test_a_table_as_agreed(self, tmp_path):
        table = frame()
        table.loc[:5, "age"] = np.nan
        found = examine(plan(), saved(table, tmp_path))
        assert (found.rows, found.positives) == (60, 20)
        assert found.columns == [("age", "number", 0.1), ("cost", "number", 0.0), ("ward", "text", 0.0)]
        assert found.problems == found.notes == []

    def test_columns_that_are_missing_or_too_much(self, tmp_path):
        table = frame().rename(columns={"age": "years"})
        found = examine(plan(), saved(table, tmp_path))
        assert found.problems == [
            "The column 'age' is missing.",
            "The column 'years' is not in the federation.",
        ]

    def test_columns_of_another_kind(self, tmp_path):
        table = frame().assign(age=lambda t: "about " + t["age"].astype(int).astype(str), ward=3)
        found = examine(plan(), saved(table, tmp_path))
        assert found.problems == [
            "The column 'age' holds texts, and the federation wants numbers.",
            "The column 'ward' holds numbers, and the federation wants texts.",
        ]

    def test_numbers_that_are_not_read_are_noted(self, tmp_path):
        table = frame().assign(cost=lambda t: t["cost"].astype(str) + ",5")
        found = examine(plan(), saved(table, tmp_path))
        assert found.problems == ["The column 'cost' holds texts, and the federation wants numbers."]
        (note,) = found.notes
        assert note.endswith("looks like a number: write it as 1234.5 if it is one.")

    def test_identifiers_and_few_texts_are_texts(self, tmp_path):
        table = frame().assign(ward=[f"patient {i}" for i in range(60)])
        assert examine(plan(), saved(table, tmp_path)).problems == []
        assert examine(plan(), saved(frame(5, rows=12), tmp_path)).problems == []

    def test_any_kind_will_do_where_the_plan_says_so(self, tmp_path):
        path = saved(frame(), tmp_path)
        assert examine(plan(dict.fromkeys(COLUMNS, "any")), path).problems == []
        assert examine(plan({}), path).problems == []

    def test_dropped_columns_are_not_looked_at(self, tmp_path):
        table = frame().assign(name="x")
        assert examine(plan(drop=["name"]), saved(table, tmp_path)).problems == []

    def test_rows_of_one_class_are_possible_but_noted(self, tmp_path):
        found = examine(plan(), saved(frame(0), tmp_path))
        assert found.positives == 0
        assert found.notes == ["All rows are negative: is '1' really how a positive is written here?"]
        (note,) = examine(plan(), saved(frame(60), tmp_path)).notes
        assert note.startswith("All rows are positive:")
        (note,) = examine(plan(positive="yes"), saved(frame(), tmp_path)).notes
        assert "is 'yes' really how" in note

    def test_few_positives_are_noted(self, tmp_path):
        found = examine(plan(), saved(frame(FEW - 1), tmp_path))
        assert found.notes == [f"Only {FEW - 1} rows are positive."]
        assert found.problems == []
        assert examine(plan(), saved(frame(FEW), tmp_path)).notes == []

    def test_a_column_without_a_value_is_named(self, tmp_path):
        with pytest.raises(InputError, match=r"The column 'ward' of .* is empty in every row"):
            examine(plan(), saved(frame().assign(ward=np.nan), tmp_path))

    def test_a_table_without_the_label_is_refused(self, tmp_path):
        with pytest.raises(InputError, match="has no column 'ill'"):
            examine(plan(), saved(frame().drop(columns="ill"), tmp_path))
        with pytest.raises(InputError, match=r"none\.csv"):
            examine(plan(), tmp_path / "none.csv")


def test_nothing_wanted_is_nothing_compared():
    assert _compared({"a": "number"}, {}) == []
    assert _compared({}, {"a": "any"}) == ["The column 'a' is missing."]


PRIVATE = b"PRIVATE KEY"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> kits.Kits:
    pytest.importorskip("nvflare", reason="nvflare is not installed: pip install 'fedauc[nvflare]'")
    folder = tmp_path_factory.mktemp("kits")
    return kits.provision(folder, "localhost", 8002, 8003, ["basel", "geneva"])


@pytest.fixture
def kit(made, tmp_path) -> Path:
    """Basel's kit as a file."""
    return kits.packed(made.site("basel"), plan(), tmp_path / "basel.zip")


class TestKits:
    def test_a_kit_travels_as_one_file(self, made, kit):
        assert mode(kit) == 0o600
        folder = kits.unpacked(kit)
        assert folder == kit.parent / "basel"
        found = contents(folder)
        assert found.pop(kits.UNPACKED).decode() == hashlib.sha256(kit.read_bytes()).hexdigest()
        assert json.loads(found.pop("federation.json")) == {"site": "basel", "plan": plan().as_dict()}
        original = contents(made.site("basel"))
        assert found == {
            name: data for name, data in original.items() if name.startswith(("startup", "local"))
        }
        assert kits.about(folder) == ("basel", plan())

    def test_only_its_owner_can_read_what_was_unpacked(self, kit):
        before = os.umask(0)
        try:
            folder = kits.unpacked(kit)
        finally:
            os.umask(before)
        every = [folder, *folder.rglob("*")]
        assert {mode(path) for path in every if path.is_dir()} == {0o700}
        assert {mode(path) for path in every if path.is_file()} == {0o600}

    def test_it_is_unpacked_once(self, kit):
        folder = kits.unpacked(kit)
        (folder / "site.log").write_text("kept")
        assert kits.unpacked(kit) == folder == kits.unpacked(folder)
        assert (folder / "site.log").read_text() == "kept"

    def test_packing_again_replaces_the_file_and_not_its_mode(self, made, kit):
        kit.chmod(0o644)
        kits.packed(made.site("basel"), plan(), kit)
        assert mode(kit) == 0o600

    def test_it_holds_its_own_key_and_no_other(self, made, kit):
        found = contents(kits.unpacked(kit))
        assert [name for name, data in found.items() if PRIVATE in data] == ["startup/client.key"]
        own = found["startup/client.key"]
        secrets = [
            data for path, data in contents(made.folder).items() if path.endswith((".key", "cert.json"))
        ]
        others = [data for data in secrets if data != own]
        assert len(others) == 5  # of the root, the server, the attendant, the administrator, and Geneva
        root = json.loads((made.folder / "fedauc" / "state" / "cert.json").read_text())
        keys = [value.encode() for value in root.values() if isinstance(value, str) and "PRIVATE" in value]
        assert keys
        assert not any(secret in data for secret in [*others, *keys] for data in found.values())

    def test_the_coordinators_keys_are_for_its_own_eyes(self, made):
        assert mode(made.folder) == 0o700
        keys = [path for path in made.folder.rglob("*") if path.is_file() and PRIVATE in path.read_bytes()]
        assert len(keys) == 6
        assert {mode(path) for path in keys} == {0o600}

    def test_a_site_may_run_one_class_and_nobody_may_look_around(self, made):
        local = made.site("geneva") / "local"
        settings = json.loads((local / "resources.json").read_text())
        assert settings["class_list_enforcement_mode"] == "enforce"
        assert settings["class_allow_list"] == [kits.MEMBER]
        assert not any(part["path"].startswith(kits.LOGGING) for part in settings["components"])
        rights = json.loads((local / "authorization.json").read_text())["permissions"]
        assert rights == {"project_admin": kits.RIGHTS}
        assert {rights["project_admin"][name] for name in ("byoc", "shell_commands", "operate")} == {"none"}

    def test_who_is_revoked_is_remembered(self, made):
        assert kits.revoked(made) == []
        kits.revoke(made, "geneva")
        kits.revoke(made, "geneva")
        assert kits.revoked(made) == ["geneva"]
        (made.server / kits.REVOKED).unlink()

    def test_a_further_site_leaves_the_kits_that_there_are(self, made, tmp_path):
        shutil.copytree(made.folder, tmp_path / "kits")
        first = tmp_path / "kits" / "fedauc" / "prod_00"
        before = contents(first)
        again = kits.provision(tmp_path / "kits", "localhost", 8002, 8003, ["basel", "geneva", "lugano"])
        assert contents(first) == before
        assert again.site("basel") == first / "basel"
        assert again.server.parent == again.admin.parent == first
        new = contents(again.site("lugano"))
        assert new["startup/rootCA.pem"] == before["basel/startup/rootCA.pem"]
        assert new["startup/client.key"] not in before.values()
        assert json.loads(new["local/resources.json"])["class_allow_list"] == [kits.MEMBER]

    def test_whoever_has_no_kit_is_named(self, made):
        with pytest.raises(InputError, match="There is no kit of nobody"):
            made.site("nobody")


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "a/b", "zürich", "a.b", ".x", "x\n"])
def test_names_that_cannot_be_certified_are_refused(name, tmp_path):
    with pytest.raises(InputError, match="cannot be a site's name"):
        kits.provision(tmp_path / "kits", "localhost", 8002, 8003, ["basel", name])
    assert not (tmp_path / "kits").exists()


@pytest.mark.parametrize("sites", [["basel", "basel"], ["localhost"], ["attendant"]])
def test_everybody_has_a_name_of_its_own(sites, tmp_path):
    with pytest.raises(InputError, match=f"'{sites[-1]}' is the name of two"):
        kits.provision(tmp_path / "kits", "localhost", 8002, 8003, sites)


def test_kits_go_into_a_folder_of_their_own(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not empty"):
        kits.provision(tmp_path, "localhost", 8002, 8003, ["basel"])


def zipped(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return path


KEY = "basel/startup/client.key"


class TestNoKit:
    @pytest.mark.parametrize(
        "names",
        [
            (KEY, "../x"),
            (KEY, "basel/../../x"),
            (KEY, "/tmp/x"),
            (KEY, "geneva/startup/client.key"),
            ("../startup/client.key",),
            ("basel/startup/other",),
            ("startup/client.key",),
            ("client.key",),
            (),
        ],
    )
    def test_a_zip(self, names, tmp_path):
        (tmp_path / "inner").mkdir()
        path = zipped(tmp_path / "inner" / "kit.zip", *names)
        with pytest.raises(InputError, match="is no kit of a site"):
            kits.unpacked(path)
        assert sorted(tmp_path.rglob("*")) == [tmp_path / "inner", path]

    def test_another_file(self, tmp_path):
        path = tmp_path / "kit.zip"
        path.write_bytes(b"PK nonsense")
        with pytest.raises(InputError, match="cannot be read as a kit"):
            kits.unpacked(path)
        with pytest.raises(InputError, match=r"missing\.zip does not exist"):
            kits.unpacked(tmp_path / "missing.zip")

    def test_a_folder(self, tmp_path):
        with pytest.raises(InputError, match="is no kit of a site"):
            kits.unpacked(tmp_path)

    @pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"site": "basel"}', '{"site": "a", "plan": {}}'])
    def test_a_folder_without_the_plan(self, text, tmp_path):
        if text is not None:
            (tmp_path / kits.ABOUT).write_text(text)
        with pytest.raises(InputError, match=r"is no kit of a site: federation\.json cannot be read"):
            kits.about(tmp_path)


def test_a_damaged_zip_leaves_nothing_behind(kit):
    whole = kit.read_bytes()
    directory = whole.index(b"PK\x01\x02")  # where names, sizes and methods are
    places = [*range(46), *range(directory, directory + 46), *range(200, len(whole), len(whole) // 23)]
    for place in places:
        kit.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            found = kits.unpacked(kit)
        except InputError:
            assert not (kit.parent / "basel").exists()
        else:  # the damage is where nothing is read
            files = [path for path in found.rglob("*") if path.is_file() and path.name != kits.UNPACKED]
            assert len(files) == len(zipfile.ZipFile(kit).namelist())
            shutil.rmtree(found)
    assert sorted(path.name for path in kit.parent.iterdir()) == ["basel.zip"]


def test_another_kit_is_not_taken_for_the_one_that_is_there(kit):
    folder = kits.unpacked(kit)
    assert kits.unpacked(kit) == folder
    (folder / "startup/rootCA.pem").write_text("of another federation")
    with pytest.raises(InputError, match="holds a kit of another federation"):
        kits.unpacked(kit)


def test_a_later_kit_of_the_same_federation_replaces_the_first(made, kit):
    folder = kits.unpacked(kit)
    (folder / "site.log").write_text("kept")
    (folder / "startup" / "start.sh").write_text("changed here")
    assert kits.unpacked(kit) == folder
    assert (folder / "startup" / "start.sh").read_text() == "changed here"
    kits.packed(made.site("basel"), plan({"age": "any"}), kit)
    assert kits.unpacked(kit) == folder
    assert kits.about(folder) == ("basel", plan({"age": "any"}))
    assert (folder / "startup" / "start.sh").read_text() != "changed here"
    assert (folder / "site.log").read_text() == "kept"
