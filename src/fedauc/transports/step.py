"""A client step on flat lists of tensors, and what can be made of it.

`vmap(grad(step))` spends most of a small model's time in Python, in the layers that `torch.func` puts around
every operation. They always end in the same plain tensor operations, so a step can be

    recorded   (`make_fx`): only those operations are run, each once, the update as part of the product that
               makes the gradient (`transports.fuse`), and on a GPU many small ones as one
               (`transports.merge`); no compiler is needed;
    compiled   (TorchInductor): the operations are fused into a few loops. What was compiled once is on disk.

The methods do not know of any of this.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from fedauc.caches import cache_folder
from fedauc.core.method import Batch
from fedauc.transports import fuse, layout, merge

LARGE = 2**16
"""Elements of all clients' matrices from which on a product writes into them faster than compiled loops."""

CHOSEN = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
"""Where the user wants compiled code to be; asked early, since it is set by whoever compiles first."""

Flat = Callable[..., list[Tensor]]
"""(*state, *batches, eta) → [*new state, *outs], or the outs alone where the state is written over."""


class Step:
    """A client step, of one client or of many at once, for one structure of state; or several in a row."""

    def __init__(self, fn: Callable[..., Any], structure: TreeSpec, times: int = 1) -> None:
        self.fn, self.structure, self.times = fn, structure, times
        self.outs: tuple[str, ...] = ()
        """Names of what a step returns besides the new state; known once it has been taken."""

    def __call__(self, *flat: Tensor) -> list[Tensor]:
        """(*state, *batches, eta) → [*new state, *outs of the first step, *outs of the second, …]."""
        old, eta = flat[: self.structure.num_leaves], flat[-1]
        local, every = tree_unflatten(list(old), self.structure), []
        batches = iter(flat[self.structure.num_leaves : -1])
        for _ in range(self.times):
            batch = Batch(*itertools.islice(batches, len(Batch._fields)))
            local, outs = self.fn(local, batch, eta)
            every += outs.values()
        new, structure = tree_flatten(local)
        assert structure == self.structure, "a step returns a state of the structure that it was given"
        self.outs = tuple(outs)
        return [*map(_laid_out, new, old), *every]

    def in_place(self, *flat: Tensor) -> list[Tensor]:
        """The step as one that writes its new state over the old; returns the outs alone."""
        old, values = flat[: self.structure.num_leaves], self(*flat)
        # What is an old value in another place must be kept before that one is written over.
        new = [v if v is o or not _shared(v, old) else v.clone() for v, o in zip(values, old, strict=False)]
        for place, value in zip(old, new, strict=True):
            if value is not place:
                place.copy_(value)
        return values[len(old) :]


def _shared(value: Tensor, others: Sequence[Tensor]) -> bool:
    storage = value.untyped_storage().data_ptr()
    return any(other.untyped_storage().data_ptr() == storage for other in others)


def _laid_out(new: Tensor, old: Tensor) -> Tensor:
    return new if new.stride() == old.stride() else torch.empty_like(old).copy_(new)


def recorded(fn: Flat, state: Sequence[Tensor], *rest: Tensor) -> Flat | None:
    """The plain tensor operations of fn(*state, *rest), which writes over its state, with the updates put
    into the products; None, and a line, where they depend on values."""
    try:
        graph = merge.once(fuse.fused(_traced(fn, state, rest)))
        return merge.together(graph) if state[0].is_cuda else graph
    except Exception as error:
        warnings.warn(
            f"This client step cannot be recorded and stays slower ({reason(error)}).", stacklevel=2
        )
        return None


def compiled(fn: Flat, state: Sequence[Tensor], *rest: Tensor, keep_layout: bool = False) -> Flat | None:
    """`recorded` as machine code; None, and a line, where there is no compiler.

    With `keep_layout`, images that come with their channels last stay so.
    """
    try:
        import torch._inductor
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir

        own = CHOSEN in (None, default_cache_dir())
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache_folder() / "compiled") if own else str(CHOSEN)
        graph = fuse.fused(_traced(fn, state, rest, layout.PLAIN if keep_layout else None), LARGE)
        graph, updates = fuse.parted(layout.free(graph) if keep_layout else graph)
        example: list[Any] = [*(value.clone() for value in state), *rest]
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")  # train.precision says
            return fuse.together(torch._inductor.compile(graph, example), updates)
    except Exception as error:
        warnings.warn(
            f"Client steps cannot be compiled here and stay slower ({reason(error)});"
            " train.compile=false does without.",
            stacklevel=2,
        )
        return None


def _traced(
    fn: Flat, state: Sequence[Tensor], rest: Sequence[Tensor], table: dict[Any, Any] | None = None
) -> GraphModule:
    with torch.no_grad():
        graph = make_fx(fn, decomposition_table=table)(*(value.clone() for value in state), *rest)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def reason(error: Exception) -> str:
    """The first line of an error."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
