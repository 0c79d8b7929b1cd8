"""Batch normalisation as pure functions, and with a second derivative that is cheap.

    y = γ x̂ + β,   x̂ = r (x - μ),   r = (σ² + ε)^(-1/2),   μ and σ² over the m values of a channel

The gradient maps g = ∂L/∂y to  dx = γ r P g,  dγ = Σ g x̂,  dβ = Σ g  with the symmetric
P g = g - mean(g) - x̂ mean(g x̂). A Hessian-vector product (LocalSCGDAM) differentiates that once more, along
V, v_γ and v_β for dx, dγ and dβ. With q = Σ V·P g = Σ V g - ΣV Σg/m - ΣV x̂ Σg x̂/m, and since
∂x̂/∂x = r P and ∂r/∂x = -r² x̂/m,

    ∂/∂g = γ r P V + v_γ x̂ + v_β
    ∂/∂x = r P w - (γ q r²/m) x̂,   w = (v_γ - γ r ΣV x̂/m) g - (γ r Σg x̂/m) V
    ∂/∂γ = r q

Both P are the kernel of the first derivative again, so this is some ten passes over a layer's images where
PyTorch's own formula makes eighty. It is differentiable itself.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from fedauc.errors import InputError
from fedauc.models.beside import together

EVERY = [True, True, True]
"""All three results of a gradient: dx, dγ, dβ."""
aten = torch.ops.aten


class BatchNorm2d(nn.Module):
    """Batch normalisation (Ioffe & Szegedy, ICML 2015) that changes no tensor in place.

    `nn.BatchNorm2d` writes into its running statistics, which `torch.func` cannot vectorise over clients that
    each have their own, and which would leave one call's state behind for the next. Here a buffer is
    replaced by a new tensor, and `functional_call` hands it back to the caller (`Model.observe`); nothing
    else is different. No gradient flows into or out of the running statistics.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.running_mean.detach(), self.running_var.detach()
        if not self.training:
            return F.batch_norm(x, mean, var, self.weight, self.bias, training=False, eps=self.eps)
        if x.numel() <= x.shape[1]:
            raise InputError(
                "Batch normalisation needs more than one value per channel: train with at least two rows a"
                " batch, or with the setting norm=group."
            )
        y, batch_mean, rstd = normalised(x, self.weight, self.bias, self.eps)
        if rstd.dtype == var.dtype:
            m = x.numel() // x.shape[1]
            batch_var = (rstd.pow(-2) - self.eps).clamp(min=0) * (m / (m - 1))
        else:  # of fewer digits than the running ones
            batch_var, batch_mean = torch.var_mean(x.detach().to(mean.dtype), dim=(0, 2, 3), correction=1)
        self.running_mean = mean.lerp(batch_mean, self.momentum)
        self.running_var = var.lerp(batch_var, self.momentum)
        return y


def normalised(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """y with the statistics of the batch, and these: μ and r."""
    found: tuple[Tensor, Tensor, Tensor] = _Normalise.apply(x, weight, bias, eps)
    return found


class _Normalise(Function):
    """(x, γ, β, ε) → (y, μ, r)."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, ...]:
        return aten.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, _, ctx.eps = inputs
        _, mean, rstd = output
        ctx.mark_non_differentiable(mean, rstd)
        ctx.save_for_backward(x, weight, mean, rstd)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *_Gradient.apply(grads[0], *ctx.saved_tensors, ctx.eps), None

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        return together(_Normalise, info.batch_size, dims, inputs[:3], (1, 0, 0), inputs[3:], (1, 0, 0))


class _Gradient(Function):
    """(g, x, γ, μ, r, ε) → (dx, dγ, dβ); what it depends on μ and r for belongs to x."""

    @staticmethod
    def forward(
        g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, eps: float
    ) -> tuple[Tensor, ...]:
        return aten.native_batch_norm_backward(g, x, weight, None, None, mean, rstd, True, eps, EVERY)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.eps = inputs
        ctx.save_for_backward(*tensors, *output[1:])

    @staticmethod
    def backward(ctx: Any, *along: Tensor) -> tuple[Tensor | None, ...]:
        v, v_weight, v_bias = along
        g, x, weight, mean, rstd, g_x, g_sum = ctx.saved_tensors  # g_x = Σ g x̂
        (down, v_x, v_sum), m = _Gradient.apply(v, x, weight, mean, rstd, ctx.eps), x.numel() // x.shape[1]
        q = (v * g).sum((0, 2, 3), dtype=rstd.dtype)
        q = q.addcmul(v_sum, g_sum, value=-1 / m).addcmul(v_x, g_x, value=-1 / m)
        scale, slope, at_weight = weight * rstd, v_weight * rstd, rstd * q
        w = _wide(torch.addcmul(v_weight, scale, v_x, value=-1 / m), g) * g
        w = torch.addcmul(w, _wide(scale * g_x, v), v, value=-1 / m)
        plain, _, _ = _Gradient.apply(w, x, torch.ones_like(weight), mean, rstd, ctx.eps)
        falling = scale * at_weight * rstd
        return (
            torch.addcmul(down, _wide(slope, x), x) + _wide(torch.addcmul(v_bias, slope, mean, value=-1), x),
            torch.addcmul(plain, _wide(falling, x), x, value=-1 / m).add(
                _wide(falling * mean, x), alpha=1 / m
            ),
            at_weight.to(weight.dtype),
            None,
            None,
            None,
        )

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        return together(_Gradient, info.batch_size, dims, inputs[:5], (1, 1, 0, 0, 0), inputs[5:], (1, 0, 0))


def _wide(value: Tensor, like: Tensor) -> Tensor:
    """A number per channel, for images."""
    return value.to(like.dtype)[:, None, None]
