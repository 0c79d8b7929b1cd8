"""Let a recorded step keep the memory layout of its images.

PyTorch's CUDA kernel of group normalisation knows one layout, so between convolutions that want their
channels last every image is copied, twice. A compiler does not need that kernel: taken apart into plain
operations it works in any layout and is fused with what stands beside it, and the copies can go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

aten = torch.ops.aten


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hw: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    split = wide.unflatten(1, (groups, -1))
    inner = tuple(range(2, split.dim()))
    var, mean = torch.var_mean(split, dim=inner, correction=0, keepdim=True)
    rstd = torch.rsqrt(var + eps)
    out = ((split - mean) * rstd).flatten(1, 2)
    channels = (1, c, *[1] * (x.dim() - 2))
    if weight is not None:
        out = out * weight.view(channels)
    if bias is not None:
        out = out + bias.view(channels)
    # The statistics in the type that the kernel gives them in, for the gradient, which is plain operations.
    return out.to(x.dtype), mean.view(n, groups).to(x.dtype), rstd.view(n, groups).to(x.dtype)


PLAIN: dict[Any, Callable[..., Any]] = {aten.native_group_norm.default: _group_norm}
"""Operations that are taken apart when a step is recorded for the compiler."""


def free(graph: GraphModule) -> GraphModule:
    """The graph without the copies that only change a layout; a view that needs one makes it itself."""
    for node in list(graph.graph.nodes):
        if node.target in (aten.view.default, aten._unsafe_view.default):
            node.target = aten.reshape.default
        only_layout = node.kwargs.get("memory_format") is torch.contiguous_format
        if node.target is aten.clone.default and only_layout:
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.recompile()
    return graph
