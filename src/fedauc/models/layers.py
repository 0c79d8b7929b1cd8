"""What the deep models share: convolutions, normalisation, and the layer that makes the score.

Batch normalisation normalises with the statistics of the batch in training and with running ones in
evaluation; group normalisation (Wu & He, ECCV 2018) normalises every example by itself and has no statistics
that clients could disagree on, which is why it is the default here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from fedauc.errors import InputError
from fedauc.models.batch_norm import BatchNorm2d
from fedauc.models.convolution import Conv2d

Norm = Callable[[int], nn.Module]
"""Makes the normalisation of a layer with so many channels."""


@dataclass(frozen=True)
class Normalised:
    """Settings of a model with normalisation layers."""

    norm: Literal["group", "batch"] = "group"
    """Normalisation: per example over groups of channels, or over the batch with running statistics."""
    norm_groups: int = 8
    """Groups of channels (norm=group); where they do not divide the channels, the next fewer that do."""
    momentum: float = 0.1
    """How far a batch moves the running statistics (norm=batch)."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int) and value < 1:
                raise InputError(f"model.{name}={value} is not possible: it must be at least 1.")
        if not 0.0 < self.momentum <= 1.0:
            raise InputError(f"model.momentum={self.momentum} is not possible: it must lie in (0, 1].")

    def normalise(self, channels: int) -> nn.Module:
        """The normalisation of a layer with so many channels."""
        if self.norm == "batch":
            return BatchNorm2d(channels, self.momentum)
        groups = next(n for n in range(min(self.norm_groups, channels), 0, -1) if channels % n == 0)
        return nn.GroupNorm(groups, channels)


def images(model: str, shape: tuple[int, ...], least: int = 1) -> tuple[int, int, int]:
    """Channels, height and width of a row."""
    if len(shape) != 3:
        raise InputError(
            f"model {model!r} needs images (channels, height, width), but a row has shape {shape}."
        )
    channels, height, width = shape
    if min(height, width) < least:
        raise InputError(
            f"model {model!r} needs images of at least {least}×{least} pixels, not {height}×{width}."
        )
    return channels, height, width


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> Conv2d:
    """A convolution that keeps the image's size, but for its stride; a normalisation has the bias."""
    return Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Mean(nn.Module):
    """The mean over the image."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def scored(features: list[nn.Module], channels: int) -> nn.Module:
    """Features, their mean over the image, and the linear layer that makes the score.

    Convolutions start as in He et al. (ICCV 2015), with the variance 2 / (kernel's pixels · inputs).
    """
    module = nn.Sequential(
        OrderedDict(
            features=nn.Sequential(*features),
            pool=Mean(),
            head=nn.Linear(channels, 1),
        )
    )
    turned = not any(isinstance(layer, nn.GroupNorm) for layer in module.modules())
    for layer in module.modules():
        if isinstance(layer, Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            layer.channels_last = turned
    return module
