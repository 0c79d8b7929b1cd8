"""From scores to probabilities: Platt scaling on the validation rows.

AUC looks at the order of scores only, so a model trained for it has no reason to be calibrated. Two numbers
fitted on the validation rows make probabilities of its scores without changing their order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression


class Calibration(NamedTuple):
    """P(y = 1) = σ(slope · score + intercept), slope > 0."""

    slope: float = 1.0
    intercept: float = 0.0

    @classmethod
    def fit(cls, scores: NDArray[np.float32], y: NDArray[np.int8]) -> Calibration:
        """Platt scaling; where the validation rows would turn the order around, only the base rate."""
        center, spread = float(np.mean(scores)), float(np.std(scores))
        if spread == 0:
            return cls(1.0, _logit(float(np.mean(y))) - center)
        standard = (scores.astype(np.float64) - center) / spread
        fitted = LogisticRegression(C=1e6, max_iter=200).fit(standard[:, None], y)
        slope, intercept = float(fitted.coef_[0, 0]), float(fitted.intercept_[0])
        if slope <= 0:
            slope, intercept = 1e-3, _logit(float(np.mean(y)))
        return cls(slope / spread, intercept - slope * center / spread)

    def log_odds(self, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        return self.slope * scores.astype(np.float64) + self.intercept

    def probability(self, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        return expit(self.log_odds(scores))


def _logit(p: float) -> float:
    return float(np.log(p / (1 - p)))
