"""Communication time: figures and a column where runs have it, and no trace of it where they have not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fedauc.report import write_report
from fedauc.report.figures.curves import clock, curve_of
from fedauc.report.load import load

from .fixtures import compare_folder, train_run
from .test_report import read


def drop(folder: Path, *keys: str) -> None:
    """Take keys out of the rows of all runs in a folder."""
    for path in folder.rglob("metrics.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text(
            "".join(json.dumps({k: v for k, v in r.items() if k not in keys}) + "\n" for r in rows)
        )


def heads(source: str) -> list[str]:
    table = source[source.index('aria-label="Methods compared"') :].split("</thead>")[0]
    return [head.replace("<br>", " ") for head in re.findall(r"<th scope=col>(.*?)</th>", table)]


def test_methods_with_and_without_uplink(tmp_path: Path) -> None:
    methods = ("ce-minimax", "minimax-uniform", "coda+")
    slow = {"ce-minimax": {"uplink": 0.02}, "minimax-uniform": {"uplink": 0.05}}
    folder = compare_folder(tmp_path / "cmp", methods, (0, 1), of_method=slow, rounds=40, uplink=0.0)
    source, words = read(write_report([folder], tmp_path / "report.html"))
    assert "<h2>Communication time</h2>" in source
    assert "valid AUC by communication time" in source
    assert "accuracy of the worst client by communication time" in source
    assert "Without uplink speeds, so without a line: coda+." in words
    assert heads(source)[-2:] == ["Uplink time", "Time"]
    rows = source[source.index('aria-label="Methods compared"') :].split("</table>")[0].split("<tr")
    cells = {
        name: re.findall(r"<td>(.*?)</td>", row)[-2]
        for row in rows
        for name in re.findall(r"</i>([\w+-]+)</span>", row)
    }
    assert cells == {
        "ce-minimax": "0.8 s",
        "minimax-uniform": "2 s",
        "coda+": "–",
        "central": "–",
        "clients-alone": "–",
    }


def test_no_times_no_trace(tmp_path: Path) -> None:
    for uplink in (None, 0.0):
        folder = compare_folder(tmp_path / f"cmp-{uplink}", seeds=(0, 1), rounds=40, uplink=uplink)
        source, words = read(write_report([folder], tmp_path / "report.html"))
        assert "Communication time" not in words
        assert "Uplink" not in words
        assert heads(source)[-1] == "Time"
        assert "Uplink time" not in heads(source)


def test_row_of_the_comparison_has_the_last_word(tmp_path: Path) -> None:
    folder = compare_folder(tmp_path / "cmp", ("ce-minimax",), (0, 1), rounds=40, uplink=0.02)
    entry = next(e for e in load([folder]).entries if e.label == "ce-minimax")
    assert entry.uplink == pytest.approx(0.8)  # from the runs
    found = json.loads((folder / "compare.json").read_text())
    found["rows"][0]["seconds_up"] = 7.0
    (folder / "compare.json").write_text(json.dumps(found))
    assert next(e for e in load([folder]).entries if e.label == "ce-minimax").uplink == 7


def test_without_worst_accuracy_there_is_one_figure(tmp_path: Path) -> None:
    folder = compare_folder(tmp_path / "cmp", ("ce-minimax", "min-uniform"), (0, 1), rounds=40, uplink=0.02)
    drop(folder, "worst_accuracy")
    source, words = read(write_report([folder], tmp_path / "report.html"))
    assert "valid AUC by communication time" in source
    assert "worst client" not in words
    assert 'class="twin"' not in source


def test_one_run_with_times(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", "ce-minimax", rounds=40, uplink=2.0)
    source, words = read(write_report([run], tmp_path / "report.html"))
    assert "Uplink time 1 min 20 s" in words
    assert "communication time in seconds" in words
    assert source.count("kept: ") == 6  # by round, bytes and time, wide and narrow


def test_times_are_means_over_the_seeds(tmp_path: Path) -> None:
    runs = [train_run(tmp_path / f"s{n}", "ce-minimax", n, rounds=20, uplink=0.1 * (n + 1)) for n in range(2)]
    (entry,) = load(runs).entries
    assert [x for x, *_ in curve_of(entry, "time")] == pytest.approx([1.5, 3.0])
    assert len(curve_of(entry, "time", "worst_accuracy")) == 2
    assert all(low <= y <= high for _, y, low, high in curve_of(entry, "time"))


def test_odd_times(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", "ce-minimax", rounds=20, uplink=0.1)
    text = (run / "metrics.jsonl").read_text()
    for odd in ('"x"', "null", "NaN", "-1"):
        (run / "metrics.jsonl").write_text(re.sub(r'"seconds_up": [\d.]+', f'"seconds_up": {odd}', text))
        read(write_report([run], tmp_path / "report.html"))


@pytest.mark.parametrize(
    ("most", "unit"),
    [(0.02, "milliseconds"), (0.3, "seconds"), (250, "seconds"), (400, "minutes"), (1e6, "hours")],
)
def test_units(most: float, unit: str) -> None:
    assert clock(most)[1] == unit


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 7])
def test_few_rounds_repeat_no_tick(tmp_path: Path, rounds: int) -> None:
    run = train_run(tmp_path / "run", rounds=rounds, every=1, groups=2, uplink=0.1)
    source, _ = read(write_report([run], tmp_path / "report.html"))
    for name in ("valid AUC by round", "valid AUC by communication time", "groups took part"):
        drawn = [svg for svg in source.split("</svg>") if name in svg]
        assert len(drawn) == 2
        for svg in drawn:
            labels = re.findall(r'text-anchor="middle">([^<]*)</text>', svg)
            assert labels
            assert len(set(labels)) == len(labels)
            if "round" in name or "groups" in name:
                assert all(int(label) <= rounds for label in labels)
