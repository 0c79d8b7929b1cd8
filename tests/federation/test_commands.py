"""The commands of coordinator and site, short of running a federation (that is `test_flare`)."""

from __future__ import annotations

import json
import shutil
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
    before, plan = kits.ends(kit), folder.kits.server.parent
    others = (folder.kits.site("hospital-2") / kits.CERTIFICATE).read_bytes()
    assert "valid until" in run("federation", "renew", federation, "--site", "hospital-1")
    assert kits.unpacked(folder.pack("hospital-1", tmp_path / "hospital-1.zip")) == kit
    assert kits.ends(kit) > before
    assert (kit / "fedauc" / "memory").read_text() == "what the site keeps"
    assert (folder.kits.site("hospital-2") / kits.CERTIFICATE).read_bytes() == others
    server = (folder.kits.server / "startup" / "server.crt").read_bytes()
    run("federation", "renew", federation)
    assert (folder.kits.server / "startup" / "server.crt").read_bytes() != server
    assert sorted(plan.parent.glob("prod_*")) == [plan]
    root = x509.load_pem_x509_certificate((kit / kits.ROOT).read_bytes())
    for path in [kit / kits.CERTIFICATE, *plan.glob("*/startup/*.crt")]:
        x509.load_pem_x509_certificate(path.read_bytes()).verify_directly_issued_by(root)
        key = load_pem_private_key(path.with_suffix(".key").read_bytes(), None)
        public = x509.load_pem_x509_certificate(path.read_bytes()).public_key()
        assert key.public_key().public_numbers() == public.public_numbers()


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
