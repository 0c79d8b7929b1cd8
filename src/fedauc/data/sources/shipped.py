"""The small data sets that come with scikit-learn: no files, no network."""

from __future__ import annotations

import numpy as np

from fedauc.data.rows import Bundle
from fedauc.data.sources.labels import bundle

NAMES = {
    "digits": tuple(str(d) for d in range(10)),
    "breast-cancer": ("malignant", "benign"),
    "wine": ("class_0", "class_1", "class_2"),
}


def load_shipped(source: str, positive: str) -> Bundle:
    """One of scikit-learn's sets, as training rows only; `digits` as images of 8 x 8."""
    from sklearn import datasets

    loaded = getattr(datasets, f"load_{source.replace('-', '_')}")()
    if source == "digits":
        images = np.ascontiguousarray(loaded.images[:, None] / 16, dtype=np.float32)
        return bundle(source, positive, NAMES[source], (images, loaded.target))
    features = tuple(str(name) for name in loaded.feature_names)
    train = (loaded.data.astype(np.float32), loaded.target)
    return bundle(source, positive, NAMES[source], train, feature_names=features)
