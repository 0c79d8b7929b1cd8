"""Clients that are vectorised, beside each other as groups of channels.

What a layer computes for each client by itself is what it computes for all of them at once where every
client's channels are channels of their own: rows × (clients · channels) × height × width, and parameters with
clients · channels entries. Functions with a rule of their own for `torch.func.vmap` use this; the rules that
PyTorch has copy images into another memory layout on the way.
"""

from __future__ import annotations

from torch import Tensor


def beside(value: Tensor, clients_at: int | None, at: int, clients: int) -> Tensor:
    """The clients of dimension `clients_at`, or the same for all, as groups of dimension `at`."""
    if clients_at is None:
        wide = value.unsqueeze(at)
        return wide.expand(*value.shape[:at], clients, *value.shape[at:]).flatten(at, at + 1)
    return value.movedim(clients_at, at).flatten(at, at + 1)


def apart(value: Tensor, at: int, clients: int) -> Tensor:
    """The inverse: clients in a dimension of their own, which is `at`."""
    return value.unflatten(at, (clients, -1))
