"""Trees: flat dictionaries of tensors, and the few operations the methods need on them.

All state in FedAUC is a `Tree` (name → tensor) or a `NamedTuple` of trees, tensors and such tuples.
Nothing here changes its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

Tree = dict[str, Tensor]
T = TypeVar("T")

STATISTICS = "stats."
"""Names of running statistics (batch normalisation) begin so: averaged, never descended or extrapolated."""
OWN = "auc."
"""Names of an objective's own variables begin so."""


def add(a: Mapping[str, Tensor], b: Mapping[str, Tensor], scale: float | Tensor = 1.0) -> Tree:
    """a + scale · b, name by name; names that b does not have keep a's value."""
    if isinstance(scale, Tensor):  # one pass over the memory
        return {n: torch.addcmul(value, b[n], scale) if n in b else value for n, value in a.items()}
    return {n: torch.add(value, b[n], alpha=scale) if n in b else value for n, value in a.items()}


def sub(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tree:
    """a - b, name by name."""
    return {name: value - b[name] for name, value in a.items()}


def learned(a: Mapping[str, Tensor]) -> Tree:
    """What is optimised: everything but a model's running statistics, which are only observed."""
    return {name: value for name, value in a.items() if not name.startswith(STATISTICS)}


def lerp(a: Mapping[str, Tensor], b: Mapping[str, Tensor], share: float) -> Tree:
    """(1 - share) · a + share · b, name by name."""
    return {name: torch.lerp(value, b[name], share) for name, value in a.items()}


def nbytes(state: Any) -> int:
    """Bytes of all tensors in a state: what it costs to send it."""
    return sum(tensor.numel() * tensor.element_size() for tensor in flatten(state).values())


def flatten(state: Any, prefix: str = "") -> Tree:
    """A state as one flat tree, with dotted names; the inverse of `unflatten`."""
    if isinstance(state, Tensor):
        return {prefix: state}
    if isinstance(state, Mapping):
        items: Iterable[tuple[str, Any]] = state.items()
    elif hasattr(state, "_asdict"):
        items = state._asdict().items()
    else:
        raise TypeError(f"a state holds tensors, dictionaries and named tuples, not {type(state).__name__}")
    flat: Tree = {}
    for name, value in items:
        flat |= flatten(value, f"{prefix}/{name}" if prefix else name)
    return flat


def unflatten(like: T, flat: Mapping[str, Tensor], prefix: str = "") -> T:
    """A state with the structure of `like` and the tensors of `flat`."""
    name_of = (lambda name: f"{prefix}/{name}") if prefix else (lambda name: name)
    if isinstance(like, Tensor):
        return flat[prefix]  # type: ignore[return-value]
    if isinstance(like, Mapping):
        return {name: unflatten(value, flat, name_of(name)) for name, value in like.items()}  # type: ignore[return-value]
    fields = like._asdict()  # type: ignore[attr-defined]
    return type(like)(**{name: unflatten(value, flat, name_of(name)) for name, value in fields.items()})


def map_state(fn: Callable[[Tensor], Tensor], state: T) -> T:
    """Apply `fn` to every tensor of a state."""
    return unflatten(state, {name: fn(tensor) for name, tensor in flatten(state).items()})


def stack(states: list[T]) -> T:
    """Stack equal states along a new first axis (the client axis)."""
    flats = [flatten(state) for state in states]
    return unflatten(states[0], {name: torch.stack([flat[name] for flat in flats]) for name in flats[0]})


def unstack(state: T, index: int) -> T:
    """The `index`-th client's part of a stacked state."""
    return map_state(lambda tensor: tensor[index], state)


def placed(values: NDArray[Any], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """An array as a tensor on the device of `like`, without waiting for what a GPU does at the moment."""
    tensor = torch.as_tensor(values, dtype=dtype)
    return tensor.pin_memory().to(like.device, non_blocking=True) if like.is_cuda else tensor
