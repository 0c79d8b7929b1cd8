"""Group normalisation that keeps the memory layout of its images when clients are vectorised.

    y = γ x̂ + β,   x̂ = r (x - μ),   r = (σ² + ε)^(-1/2),   μ and σ² over the m values of a group of a row

With g = ∂L/∂y, u = γ g and P u = u - mean(u) - x̂ mean(u x̂), means over a group:  dx = r P u,  dγ = Σ g x̂,
dβ = Σ g. These are plain operations, which are differentiated again as they stand; for that μ and r are
results, with the derivatives 1/m and -r² x̂/m.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from fedauc.models.beside import apart, beside

aten = torch.ops.aten


class GroupNorm(nn.GroupNorm):
    """`nn.GroupNorm` (Wu & He, ECCV 2018) with parameters."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _Normalise.apply(x, self.weight, self.bias, self.num_groups, self.eps)[0]
        return y


class _Normalise(Function):
    """(x, γ, β, groups, ε) → (y, μ, r), the latter by row and group."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> tuple[Tensor, ...]:
        rows, channels, height, width = x.shape
        return aten.native_group_norm(x, weight, bias, rows, channels, height * width, groups, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, _, ctx.groups, _ = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, *output[1:])

    @staticmethod
    def backward(ctx: Any, *along: Tensor | None) -> tuple[Tensor | None, ...]:
        kinds = [each.dtype for each in ctx.saved_tensors[:2]]
        wide = torch.promote_types(kinds[0], torch.float32)
        g, g_mean, g_rstd = (None if each is None else each.to(wide) for each in along)
        x, weight, mean, rstd = (each.to(wide) for each in ctx.saved_tensors)
        mean, rstd = mean[..., None, None, None], rstd[..., None, None, None]
        hat = (x.unflatten(1, (ctx.groups, -1)) - mean) * rstd
        inner, m = (2, 3, 4), hat[0, 0].numel()
        parts, at_weight, at_bias = [], None, None
        if g is not None:
            u = (g * weight[:, None, None]).unflatten(1, (ctx.groups, -1))
            mean_u, mean_u_hat = (each.sum(inner, keepdim=True) / m for each in (u, u * hat))
            parts.append(rstd * (u - mean_u - hat * mean_u_hat))
            at_weight = (g * hat.flatten(1, 2)).sum((0, 2, 3)).to(kinds[1])
            at_bias = g.sum((0, 2, 3)).to(kinds[1])
        if g_mean is not None:
            parts.append((g_mean[..., None, None, None] / m).expand(hat.shape))
        if g_rstd is not None:
            parts.append(hat * (rstd.square() * g_rstd[..., None, None, None] / -m))
        at_x = sum(parts[1:], parts[0]).flatten(1, 2).to(kinds[0]) if parts else None
        return at_x, at_weight, at_bias, None, None

    @staticmethod
    def vmap(
        info: Any,
        dims: tuple[int | None, ...],
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        groups: int,
        eps: float,
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        clients = info.batch_size
        wide = [
            beside(each, dim, at, clients)
            for each, dim, at in zip((x, weight, bias), dims, (1, 0, 0), strict=False)
        ]
        found = _Normalise.apply(*wide, clients * groups, eps)
        return tuple(apart(each, 1, clients) for each in found), (1, 1, 1)
