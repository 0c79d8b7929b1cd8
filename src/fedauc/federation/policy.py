"""What a site allows, whatever the coordinator asks for.

The limits are a TOML file of the site's own:

    methods = ["cycp-*"]      # which methods may train here; all where not said
    rounds_per_day = 500      # rounds in which this site trains, by the day in UTC
    share = "histogram"       # of validation and test rows: scores, histogram, or nothing
    bins = 4096               # of a histogram at most: with very many it is as good as the scores
    own_auc = false           # whether the report may show this site's AUC
    numbers_as_text = true    # whether values may be counted where numbers here are text elsewhere
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from fedauc.core import checkpoint
from fedauc.errors import InputError, nearest
from fedauc.experiments.presets import PRESETS
from fedauc.federation.messages import Refused
from fedauc.federation.settings import read_toml, strict

FORMS = ("scores", "histogram", "nothing")
"""What may be shared of scored rows, from most to least."""


@strict
@dataclass(frozen=True)
class Policy:
    """A site's limits."""

    methods: tuple[str, ...] = ("*",)
    """Names of methods, with * for any letters."""
    rounds_per_day: int | None = None
    share: Literal["scores", "histogram", "nothing"] = "scores"
    bins: int = 4096
    own_auc: bool = True
    numbers_as_text: bool = False

    def __post_init__(self) -> None:
        for name, least in (("rounds_per_day", 0), ("bins", 1)):
            if (value := getattr(self, name)) is not None and value < least:
                raise InputError(f"{name} = {value} must be at least {least}.")
        for pattern in self.methods:
            if not any(fnmatchcase(method, pattern) for method in PRESETS):
                raise InputError(f"methods: there is no method {pattern!r}.{nearest(pattern, PRESETS)}")

    @classmethod
    def read(cls, path: Path) -> Policy:
        return read_toml(path, cls)

    def check_method(self, method: str) -> None:
        if not any(fnmatchcase(method, pattern) for pattern in self.methods):
            raise Refused(f"the site's limits do not allow the method {method}")

    def check_bins(self, bins: int) -> None:
        if not 1 <= bins <= self.bins:
            raise Refused(f"the site's limits allow histograms of {self.bins} bins")

    def form(self, wanted: str) -> str:
        """What is shared where this is wanted: never more, and never more than is allowed."""
        if wanted not in FORMS:
            raise Refused("scores in a form that is not known")
        return FORMS[max(FORMS.index(wanted), FORMS.index(self.share))]

    def count_round(self, folder: Path) -> None:
        """One more round today; refused where there are enough."""
        if self.rounds_per_day is None:
            return
        path, today = folder / "rounds.json", datetime.now(UTC).date().isoformat()
        try:
            known = json.loads(path.read_text())
        except (OSError, ValueError):
            known = {}
        done = known["rounds"] if known.get("day") == today else 0
        if done >= self.rounds_per_day:
            raise Refused(f"the site's limits allow {self.rounds_per_day} rounds a day")
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.write_atomic(path, json.dumps({"day": today, "rounds": done + 1}).encode())
