"""Transports: how a round is carried out."""

from fedauc.transports.distributed import Sharded
from fedauc.transports.local import LocalTransport

__all__ = ["LocalTransport", "Sharded"]
