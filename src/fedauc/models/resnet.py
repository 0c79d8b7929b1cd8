"""Residual networks for small images (He et al., "Deep residual learning for image recognition", CVPR 2016).

    stem:   conv 3×3, norm, ReLU                                    (stride 1, no pooling)
    block:  x ← ReLU(norm(conv(ReLU(norm(conv(x))))) + shortcut(x))
    stage:  blocks of equal width; every stage but the first halves the image and doubles the channels
    head:   mean over the image, one linear score

ResNet-20 is the paper's network for CIFAR (its section 4.2): three stages of three blocks, 16, 32 and 64
channels, and shortcuts without parameters, which skip pixels and pad with channels of zeros (option A).
ResNet-18 is its network for ImageNet with the stem above: four stages of two blocks, 64 to 512 channels, and
1×1 convolutions where a shortcut changes shape (option B).

Where this departs from the paper, and why: group normalisation unless norm=batch (`fedauc.models.layers`);
ResNet-18 without the 7×7 stride-2 stem and its pooling, which leave too little of a small image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from fedauc.models.layers import Norm, Normalised, conv, images, scored


class Padded(nn.Module):
    """A shortcut without parameters: every `stride`-th pixel, and channels of zeros."""

    def __init__(self, stride: int, channels: int) -> None:
        super().__init__()
        self.stride, self.channels = stride, channels

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.channels))


class Block(nn.Module):
    """Two 3×3 convolutions and the shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm, projected: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(inputs, outputs, 3, stride),
            norm(outputs),
            nn.ReLU(),
            conv(outputs, outputs, 3),
            norm(outputs),
        )
        if inputs == outputs and stride == 1:
            self.shortcut: nn.Module = nn.Identity()
        elif projected:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), norm(outputs))
        else:
            self.shortcut = Padded(stride, outputs - inputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet(Normalised):
    """Settings of a residual network."""

    name: ClassVar[str]
    stages: ClassVar[tuple[int, ...]]
    """Blocks of the stages."""
    projected: ClassVar[bool]
    width: int

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        depth, _, _ = images(self.name, shape)
        channels = self.width
        layers: list[nn.Module] = [conv(depth, channels, 3), self.normalise(channels), nn.ReLU()]
        for stage, blocks in enumerate(self.stages):
            for block in range(blocks):
                first = stage > 0 and block == 0
                inputs, channels = channels, channels * 2 if first else channels
                layers.append(Block(inputs, channels, 2 if first else 1, self.normalise, self.projected))
        return scored(layers, channels)


@dataclass(frozen=True)
class ResNet20(ResNet):
    """ResNet-20, 0.27 million parameters: small images."""

    name = "resnet20"
    stages = (3, 3, 3)
    projected = False
    width: int = 16
    """Channels of the first stage; each of the others has twice as many as the one before."""


@dataclass(frozen=True)
class ResNet18(ResNet):
    """ResNet-18 with a stem for small images, 11 million parameters."""

    name = "resnet18"
    stages = (2, 2, 2, 2)
    projected = True
    width: int = 64
    """Channels of the first stage; each of the others has twice as many as the one before."""
