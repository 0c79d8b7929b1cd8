"""Small models in float64, and the same with torch's own batch normalisation."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fedauc import models
from fedauc.core.tree import Tree
from fedauc.models import BatchNorm2d, DenseNet121, Model
from fedauc.models.convolution import Conv2d

SHAPE = (3, 8, 8)


@dataclass(frozen=True)
class Shallow(DenseNet121):
    """A densely connected network of four layers."""

    blocks = (2, 2)


KINDS = models.MODELS | {"shallow": Shallow}
SMALL: dict[str, dict[str, Any]] = {
    "resnet20": {"width": 4, "norm_groups": 2},
    "resnet18": {"width": 4, "norm_groups": 2},
    "densenet121": {"growth": 2, "norm_groups": 2},
    "shallow": {"growth": 2, "norm_groups": 2},
}


def small(name: str, norm: str, shape: tuple[int, ...] = SHAPE) -> tuple[Model, Tree]:
    """A narrow network in float64."""
    model, z = models.init(KINDS[name](norm=norm, **SMALL[name]), shape, seed=0)
    return model, {key: value.double() for key, value in z.items()}


def seen(z: Tree, seed: int) -> Tree:
    """z somewhere else: parameters and statistics that are not those of the start."""
    draw = torch.Generator().manual_seed(seed)

    def moved(name: str, value: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(value.shape, generator=draw, dtype=value.dtype)
        return value * torch.exp(0.3 * noise) if name.endswith("var") else value + 0.1 * noise

    return {name: moved(name, value) for name, value in z.items()}


def rows(count: int, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    """Images of noise."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, *shape, generator=draw, dtype=torch.float64)


def in_torch(model: Model, z: Tree) -> nn.Module:
    """The same network of torch's own layers, at z."""
    module = copy.deepcopy(model.module).double()
    for name, layer in list(module.named_modules()):
        if (theirs := torchs(layer)) is not None:
            parent, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(parent), attribute, theirs.double())
    module.load_state_dict({name.removeprefix("stats."): value for name, value in z.items()}, strict=False)
    return module.requires_grad_(True).train()


def torchs(layer: nn.Module) -> nn.Module | None:
    """torch's own layer in the place of one of ours."""
    match layer:
        case BatchNorm2d():
            return nn.BatchNorm2d(len(layer.weight), layer.eps, layer.momentum)
        case Conv2d():
            outputs, inputs, *size = layer.weight.shape
            bias = layer.bias is not None
            return nn.Conv2d(inputs, outputs, size, layer.stride, layer.padding, bias=bias)
    return None


def same(a: Tree, b: Tree) -> bool:
    """Bit for bit the same."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
