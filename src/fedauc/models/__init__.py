"""Models: one raw score (logit) out. Any `torch.nn.Module` that maps a batch to [B] or [B, 1] will do."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedauc.core.tree import Tree
from fedauc.errors import InputError


@dataclass(frozen=True)
class Linear:
    """One weight per feature: logistic regression's model."""

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(_size(shape), 1))


@dataclass(frozen=True)
class MLP:
    """Fully connected layers with ReLU; 300 and 100 hidden units where not said."""

    hidden: tuple[int, ...] = (300, 100)
    """Units of the hidden layers."""

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        size = _size(shape)
        for units in self.hidden:
            layers += [nn.Linear(size, units), nn.ReLU()]
            size = units
        return nn.Sequential(*layers, nn.Linear(size, 1))


@dataclass(frozen=True)
class CNN:
    """Two stride-2 convolutions (16 and 32 channels) and a hidden layer of 64: small images."""

    channels: tuple[int, ...] = (16, 32)
    """Channels of the 3×3 stride-2 convolutions."""
    hidden: int = 64
    """Units of the hidden layer."""

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        if len(shape) != 3:
            raise InputError(
                f"model 'cnn' needs images (channels, height, width), but a row has shape {shape}."
            )
        layers: list[nn.Module] = []
        depth, height, width = shape
        for channels in self.channels:
            layers += [nn.Conv2d(depth, channels, 3, stride=2, padding=1), nn.ReLU()]
            depth, height, width = channels, (height + 1) // 2, (width + 1) // 2
        layers += [nn.Flatten(), nn.Linear(depth * height * width, self.hidden), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(self.hidden, 1))


MODELS: dict[str, type] = {"linear": Linear, "mlp": MLP, "cnn": CNN}


class Model:
    """A module as a pure function of its parameters."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module.requires_grad_(False)

    def __call__(self, z: Tree, x: Tensor) -> Tensor:
        params = {name: z[name] for name, _ in self.module.named_parameters()}
        return functional_call(self.module, params, (x,)).reshape(x.shape[0])

    def params(self, z: Tree) -> Tree:
        """The model's part of an iterate."""
        return {name: z[name] for name, _ in self.module.named_parameters()}

    @torch.no_grad()
    def scores(self, z: Tree, x: Tensor, chunk: int = 8192) -> Tensor:
        """Logits of many rows."""
        if len(x) == 0:
            return x.new_zeros(0)
        return torch.cat([self(z, part) for part in x.split(chunk)])


def init(
    settings: Linear | MLP | CNN, shape: tuple[int, ...], seed: int, device: str = "cpu"
) -> tuple[Model, Tree]:
    """A model and its parameters at the start: a function of the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = settings.build(shape).to(device)
    params = {name: value.detach().clone() for name, value in module.named_parameters()}
    return Model(module), params


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size
