"""Who answered when in a real federation, from files as a coordinator leaves them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedauc.report import write_report
from fedauc.report.attendance import Attendance, Site, attendance_of
from fedauc.report.figures.attendance import attendance, merged
from fedauc.report.load import load_run
from fedauc.report.svg import NARROW, WIDE
from fedauc.report.text import lasting

from .fixtures import client_names, compare_folder, exchange, federated_run, train_run
from .test_report import edit, read

GROUPS = [["basel", "bern"], ["geneva", "zurich"]]


def write(folder: Path, lines: list[dict[str, Any] | str], **options: Any) -> Path:
    """A run with such a file; text is written as it is."""
    run = train_run(folder, rounds=8, **options)
    if "groups" not in options:
        edit(run, groups=GROUPS)
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    (run / "participation.jsonl").write_text(text)
    return run


def log_of(run: Path) -> Attendance:
    found = attendance_of(load_run(run))
    assert found
    return found


def sites_of(run: Path) -> dict[str, Site]:
    return {site.name: site for site in log_of(run).sites}


def section(page: Path) -> tuple[str, str]:
    """The source and the words of the section."""
    source, _ = read(page)
    part = source[source.index('<section id="participation">') :].split("</section>")[0]
    return part, " ".join(re.sub("<[^>]*>", " ", part).split())


def four_rounds() -> list[dict[str, Any] | str]:
    return [
        exchange(1, ["basel", "bern"]),
        exchange(2, ["geneva"], missed={"zurich": "no answer (timeout)"}),
        exchange(3, ["basel", "bern"]),
        exchange(4, [], missed={"zurich": "no answer (timeout)", "geneva": "busy"}, outcome="skipped"),
    ]


def test_summary_and_tables(tmp_path: Path) -> None:
    run = write(tmp_path / "run", four_rounds())
    source, words = section(write_report([run], tmp_path / "report.html"))
    assert (
        "2 groups over 4 rounds in 2 cycles. The sites were asked 8 times and answered 5 times; 1 round was"
        " left out because too few answered. The run was never resumed and waited 2 min in all for windows."
    ) in words
    assert source.count(">0 of 2<") == 1
    assert source.count(">0/2<") == 1  # on a phone
    assert "zurich 2 2 0 2 2 rounds 2 h, not back since no answer (timeout) 2 of 2" in words
    assert "geneva 2 2 1 1 1 round 0.5 s, not back since busy" in words
    assert "basel 1 2 2 0 – –" in words
    assert "1 rounds 1 to 2 2026-11-15 23:00 basel, bern and geneva zurich 1 min 1 s" in words
    assert "2 rounds 3 to 4 1 left out 2026-11-16 01:00 basel and bern zurich and geneva" in words
    assert "Which of 4 sites took part in rounds 1 to 4" in source
    assert "drawn at random" not in words  # who is missing was not left out by a draw


def test_without_the_file_nothing_changes(tmp_path: Path) -> None:
    for name, lines in (("none", None), ("empty", ""), ("cut", '{"round": 1, "cyc'), ("odd", "[1]\n7\n")):
        run = train_run(tmp_path / name, rounds=40)
        if lines is not None:
            (run / "participation.jsonl").write_text(lines)
    pages = [write_report([tmp_path / n], tmp_path / f"{n}.html") for n in ("none", "empty", "cut", "odd")]
    assert len({page.read_bytes() for page in pages}) == 1
    assert "Which of 4 groups took part in rounds 1 to 40" in pages[0].read_text()


def test_lines_that_were_cut_off(tmp_path: Path) -> None:
    whole, next_one = json.dumps(exchange(1, ["basel"])), json.dumps(exchange(3, ["bern"]))
    lines = [
        whole + "\n",
        '{"round": 2, "missed": {"bern": "no answer"}' + next_one + "\n",  # a crash, then the next line
        "\n",
        "null\n",
        '{"round": 4, "missed": {"bern": "no an',
    ]
    run = write(tmp_path / "run", lines)
    assert [r.round for r in log_of(run).rounds] == [1, 3]
    path = run / "participation.jsonl"
    path.write_bytes(path.read_bytes() + "ü".encode()[:1])
    assert [r.round for r in log_of(run).rounds] == [1, 3]


def test_the_last_line_of_a_round_counts(tmp_path: Path) -> None:
    lines: list[dict[str, Any] | str] = [
        exchange(1, ["basel", "bern"]),
        exchange(2, [], missed={"geneva": "gone", "zurich": "gone"}, outcome="failed"),
        {"event": "resumed", "round": 0, "began": "2026-11-16T08:00:00Z"},
        exchange(1, ["basel"], missed={"bern": "late"}),
        exchange(2, ["geneva", "zurich"]),
    ]
    run = write(tmp_path / "run", lines)
    sites = sites_of(run)
    assert {name: (s.took, s.asked) for name, s in sites.items()} == {
        "basel": (1, 1),
        "bern": (0, 1),
        "geneva": (1, 1),
        "zurich": (1, 1),
    }
    log = log_of(run)
    assert (log.left_out, log.failed) == ([], [])
    assert log.waited == 120  # time was spent on attempts, too
    assert "failed" not in section(write_report([run], tmp_path / "report.html"))[1]


def test_resumed(tmp_path: Path) -> None:
    lines = four_rounds()
    lines.insert(2, {"event": "resumed", "began": "2026-11-16T08:00:00+00:00", "round": 2})
    lines.insert(4, {"event": "resumed"})  # the next line says where
    lines.append({"event": "resumed"})  # nothing does
    lines.append({"event": "something new", "round": 9})
    run = write(tmp_path / "run", lines)
    log = log_of(run)
    assert (log.resumes, log.resumed) == (3, [3, 4])
    source, words = section(write_report([run], tmp_path / "report.html"))
    assert "The run was resumed 3 times" in words
    assert source.count('class="resumed"') == 2 * 2 + 1  # wide, narrow and the legend


def test_sites_that_no_group_knows(tmp_path: Path) -> None:
    lines = [*four_rounds(), exchange(5, ["basel", "chur"], missed={"bern": "x"})]
    edited = [*GROUPS, ["sion"]]
    run = write(tmp_path / "run", lines)
    edit(run, groups=edited)
    source, words = section(write_report([run], tmp_path / "report.html"))
    assert "in no group" in source
    assert "chur – 1 1 0" in words
    assert "sion 3 0 0 0 – –" in words  # never asked
    edit(run, groups=...)
    assert "5 rounds in 3 cycles." in section(write_report([run], tmp_path / "report.html"))[1]


def test_names_and_reasons_are_escaped(tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", 'a"b&c', "ü" * 300, "</title></svg><b>"]
    lines = [
        exchange(n, names[:2], missed={names[2]: "<img onerror=x>", names[3]: "</td>" + "y" * 999})
        for n in (1, 2)
    ]
    run = write(tmp_path / "run", [*lines], names=names, groups=1)
    source, words = section(write_report([run], tmp_path / "report.html"))
    for bad in ("<script>", "<img", "</title></svg><b>"):
        assert bad not in source
    assert "&lt;img onerror=x&gt;" in source
    assert "y" * 200 not in words


def test_missing_fields_and_odd_values(tmp_path: Path) -> None:
    odd: list[dict[str, Any] | str] = [
        {"round": 1},
        {"round": 2, "took_part": ["basel", None, 7, "basel"], "missed": ["bern"]},
        {"round": 3, "took_part": "basel", "missed": "bern", "began": 12, "cycle": "x", "waited": -5},
        {"round": 4, "took_part": ["bern"], "missed": {"bern": None, "basel": 5}, "began": "yesterday"},
        {"round": "five"},
        {"round": -1, "took_part": ["basel"]},
        {"round": 1e300, "took_part": ["basel"]},
        {"round": 10**400, "took_part": ["basel"]},
        {"round": 5, "took_part": ["basel"], "seconds": float("nan"), "waited": None, "began": "2026-11-15"},
    ]
    run = write(tmp_path / "run", odd)
    log = log_of(run)
    assert [r.round for r in log.rounds] == [1, 2, 3, 4, 5]
    assert log.waited is None
    sites = sites_of(run)
    assert {name: (sites[name].took, sites[name].missed) for name in ("basel", "bern", "7")} == {
        "basel": (2, 1),
        "bern": (1, 1),
        "7": (1, 0),
    }
    _, words = section(write_report([run], tmp_path / "report.html"))
    assert "in all for windows" not in words
    assert "Cycle by cycle" not in words
    assert "not recorded" in words


def test_longest_time_missed(tmp_path: Path) -> None:
    """In turns of the site; until it answers again, or until the record ends."""
    pattern = "1001110"  # of zurich, in every other round
    lines: list[dict[str, Any] | str] = []
    for n, answered in enumerate(pattern):
        missed = {} if answered == "1" else {"zurich": "a" if n == 1 else "b"}
        lines += [
            exchange(2 * n + 1, ["basel"]),
            exchange(2 * n + 2, ["zurich"] * (not missed), missed=missed),
        ]
    zurich = sites_of(write(tmp_path / "run", lines))["zurich"]
    assert (zurich.longest.turns, zurich.longest.seconds, zurich.longest.back) == (2, 4 * 3600, True)
    assert (zurich.reason, zurich.reasons) == ("b", 2)
    gone = sites_of(write(tmp_path / "gone", lines[: 2 * 3]))["zurich"]
    assert (gone.longest.turns, gone.longest.seconds, gone.longest.back) == (2, 2 * 3600 + 0.5, False)


def test_1200_rounds_are_merged_and_no_miss_is_lost(tmp_path: Path) -> None:
    lines: list[dict[str, Any] | str] = [
        exchange(n, ["basel"], cycle=n - 1, missed={"bern": "x"} if n == 777 else {}) for n in range(1, 1201)
    ]
    run = write(tmp_path / "run", lines)
    edit(run, groups=[["basel", "bern"]])
    source, words = section(write_report([run], tmp_path / "report.html"))
    log = log_of(run)
    for width in (WIDE, NARROW):
        assert merged(log, width) > 5
        drawn = attendance(log, width)
        assert drawn.count('class="hatch"') == 1
        assert f"round, {merged(log, width)} to a box" in drawn
    table = source[source.index("cycle by cycle") :]
    assert table.count("<tr") == 1 + 100 + 1 + 100
    assert "… 1,000 more" in words
    assert "Of 1,200 cycles the first 100 and the last 100 are shown." in words


def test_any_miss_is_seen_among_many_answers(tmp_path: Path) -> None:
    lines: list[dict[str, Any] | str] = [
        exchange(n, [] if n == 600 else ["basel"], missed={"basel": "x"} if n == 600 else {})
        for n in range(1, 1201)
    ]
    run = write(tmp_path / "run", lines)
    edit(run, groups=[["basel"]])
    box = re.search(r'class="missed" d="M[\d.]+ [\d.]+h([\d.]+)v([\d.]+)', attendance(log_of(run), NARROW))
    assert box
    assert float(box[1]) > 4
    assert float(box[2]) > 3


@pytest.mark.parametrize(("sites", "groups", "rounds"), [(2, 1, 1), (2, 2, 2), (30, 3, 1000), (30, 30, 90)])
def test_sizes(tmp_path: Path, sites: int, groups: int, rounds: int) -> None:
    run = federated_run(tmp_path / "run", client_names(sites), groups, rounds)
    source, words = section(write_report([run], tmp_path / "report.html"))
    for svg in re.findall(r"<svg role.*?</svg>", source):
        assert svg.count("</title>") == sites
        labels = re.findall(r'text-anchor="middle">([^<]*)</text>', svg)
        assert labels
        assert len(set(labels)) == len(labels)
        wide, high = map(float, re.search(r"viewBox=\"0 0 ([\d.]+) ([\d.]+)", svg).groups())  # type: ignore[union-attr]
        for x, y in re.findall(r'<text x="([\d.-]+)" y="([\d.-]+)"', svg):
            assert 0 <= float(x) <= wide
            assert 0 <= float(y) <= high
    assert ("group 1<" in source) == (1 < groups < sites)
    assert f"Site by site {sites} sites" in words


def test_of_very_many_sites_those_missed_most_are_drawn(tmp_path: Path) -> None:
    names = client_names(60)
    run = write(tmp_path / "run", [exchange(1, names[:-1], missed={names[-1]: "x"})], names=names, groups=1)
    source, words = section(write_report([run], tmp_path / "report.html"))
    assert "Of 60 sites the 40 that missed most are drawn." in words
    svg = re.findall(r"<svg role.*?</svg>", source)[0]
    assert ">hospital-60<" in svg
    assert ">hospital-59<" not in svg
    assert "all 59" not in words  # one was missed


def test_compared_runs_show_the_best_that_has_the_file(tmp_path: Path) -> None:
    folder = compare_folder(tmp_path / "cmp", ("cycp-pairwise", "cycp-minimax"), (0, 1), rounds=40)
    for name, auc in (("seed-0", 0.7), ("seed-1", 0.8)):
        run = folder / "cycp-minimax" / name
        edit(run, groups=GROUPS, test_auc=auc)
        (run / "participation.jsonl").write_text("".join(json.dumps(line) + "\n" for line in four_rounds()))
    source, words = section(write_report([folder], tmp_path / "report.html"))
    assert "The sites of cycp-minimax, seed 1. At the right" in words
    assert "cycp-pairwise 4 groups over 40 rounds" in words
    assert "cycp-minimax 2 groups over 4 rounds in 2 cycles. The sites were asked 8 times" in words
    assert "groups took part in rounds" not in source


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 s"),
        (3.2, "3.2 s"),
        (90, "1 min 30 s"),
        (7200, "2 h"),
        (86_400, "1 day"),
        (273_600, "3 days 4 h"),
    ],
)
def test_time_in_words(seconds: float, shown: str) -> None:
    assert lasting(seconds) == shown
