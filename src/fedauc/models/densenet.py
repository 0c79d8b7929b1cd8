"""Densely connected networks (Huang et al., "Densely connected convolutional networks", CVPR 2017).

    stem:        conv, norm, ReLU, and for large images a pooling      2k channels
    layer:       x ← [x, conv3×3(ReLU(norm(conv1×1(ReLU(norm(x))))))]   k more channels, through 4k
    transition:  norm, ReLU, conv 1×1 to half the channels, 2×2 mean   between the blocks of layers
    head:        norm, ReLU, mean over the image, one linear score

k is the growth rate: 32 for DenseNet-121, whose blocks have 6, 12, 24 and 16 layers, and 48 for DenseNet-161
with 6, 12, 36 and 24. Images of 64 pixels and more get the paper's stem (7×7 convolution with stride 2, 3×3
max-pooling with stride 2), smaller ones a 3×3 convolution with stride 1.

Where this departs from the paper, and why: group normalisation unless norm=batch (`fedauc.models.layers`);
the stem for small images, of which the paper's would leave a pixel or none for the last block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedauc.models.layers import Norm, Normalised, conv, images, scored

LARGE = 64
"""Images with so many pixels on their shorter side get the paper's stem."""


class Layer(nn.Module):
    """`growth` new channels beside those that came in."""

    def __init__(self, inputs: int, growth: int, norm: Norm) -> None:
        super().__init__()
        inner = 4 * growth
        self.body = nn.Sequential(
            norm(inputs), nn.ReLU(), conv(inputs, inner, 1), norm(inner), nn.ReLU(), conv(inner, growth, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], dim=1)


class DenseNet(Normalised):
    """Settings of a densely connected network."""

    name: ClassVar[str]
    blocks: ClassVar[tuple[int, ...]]
    """Layers of the blocks."""
    growth: int

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        depth, height, width = images(self.name, shape, least=2 ** (len(self.blocks) - 1))
        large = min(height, width) >= LARGE
        channels = 2 * self.growth
        layers: list[nn.Module] = [
            conv(depth, channels, 7, stride=2) if large else conv(depth, channels, 3),
            self.normalise(channels),
            nn.ReLU(),
        ]
        if large:
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
        for block, count in enumerate(self.blocks):
            if block > 0:
                layers += [*self._activated(channels), conv(channels, channels // 2, 1), nn.AvgPool2d(2)]
                channels //= 2
            for _ in range(count):
                layers.append(Layer(channels, self.growth, self.normalise))
                channels += self.growth
        return scored([*layers, *self._activated(channels)], channels)

    def _activated(self, channels: int) -> list[nn.Module]:
        return [self.normalise(channels), nn.ReLU()]


@dataclass(frozen=True)
class DenseNet121(DenseNet):
    """DenseNet-121, 7 million parameters: images of any size."""

    name = "densenet121"
    blocks = (6, 12, 24, 16)
    growth: int = 32
    """k, the channels that a layer adds; the first has 2k."""


@dataclass(frozen=True)
class DenseNet161(DenseNet):
    """DenseNet-161, 26 million parameters: images of any size."""

    name = "densenet161"
    blocks = (6, 12, 36, 24)
    growth: int = 48
    """k, the channels that a layer adds; the first has 2k."""
