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

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedauc.errors import InputError

Norm = Callable[[int], nn.Module]
"""Makes the normalisation of a layer with so many channels."""


class BatchNorm2d(nn.Module):
    """Batch normalisation (Ioffe & Szegedy, ICML 2015) that changes no tensor in place.

    `nn.BatchNorm2d` writes into its running statistics, which `torch.func` cannot vectorise over clients that
    each have their own, and which would leave one call's state behind for the next. Here a buffer is
    replaced by a new tensor, and `functional_call` hands it back to the caller (`Model.observe`); nothing
    else is different. No gradient flows into or out of the running statistics.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.running_mean.detach(), self.running_var.detach()
        if not self.training:
            return F.batch_norm(x, mean, var, self.weight, self.bias, training=False, eps=self.eps)
        if x.numel() <= x.shape[1]:
            raise InputError(
                "Batch normalisation needs more than one value per channel: train with at least two rows a"
                " batch, or with the setting norm=group."
            )
        batch_var, batch_mean = torch.var_mean(x.detach().to(mean.dtype), dim=(0, 2, 3), correction=1)
        self.running_mean = mean.lerp(batch_mean, self.momentum)
        self.running_var = var.lerp(batch_var, self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


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


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the image's size, but for its stride; a normalisation has the bias."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def scored(features: list[nn.Module], channels: int) -> nn.Module:
    """Features, their mean over the image, and the linear layer that makes the score.

    Convolutions start as in He et al. (ICCV 2015), with the variance 2 / (kernel's pixels · inputs).
    """
    module = nn.Sequential(
        OrderedDict(
            features=nn.Sequential(*features),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            head=nn.Linear(channels, 1),
        )
    )
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return module
