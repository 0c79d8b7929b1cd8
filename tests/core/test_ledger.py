"""The ledger adds up."""

from __future__ import annotations

from typing import NamedTuple

import torch

from fedauc.core.ledger import Ledger, sizes


class Message(NamedTuple):
    z: dict
    anchor: dict


def test_bytes_add_up_by_item_and_in_total():
    ledger = Ledger()
    ledger.down({"z": 100, "scores": 8}, 2)
    ledger.down({"z": 50}, 1)
    ledger.up({"model": 7, "scores": 0}, 3)
    assert ledger.bytes_down == {"z": 150, "scores": 8}
    assert ledger.bytes_up == {"model": 7}  # nothing is not an item
    assert (ledger.total_down, ledger.total_up) == (158, 7)
    assert (ledger.messages_down, ledger.messages_up) == (3, 3)


def test_a_ledger_survives_being_written_down():
    ledger = Ledger()
    ledger.down({"z": 100}, 2)
    ledger.up({"model": 7}, 3)
    copy = Ledger.from_dict(ledger.as_dict())
    assert copy == ledger
    copy.up({"model": 1}, 1)
    assert ledger.total_up == 7  # the copy is its own


def test_sizes_of_a_message_by_field():
    z = {"w": torch.zeros(3, 2, dtype=torch.float64), "b": torch.zeros(1, dtype=torch.float32)}
    assert sizes(Message(z, {})) == {"z": 3 * 2 * 8 + 4}
    assert sizes({"negatives": torch.zeros(2, 5), "positives": torch.zeros(2, 0)}) == {"negatives": 2 * 5 * 4}
