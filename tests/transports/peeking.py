"""A method whose step no recording and no capture can hold."""

from __future__ import annotations

from dataclasses import dataclass

from fedauc.methods import LocalSGDA


@dataclass(frozen=True)
class Peeking(LocalSGDA):
    """Looks at a value to decide what to do."""

    def client_move(self, l, batch, eta):
        if float(batch.x.sum()) > 1e9:
            return l, {"loss": batch.x.sum()}
        return super().client_move(l, batch, eta)
