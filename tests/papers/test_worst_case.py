"""Paper 002: ten classes, one per client, and accuracies against the time of the uplinks."""

from __future__ import annotations

import gzip
import json
import struct

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedauc.errors import InputError
from fedauc.papers import PAPERS, worst_case
from fedauc.papers.reproduce import reproduce


def test_softmax_is_cross_entropy_of_classes():
    generator = torch.Generator().manual_seed(0)
    logit = torch.randn(6, 10, generator=generator, dtype=torch.float64)
    y = torch.tensor([0.0, 9, 3, 3, 1, 5], dtype=torch.float64)
    weight = torch.full((6,), 1 / 6, dtype=torch.float64)
    found = worst_case.Softmax().loss({}, logit, y, weight)
    naive = torch.stack(
        [-torch.log(torch.exp(row[int(k)]) / torch.exp(row).sum()) for row, k in zip(logit, y, strict=True)]
    )
    assert torch.allclose(found, naive.mean())
    assert torch.allclose(found, F.cross_entropy(logit, y.long()))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Files as Fashion-MNIST's: every class is a bright row of its own, with noise."""
    folder = tmp_path_factory.mktemp("idx") / "fashion-mnist"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for stem, count in (("train", 600), ("t10k", 200)):
        y = generator.permutation(np.arange(count) % 10).astype(np.uint8)
        x = generator.integers(0, 80, (count, 28, 28), dtype=np.uint8)
        x[np.arange(count), 2 * y + 3] += 120
        for kind, values, magic in (("images-idx3", x, 2051), ("labels-idx1", y, 2049)):
            head = struct.pack(f">{1 + values.ndim}I", magic, *values.shape)
            (folder / f"{stem}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + values.tobytes()))
    return folder.parent


@pytest.mark.parametrize("method", ["CE-Minimax", "Minimax-Weighted", "Minimax-All", "Min-Uniform"])
def test_a_class_per_client_and_the_time_of_the_uplinks(method, images, tmp_path):
    cell = PAPERS["002"].chosen("figure-2", [f"{method}/Fashion-MNIST/*"])[0]
    config = cell.config(0, "cpu", str(images))
    data, valid, test = worst_case.dealt(config)
    assert data.clients == 10
    for client in range(10):
        rows = data.order[data.start[client] : data.start[client + 1]]
        assert set(data.y[rows].tolist()) == {float(client)}
    assert len(data.y) + len(valid.y) == 600
    assert len(test.y) == 200
    points, about = worst_case.curve(config, 6.0, tmp_path)
    assert [point["seconds_up"] >= 2 * (k + 1) for k, point in enumerate(points)] == [True] * len(points)
    assert points[-1]["test_mean"] > 0.5
    assert all(0 <= point["test_worst"] <= point["test_mean"] <= 1 for point in points)
    per_round = points[-1]["seconds_up"] / points[-1]["round"]
    if method == "Minimax-All":
        assert per_round == pytest.approx(
            0.055, rel=0.01
        )  # five uplinks of 10 ms and five of 1 ms, and losses
    if method == "Min-Uniform":
        assert per_round == pytest.approx(0.0275, rel=0.1)
    if method == "CE-Minimax":
        assert per_round < 0.0275  # fast uplinks are asked more often
    assert about["rounds"] >= points[-1]["round"]


def test_a_goal_that_is_not_reached(images, tmp_path):
    cell = PAPERS["002"].chosen("figure-2", ["min-uniform/fashion-mnist/*"])[0]
    config = cell.config(0, "cpu", str(images))
    never = worst_case.Reaching(1.1, 6.0)(config, tmp_path, None)
    assert (never.value, never.more["first"]) == (None, None)
    found = worst_case.Reaching(0.0, 6.0)(config, tmp_path, None)
    assert found.more["first"] == pytest.approx(2.0, abs=0.1)
    points = json.loads((tmp_path / "curve.json").read_text())
    assert len(points) == 3
    assert found.value == points[-1]["seconds_up"]  # (there are fewer points than are taken together)
    assert found.curve["test_worst"] == [pytest.approx(np.mean([p["test_worst"] for p in points]), abs=1e-4)]


def test_an_interrupted_curve_goes_on_where_it_was(images, tmp_path, tmp_path_factory, monkeypatch):
    cell = PAPERS["002"].chosen("figure-2", ["ce-minimax/fashion-mnist/*"])[0]
    config = cell.config(0, "cpu", str(images))
    whole, about = worst_case.curve(config, 8.0, tmp_path)
    monkeypatch.setattr(worst_case, "SAVED", 1)
    measured, asked = worst_case.accuracy, []

    def interrupted(*given):
        asked.append(given)
        if len(asked) == 6:
            raise KeyboardInterrupt
        return measured(*given)

    monkeypatch.setattr(worst_case, "accuracy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worst_case.curve(config, 8.0, tmp_path)
    with pytest.raises(InputError, match="begun with other settings"):
        worst_case.curve(cell.config(1, "cpu", str(images)), 8.0, tmp_path)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "idx"
    elsewhere.symlink_to(images)
    points, again = worst_case.curve(cell.config(0, "cpu", str(elsewhere)), 8.0, tmp_path)
    assert points == whole
    assert {**again, "seconds": 0} == {**about, "seconds": 0}
    assert len(asked) == 6 + 4  # two points were kept
    assert not list(tmp_path.iterdir())


def test_a_goal_is_reached_by_several_points_together():
    points = [
        {"seconds_up": 2.0 * k, "test_worst": worst} for k, worst in enumerate([0, 0.9, 0, 0.6, 0.6, 0.6])
    ]
    assert worst_case.reached(points, 0.6, 1) == 2.0  # a single point may be luck
    assert worst_case.reached(points, 0.6, 3) == 10.0
    assert worst_case.reached(points, 0.61, 3) is None


def test_step_sizes_are_chosen_on_validation_rows(images, tmp_path, monkeypatch):
    monkeypatch.setattr(worst_case, "TRIAL", 6.0)
    rows = reproduce(
        PAPERS["002"],
        "grid",
        ["min-uniform/fashion-mnist/lr*"],
        [0],
        tmp_path / "runs",
        tmp_path,
        root=str(images),
    )
    cells = PAPERS["002"].chosen("grid", ["min-uniform/fashion-mnist/lr*"])
    assert [row["settings"]["schedule.eta"] for row in rows] == [c.settings["schedule.eta"] for c in cells]
    points, _ = worst_case.curve(cells[0].config(0, "cpu", str(images)), 6.0, tmp_path)
    assert rows[0]["ours_mean"] == pytest.approx(np.mean([point["valid_worst"] for point in points]))
