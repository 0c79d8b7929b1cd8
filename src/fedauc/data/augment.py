"""Random views of training images.

Rows × views are numbered through: a draw is one number, `view · rows + row`, and whoever gathers examples
takes it apart, on a CPU or inside a CUDA graph.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Augment = Literal["crop-flip"]
PAD = 4
"""Pixels by which an image is moved at most."""
SIDE = 2 * PAD + 1
VIEWS = 2 * SIDE**2
"""Of an image: moved down, moved right, mirrored."""


def crop_flip(x: Tensor, view: Tensor) -> Tensor:
    """[N, C, H, W]: image n, mirrored or not, with black around it, cut out where its view says.

    He et al., "Deep residual learning for image recognition", CVPR 2016, section 4.2.
    """
    down, right, mirrored = view // SIDE % SIDE, view % SIDE, view // SIDE**2
    count, channels, height, width = (torch.arange(n, device=x.device) for n in x.shape)
    row, column = height + down[:, None], width + right[:, None]
    column = torch.where(mirrored[:, None] == 1, column.flip(1), column)
    padded = F.pad(x, (PAD,) * 4)
    return padded[
        count[:, None, None, None], channels[:, None, None], row[:, None, :, None], column[:, None, None]
    ]


def taken(x: Tensor, y: Tensor, number: Tensor, augment: Augment | None) -> tuple[Tensor, Tensor]:
    """The examples of a flat list of numbers."""
    if augment is None:
        return x.index_select(0, number), y.index_select(0, number)
    row, view = number % len(x), number // len(x)
    return crop_flip(x.index_select(0, row), view), y.index_select(0, row)
