"""`rng.permuted` on a GPU, in one kernel: the same numbers, without the detour over the CPU.

A round of a hundred clients draws tens of thousands of rows, which takes a CPU longer than a GPU needs for
all local steps. The kernel is written in Triton, which comes with PyTorch's CUDA builds.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedauc.core import rng

BLOCK = 128


def permuted(key: Tensor, half: Tensor, n: Tensor, position: Tensor) -> Tensor:
    """As `rng.permuted`, with `half` from `rng.halves`; keys are the same 64 bits, as int64."""
    shape = torch.broadcast_shapes(key.shape, n.shape, position.shape)
    words = [each.expand(shape).contiguous() for each in (key, half, n, position)]
    found = torch.empty(shape, dtype=torch.int64, device=key.device)
    blocks = triton.cdiv(found.numel(), BLOCK)
    _walk[(blocks,)](*words, found, found.numel(), rng.TURNS, BLOCK)
    return found


@triton.jit
def _mix(z):  # type: ignore[no-untyped-def]
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit
def _walk(keys, halves, sizes, positions, found, total, TURNS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mine = at < total
    n = tl.load(sizes + at, mask=mine, other=1)
    position = tl.load(positions + at, mask=mine, other=0)
    half = tl.load(halves + at, mask=mine, other=1).to(tl.uint64)
    key = tl.load(keys + at, mask=mine, other=0).to(tl.uint64, bitcast=True)
    key = _mix(key + (position // n).to(tl.uint64) * 0x9E3779B97F4A7C15)
    value = (position % n).to(tl.uint64)
    size = n.to(tl.uint64)
    low = (tl.full((BLOCK,), 1, tl.uint64) << half) - 1
    outside = mine
    while tl.max(outside.to(tl.int32), axis=0) > 0:
        left = value >> half
        right = value & low
        turned = key
        for _ in range(TURNS):
            turned += 1
            after = left ^ (_mix(turned + right * 0x9E3779B97F4A7C15) & low)
            left = right
            right = after
        value = tl.where(outside, (left << half) | right, value)
        outside = outside & (value >= size)
    tl.store(found + at, value.to(tl.int64, bitcast=True), mask=mine)
