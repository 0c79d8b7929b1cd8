"""The script that installs a browser for the tests does nothing where it cannot or need not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "install-browser.sh"
BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="no bash here")


def run_with(path: Path) -> str:
    """What the script prints with only the programs in ``path``."""
    command = [str(BASH), str(SCRIPT)]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, check=True, text=True).stdout


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_nothing_to_do_where_there_is_a_browser(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / name).chmod(0o755)
    assert run_with(tmp_path) == ""


def test_says_so_where_nothing_can_be_installed(tmp_path: Path) -> None:
    said = run_with(tmp_path)
    assert said.count("\n") == 1
    assert "browser tests will be skipped" in said


def test_needs_the_right_to_install(tmp_path: Path) -> None:
    for name, body in (("apt-get", "exit 1"), ("id", "echo 1000"), ("sudo", "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    assert "no right to install" in run_with(tmp_path)
