"""A vectorised client step, recorded once and replayed.

`vmap(grad(step))` spends most of a small model's time in Python, in the layers that `torch.func` puts around
every operation. They always end in the same plain tensor operations, so once a step has been taken often
enough it is recorded (`make_fx`) and from then on only those operations are run: the same kernels in the same
order, hence the same bits. No compiler is needed. Other shapes or strides (a round's first step sees the
broadcast model, not copies of it) are another recording.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

MOST = 8
"""Shapes that are recorded; cohorts of ever new sizes would cost more to record than they gain."""


class Recording(NamedTuple):
    """The flat operations of a step and the structure of what it returns."""

    run: Callable[..., list[torch.Tensor]]
    returns: TreeSpec


class Replay:
    """A function of tensors that is recorded after `after` calls with the same shapes and strides."""

    def __init__(self, fn: Callable[..., Any], after: int) -> None:
        self.fn, self.after = fn, after
        self.seen: dict[Any, int] = {}
        self.recordings: dict[Any, Recording | None] = {}

    def __call__(self, *args: Any) -> Any:
        flat, structure = tree_flatten(args)
        shapes = (structure, *((t.shape, t.stride(), t.dtype, t.device) for t in flat))
        self.seen[shapes] = self.seen.get(shapes, 0) + 1
        if self.seen[shapes] <= self.after:
            return self.fn(*args)
        if shapes not in self.recordings and len(self.recordings) >= MOST:
            return self.fn(*args)
        if shapes not in self.recordings:
            self.recordings[shapes] = self._record(flat, structure)
        recording = self.recordings[shapes]
        if recording is None:
            return self.fn(*args)
        with torch.no_grad():
            return tree_unflatten(recording.run(*flat), recording.returns)

    def _record(self, flat: list[torch.Tensor], structure: TreeSpec) -> Recording | None:
        returns: list[TreeSpec] = []

        def plain(*flat: torch.Tensor) -> list[torch.Tensor]:
            values, spec = tree_flatten(self.fn(*tree_unflatten(list(flat), structure)))
            returns.append(spec)
            return values

        try:
            graph = make_fx(plain)(*flat)
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            warnings.warn(f"This client step cannot be recorded and stays slower ({reason}).", stacklevel=2)
            return None
        graph.graph.eliminate_dead_code()
        graph.recompile()
        return Recording(graph, returns[0])
