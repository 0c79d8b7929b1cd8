"""Four sites with a table each, in this process or wherever a test wants them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from fedauc.federation.attendance import Clock, Failure
from fedauc.federation.messages import Refused
from fedauc.federation.policy import Policy
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


class Hours(Clock):
    """A clock that stands still but for whoever sleeps."""

    def __init__(self, start: str = "2026-11-16T12:00:00+00:00") -> None:
        self.time = datetime.fromisoformat(start)

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class Loopback:
    """Sites in this process, and every message that came and went; `restart` forgets all that is not in their
    folders."""

    def __init__(
        self, files: Mapping[str, Path], folder: Path, policies: Mapping[str, Policy] | None = None
    ) -> None:
        self.files, self.folder, self.policies = files, folder, policies or {}
        self.payloads: list[bytes] = []
        self.down: set[str] = set()
        """Sites that cannot be reached."""
        self.restart()

    def restart(self) -> None:
        self.sites = {
            name: Site(name, reading(path), self.folder / name, self.policies.get(name, Policy()))
            for name, path in self.files.items()
        }

    def exchange(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Failure]:
        found: dict[str, bytes | Failure] = {}
        for name, request in requests.items():
            if name in self.down:
                found[name] = Failure("not reached", unreachable=True)
                continue
            try:
                answer = self.sites[name].answer(request)
                self.payloads += [request, answer]
                found[name] = answer
            except Refused as reason:
                found[name] = Failure(str(reason))
        return found
