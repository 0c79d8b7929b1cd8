"""A model as a function of an iterate, its start, and its statistics computed anew."""

from __future__ import annotations

import pickle

import pytest
import torch
from tests.models.nets import SHAPE, in_torch, rows, same, seen, small
from torch import nn
from torch.optim.swa_utils import update_bn

from fedauc import models
from fedauc.errors import InputError
from fedauc.models import MODELS, Model, recalibrated

LIGHT = {"linear": {}, "mlp": {"hidden": (5,)}, "cnn": {"channels": (2, 3), "hidden": 4}}
NETS = LIGHT | {"resnet20": {"width": 4, "norm": "batch"}, "densenet121": {"growth": 4, "norm": "batch"}}


@pytest.mark.parametrize("name", NETS)
def test_the_start_is_a_function_of_the_seed_alone(name):
    settings = MODELS[name](**NETS[name])
    torch.manual_seed(5)
    before = torch.get_rng_state()
    _, first = models.init(settings, SHAPE, 1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    _, again = models.init(settings, SHAPE, 1)
    _, other = models.init(settings, SHAPE, 2)
    assert same(first, again)
    assert not same(first, other)


@pytest.mark.parametrize("name", NETS)
def test_the_start_holds_parameters_and_statistics(name):
    model, z = models.init(MODELS[name](**NETS[name]), SHAPE, 0)
    parameters = {n for n, _ in model.module.named_parameters()}
    buffers = {f"stats.{n}" for n, _ in model.module.named_buffers()}
    assert set(z) == parameters | buffers
    assert not any(value.requires_grad for value in z.values())
    for entry in buffers:
        assert torch.equal(z[entry], torch.full_like(z[entry], float(entry.endswith(".running_var"))))
    assert next(iter(z)) in parameters
    assert same(model.params(z | {"auc.a": torch.zeros(())}), z)


@pytest.mark.parametrize("name", [*LIGHT, "resnet20", "resnet18", "densenet121"])
def test_without_batch_normalisation_nothing_is_observed(name):
    model, z = models.init(MODELS[name](), SHAPE, 0)
    assert not any(entry.startswith("stats.") for entry in z)
    x = rows(3).float()
    logits, stats = model.observe(z, x)
    assert stats == {}
    assert torch.equal(logits, model(z, x))
    again = recalibrated(model, z, [x])
    assert same(again, z)
    assert again is not z


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("linear", ("1.weight", "1.bias")),
        ("mlp", ("3.weight", "3.bias")),
        ("cnn", ("7.weight", "7.bias")),
        ("resnet20", ("head.weight", "head.bias")),
        ("densenet121", ("head.weight", "head.bias")),
    ],
)
def test_the_head_makes_the_score(name, head):
    model, z = models.init(MODELS[name](**NETS[name]), SHAPE, 0)
    assert model.head == head
    cut = z | {head[0]: torch.zeros_like(z[head[0]]), head[1]: torch.full_like(z[head[1]], 7.0)}
    assert torch.equal(model(cut, rows(3).float()), torch.full((3,), 7.0))


def test_new_statistics_are_named_as_in_the_iterate_and_move_by_the_momentum():
    for momentum in (0.1, 1.0):
        model, z = models.init(MODELS["resnet20"](width=2, norm="batch", momentum=momentum), SHAPE, 0)
        x = rows(5).float()
        _, stats = model.observe(z, x)
        assert list(stats) == [entry for entry in z if entry.startswith("stats.")]
        first = torch.nn.functional.conv2d(x, z["features.0.weight"], padding=1)
        var, mean = torch.var_mean(first, (0, 2, 3))
        torch.testing.assert_close(stats["stats.features.1.running_mean"], momentum * mean)
        torch.testing.assert_close(stats["stats.features.1.running_var"], (1 - momentum) + momentum * var)


def test_scores_are_the_logits_of_evaluation_in_chunks():
    model, z = small("resnet20", "batch")
    z = seen(z, 3)
    x = rows(7)
    torch.testing.assert_close(model.scores(z, x, chunk=3), model(z, x))
    assert model.scores(z, x[:0]).shape == (0,)


def test_evaluation_is_not_training():
    model = Model(nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, 1)).double())
    z = {name: value.clone() for name, value in model.module.named_parameters()}
    assert torch.equal(model(z, rows(4)), model(z, rows(4)))
    assert not torch.equal(model.observe(z, rows(4))[0], model.observe(z, rows(4))[0])


def test_a_model_survives_pickling():
    model, z = small("resnet20", "batch")
    copy = pickle.loads(pickle.dumps(model))
    assert torch.equal(copy(z, rows(2)), model(z, rows(2)))
    assert same(copy.observe(z, rows(2))[1], model.observe(z, rows(2))[1])


@pytest.mark.parametrize("name", ["resnet20", "densenet121"])
def test_recalibrated_statistics_are_those_of_update_bn(name):
    model, z = small(name, "batch")
    z = seen(z, 2)
    before = {entry: value.clone() for entry, value in z.items()}
    batches = [rows(4, seed) for seed in range(3)]
    theirs = in_torch(model, z)
    update_bn(batches, theirs)
    found = recalibrated(model, z, iter(batches))
    assert same(z, before)
    assert list(found) == list(z)
    for entry, buffer in model.statistics.items():
        torch.testing.assert_close(found[entry], theirs.get_buffer(buffer), rtol=1e-10, atol=1e-12)
    assert all(torch.equal(found[entry], z[entry]) for entry in model.parameters)


def test_batches_count_as_their_rows_do():
    model, z = small("resnet20", "batch")
    parts = [rows(2, 0), rows(6, 1), rows(3, 2)]
    alone = [recalibrated(model, z, [part]) for part in parts]
    found = recalibrated(model, z | {"auc.a": torch.ones(())}, parts)
    for entry in model.statistics:
        mean = sum(len(p) * a[entry] for p, a in zip(parts, alone, strict=True)) / 11
        torch.testing.assert_close(found[entry], mean)
    assert "auc.a" in found


def test_recalibration_forgets_what_was_before():
    model, z = small("resnet20", "batch")
    lost = {entry: torch.full_like(z[entry], float("nan")) for entry in model.statistics}
    assert same(recalibrated(model, z | lost, [rows(4)]), recalibrated(model, z, [rows(4)]))


def test_recalibration_needs_rows():
    model, z = small("resnet20", "batch")
    with pytest.raises(InputError, match="no rows"):
        recalibrated(model, z, [])
