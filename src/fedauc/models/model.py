"""A module as a pure function of an iterate: its parameters and, under batch normalisation, its statistics.

    model(z, x)            logits with the running statistics (evaluation)
    model.observe(z, x)    logits with the batch's statistics (training), and the new running ones

The running statistics are entries `stats.<buffer's name>` of z. They are observed, not descended: no gradient
reaches them, and what to do with the observed ones is the caller's choice.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _NormBase

from fedauc.core import tree
from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.models.batch_norm import BatchNorm2d

DEEP = 20
"""Tensors of parameters from which on a network is deep."""


Precision = Literal["float32", "tf32", "bfloat16"]
"""Arithmetic of a model in training. The iterate itself and all scores in evaluation are float32 (or what the
iterate's type is): tied scores are what a low precision would cost an AUC."""


class Settings(Protocol):
    """A model's settings: a frozen dataclass."""

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """The module for rows of this shape, with its start values."""


class Model:
    """A module as a pure function of an iterate.

    There is one module for evaluation and one, which shares its tensors, for training, so no mode is ever
    switched; `functional_call` puts the iterate's tensors in and takes them out again, whatever happens.
    """

    def __init__(self, module: nn.Module, precision: Precision = "float32") -> None:
        self.low = torch.bfloat16 if precision == "bfloat16" else None
        for name, layer in module.named_modules():
            if isinstance(layer, _NormBase) and layer.running_mean is not None:
                raise InputError(
                    f"The model's layer {name!r} ({type(layer).__name__}) changes its running statistics in"
                    " place; use fedauc.models.BatchNorm2d."
                )
        self.module = module.requires_grad_(False).eval()
        self.observer = _twin(module).train()
        self.parameters = tuple(name for name, _ in module.named_parameters())
        self.statistics = {
            f"{tree.STATISTICS}{name}": name
            for name, _ in module.named_buffers()
            if isinstance(module.get_submodule(_layer(name)), BatchNorm2d)
        }
        """Names in an iterate → names in the module."""

    def __call__(self, z: Tree, x: Tensor) -> Tensor:
        """Logits in evaluation."""
        return functional_call(self.module, self._tensors(z), (x,)).reshape(x.shape[0])

    def observe(self, z: Tree, x: Tensor) -> tuple[Tensor, Tree]:
        """Logits in training, and the new value of every running statistic; {} where there is none."""
        tensors, like = self._tensors(z), x
        if self.low is not None:
            tensors |= {name: tensors[name].to(self.low) for name in self.parameters}
            x = x.to(self.low)
        logits = functional_call(self.observer, tensors, (x,)).reshape(x.shape[0]).to(like.dtype)
        return logits, {entry: tensors[name] for entry, name in self.statistics.items()}

    @property
    def head(self) -> tuple[str, ...]:
        """Names of the parameters of the layer that makes the score: the module's last one."""
        return tuple(name for name in self.parameters if _layer(name) == _layer(self.parameters[-1]))

    def params(self, z: Tree) -> Tree:
        """The model's part of an iterate, parameters and statistics."""
        return {name: z[name] for name in (*self.parameters, *self.statistics)}

    @torch.no_grad()
    def scores(self, z: Tree, x: Tensor, chunk: int | None = None) -> Tensor:
        """Logits of many rows, `chunk` at once: fewer for deep networks, whose layers are large."""
        if len(x) == 0:
            return x.new_zeros(0)
        chunk = chunk or (512 if len(self.parameters) > DEEP else 8192)
        return torch.cat([self(z, part) for part in x.split(chunk)])

    def _tensors(self, z: Tree) -> Tree:
        """The iterate's tensors under the module's names."""
        return {name: z[name] for name in self.parameters} | {
            name: z[entry] for entry, name in self.statistics.items()
        }


def init(
    settings: Settings,
    shape: tuple[int, ...],
    seed: int,
    device: str = "cpu",
    precision: Precision = "float32",
) -> tuple[Model, Tree]:
    """A model, and its parameters and statistics at the start: a function of the seed alone.

    On a GPU this says for the whole process whether float32 may be rounded to TF32.
    """
    if torch.device(device).type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = precision != "float32"
        torch.backends.cudnn.allow_tf32 = precision != "float32"
        torch.backends.cudnn.benchmark = precision != "float32"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = settings.build(shape).to(device)
    model = Model(module, precision)
    start: Tree = {name: module.get_parameter(name) for name in model.parameters}
    start |= {entry: module.get_buffer(name) for entry, name in model.statistics.items()}
    return model, {name: value.detach().clone() for name, value in start.items()}


@torch.no_grad()
def recalibrated(model: Model, z: Tree, batches: Iterable[Tensor]) -> Tree:
    """z with the running statistics of these batches of inputs: the mean of what each batch has by itself,
    every batch counting as its rows do.

    All layers at once, in one pass over the batches, each normalised with its own statistics: what
    `torch.optim.swa_utils.update_bn` does (Izmailov et al., UAI 2018) for batches of equal size. An average
    of models has not seen a batch, so the average of their statistics is not its own.
    """
    if not model.statistics:
        return dict(z)
    module = _twin(model.module)
    for layer in module.modules():
        if isinstance(layer, BatchNorm2d):
            layer.momentum = 1.0  # nothing of what was before
    alone = Model(module)
    mean = {name: torch.zeros_like(z[name]) for name in model.statistics}
    start, rows = z | mean, 0
    for x in batches:
        _, seen = alone.observe(start, x)
        rows += len(x)
        mean = tree.lerp(mean, seen, len(x) / rows)
    if rows == 0:
        raise InputError("There are no rows to compute the running statistics from.")
    return z | mean


def _twin(module: nn.Module) -> nn.Module:
    """A copy of the module that shares its tensors."""
    return copy.deepcopy(module, {id(t): t for t in (*module.parameters(), *module.buffers())})


def _layer(name: str) -> str:
    """The layer that a parameter or buffer belongs to."""
    return name.rpartition(".")[0]
