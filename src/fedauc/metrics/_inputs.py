"""Scores, labels and weights as checked one-dimensional numpy arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

Array: TypeAlias = npt.NDArray[Any]
Values: TypeAlias = npt.ArrayLike | torch.Tensor


def as_vector(values: Values, what: str) -> Array:
    """A 1-D numpy array of ``values``: (n,) or (n, 1), numpy or torch, on any device."""
    if isinstance(values, torch.Tensor):
        tensor = values.detach().cpu()
        if tensor.is_floating_point() and tensor.element_size() < 4:
            tensor = tensor.float()  # numpy has no bfloat16; widening is exact
        values = tensor.numpy()
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"The {what} must be one number per row, but their shape is {array.shape}.")
    return array


def as_scores(values: Values) -> Array:
    """Scores in their own precision, none of them NaN."""
    scores = as_vector(values, "scores")
    if scores.dtype.kind not in "fiub":
        raise ValueError(f"The scores must be real numbers, not {scores.dtype}.")
    if scores.dtype.kind == "f" and scores.size and np.isnan(scores.max()):  # max passes a NaN on
        bad = np.count_nonzero(np.isnan(scores))
        raise ValueError(f"{bad} of the {scores.size} scores are NaN, so they cannot be ranked.")
    return scores


def as_positive(values: Values, rows: int) -> npt.NDArray[np.bool_]:
    """The mask of positive rows, from labels that are 0/1 or False/True."""
    labels = as_vector(values, "labels")
    if labels.size != rows:
        raise ValueError(f"There are {rows} scores but {labels.size} labels.")
    if labels.dtype == np.bool_:
        return labels
    positive: npt.NDArray[np.bool_] = np.asarray(labels == 1)
    if np.count_nonzero(positive) + np.count_nonzero(labels == 0) != rows:
        other = labels[~positive & (labels != 0)][0]
        raise ValueError(f"The labels must be 0 or 1, but one of them is {other}.")
    return positive


def as_weights(values: Values, rows: int) -> npt.NDArray[np.float64]:
    """Finite, non-negative sample weights in double precision."""
    weights = as_vector(values, "weights").astype(np.float64)
    if weights.size != rows:
        raise ValueError(f"There are {rows} scores but {weights.size} weights.")
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("The weights must be finite and not negative.")
    return weights
