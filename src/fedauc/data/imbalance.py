"""Make positives rarer (by removing them) or noisier (by flipping them), as the papers do."""

from __future__ import annotations

import numpy as np

from fedauc.errors import InputError


def _chosen(y: np.ndarray, share: float, rng: np.random.Generator, verb: str) -> np.ndarray:
    """Positions of exactly `round(share * positives)` positives, at least one of which stays."""
    if not 0.0 <= share < 1.0:
        raise InputError(f"The share of positives to {verb} must be at least 0 and less than 1, not {share}.")
    positives = np.flatnonzero(np.asarray(y) == 1)
    count = round(share * len(positives))
    if count and count >= len(positives):
        raise InputError(
            f"To {verb} {share:g} of {len(positives)} positives leaves none; "
            "take a smaller share or more rows."
        )
    return rng.choice(positives, size=count, replace=False) if count else positives[:0]


def remove_positives(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """The sorted positions of the rows that stay once a `share` of the positives is removed."""
    keep = np.ones(len(y), dtype=bool)
    keep[_chosen(y, share, rng, "remove")] = False
    return np.flatnonzero(keep)


def flip_positives(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """A copy of `y` in which a `share` of the positives is labelled negative."""
    flipped = np.array(y, copy=True)
    flipped[_chosen(y, share, rng, "flip")] = 0
    return flipped
