"""The commands of coordinator and site, short of running a federation (that is `test_flare`)."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from fedauc.cli import app
from fedauc.errors import InputError

pytest.importorskip("nvflare", reason="nvflare is not installed: pip install 'fedauc[nvflare]'")

from fedauc.federation import kits


def run(*arguments) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands") / "heart"
    table = pd.DataFrame({"age": range(40), "ward": ["a", "b"] * 20, "ill": [0, 0, 0, 1] * 10})
    table.to_csv(folder.parent / "table.csv", index=False)
    run(
        *("federation", "init", folder, "--site", "hospital-1", "--site", "hospital-2", "--label", "ill"),
        *("--positive", "1", "--like", folder.parent / "table.csv", "--set", "cycles=3"),
    )
    return folder


def test_init_writes_a_plan_and_closes_the_folder(federation):
    text = (federation / "federation.toml").read_text()
    assert 'age = "number"' in text
    assert 'ward = "text"' in text
    assert federation.stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="already holds a federation"):
        run(*("federation", "init", federation, "--site", "a", "--label", "y", "--positive", "1"))


def test_a_table_is_held_against_the_plan(federation, tmp_path):
    kit = tmp_path / "hospital-1.zip"
    assert "private key" in run("federation", "kit", "hospital-1", federation, "--out", kit)
    assert "The table can take part" in run("site", "check", kit, "--data", federation.parent / "table.csv")
    wrong = pd.read_csv(federation.parent / "table.csv").rename(columns={"ward": "unit"})
    wrong.to_csv(tmp_path / "wrong.csv", index=False)
    done = CliRunner().invoke(app, ["site", "check", str(kit), "--data", str(tmp_path / "wrong.csv")])
    assert done.exit_code == 2
    assert "The table can take part" not in done.output


def test_what_is_not_running_says_so(federation):
    found = json.loads(run("federation", "status", federation, "--json"))
    assert found["state"] == "not started"
    assert [row["site"] for row in found["sites"]] == ["hospital-1", "hospital-2"]
    assert found["rounds"] == 6
    assert "hospital-2" in run("federation", "status", federation)
    with pytest.raises(InputError, match="is not being run"):
        run("federation", "stop", federation)
    with pytest.raises(InputError, match="holds no run"):
        run("federation", "resume", federation)


@pytest.mark.parametrize("command", ["kit", "revoke"])
def test_an_unknown_site_is_named(federation, command):
    with pytest.raises(InputError, match="hospital-3 is no site of this federation: hospital-1, hospital-2"):
        run("federation", command, "hospital-3", federation)


@pytest.mark.parametrize("command", ["start", "resume", "status", "stop"])
def test_a_folder_without_a_federation(command, tmp_path):
    with pytest.raises(InputError, match=r"federation\.toml does not exist; `fedauc federation init"):
        run("federation", command, tmp_path)


def test_a_job_for_another_deployment(federation, tmp_path):
    run("federation", "job", federation, "--out", tmp_path, "--runs", "/srv/run", "--client", "always-there")
    meta = json.loads((tmp_path / "fedauc/meta.json").read_text())
    assert meta["deploy_map"] == {"app": ["server", "always-there"]}
    server = json.loads((tmp_path / "fedauc/app/config/config_fed_server.json").read_text())
    assert server["workflows"][0]["args"]["out"] == "/srv/run"


def test_a_site_that_is_added_has_a_kit_of_the_same_federation(tmp_path):
    folder = tmp_path / "small"
    run("federation", "init", folder, "--site", "a", "--label", "y", "--positive", "1")
    run("federation", "add", "b", folder)
    run("federation", "kit", "b", folder, "--out", tmp_path / "b.zip")
    kit, made = kits.unpacked(tmp_path / "b.zip"), kits.Kits(folder / "kits", "localhost")
    assert kit.name == "b"
    assert (kit / "startup/rootCA.pem").read_bytes() == (made.site("a") / "startup/rootCA.pem").read_bytes()
    with pytest.raises(InputError, match="is a site of this federation already"):
        run("federation", "add", "b", folder)
