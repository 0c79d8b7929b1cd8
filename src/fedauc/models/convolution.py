"""Convolutions of several clients at once, in the layout that a CPU wants, with a cheap second derivative.

    y = w ∗ x + b          dx = wᵀ ∗ g,   dw = corr(x, g),   db = Σ g          for g = ∂L/∂y

All three are linear in x, w and g each, so a Hessian-vector product (LocalSCGDAM), which differentiates them
along v_x, v_w and v_b, is made of the same operations again:

    ∂/∂g = w ∗ v_x + v_w ∗ x + v_b,        (∂/∂x, ∂/∂w) = (v_wᵀ ∗ g, corr(v_x, g)) = gradient of (g, v_x, v_w)

PyTorch's own formula makes corr(v_x, g) a convolution whose kernel is a whole image, which takes a CPU two to
nine times as long.

Clients that are vectorised lie beside each other as groups of channels. With few channels a group and images
that have their channels first, oneDNN has no fast kernel: with 16 channels it takes a fourth of the time with
channels last, from 32 on a tenth less. Batch normalisation and activations keep that layout, so images are
turned once. PyTorch's group normalisation does not, and there images stay as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function

from fedauc.models.beside import together

aten = torch.ops.aten
FAST = (torch.float32, torch.bfloat16)
"""What oneDNN computes with."""


class Conv2d(nn.Conv2d):
    """`nn.Conv2d` of one group, computed as this file says."""

    channels_last = True
    """Whether images are turned; not in a network that would turn them back after every layer."""

    def __init__(
        self, inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0, bias: bool = True
    ) -> None:
        super().__init__(inputs, outputs, size, stride, padding, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        how = How(list(self.stride), [int(each) for each in self.padding], self.channels_last)
        return _Convolve.apply(x, self.weight, self.bias, how)


class How(NamedTuple):
    """The settings of a convolution."""

    stride: list[int]
    padding: list[int]
    channels_last: bool
    groups: int = 1

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        settings = (self.stride, self.padding, [1, 1], False, [0, 0], self.groups)
        y: Tensor = aten.convolution(self._placed(x), weight, bias, *settings)
        return y

    def backward(self, g: Tensor, x: Tensor, weight: Tensor, wanted: list[bool]) -> tuple[Tensor, ...]:
        """Those of dx, dw and db that are wanted."""
        settings = ([len(weight)], self.stride, self.padding, [1, 1], False, [0, 0], self.groups)
        every = aten.convolution_backward(self._placed(g), self._placed(x), weight, *settings, wanted)
        return tuple(each for each, want in zip(every, wanted, strict=True) if want)

    def beside(self, clients: int) -> How:
        """Those of the convolutions of so many clients as one."""
        return self._replace(groups=clients * self.groups)

    def _placed(self, images: Tensor) -> Tensor:
        """In the layout that is fast on a CPU; a GPU's is chosen for whole steps (`transports.cuda`)."""
        fast = images.device.type == "cpu" and images.dtype in FAST and torch.backends.mkldnn.is_available()
        return images.contiguous(memory_format=torch.channels_last) if fast and self.channels_last else images


class _Convolve(Function):
    """(x, w, b) → y."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, how: How) -> Tensor:
        return how.forward(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, ctx.how = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        wanted = list(ctx.needs_input_grad[:3])
        found = iter(_Gradient.apply(g, *ctx.saved_tensors, ctx.how, wanted))
        return *(next(found) if want else None for want in wanted), None

    @staticmethod
    def vmap(info: Any, dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        *tensors, how = inputs
        rest = (how.beside(info.batch_size),)
        return together(_Convolve, info.batch_size, dims, tensors, (1, 0, 0), rest, (1,))


class _Gradient(Function):
    """(g, x, w) → those of dx, dw and db that are wanted."""

    @staticmethod
    def forward(g: Tensor, x: Tensor, weight: Tensor, how: How, wanted: list[bool]) -> tuple[Tensor, ...]:
        return how.backward(g, x, weight, wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.how, ctx.wanted = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *along: Tensor) -> tuple[Tensor | None, ...]:
        g, x, weight = ctx.saved_tensors
        at_g, at_x, at_weight = None, None, None
        given = iter(along)
        v_x, v_weight, v_bias = (next(given) if want else None for want in ctx.wanted)
        if ctx.needs_input_grad[0]:
            parts = []
            if v_x is not None:
                parts.append(_Convolve.apply(v_x, weight, None, ctx.how))
            if v_weight is not None:
                parts.append(_Convolve.apply(x, v_weight, v_bias, ctx.how))
            elif v_bias is not None:
                parts.append(v_bias[:, None, None].expand(g.shape))
            at_g = sum(parts[1:], parts[0])
        wanted = [
            v_weight is not None and ctx.needs_input_grad[1],
            v_x is not None and ctx.needs_input_grad[2],
            False,
        ]
        if any(wanted):
            left = x if v_x is None else v_x
            right = weight if v_weight is None else v_weight
            found = iter(_Gradient.apply(g, left, right, ctx.how, wanted))
            at_x, at_weight = (next(found) if want else None for want in wanted[:2])
        return at_g, at_x, at_weight, None, None

    @staticmethod
    def vmap(info: Any, dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        *tensors, how, wanted = inputs
        rest = (how.beside(info.batch_size), wanted)
        found_at = tuple(at for at, want in zip((1, 0, 0), wanted, strict=True) if want)
        return together(_Gradient, info.batch_size, dims, tensors, (1, 1, 0), rest, found_at)
