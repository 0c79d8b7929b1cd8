"""What was measured becomes pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

from tests.papers.rows import ROW

from fedauc.papers.pictures import Panel, Picture, draw
from fedauc.papers.reproduce import merge, reproduce


def _texts(svg):
    return [each.text for each in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_curves_of_runs_become_a_picture(paper, tmp_path):
    panels = (
        Panel("Digits", "table-1", "*/digits/*", "round", "valid_auc"),
        Panel("Nothing was run of it", "table-1", "*/CIFAR-10", "round", "valid_auc"),
    )
    pictures = (Picture("curves", panels), Picture("none", panels[1:]))
    shown = replace(paper, pictures=pictures)
    reproduce(shown, "table-1", ["*/digits/*"], [0, 1], tmp_path / "runs", tmp_path, root=str(tmp_path))
    folder = tmp_path / "099"
    curves = json.loads((folder / "curves.json").read_text())
    assert [(each["method"], each["seeds"]) for each in curves] == [("FedAvg", [0, 1]), ("Pairwise", [0, 1])]
    assert [curve["round"] for curve in curves[0]["curves"]] == [[2, 4], [2, 4]]
    assert curves[0]["curves"][0]["step"] == [20, 40]
    assert sorted(path.name for path in folder.glob("*.svg")) == ["curves.svg"]
    words = _texts(folder / "curves.svg")
    assert {"Digits", "FedAvg", "Pairwise", "rounds", "validation AUC"} <= set(words)
    assert "Nothing was run of it" not in words
    (folder / "curves.json").unlink()  # seeds that come from results.json alone have numbers and no curves
    reproduce(shown, "table-1", ["*/digits/*"], [2], tmp_path / "other", tmp_path, add=True)
    curves = json.loads((folder / "curves.json").read_text())
    assert [[bool(curve) for curve in each["curves"]] for each in curves] == [[False, False, True]] * 2
    assert {"FedAvg", "Pairwise"} <= set(_texts(folder / "curves.svg"))


def _colours(svg):
    """Of the key's names."""
    parts = list(ElementTree.parse(svg).getroot())
    return {
        label.text: stroke.get("stroke")
        for stroke, label in pairwise(parts)
        if stroke.get("stroke") and label.tag.endswith("text")
    }


def test_a_method_looks_the_same_in_all_pictures(tmp_path):
    along = {"round": [1, 2], "valid_auc": [0.6, 0.7]}
    names, numbers = ("B", "C", "A"), (16, 4)
    curves = [
        {
            "table": table,
            "method": name,
            "dataset": "d",
            "setting": f"I={number}",
            "seeds": [0],
            "curves": [along],
        }
        for table, methods in (("t", names), ("u", names[1:]))
        for name in methods
        for number in numbers
    ]
    (tmp_path / "curves.json").write_text(json.dumps(curves))
    panels = [Panel(table, table, "*", "round", "valid_auc") for table in ("t", "u")]
    settings = Panel("I", "u", "*", "round", "valid_auc", "setting")
    pictures = [Picture("t", (panels[0],)), Picture("u", (panels[1],)), Picture("i", (panels[1], settings))]
    draw(pictures, tmp_path, ["A", "B", "C"])
    every, some, mixed = (_colours(tmp_path / f"{name}.svg") for name in "tui")
    assert list(every) == ["A", "B", "C"]
    assert some == {name: every[name] for name in ("A", "C")}
    assert list(mixed) == ["A", "C", "I=16", "I=4"]
    assert {name: mixed[name] for name in some} == some
    assert len(set(mixed.values())) == 4


def test_methods_with_the_same_settings_have_the_same_heights(tmp_path):
    aucs = {"A": [0.5, 0.6], "B": [0.9, 0.95]}
    curves = [
        {"table": "t", "method": name, "dataset": "d", "setting": "I=4", "seeds": [0]}
        | {"curves": [{"round": [10, 20], "valid_auc": values}]}
        for name, values in aucs.items()
    ]
    (tmp_path / "curves.json").write_text(json.dumps(curves))

    def heights(by):
        panels = tuple(Panel(name, "t", f"{name}/*", "round", "valid_auc", by) for name in aucs)
        (drawn,) = draw([Picture(by, panels)], tmp_path, list(aucs))
        words = _texts(drawn)
        middle = words.index("rounds")  # (below the first panel)
        return [[float(word) for word in part if "0." in word] for part in (words[:middle], words[middle:])]

    above, below = heights("method")
    assert max(above) < max(below)
    assert min(above) < min(below)
    one, other = heights("setting")
    assert one == other
    assert min(one) <= 0.5
    assert max(one) >= 0.9


def test_settings_become_an_axis(tmp_path):
    rows = [
        ROW | {"table": "figure-1", "setting": f"I={steps}", "ours_mean": mean, "ours_std": 0.01}
        for steps, mean in ((16, 0.85), (4, 0.8), (64, None))
    ]
    for row in rows:
        merge(tmp_path / "results.json", row)
    (drawn,) = draw((Picture("steps", (Panel("d", "figure-1", "*", "I", "ours"),)),), tmp_path)
    root = ElementTree.parse(drawn).getroot()
    dots = [float(each.get("cx")) for each in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert dots == sorted(dots)
    assert len(dots) == 2  # what was not reached has no point
    assert {"I", "test AUC"} <= set(_texts(drawn))
