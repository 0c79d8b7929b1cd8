"""What travels is what the documentation lists."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.federation.sites import SITES, Loopback, written

from fedauc.experiments import runner
from fedauc.experiments.config import Config
from fedauc.federation import messages
from fedauc.federation.attendance import Attendance
from fedauc.federation.coordinator import prepared
from fedauc.federation.messages import Message, Refused

PAGE = Path(__file__).parents[2] / "docs" / "messages.md"
COMMON = {"kind", "version", "run", "client"}
KINDS = {each.kind: each for each in Message.__subclasses__()}
DOWN = ("start", "split", "summarise", "fitted", "task", "rate")


def listed() -> dict[str, tuple[str, set[str], set[str]]]:
    """Of each kind on the page: the direction, its fields, and patterns of its tensors."""
    found = {}
    for section in re.split(r"^### ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        kind, _, direction = title.partition(": ")
        body = body.split("\n## ")[0]
        tables: dict[str, set[str]] = {"field": set(), "tensor": set()}
        for line in body.splitlines():
            if heading := re.match(r"\| (field|tensor) \|", line):
                rows = tables[heading[1]]
            elif name := re.match(r"\| `([^`]+)` \|", line):
                rows.add(name[1])
        found[kind] = direction.strip(), tables["field"], tables["tensor"]
    return found


def test_the_page_lists_every_kind_and_field():
    page = listed()
    assert page.keys() == KINDS.keys()
    for kind, (direction, names, _) in page.items():
        assert direction == ("coordinator → site" if kind in DOWN else "site → coordinator")
        own = {field.name for field in fields(KINDS[kind])} - {"tensors", "run", "client"}
        assert names == own, kind


@pytest.mark.parametrize(
    "method", ["cycp-pairwise", "codasca", "cycp-minimax", "agnostic-auc", "local-scgdam"]
)
def test_real_payloads_hold_what_is_listed_and_nothing_else(method, tmp_path):
    link = Loopback(written(tmp_path), tmp_path)
    settings = {"data.label": "ill", "data.positive": "1", "model": "linear", "schedule.cycles": 2}
    config = Config.resolve(method, settings | {"schedule.steps": 2, "train.mode": "loop", "train.batch": 8})
    runner.run(config, tmp_path / "run", prepared=prepared(config, Attendance(link), SITES, tmp_path))
    page, seen = listed(), set()
    for data in link.payloads:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        metadata = header.pop("__metadata__")
        assert metadata.keys() == {"fedauc"}
        about = json.loads(metadata["fedauc"])
        kind = about["kind"]
        seen.add(kind)
        _, names, patterns = page[kind]
        assert about.keys() == COMMON | names
        assert all(any(fnmatchcase(name, pattern) for pattern in patterns) for name in header), (kind, header)
        ends = [tensor["data_offsets"][1] for tensor in header.values()]
        assert len(data) == 8 + length + max(ends, default=0)  # nothing hides behind the last tensor
    assert seen == KINDS.keys()


def test_no_value_of_a_row_travels(tmp_path):
    """Sums travel, and the extremes of the training rows; a column's other values are in no message."""
    link = Loopback(written(tmp_path), tmp_path)
    settings = {"data.label": "ill", "data.positive": "1", "model": "linear", "schedule.cycles": 1}
    config = Config.resolve("cycp-pairwise", settings | {"train.mode": "loop"})
    runner.run(config, tmp_path / "run", prepared=prepared(config, Attendance(link), SITES, tmp_path))
    sent = b"".join(link.payloads)

    def travelled(value: float) -> bool:
        forms = (repr(float(value)).encode(), np.float64(value).tobytes(), np.float32(value).tobytes())
        return any(form in sent for form in forms)

    for path in link.files.values():
        values = pd.read_csv(path)["age"].dropna().to_numpy()
        found = np.sort(values)[[travelled(value) for value in np.sort(values)]]
        assert len(found) <= 2  # the extremes of the training rows


class TestNonsense:
    """Whatever bytes come, a message is read or refused."""

    @pytest.mark.parametrize("cut", [0, 1, 7, 8, 9, 50])
    def test_cut(self, cut):
        data = messages.Rate({}, "run", 0, "valid", "scores", 8, -1.0, 1.0).packed()[:cut]
        with pytest.raises(Refused):
            messages.Rate.unpacked(data)

    @pytest.mark.parametrize(
        "change",
        [
            {"version": 2},
            {"kind": "rated"},
            {"part": 5},
            {"client": "0"},
            {"client": True},
            {"more": 1},
            {"part": None},
        ],
    )
    def test_another_form(self, change):
        from safetensors.torch import save

        about = {"kind": "rate", "version": 1, "run": "r", "client": 0, "part": "valid"}
        about |= {"form": "scores", "bins": 8, "low": -1.0, "high": 1.0} | change
        with pytest.raises(Refused):
            messages.Rate.unpacked(save({}, {"fedauc": json.dumps(about)}))
