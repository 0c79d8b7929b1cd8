"""The examples run and learn something."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True, cwd=tmp_path)
    aucs = [float(found) for found in re.findall(r"AUC (0\.\d+)", done.stdout)]
    assert aucs[-1] > 0.9
