"""The examples run and learn something."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

APART = "federation_demo"  # two minutes of twenty processes: `make federation-demo`; federation/test_flare.py
EXAMPLES = sorted(p for p in (Path(__file__).parent.parent / "examples").glob("*.py") if p.stem != APART)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True, cwd=tmp_path)
    if path.stem == "metric_learning":  # the last search finds more than those before
        *before, after = (float(found) for found in re.findall(r"mAP (0\.\d+)", done.stdout))
        assert after > 1.3 * max(before)
        return
    aucs = [float(found) for found in re.findall(r"AUC (0\.\d+)", done.stdout)]
    assert aucs[-1] > 0.9
