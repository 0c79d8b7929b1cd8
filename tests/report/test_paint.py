"""Looks: the same from report to report, different within one, and apart for colour-blind eyes."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest

from fedauc.experiments.presets import PRESETS
from fedauc.report.load import Entry
from fedauc.report.paint import COLOURS, FEW, FIXED, FOREMOST, FORMS, REGISTRY, foremost, looks, paint
from fedauc.report.style import CSS

# What a reader without one kind of cone sees (Machado, Oliveira & Fernandes 2009, severity 1), linear RGB.
EYES = {
    "normal": np.eye(3),
    "protan": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "deutan": np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
    "tritan": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
}


def painted(*labels: str) -> dict[str, str]:
    entries = [Entry(label) for label in labels]
    paint(entries)
    return {e.label: e.colour for e in entries}


def test_every_method_has_a_look_of_its_own() -> None:
    assert set(REGISTRY) == set(PRESETS)
    assert len(set(REGISTRY.values())) == len(PRESETS)
    assert {name: REGISTRY[name] for name in FIXED} == FIXED
    assert REGISTRY["cycp-pairwise"] == (0, 0)


def test_a_method_alone_has_its_own_look() -> None:
    for name, (colour, form) in REGISTRY.items():
        assert painted(name) == {name: f"m{colour} d{form}"}


def test_neighbours_in_the_registry_differ_in_colour_and_form() -> None:
    others = [REGISTRY[name] for name in PRESETS if name not in FIXED]
    for (colour, form), (next_colour, next_form) in itertools.pairwise(others):
        assert colour != next_colour
        assert form != next_form


def test_any_two_of_a_report_differ() -> None:
    draw = random.Random(1)
    for _ in range(500):
        labels = draw.sample(list(PRESETS), draw.randint(1, len(PRESETS))) + ["mine"] * draw.randint(0, 1)
        found = painted(*labels)
        assert len(set(found.values())) == len(labels)
        assert all(found[n] == f"m{c} d{f}" for n, (c, f) in FIXED.items() if n in found)
        assert all(found[n].endswith(f"d{f}") for n, (_, f) in REGISTRY.items() if n in found)
        front = foremost(labels)
        if len(front) <= COLOURS and "rs-pairwise" not in labels:
            assert len({found[n].split()[0] for n in front}) == len(front)


def test_order_within_a_small_report_does_not_matter() -> None:
    names = ["codasca", "ce-minimax", "cycp-pairwise", "coda+", "minimax-uniform"]
    assert painted(*names) == painted(*reversed(names))
    assert painted(*names)["cycp-pairwise"] == "m0 d0"


def test_unknown_names_get_what_is_left() -> None:
    labels = [f"method-{n}" for n in range(COLOURS * FORMS)]
    assert len(set(painted(*labels).values())) == len(labels)
    assert len(painted(*labels, "one too many")) == len(labels) + 1
    assert painted("mine") == painted("mine")
    assert painted("mine", "fedavg")["fedavg"] == "m3 d0"


def test_a_longer_registry_has_looks_for_the_first_36() -> None:
    many = [*PRESETS, *(f"new-{n}" for n in range(20))]
    found = looks(many)
    assert len(found) == len(set(found.values())) == COLOURS * FORMS
    assert {name: found[name] for name in PRESETS} == REGISTRY


def test_yardsticks_are_grey() -> None:
    entries = [Entry("central", yardstick=True), Entry("clients-alone", yardstick=True), Entry("fedavg")]
    paint(entries)
    assert [e.colour[0] for e in entries] == ["y", "y", "m"]
    assert entries[0].colour != entries[1].colour


def test_few_are_all_in_front() -> None:
    assert foremost(range(FEW)) == list(range(FEW))
    assert foremost(range(FEW + 1)) == list(range(FOREMOST))


def test_the_style_sheet_knows_every_look() -> None:
    for n in range(COLOURS):
        assert f".m{n}{{color:var(--m{n})}}" in CSS
    for n in range(1, FORMS):
        assert f".curve.d{n}{{stroke-dasharray:" in CSS
        assert re.search(rf"\.swatch\.d{n}\{{[^}}]*(clip-path|border-radius)", CSS)


def schemes() -> list[tuple[list[str], str]]:
    """Colours and background of the light scheme, the dark one and print."""
    found = []
    for block in re.findall(r":root\{(.*?)\}", CSS, re.S):
        names = dict(re.findall(r"--(\w+):(#[0-9a-f]{3,6})", block))
        found.append(([names[f"m{n}"] for n in range(COLOURS)], names["bg"]))
    return found


def linear(colour: str) -> np.ndarray:
    digits = colour[1:] if len(colour) == 7 else "".join(c + c for c in colour[1:])
    rgb = np.array([int(digits[n : n + 2], 16) for n in (0, 2, 4)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    to_cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    to_lab = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
    return np.asarray(to_lab @ np.cbrt(to_cones @ np.clip(rgb, 0, 1)))


@pytest.mark.parametrize("eyes", list(EYES))
def test_colours_stay_apart_for_all_eyes(eyes: str) -> None:
    assert len(schemes()) == 3
    for colours, _ in schemes():
        for a, b in itertools.combinations(colours, 2):
            gap = oklab(EYES[eyes] @ linear(a)) - oklab(EYES[eyes] @ linear(b))
            assert 100 * np.linalg.norm(gap) > 6.5, (a, b)


def test_colours_show_on_their_background() -> None:
    luminance = np.array([0.2126, 0.7152, 0.0722])
    for colours, background in schemes():
        for colour in colours:
            low, high = sorted(float(luminance @ linear(c)) for c in (colour, background))
            assert (high + 0.05) / (low + 0.05) > 2.6
