"""The federation that fast code and naive transcription are compared on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedauc.data.federated import FederatedData

# (negatives, positives): clients without positives, without negatives, and with very different sizes.
COUNTS = ((9, 4), (5, 0), (0, 6), (12, 1), (3, 3), (7, 0), (4, 8))


@pytest.fixture(scope="session")
def data() -> FederatedData:
    generator = np.random.default_rng(11)
    x, y, client = [], [], []
    for i, counts in enumerate(COUNTS):
        shift = generator.normal(size=2)
        for label, count in enumerate(counts):
            x += [shift + label + generator.normal(size=2) for _ in range(count)]
            y += [label] * count
            client += [i] * count
    mixed = generator.permutation(len(y))
    names = [f"client-{i}" for i in range(len(COUNTS))]
    return FederatedData.build(
        torch.tensor(np.array(x)[mixed]), torch.tensor(np.array(y)[mixed]), np.array(client)[mixed], names
    )
