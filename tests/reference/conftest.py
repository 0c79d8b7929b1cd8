"""The federation that fast code and naive transcription are compared on."""

from __future__ import annotations

import pytest

from fedauc.data.federated import FederatedData

from .naive_more import federated_data


@pytest.fixture(scope="session")
def data() -> FederatedData:
    return federated_data()
