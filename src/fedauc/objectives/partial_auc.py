"""One-way partial AUC: the positives against the hardest negatives (FedXL2, KL form).

    min over w of  E⁺ τ log E⁻ exp(ψ(h⁺ - h⁻)/τ)

which is E⁺ max over q of [E_q ψ - τ KL(q ‖ uniform)]: for every positive the negatives are re-weighted
towards those ranked above it, so that what is maximised is the area under the left part of the ROC curve.
τ → ∞ is the whole AUC, τ → 0 the single hardest negative.

    u(z⁺) ← (1-γ) u(z⁺) + γ mean over passive⁻ of exp(ψ(h⁺ - passive⁻)/τ)     kept per positive by its client
    ∇     = E⁺ [mean exp(ψ/τ)/u · ψ' ∇h⁺]  -  E⁻ [mean over passive (h⁺, u⁺) of exp(ψ/τ)/u⁺ · ψ' ∇h⁻]

Guo et al., "FedXL: Provable federated learning for deep X-risk optimization", ICML 2023 (Alg. 2, FedXL2);
Zhu et al., "When AUC meets DRO: optimizing partial AUC for deep learning", ICML 2022 (the KL form).

Where this departs from the papers, and why: log u is kept instead of u, which overflows single precision for
small τ; the weight exp(ψ/τ)/u of a pair is at most 100, because u is estimated from a handful of negatives
and one that was not among them would have a weight without limit; a positive's first estimate is taken as it
is instead of being mixed with zero; the two halves are weighted by what the client's classes count for, as
everywhere here. ψ is bounded by default (squared hinge of sigmoids): with the logistic loss of raw scores
training can run away (AUC 0.26 on the ICU table of the README; 0.81 with the default).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.objectives.base import Link
from fedauc.objectives.pairwise_auc import PairwiseAUC, Surrogate, margins

MOST = 100.0


@dataclass(frozen=True)
class PartialAUC(PairwiseAUC):
    """The positives against the hardest negatives, by a KL-regularised worst case."""

    surrogate: Surrogate = "squared-hinge"
    """ψ of Table 10, as a function of t = h⁺ - h⁻."""
    link: Link = "sigmoid"
    """h: sigmoid of the logit, or the logit itself."""
    temperature: float = 1.0
    """τ: the smaller, the more the hardest negatives count."""
    rate: float = 0.5
    """γ, the share of the newest value in a positive's estimate u."""
    positives: int = 0
    """Most positives of any client; the federation's own where not said."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature <= 0:
            raise InputError(f"temperature={self.temperature} must be positive.")
        if not 0 < self.rate <= 1:
            raise InputError(f"rate={self.rate} must be above 0 and at most 1.")

    @property
    def kept(self) -> int:
        return self.positives

    def fitted(self, counts: NDArray[np.int64]) -> PartialAUC:
        """The objective for clients with these numbers of negatives and positives [N, 2]."""
        most = int(counts[:, 1].max())
        if 0 < self.positives < most:
            raise InputError(f"positives={self.positives}, but there is a client with {most}.")
        return self if self.positives else replace(self, positives=most)

    def paired(
        self, h: Tensor, y: Tensor, weight: Tensor, passive: Tree, before: Tensor
    ) -> tuple[Tensor, Tree]:
        if not self.kept:
            raise InputError("PartialAUC keeps an estimate for every positive: call fitted(counts) first.")
        psi = self.psi(margins(h, y, passive["positives"], passive["negatives"]))
        exponent = psi.detach() / self.temperature
        now = torch.logsumexp(exponent, dim=1) - math.log(exponent.shape[1])
        mixed = torch.logaddexp(before + _log(1 - self.rate), now + math.log(self.rate))
        log_u = torch.where(before < 0, now, mixed)
        of_pair = torch.where(y[:, None] > 0, log_u[:, None], passive["estimates"][None, :])
        share = torch.exp((exponent - of_pair).clamp(max=math.log(MOST)))
        return (weight * (share * psi).mean(dim=1)).sum(), {"log_u": log_u}

    def unpaired(self, y: Tensor) -> Tree:
        """log u of a tie."""
        return {"log_u": (self.psi(y.new_zeros(())) / self.temperature).expand_as(y).clone()}


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf
