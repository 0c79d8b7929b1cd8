"""A paper with cells that are trained in no time."""

from __future__ import annotations

import pytest
from tests.papers.rows import TINY

from fedauc.papers import Cell, Paper


@pytest.fixture
def paper():
    cells = [
        Cell("table-1", name, "digits", "p=1", preset, TINY, 0.9, 0.01)
        for name, preset in (("FedAvg", "cycp-fedavg"), ("Pairwise", "cycp-pairwise"))
    ]
    gone = Cell("table-1", "FedAvg", "CIFAR-10", "", "fedavg", {"data.source": "cifar10"}, 0.8)
    return Paper("099", "A paper", (*cells, gone))
