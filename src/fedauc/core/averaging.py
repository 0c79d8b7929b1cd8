"""Which iterate is the output: the last one, a stage's average, or a moving average.

`average` is the output of the papers' Alg. 1 and 3, the mean of all iterates of a stage, from which the
next stage starts. `ema` is the exponential moving average with a memory of some cycles: under cyclic
participation the iterate swings with the active group, and an average over a cycle is what all groups
agree on.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from fedauc.core import tree
from fedauc.core.tree import Tree

Output = Literal["last", "average", "ema"]


class Averaged(NamedTuple):
    """The output so far and how many iterates are in it."""

    z: Tree
    iterates: torch.Tensor


def start(z: Tree) -> Averaged:
    """Before the first iterate."""
    return Averaged(z, torch.zeros((), dtype=torch.int64))


def follow(averaged: Averaged, z: Tree, output: Output, memory: float) -> Averaged:
    """Take the iterate z in; `memory` is the horizon of `ema` in rounds."""
    iterates = averaged.iterates + 1
    share = {
        "last": 1.0,
        "average": 1.0 / int(iterates),
        "ema": min(1.0, max(1.0 / int(iterates), 1.0 / memory)),
    }[output]
    return Averaged(z if share == 1.0 else tree.lerp(averaged.z, z, share), iterates)
