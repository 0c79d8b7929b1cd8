"""The ledger: the bytes of what travelled, item by item, and how long the uplinks took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core.tree import STATISTICS, nbytes
from fedauc.core.uplink import Uplink

SETUP = "setup: "
"""Items that are exchanged once, before the first round, begin so."""


@dataclass
class Ledger:
    """Cumulated bytes by item. Everything a transport carries passes through `down` or `up`."""

    bytes_down: dict[str, int] = field(default_factory=dict)
    bytes_up: dict[str, int] = field(default_factory=dict)
    messages_down: int = 0
    messages_up: int = 0
    seconds_up: float = 0.0
    """Time of the uplinks so far, where the clients' speeds are known (`core.uplink`)."""

    def down(self, items: Mapping[str, int], messages: int) -> None:
        """Record a message sent to `messages` clients; `items` are bytes in total."""
        count(self.bytes_down, items)
        self.messages_down += messages

    def up(self, items: Mapping[str, int], messages: int) -> None:
        """Record what `messages` clients sent; `items` are bytes in total."""
        count(self.bytes_up, items)
        self.messages_up += messages

    def wait(
        self, times: NDArray[np.float64], sent: NDArray[np.int64], model: int, uplink: Uplink | None
    ) -> None:
        """Record how long an exchange's uploads took: a client that needs T seconds for a model needs
        T·sent/model for what it sent; one after another (`sum`) or at the same time (`max`)."""
        if uplink is not None and len(times):
            seconds = times * sent / model
            self.seconds_up += float(seconds.sum() if uplink.combine == "sum" else seconds.max())

    def include(self, prefix: str, earlier: Ledger) -> None:
        """Count what another ledger has counted, under a prefix; what is set up is set up once."""
        for record, items, messages in (
            (self.down, earlier.bytes_down, earlier.messages_down),
            (self.up, earlier.bytes_up, earlier.messages_up),
        ):
            record({f"{prefix}: {n}": v for n, v in items.items() if not n.startswith(SETUP)}, messages)
        self.seconds_up += earlier.seconds_up

    def copy(self) -> Ledger:
        return replace(self, bytes_down=dict(self.bytes_down), bytes_up=dict(self.bytes_up))

    @property
    def total_down(self) -> int:
        return sum(self.bytes_down.values())

    @property
    def total_up(self) -> int:
        return sum(self.bytes_up.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            "down": dict(self.bytes_down),
            "up": dict(self.bytes_up),
            "messages_down": self.messages_down,
            "messages_up": self.messages_up,
            "seconds_up": self.seconds_up,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Ledger:
        return cls(
            dict(data["down"]),
            dict(data["up"]),
            data["messages_down"],
            data["messages_up"],
            data.get("seconds_up", 0.0),
        )


def sizes(state: Any) -> dict[str, int]:
    """Bytes of a message, item by item: the innermost fields of named tuples, and what a tree has under a
    prefix (`momentum/…`), without the empty ones."""
    found: dict[str, int] = {}
    fields = state._asdict() if hasattr(state, "_asdict") else state
    for name, value in fields.items():
        if hasattr(value, "_asdict"):
            count(found, sizes(value))
        else:
            own = name.rpartition("/")[2]
            count(found, parts(value, own) if isinstance(value, Mapping) else {own: nbytes(value)})
    return found


def parts(values: Mapping[str, Tensor], own: str) -> dict[str, int]:
    """Bytes of a tree by the prefix of its names; what has none is called `own`, or statistics."""
    found: dict[str, int] = {}
    for name, value in values.items():
        item = name.partition("/")[0] if "/" in name else own
        count(found, {"statistics" if name.startswith(STATISTICS) else item: nbytes(value)})
    return found


def count(total: dict[str, int], items: Mapping[str, int]) -> None:
    """Add the bytes of items to a total, item by item."""
    for name, size in items.items():
        if size:
            total[name] = total.get(name, 0) + size
