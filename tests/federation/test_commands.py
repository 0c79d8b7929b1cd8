"""The commands of coordinator and site, short of running a federation (that is `test_flare`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
from typer.testing import CliRunner

from fedauc.cli import app
from fedauc.errors import InputError

pytest.importorskip("nvflare", reason="nvflare is not installed: pip install 'fedauc[nvflare]'")

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fedauc.federation import kits
from fedauc.federation.folder import Folder
from fedauc.federation.joining import _alone, _clear


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


@pytest.mark.parametrize(
    ("changed", "rounds", "group"),
    [
        ({"groups = ": 'groups = "dealt" #'}, 3, ["hospital-1", "hospital-2"]),
        ({"groups = ": 'groups = "dealt" #', "cycles =": "groups = 2\ncycles ="}, 6, ["hospital-2"]),
        ({'"group-2"': '"group-1"'}, 3, ["hospital-1", "hospital-2"]),
    ],
)
def test_status_counts_the_rounds_that_will_be(changed, rounds, group, federation, tmp_path):
    folder = shutil.copytree(federation, tmp_path / "copy")
    text = (folder / "federation.toml").read_text()
    for old, new in changed.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / "federation.toml").write_text(text)
    found = json.loads(run("federation", "status", folder, "--json"))
    assert (found["rounds"], found["group"]) == (rounds, group)


@pytest.mark.parametrize("command", ["kit", "revoke"])
def test_an_unknown_site_is_named(federation, command):
    with pytest.raises(InputError, match="hospital-3 is no site of this federation: hospital-1, hospital-2"):
        run("federation", command, "hospital-3", federation)


@pytest.mark.parametrize("command", ["start", "resume", "status", "stop"])
def test_a_folder_without_a_federation(command, tmp_path):
    with pytest.raises(InputError, match=r"federation\.toml does not exist; `fedauc federation init"):
        run("federation", command, tmp_path)


def test_a_positive_value_that_the_table_does_not_have(federation, tmp_path):
    given = ["federation", "init", tmp_path / "new", "--site", "a", "--label", "ill", "--positive", "yes"]
    with pytest.raises(InputError, match="yes"):
        run(*given, "--like", federation.parent / "table.csv")
    assert not (tmp_path / "new").exists()


def test_ports_must_differ(tmp_path):
    given = ["federation", "init", tmp_path / "new", "--site", "a", "--label", "y", "--positive", "1"]
    with pytest.raises(InputError, match="both 8002"):
        run(*given, "--admin-port", 8002)


def test_settings_are_written_as_what_they_are(federation):
    assert "\ncycles = 3\n" in (federation / "federation.toml").read_text()


def test_a_site_says_what_its_labels_are_and_holds_its_limits_against_the_plan(federation, tmp_path):
    kit = tmp_path / "hospital-1.zip"
    run("federation", "kit", "hospital-1", federation, "--out", kit)
    table = pd.read_csv(federation.parent / "table.csv").astype({"ill": object})
    table.loc[:2, "ill"] = "maybe"
    table.to_csv(tmp_path / "table.csv", index=False)
    said = run("site", "check", kit, "--data", tmp_path / "table.csv")
    assert "ill: 0 in 27 rows, 1 in 10 rows, maybe in 3 rows" in said
    assert "All that is not '1' counts as negative." in said
    with pytest.raises(InputError, match="names two tables"):
        run("site", "check", kit, "--data", tmp_path / "table.csv", "--data", federation / "table.csv")
    limits = tmp_path / "limits.toml"
    limits.write_text('methods = ["coda*"]')
    said = run("site", "check", kit, "--data", tmp_path / "table.csv", "--limits", limits)
    assert "do not allow the method cycp-pairwise" in said.replace("\n", " ")
    limits.write_text('methods = ["nonsense-*"]')
    with pytest.raises(InputError, match="there is no method 'nonsense-\\*'"):
        run("site", "check", kit, "--data", tmp_path / "table.csv", "--limits", limits)


def test_waiting_for_a_window_is_shown(federation, tmp_path, monkeypatch):
    folder = shutil.copytree(federation, tmp_path / "copy")
    (folder / "run").mkdir()
    line = {"event": "waiting", "sites": ["hospital-2"], "until": "2999-01-04T12:00:00+00:00"}
    (folder / "run/participation.jsonl").write_text(json.dumps(line) + "\n")
    (folder / "status.json").write_text(json.dumps({"state": "running", "pid": os.getpid()}))
    monkeypatch.setattr("fedauc.federation.folder._is_supervisor", lambda pid: True)
    assert "waiting for hospital-2, until Fri 04 January 12:00 UTC" in run("federation", "status", folder)
    with pytest.raises(InputError, match="is being run already"):
        run("federation", "start", folder)


def test_a_finished_run_is_shown_and_not_run_again(federation, tmp_path):
    folder = shutil.copytree(federation, tmp_path / "copy")
    (folder / "run").mkdir()
    result = {"test_auc": 0.9, "test_auc_ci": [0.8, 1.0], "valid_auc": 0.8, "best_round": 2, "rounds": 4}
    (folder / "run/result.json").write_text(json.dumps(result))
    assert "test AUC 0.9000" in run("federation", "resume", folder)


def test_a_revoked_site_gets_no_kit(federation, tmp_path):
    folder = shutil.copytree(federation, tmp_path / "copy")
    run("federation", "revoke", "hospital-2", folder)
    with pytest.raises(InputError, match="is refused already"):
        run("federation", "revoke", "hospital-2", folder)
    with pytest.raises(InputError, match="has been revoked"):
        run("federation", "kit", "hospital-2", folder)


def test_a_kit_is_used_by_one_process(federation, tmp_path, monkeypatch):
    with subprocess.Popen([sys.executable, "-c", "input()", "site", "join"], stdin=subprocess.PIPE) as other:
        (tmp_path / "joined.pid").write_text(str(other.pid))
        with pytest.raises(InputError, match=f"is in use already, by process {other.pid}"):
            _alone(tmp_path)
        other.communicate(b"\n")
    _alone(tmp_path)
    assert (tmp_path / "joined.pid").read_text() == str(os.getpid())


def test_a_client_that_was_left_behind_is_ended(tmp_path):
    def started(*arguments):
        return subprocess.Popen(
            [sys.executable, "-c", "input()", *map(str, arguments)], stdin=subprocess.PIPE
        )

    with started(kits.CLIENT, "-m", tmp_path) as left, started("join", tmp_path) as other:
        _clear(tmp_path)
        assert left.poll() is not None
        assert other.poll() is None
        other.communicate(b"\n")


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


def test_renewed_certificates_are_of_the_same_federation(federation, tmp_path):
    folder = Folder(federation)
    kit = kits.unpacked(folder.pack("hospital-1", tmp_path / "hospital-1.zip"))
    (kit / "fedauc").mkdir()
    (kit / "fedauc" / "memory").write_text("what the site keeps")
    before, made = kits.ends(kit), folder.kits.server.parent
    keys = {path: path.read_bytes() for path in made.glob("*/startup/*.key")}
    others = (folder.kits.site("hospital-2") / kits.CERTIFICATE).read_bytes()
    time.sleep(1)  # certificates count whole seconds
    assert "valid until" in run("federation", "renew", federation, "--site", "hospital-1")
    assert kits.unpacked(folder.pack("hospital-1", tmp_path / "hospital-1.zip")) == kit
    assert kits.ends(kit) > before
    assert (kit / "fedauc" / "memory").read_text() == "what the site keeps"
    assert (folder.kits.site("hospital-2") / kits.CERTIFICATE).read_bytes() == others
    server = (folder.kits.server / "startup" / "server.crt").read_bytes()
    run("federation", "renew", federation)
    assert (folder.kits.server / "startup" / "server.crt").read_bytes() != server
    assert {path: path.read_bytes() for path in made.glob("*/startup/*.key")} == keys
    root = x509.load_pem_x509_certificate((kit / kits.ROOT).read_bytes())
    for path in [kit / kits.CERTIFICATE, *made.glob("*/startup/*.crt")]:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        found.verify_directly_issued_by(root)
        key = load_pem_private_key(path.with_suffix(".key").read_bytes(), None)
        assert key.public_key().public_numbers() == found.public_key().public_numbers()
    added = x509.load_pem_x509_certificate((folder.kits.server / "startup" / "server.crt").read_bytes())
    names = added.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["localhost"]


def test_everybody_is_told_before_a_certificate_ends(federation, tmp_path, monkeypatch):
    folder = Folder(federation)
    assert folder.ending(datetime.now(UTC)) == {}
    later = kits.ends(folder.kits.server) - timedelta(days=20)
    assert list(folder.ending(later)) == ["localhost", "hospital-1", "hospital-2"]
    monkeypatch.setattr(kits, "SOON", timedelta(days=400))
    said = run("federation", "status", federation)
    assert f"`fedauc federation renew {federation}`" in said.replace("\n", "")
    assert f"`fedauc federation renew --site hospital-2 {federation}`" in said.replace("\n", "")
    kit = folder.pack("hospital-1", tmp_path / "hospital-1.zip")
    said = run("site", "check", kit, "--data", federation.parent / "table.csv")
    assert "ask the coordinator for a new one" in said
