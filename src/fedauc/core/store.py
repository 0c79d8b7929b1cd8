"""What clients keep between rounds: a mapping from client to tree that is never changed.

A round makes a new store out of an old one, which stays as it was: a checkpoint may still be writing it.
Neighbouring clients form a block, in which their trees are stacked, so a million small states are a thousand
tensors and not millions of Python objects. A round copies the blocks of the clients that took part and shares
all others; blocks are narrower for larger states, down to one client, so it never copies much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core import tree
from fedauc.core.tree import Tree

WIDEST = 1024
"""Clients of a block at most."""
BLOCK = 2**16
"""Bytes of a block at most, where it has more than one client."""

Form = tuple[tuple[str, torch.dtype, torch.device, tuple[int, ...]], ...]
"""Names, types and shapes of one client's tree."""


class Block(NamedTuple):
    """Trees of the same form, stacked: clients [n], sorted, and values [n, …]."""

    clients: NDArray[np.int64]
    values: Tree

    @property
    def form(self) -> Form:
        return tuple((name, v.dtype, v.device, tuple(v.shape[1:])) for name, v in self.values.items())

    def part(self, rows: slice) -> Block:
        """Some of the clients, without a copy."""
        return Block(self.clients[rows], {name: value[rows] for name, value in self.values.items()})

    def without(self, clients: NDArray[np.int64]) -> Block:
        """The others; the block itself where it has none of these."""
        keep = np.isin(self.clients, clients, invert=True)
        if keep.all():
            return self
        return self.rows(np.flatnonzero(keep))

    def rows(self, at: NDArray[np.int64]) -> Block:
        """The clients at these positions."""
        index = torch.from_numpy(at)
        values = {name: v.index_select(0, index.to(v.device)) for name, v in self.values.items()}
        return Block(self.clients[at], values)

    def updated(self, new: Block) -> Block:
        """With new trees of the same form."""
        if len(self.clients) == len(new.clients) and (self.clients == new.clients).all():
            return new
        at = np.minimum(self.clients.searchsorted(new.clients), len(self.clients) - 1)
        if (self.clients[at] == new.clients).all():  # as in nearly every round: all were there before
            index = torch.from_numpy(at)
            values = {n: v.index_copy(0, index.to(v.device), new.values[n]) for n, v in self.values.items()}
            return Block(self.clients, values)
        return _joined([self.without(new.clients), new])


@dataclass(frozen=True, eq=False)
class Store(Mapping[int, Tree]):
    """See the module's docstring."""

    width: int = 0
    """Clients of a block; decided by the first tree that is stored."""
    blocks: dict[int, tuple[Block, ...]] = field(default_factory=dict, repr=False)
    """By number (client // width): a block for every form that occurs there, nearly always one."""

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> Store:
        """The inverse of `stacked`."""
        return cls()._with(list(blocks))

    def __getitem__(self, client: int) -> Tree:
        for block in self.blocks.get(client // self.width, ()) if self.width else ():
            row = int(block.clients.searchsorted(client))
            if row < len(block.clients) and block.clients[row] == client:
                return {name: value[row] for name, value in block.values.items()}
        raise KeyError(client)

    def __iter__(self) -> Iterator[int]:
        for number in sorted(self.blocks):
            yield from np.sort(np.concatenate([block.clients for block in self.blocks[number]])).tolist()

    def __len__(self) -> int:
        return sum(len(block.clients) for blocks in self.blocks.values() for block in blocks)

    def updated(self, items: Iterable[tuple[int, Tree]]) -> Store:
        """With these clients' trees in place of what they had; nothing of this store changes."""
        new = dict(items)
        by_form: dict[Form, list[int]] = {}
        for client, state in new.items():
            form = tuple((name, v.dtype, v.device, tuple(v.shape)) for name, v in state.items())
            by_form.setdefault(form, []).append(client)
        blocks: list[Block] = []
        for clients in by_form.values():
            if (self.width or _width(new[clients[0]])) == 1:  # large: kept as they are, never stacked
                blocks += [_stacked({client: new[client]}) for client in clients]
            else:
                blocks.append(_stacked({client: new[client] for client in sorted(clients)}))
        return self._with(blocks)

    def mapped(self, fn: Callable[[Tree], Tree]) -> Store:
        """A pure function of one client's tree applied to all of them, a block at a time."""
        each = torch.func.vmap(lambda _, state: fn(state))
        mapped = {
            number: tuple(Block(b.clients, each(torch.from_numpy(b.clients), b.values)) for b in blocks)
            for number, blocks in self.blocks.items()
        }
        return Store(self.width, mapped)

    def stacked(self, device: str | None = None) -> list[Block]:
        """Everything as one block for each form; on a device that may have more room."""
        by_form: dict[Form, list[Block]] = {}
        for number in sorted(self.blocks):
            for block in self.blocks[number]:
                by_form.setdefault(block.form, []).append(block)
        return [_joined(blocks, device) for blocks in by_form.values()]

    def _with(self, new: list[Block]) -> Store:
        """With the trees of blocks that may cover any clients."""
        if not new:
            return self
        width = self.width or _width(new[0].part(slice(1)).values)
        blocks = dict(self.blocks)
        for block in new:
            numbers = block.clients // width
            starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
            for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
                number = int(numbers[start])
                blocks[number] = _merged(blocks.get(number, ()), block.part(slice(start, end)))
        return Store(width, blocks)


def _merged(old: tuple[Block, ...], new: Block) -> tuple[Block, ...]:
    """The blocks of one number with new trees, each client in exactly one of them."""
    form, merged = new.form, []
    for block in old:
        if block.form == form:
            new = block.updated(new)
        elif len((rest := block.without(new.clients)).clients):
            merged.append(rest)
    return (*merged, Block(new.clients, {name: _own(value) for name, value in new.values.items()}))


def _own(value: Tensor) -> Tensor:
    """A tensor that keeps no larger one alive."""
    return value if value.untyped_storage().nbytes() <= value.nbytes else value.clone()


def _stacked(states: dict[int, Tree]) -> Block:
    clients = np.fromiter(states, dtype=np.int64, count=len(states))
    if len(states) == 1:
        return Block(clients, {name: v[None] for state in states.values() for name, v in state.items()})
    return Block(clients, tree.stack(list(states.values())))


def _joined(blocks: list[Block], device: str | None = None) -> Block:
    """Blocks of the same form and of different clients as one."""
    if len(blocks) == 1:
        return Block(blocks[0].clients, {name: v.to(device) for name, v in blocks[0].values.items()})
    clients = np.concatenate([block.clients for block in blocks])
    values = {
        name: torch.cat([block.values[name].to(device) for block in blocks]) for name in blocks[0].values
    }
    joined = Block(clients, values)
    return joined if (clients[1:] > clients[:-1]).all() else joined.rows(np.argsort(clients))


def _width(state: Tree) -> int:
    return max(1, min(WIDEST, BLOCK // max(1, tree.nbytes(state))))
