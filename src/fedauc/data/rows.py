"""What every data source delivers: rows of features, labels, classes and, where there are, clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedauc.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Rows:
    """Examples, one per index of the first axis; the arrays are shared, never copied on construction."""

    x: np.ndarray | pd.DataFrame
    """[n, ...] float32, images [n, channels, height, width] in [0, 1]; or a table, numbers and categories."""
    y: np.ndarray  # [n] int8, 1 is positive
    classes: (
        np.ndarray
    )  # [n] int64, the source's own classes (y where there are two): what partitions look at
    client: np.ndarray | None = None  # [n] int64 codes into Bundle.client_names

    def __post_init__(self) -> None:
        for field in ("y", "classes", "client"):
            values = getattr(self, field)
            if values is not None and values.shape != (len(self.x),):
                raise InputError(f"{field} has shape {values.shape} where x has {len(self.x)} rows.")

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: np.ndarray | slice) -> Rows:
        """The rows at `index` (positions, a mask or a slice), in that order."""
        client = None if self.client is None else self.client[index]
        x = self.x[index] if isinstance(self.x, np.ndarray) else self.x.iloc[index]
        return Rows(x, self.y[index], self.classes[index], client)

    def with_(self, **fields: Any) -> Rows:
        """The same rows with some fields replaced."""
        return replace(self, **fields)


@dataclass(frozen=True, eq=False)
class Bundle:
    """One data set: its training rows, and its published validation and test rows where it has them."""

    name: str
    train: Rows
    valid: Rows | None = None
    test: Rows | None = None
    client_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
