"""The deep models are the published ones, but for one score out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedauc import models
from fedauc.errors import InputError
from fedauc.models import MODELS, DenseNet121, DenseNet161, ResNet18, ResNet20
from fedauc.models.resnet import Padded

DEEP = ("resnet20", "resnet18", "densenet121", "densenet161")


def conv(inputs, outputs, size):
    """Parameters of a convolution without bias and of the normalisation of its outputs."""
    return inputs * outputs * size**2 + 2 * outputs


def resnet(depth, stages, width, projected):
    total, inputs = conv(depth, width, 3), width
    for stage, blocks in enumerate(stages):
        outputs = width * 2**stage
        total += conv(inputs, outputs, 3) + (2 * blocks - 1) * conv(outputs, outputs, 3)
        total += conv(inputs, outputs, 1) if projected and inputs != outputs else 0
        inputs = outputs
    return total + inputs + 1


def densenet(depth, blocks, growth, stem):
    channels = 2 * growth
    total = conv(depth, channels, stem)
    for block, layers in enumerate(blocks):
        if block:
            total += 2 * channels + channels * (channels // 2)
            channels //= 2
        for _ in range(layers):
            total += 2 * channels + conv(channels, 4 * growth, 1) + 9 * 4 * growth**2
            channels += growth
    return total + 2 * channels + channels + 1


def one_score(published, features, classes):
    """The published number with one output instead of its classes."""
    return published - classes * (features + 1) + features + 1


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(
    ("settings", "shape", "published", "formula"),
    [
        (ResNet20, (3, 32, 32), one_score(269_722, 64, 10), resnet(3, (3, 3, 3), 16, False)),
        (ResNet18, (3, 32, 32), one_score(11_173_962, 512, 10), resnet(3, (2, 2, 2, 2), 64, True)),
        (
            DenseNet121,
            (3, 224, 224),
            one_score(7_978_856, 1024, 1000),
            densenet(3, (6, 12, 24, 16), 32, 7),
        ),
        (
            DenseNet161,
            (3, 224, 224),
            one_score(28_681_000, 2208, 1000),
            densenet(3, (6, 12, 36, 24), 48, 7),
        ),
    ],
)
def test_as_many_parameters_as_published(settings, shape, published, formula, norm):
    with torch.device("meta"):
        module = settings(norm=norm).build(shape)
    assert sum(p.numel() for p in module.parameters()) == published == formula


@pytest.mark.parametrize(("side", "stem"), [(8, 3), (63, 3), (64, 7)])
def test_densenets_stem_depends_on_the_image(side, stem):
    with torch.device("meta"):
        module = DenseNet121(growth=8).build((1, side, side + 10))
        assert sum(p.numel() for p in module.parameters()) == densenet(1, (6, 12, 24, 16), 8, stem)
        assert module(torch.zeros(2, 1, side, side + 10)).shape == (2, 1)
        blocks = module.get_submodule("features")(torch.zeros(2, 1, side, side + 10))
    divisor = 32 if stem == 7 else 8
    assert blocks.shape[2:] == (side // divisor, (side + 10) // divisor)


@pytest.mark.parametrize(("settings", "left"), [(ResNet20, 4), (ResNet18, 2)])
def test_resnets_halve_the_image_between_stages(settings, left):
    with torch.device("meta"):
        module = settings(width=8).build((3, 16, 16))
        features = module.get_submodule("features")(torch.zeros(2, 3, 16, 16))
    assert features.shape == (2, 8 * 2 ** (len(settings.stages) - 1), left, left)


@pytest.mark.parametrize("name", DEEP)
def test_one_finite_score_per_image(name):
    model, z = models.init(MODELS[name](norm="batch"), (3, 8, 8), 0)
    logits = model(z, torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)))
    assert logits.shape == (2,)
    assert bool(logits.isfinite().all())
    assert logits[0] != logits[1]


def test_a_shortcut_without_parameters_skips_pixels_and_pads_channels():
    x = torch.randn(2, 3, 5, 4)
    out = Padded(2, 3)(x)
    assert out.shape == (2, 6, 3, 2)
    assert torch.equal(out[:, :3], x[:, :, ::2, ::2])
    assert not out[:, 3:].any()


@pytest.mark.parametrize(("channels", "groups", "found"), [(16, 8, 8), (12, 8, 6), (7, 8, 7), (10, 4, 2)])
def test_groups_divide_the_channels(channels, groups, found):
    layer = ResNet20(norm_groups=groups).normalise(channels)
    assert isinstance(layer, nn.GroupNorm)
    assert layer.num_groups == found


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_changed_in_place(name):
    with torch.device("meta"):
        module = MODELS[name]().build((3, 8, 8))
    assert not any(getattr(layer, "inplace", False) for layer in module.modules())


@pytest.mark.parametrize("name", ["cnn", *DEEP])
def test_rows_that_are_no_images_are_refused(name):
    with pytest.raises(InputError, match=rf"'{name}' needs images .* has shape \(30,\)"):
        MODELS[name]().build((30,))


def test_images_too_small_to_be_halved_are_refused():
    with pytest.raises(InputError, match="at least 8×8 pixels, not 9×7"):
        DenseNet121().build((1, 9, 7))


@pytest.mark.parametrize(
    "settings",
    [{"norm_groups": 0}, {"width": 0}, {"momentum": 0.0}, {"momentum": 1.5}, {"momentum": float("nan")}],
)
def test_impossible_settings_are_named(settings):
    (name,) = settings
    with pytest.raises(InputError, match=rf"model\.{name}=.* is not possible"):
        ResNet20(**settings)
