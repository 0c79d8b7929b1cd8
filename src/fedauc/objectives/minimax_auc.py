"""Minimax AUC: the square pairwise loss as a saddle point without pairs.

Ying, Wen & Lyu 2016; eq. (3) of "Communication-Efficient Federated AUC Maximization with Cyclic Client
Participation"; CODA+ (Yuan et al. 2021). With p the share of positives,

    F = (1-p)(h-a)²[+] + p(h-b)²[-] + 2(1+α)(p·h[-] - (1-p)·h[+]) - p(1-p)α²

Descend in v = (w, a, b), ascend in α. At the saddle a = E⁺h, b = E⁻h, α = b - a, and the value is
p(1-p)·(E⁺E⁻(1 - h⁺ + h⁻)² - 1).

Where this departs from the paper, and why: the printed F is scaled by p(1-p), because [+] has
expectation p; at p = 0.5 % any usual step size is then far too small. `scale="classes"` estimates the two
class expectations separately (stratified batches; each over the clients that have the class), which
divides the objective by p(1-p). `scale="printed"` keeps eq. (3) with natural batches.

The papers start from a = b = 0. A sigmoid starts around 1/2, so (h-a)² and (h-b)² then push the scores of
both classes down together while a and b come up; with momentum or large steps they overshoot, all scores end
at 0 or 1 where the sigmoid is flat, and nothing is learnt any more. `start="middle"` begins at a = b = h(0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core.method import Draw
from fedauc.core.tree import Tree
from fedauc.objectives.base import Link, linked


@dataclass(frozen=True)
class MinimaxAUC:
    """Square-loss AUC as a minimax problem (Ying et al. 2016)."""

    margin: float = 1.0
    """m of the square loss (m - h⁺ + h⁻)²; 1 in the paper."""
    form: Literal["plain", "margin"] = "plain"
    """`plain` is eq. (3); `margin` is LibAUC's AUCM with α' = m + α ≥ 0."""
    scale: Literal["classes", "printed"] = "classes"
    """Class expectations estimated separately, or eq. (3) as printed."""
    link: Link = "sigmoid"
    """h: sigmoid of the logit, or the logit itself."""
    start: Literal["zero", "middle"] = "zero"
    """a and b at the start: 0, or h of a logit of 0, from where a sigmoid saturates less easily."""
    positive_rate: float | None = None
    """p; the federation's own where not said (only `printed` needs it)."""

    @property
    def draw(self) -> Draw:
        return "stratified" if self.scale == "classes" else "natural"

    @property
    def ranks(self) -> bool:
        return True

    @property
    def duals(self) -> frozenset[str]:
        return frozenset({"auc.alpha"})

    def variables(self, like: Tensor) -> Tree:
        zero = torch.zeros((), dtype=like.dtype, device=like.device)
        mean = self.score(zero) if self.start == "middle" else zero
        alpha = torch.full_like(zero, self.margin) if self.form == "margin" else zero
        return {"auc.a": mean.clone(), "auc.b": mean.clone(), "auc.alpha": alpha.clone()}

    def score(self, logit: Tensor) -> Tensor:
        """h, what is ranked."""
        return linked(self.link, logit)

    def at_dual(self, alpha: Tensor) -> Tree:
        """The dual variable at α = E⁻h - E⁺h, its value at the saddle."""
        return {"auc.alpha": alpha if self.form == "plain" else (self.margin + alpha).clamp(min=0.0)}

    def fitted(self, counts: NDArray[np.int64]) -> MinimaxAUC:
        rate = float(counts[:, 1].sum() / counts.sum())
        return self if self.positive_rate is not None else replace(self, positive_rate=rate)

    def loss(self, z: Tree, logit: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        h, a, b, alpha = self.score(logit), z["auc.a"], z["auc.b"], z["auc.alpha"]
        if self.scale == "printed":  # weights sum to 1 over the batch: [+] has expectation p
            p = self.positive_rate
            assert p is not None, "call fitted(counts) first"
            positive, negative, curvature = (1 - p) * weight * y, p * weight * (1 - y), p * (1 - p)
        else:  # weights sum to c⁺ and c⁻ over the classes
            positive, negative, curvature = weight * y, weight * (1 - y), 1.0
        square = (positive * (h - a) ** 2).sum() + (negative * (h - b) ** 2).sum()
        gap = (negative * h).sum() - (positive * h).sum()
        if self.form == "plain":
            return square + 2 * (self.margin + alpha) * gap - curvature * alpha**2
        return square + 2 * alpha * (curvature * self.margin + gap) - curvature * alpha**2  # α' = m + α

    def projected(self, z: Tree) -> Tree:
        return z if self.form == "plain" else z | {"auc.alpha": z["auc.alpha"].clamp(min=0.0)}
