"""The ledger: rounds, and the bytes of what travelled, item by item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedauc.core.tree import nbytes


@dataclass
class Ledger:
    """Cumulated bytes by item. Everything a transport carries passes through `down` or `up`."""

    bytes_down: dict[str, int] = field(default_factory=dict)
    bytes_up: dict[str, int] = field(default_factory=dict)
    messages_down: int = 0
    messages_up: int = 0

    def down(self, items: Mapping[str, int], messages: int) -> None:
        """Record a message sent to `messages` clients; `items` are bytes in total."""
        _count(self.bytes_down, items)
        self.messages_down += messages

    def up(self, items: Mapping[str, int], messages: int) -> None:
        """Record what `messages` clients sent; `items` are bytes in total."""
        _count(self.bytes_up, items)
        self.messages_up += messages

    def copy(self) -> Ledger:
        return Ledger(dict(self.bytes_down), dict(self.bytes_up), self.messages_down, self.messages_up)

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
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Ledger:
        return cls(dict(data["down"]), dict(data["up"]), data["messages_down"], data["messages_up"])


def sizes(state: Any) -> dict[str, int]:
    """Bytes of each field of a message (a named tuple or a dictionary of trees), without the empty ones."""
    items = state.items() if isinstance(state, Mapping) else state._asdict().items()
    return {name: size for name, value in items if (size := nbytes(value))}


def _count(total: dict[str, int], items: Mapping[str, int]) -> None:
    for name, size in items.items():
        if size:
            total[name] = total.get(name, 0) + size
