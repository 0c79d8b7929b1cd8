"""Random views of training images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedauc import models
from fedauc.core.loop import advance, begin
from fedauc.core.method import Cohort
from fedauc.data.augment import PAD, SIDE, VIEWS, crop_flip
from fedauc.data.federated import Draws, FederatedData
from fedauc.errors import InputError
from fedauc.experiments.config import Config
from fedauc.transports import LocalTransport


def by_hand(image: np.ndarray, view: int) -> np.ndarray:
    """Black around it, cut out, mirrored."""
    mirrored, (down, right) = view // SIDE**2, divmod(view % SIDE**2, SIDE)
    channels, height, width = image.shape
    wide = np.zeros((channels, height + 2 * PAD, width + 2 * PAD), dtype=image.dtype)
    wide[:, PAD:-PAD, PAD:-PAD] = image
    cut = wide[:, down : down + height, right : right + width]
    return cut[:, :, ::-1] if mirrored else cut


def test_every_view_is_what_it_is_by_hand():
    images = torch.rand(VIEWS, 2, 5, 7, generator=torch.Generator().manual_seed(0))
    found = crop_flip(images, torch.arange(VIEWS))
    for view in range(VIEWS):
        np.testing.assert_array_equal(found[view].numpy(), by_hand(images[view].numpy(), view))


def test_the_middle_view_is_the_image_itself():
    images = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(crop_flip(images, torch.full((3,), PAD * SIDE + PAD)), images)
    mirrored = torch.full((3,), SIDE**2 + PAD * SIDE + PAD)
    assert torch.equal(crop_flip(images, mirrored), images.flip(-1))


def rows(clients: int = 3, each: int = 20) -> FederatedData:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(clients * each, 1, 8, 8, generator=generator)
    y = (torch.arange(len(x)) % 5 == 0).to(torch.int8)
    names = [str(i) for i in range(clients)]
    return FederatedData.build(x, y, np.repeat(np.arange(clients), each), names)


def draws(data: FederatedData, round: int = 4, clients: tuple[int, ...] = (0, 1, 2)) -> Draws:
    number = np.array(clients)
    one, two = np.ones(len(number)), np.ones((len(number), 2))
    cohort = Cohort(number, one, one, two, two)
    return Draws(data, cohort, "stratified", steps=3, batch=6, seed=1, round=round)


def test_views_do_not_change_which_rows_are_drawn():
    plain, seen = draws(rows()), draws(replace(rows(), augment="crop-flip"))
    np.testing.assert_array_equal(plain.rows, seen.rows)
    for t in range(3):
        assert torch.equal(plain.step(t).y, seen.step(t).y)
        assert torch.equal(plain.step(t).weight, seen.step(t).weight)
        assert not torch.equal(plain.step(t).x, seen.step(t).x)


def test_a_client_sees_the_same_views_alone():
    data = replace(rows(), augment="crop-flip")
    all_of_them, alone = draws(data), draws(data, clients=(1,))
    assert torch.equal(all_of_them.step(2).x[1:2], alone.step(2).x)
    assert torch.equal(all_of_them.part(slice(1, 2)).step(2).x, alone.step(2).x)
    assert not torch.equal(draws(data, round=5).index // len(data.x), all_of_them.index // len(data.x))


def test_views_are_evenly_spread():
    data = replace(rows(), augment="crop-flip")
    views = torch.cat([(draws(data, round=k).index // len(data.x)).flatten() for k in range(400)])
    counts = np.bincount(views.numpy(), minlength=VIEWS)
    expected = len(views) / VIEWS  # 133 of each
    assert ((counts - expected) ** 2 / expected).sum() < 240  # χ² with 161 degrees of freedom, p = 5e-5


@pytest.mark.parametrize("method", ["cycp-pairwise", "codasca", "local-scgdam"])
def test_clients_at_once_learn_what_they_learn_one_after_another(method):
    config = Config.resolve(
        method,
        {"train.augment": "crop-flip", "model": "cnn", "schedule.steps": 2, "train.batch": 4, "seed": 3},
    )
    data, found = rows(), {}
    for mode in ("vmap", "loop"):
        model, params = models.init(config.component("model"), (1, 8, 8), 0)
        fed = replace(config.federation(data, model), transport=LocalTransport(mode, compile=False))
        state = begin(fed, {name: value.double() for name, value in params.items()})
        fed = replace(fed, data=replace(fed.data, x=fed.data.x.double(), y=fed.data.y.double()))
        for _ in range(3):
            state, _ = advance(fed, state)
        found[mode] = state.averaged.z
    for name, value in found["vmap"].items():
        torch.testing.assert_close(value, found["loop"][name], rtol=1e-9, atol=1e-11)


def test_rows_of_a_table_have_no_views():
    x, y = torch.rand(20, 3), (torch.arange(20) % 2).to(torch.int8)
    table = FederatedData.build(x, y, np.zeros(20, dtype=np.int64), ["all"])
    config = Config.resolve("coda", {"train.augment": "crop-flip"})
    model, _ = models.init(config.component("model"), (3,), 0)
    with pytest.raises(InputError, match="is for images"):
        config.federation(table, model)
