"""Four sites with a table each, in this process or wherever a test wants them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from fedauc.federation.messages import Refused
from fedauc.federation.remote import Failure
from fedauc.federation.site import Site, reading

SITES = ("basel", "geneva", "lugano", "zurich")
SETTINGS = {
    "data.label": "ill",
    "data.positive": "1",
    "model": "mlp",
    "model.hidden": [5],
    "participation": "cyclic",
    "participation.groups": 2,
    "schedule.cycles": 4,
    "schedule.steps": 3,
    "train.batch": 8,
    "train.mode": "loop",
}


def written(folder: Path) -> dict[str, Path]:
    """A file for each site: numbers, a skewed column, a text column, missing values, and one site that has
    seen no case."""
    generator = np.random.default_rng(5)
    found = {}
    for number, name in enumerate(SITES):
        n = 60 + 17 * number
        y = (generator.random(n) < 0.25).astype(int) if name != "lugano" else np.zeros(n, dtype=int)
        frame = pd.DataFrame(
            {
                "age": generator.normal(60 + 3 * y, 9, n),
                "cost": np.exp(generator.normal(3 + y / 2, 1.8, n)),
                "ward": generator.choice(["a", "b", "c"], n),
                "ill": y,
            }
        )
        frame.loc[generator.random(n) < 0.1, "age"] = np.nan
        found[name] = folder / f"{name}.csv"
        frame.to_csv(found[name], index=False)
    return found


class Loopback:
    """Sites in this process, and every message that came and went; `restart` forgets all that is not in their
    folders."""

    def __init__(self, files: Mapping[str, Path], folder: Path) -> None:
        self.files, self.folder = files, folder
        self.payloads: list[bytes] = []
        self.restart()

    def restart(self) -> None:
        self.sites = {name: Site(name, reading(p), self.folder / name) for name, p in self.files.items()}

    def exchange(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Failure]:
        found: dict[str, bytes | Failure] = {}
        for name, request in requests.items():
            try:
                answer = self.sites[name].answer(request)
                self.payloads += [request, answer]
                found[name] = answer
            except Refused as reason:
                found[name] = Failure(str(reason))
        return found
