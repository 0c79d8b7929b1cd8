"""Running statistics that stay at the clients: every client normalises by its own.

    client k         z_{k,0} = (server's parameters, own statistics);   send the parameters' change alone

Andreux et al., "Siloed federated learning for multi-centric histopathology datasets", 2020; Li et al.,
"FedBN", ICLR 2021 (which keeps the affine parameters as well). Statistics are part of a client's memory, so
they survive its absence. The server's own keep their start values: rows are scored with their client's, and
rows of no known client, as later in `fedauc predict`, with the mean of all clients' statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedauc.core import tree
from fedauc.core.method import Knobs, Method, Upload, moved
from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.methods.base import Wrapper, of, under

OWN_STATISTICS = "statistics"


class Server(NamedTuple):
    inner: Any

    @property
    def z(self) -> Tree:
        return self.inner.z


@dataclass(frozen=True)
class LocalStatistics(Wrapper):
    """Statistics do not travel."""

    inner: Method

    def __post_init__(self) -> None:
        if self.reestimate:
            raise InputError(
                "reestimate=True scores rows of all clients with the server's model, which has no statistics"
                " of its own while they stay at the clients; use statistics=averaged or recalibrated."
            )

    def server_init(self, params: Tree, counts: NDArray[np.int64]) -> Server:
        return Server(self.inner.server_init(params, counts))

    def memory_init(self, z: Tree) -> Tree:
        own = {name: value for name, value in z.items() if name.startswith(tree.STATISTICS)}
        return under("inner", self.inner.memory_init(z)) | under(OWN_STATISTICS, own)

    def memory_stage(self, c: Tree) -> Tree:
        return c | under("inner", self.inner.memory_stage(of("inner", c)))

    def broadcast(self, s: Server) -> Any:
        d = self.inner.broadcast(s.inner)
        return moved(d, tree.learned(d.z))

    def client_init(self, d: Any, own: Tree, c: Tree) -> Any:
        return self.inner.client_init(_with(d, c), own, of("inner", c))

    def client_finish(self, d: Any, l: Any, c: Tree, outs: Tree, knobs: Knobs) -> tuple[Upload, Tree]:
        upload, kept = self.inner.client_finish(_with(d, c), l, of("inner", c), outs, knobs)
        new = {name: value for name, value in l.z.items() if name.startswith(tree.STATISTICS)}
        mean = {name: value for name, value in upload.mean.items() if name not in new}
        return upload._replace(mean=mean), under("inner", kept) | under(OWN_STATISTICS, new)


def _with(d: Any, c: Tree) -> Any:
    return moved(d, d.z | of(OWN_STATISTICS, c))
