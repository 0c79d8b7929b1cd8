"""The clients of a round over several processes.

Rank r of R computes the clients from m·r/R to m·(r+1)/R of a cohort of m. What they send is summed over all
processes (`mean`, `sum`) or gathered in the order of the cohort (`gather`), and what they keep is shared, so
that every process ends a round with the same state. Nothing has to be sent down: every process has the
server's state, and draws depend on seed, round and client alone.

With R = 2 or 4 these are the halves and quarters of `LocalTransport._collected`, and their sums are added in
the same pairs. One process that computes a cohort in as many `parts` gets the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedauc.core import tree
from fedauc.core.method import Pool
from fedauc.transports import ranks
from fedauc.transports.local import Collected, Exchange, LocalTransport


@dataclass(frozen=True)
class Sharded(LocalTransport):
    """A transport of which every process of a run has one, see the module's docstring."""

    def _everybody(self, what: Exchange, clients: int) -> Collected:
        here = ranks.here()
        first, last = (clients * r // here.size for r in (here.rank, here.rank + 1))
        # Where there are fewer clients than processes, some compute a client in vain: so they know the names
        # and shapes of what they have nothing of.
        found = self._collected(what, first, max(last, first + 1), (here.size - 1).bit_length())
        return _shared(found, what, here, idle=first == last)


def _shared(found: Collected, what: Exchange, here: ranks.Ranks, idle: bool) -> Collected:
    """Together with what the clients at all other processes sent and kept, in the order of the cohort."""
    rows = {
        "loss": torch.cat(found.losses),
        "sent": torch.from_numpy(np.concatenate(found.sent)),
        "size": torch.tensor([list(found.size.values())]),
    }
    for name, pools in found.pools.items():
        rows[f"values/{name}"] = torch.cat([pool.values for pool in pools])
        rows[f"owner/{name}"] = torch.cat([pool.owner for pool in pools])
    if kept := found.memory[0]:
        rows |= {f"memory/{name}": value for name, value in tree.stack(found.memory).items()}
    mean, total = found.mean, found.total
    if idle:
        rows = {name: value[:0] for name, value in rows.items()}
        mean, total = ({name: _nothing(value) for name, value in sums.items()} for sums in (mean, total))
    content = what.cohort.clients.tobytes() + str((what.knobs.round, type(what.method))).encode()
    every = here.gathered(rows, f"clients in round {what.knobs.round + 1}", content)
    sums = here.summed({f"mean/{n}": v for n, v in mean.items()} | {f"sum/{n}": v for n, v in total.items()})
    return Collected(
        {name: sums[f"mean/{name}"] for name in mean},
        {name: sums[f"sum/{name}"] for name in total},
        {name: [Pool(every[f"values/{name}"], every[f"owner/{name}"])] for name in found.pools},
        [{n: every[f"memory/{n}"][i] for n in kept} for i in range(len(what.cohort.clients))],
        [every["loss"]],
        [every["sent"].numpy(force=True)],
        dict(zip(found.size, every["size"].sum(dim=0).tolist(), strict=True)),
    )


def _nothing(like: Tensor) -> Tensor:
    """What changes no sum: -0, since 0 + -0 is 0 and -0 + -0 is -0."""
    return torch.full_like(like, -0.0)
