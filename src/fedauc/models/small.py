"""Small models: linear, fully connected, and two convolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from fedauc.models.convolution import Conv2d
from fedauc.models.layers import images


@dataclass(frozen=True)
class Linear:
    """One weight per feature: logistic regression's model."""

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 1))


@dataclass(frozen=True)
class MLP:
    """Fully connected layers with ReLU; 300 and 100 hidden units where not said."""

    hidden: tuple[int, ...] = (300, 100)
    """Units of the hidden layers."""

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        size = math.prod(shape)
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
        layers: list[nn.Module] = []
        depth, height, width = images("cnn", shape)
        for channels in self.channels:
            layers += [Conv2d(depth, channels, 3, stride=2, padding=1), nn.ReLU()]
            depth, height, width = channels, (height + 1) // 2, (width + 1) // 2
        layers += [nn.Flatten(), nn.Linear(depth * height * width, self.hidden), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(self.hidden, 1))
