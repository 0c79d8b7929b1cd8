"""Clients that are vectorised, beside each other as groups of channels.

What a layer computes for each client by itself is what it computes for all of them at once where every
client's channels are channels of their own: rows × (clients · channels) × height × width, and parameters with
clients · channels entries. Functions with a rule of their own for `torch.func.vmap` use this; the rules that
PyTorch has copy images into another memory layout on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.autograd import Function


def beside(value: Tensor, clients_at: int | None, at: int, clients: int) -> Tensor:
    """The clients of dimension `clients_at`, or the same for all, as groups of dimension `at`."""
    if clients_at is None:
        wide = value.unsqueeze(at)
        return wide.expand(*value.shape[:at], clients, *value.shape[at:]).flatten(at, at + 1)
    return value.movedim(clients_at, at).flatten(at, at + 1)


def apart(value: Tensor, at: int, clients: int) -> Tensor:
    """The inverse: clients in a dimension of their own, which is `at`."""
    return value.unflatten(at, (clients, -1))


def together(
    function: type[Function],
    clients: int,
    dims: Sequence[int | None],
    tensors: Sequence[Tensor | None],
    places: Sequence[int],
    rest: Sequence[Any],
    found_at: tuple[int, ...],
) -> tuple[Any, Any]:
    """The rule of a function of (*tensors, *rest) for `torch.func.vmap`: all clients at once.

    `dims` are those of the clients, `places` and `found_at` those of the channels in tensors and results.
    """
    wide = [
        None if each is None else beside(each, dim, at, clients)
        for each, dim, at in zip(tensors, dims, places, strict=False)
    ]
    found = function.apply(*wide, *rest)
    if isinstance(found, Tensor):
        return apart(found, found_at[0], clients), found_at[0]
    return tuple(apart(each, at, clients) for each, at in zip(found, found_at, strict=True)), found_at
