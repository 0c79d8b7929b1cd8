"""One of several processes that train presets together: worker.py FOLDER RANK SIZE:PORT…

It takes part in every size that its rank belongs to, one after another, and leaves what it has come to in
FOLDER/SIZE-RANK.pt.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.contract.federations import Run, built, tensors

from fedauc.errors import InputError
from fedauc.experiments.presets import PRESETS
from fedauc.transports import ranks

ALL: dict[str, dict[str, Any]] = {name: {} for name in PRESETS}
SOME: dict[str, dict[str, Any]] = {
    "cycp-pairwise": {},  # gathers scores
    "cycp-pairwise-cv": {"train.chunk": 1},  # keeps and sums control variates as well
    "rs-pairwise": {"participation.per_round": 1},  # fewer clients than processes
    "coda": {"schedule.stage_cycles": 1},  # rounds of two exchanges
    "codasca": {},  # all clients in every round
    "agnostic-auc": {"train.mode": "loop"},
}
"""What is trained with more than two processes, and with which settings."""


def trained(run: Run) -> dict[str, Any]:
    """What all processes should have the same of, after a cycle and a round."""
    state, records = run.start(), []
    for _ in range(run.long):
        state, record = run.advance(state)
        records.append(record.as_dict())
    return {"tensors": tensors(state), "ledger": state.ledger.as_dict(), "records": str(records)}


def talk(here: ranks.Ranks) -> None:
    """What processes tell each other arrives, in order."""
    own = torch.arange(2 * here.rank).view(-1, 2)  # of the first process: nothing
    rows = {"pair": own, "flag": own[:, 0] > 0, "half": own[:1].double() / 3}
    every = here.gathered(rows, "numbers", b"same")
    each = [torch.arange(2 * rank).view(-1, 2) for rank in range(here.size)]
    assert torch.equal(every["pair"], torch.cat(each))
    assert torch.equal(every["flag"], torch.cat(each)[:, 0] > 0)
    assert torch.equal(every["half"], torch.cat([value[:1].double() / 3 for value in each]))
    tenth = torch.tensor([0.1, -0.0]) * (here.rank + 1)
    summed = here.summed({"count": torch.tensor(here.rank), "tenth": tenth, "exact": tenth.double()})
    assert int(summed["count"]) == sum(range(here.size))
    assert summed["tenth"].dtype == torch.float32
    assert summed["tenth"][1].signbit()  # nothing but -0 leaves -0
    told = here.told(lambda: {"who": here.rank, "tensors": [torch.ones(2)]})
    assert told["who"] == 0
    assert told["tensors"][0].tolist() == [1, 1]
    for disagree in (
        lambda: here.agree("numbers", b"same", str(here.rank).encode()),
        lambda: here.gathered(rows, "numbers", str(here.rank).encode()),
    ):
        with pytest.raises(InputError, match="do not have the same numbers"):
            disagree()


def cases(size: int) -> dict[str, dict[str, Any]]:
    """Presets and settings to train with so many processes."""
    return ALL if size == 2 else SOME


def main(folder: str, rank: str, *sizes: str) -> None:
    torch.set_num_threads(1)
    for text in sizes:
        size, port = text.split(":")
        if int(rank) < int(size):
            os.environ |= {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            here = ranks.join()
            assert (here.rank, here.size) == (int(rank), int(size))
            talk(here)
            found = {name: trained(built(name, settings)) for name, settings in cases(int(size)).items()}
            ranks.leave()
            torch.save(found, Path(folder) / f"{size}-{rank}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
