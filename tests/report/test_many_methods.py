"""A report on all methods: what is in colour, what is grey, what is folded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedauc.experiments.presets import PRESETS
from fedauc.report import write_report

from .fixtures import compare_folder, train_run
from .test_report import read


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """All methods with two seeds and as many rounds as real runs have."""
    folder = tmp_path_factory.mktemp("crowd")
    compare = compare_folder(folder / "cmp", list(PRESETS), (0, 1), rounds=300, uplink=0.02)
    return read(write_report([compare], folder / "report.html"))


def section(source: str, name: str) -> str:
    return source[source.index(f'<section id="{name}">') :].split("</section>")[0]


@pytest.mark.parametrize("name", ["learning", "time", "roc"])
def test_the_best_are_in_colour_and_the_others_grey(crowd: tuple[str, str], name: str) -> None:
    part = section(crowd[0], name)
    first, rest = part.split('<details class="rest">')
    assert first.count("<li>") == 6
    assert "24 others, in grey" in rest
    listed = rest[: rest.index("</details>")]
    assert listed.count("<li data-e=") == 24
    assert set(re.findall(r'<li data-e="(\d+)"', listed)) == set(
        re.findall(r'<path [^>]*data-e="(\d+)"', part)
    )
    assert "In colour are the 6 methods with the highest test AUC" in part
    assert part.count("curve faint") == part.count("<title>")  # a grey curve says whose it is


def test_learning_curves_of_the_best_are_not_grey(crowd: tuple[str, str]) -> None:
    picture = section(crowd[0], "learning").split("</svg>")
    drawn = next(svg for svg in picture if "Learning curves, valid AUC by round" in svg)
    assert drawn.count("curve faint") == 24
    assert len(re.findall(r'class="m\d d\d curve(?: lead)?"', drawn)) == 6
    assert drawn.count(" band") == 1


def test_every_method_is_in_the_tables(crowd: tuple[str, str]) -> None:
    table = section(crowd[0], "methods")
    for name in PRESETS:
        assert f"</i>{name}</span>" in table
    looks = set(re.findall(r'swatch (m\d d\d)" aria-hidden="true"></i>[\w+-]+</span>', table))
    assert len(looks) == len(PRESETS)


def test_clients_and_ledgers_of_the_best_first(crowd: tuple[str, str]) -> None:
    assert "Drawn are the 6 best of 30 methods; the table has all." in crowd[1]
    assert "24 more methods" in section(crowd[0], "travelled")


def test_few_methods_are_all_in_colour(tmp_path: Path) -> None:
    compare = compare_folder(tmp_path / "cmp", list(PRESETS)[:8], (0,), rounds=40)
    source, words = read(write_report([compare], tmp_path / "report.html"))
    assert "in grey" not in words
    assert "curve faint" not in source


def test_a_curve_alone_has_no_dashes(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", "ce-minimax", rounds=40)
    source, _ = read(write_report([run], tmp_path / "report.html"))
    found = re.findall(r'class="m\d d4 curve([^"]*)"', source)
    assert set(found) == {" lead solo", " solo"}


def test_markers_do_not_meet(tmp_path: Path) -> None:
    """Among others a curve of many points is marked at five, each curve at its own."""
    compare = compare_folder(tmp_path / "cmp", ["codasca", "scaffold"], (0,), rounds=300, every=2)
    source, _ = read(write_report([compare], tmp_path / "report.html"))
    drawn = next(svg for svg in source.split("</svg>") if "valid AUC by round" in svg)
    marks = re.findall(r'<path class="(m\d d\d) fill" d="M([\d.]+)', drawn)
    assert len(marks) == 10
    assert len({x for _, x in marks}) == 10
