"""What a site allows, whatever the coordinator asks for.

The limits are a TOML file of the site's own:

    methods = ["cycp-*"]      # which methods may train here; all where not said
    rounds_per_day = 500      # rounds in which this site trains, by the day in UTC
    share = "histogram"       # of validation and test rows: scores, histogram, or nothing
    own_auc = false           # whether the report may show this site's AUC
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from fedauc.core import checkpoint
from fedauc.errors import InputError
from fedauc.federation.messages import Refused

FORMS = ("scores", "histogram", "nothing")
"""What may be shared of scored rows, from most to least."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Policy:
    """A site's limits."""

    methods: tuple[str, ...] = ("*",)
    """Names of methods, with * for any letters."""
    rounds_per_day: int | None = None
    share: Literal["scores", "histogram", "nothing"] = "scores"
    own_auc: bool = True

    @classmethod
    def read(cls, path: Path) -> Policy:
        try:
            return TypeAdapter(cls).validate_python(tomllib.loads(path.read_text()))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from error
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path} is no TOML: {error}.") from error
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            raise InputError(f"{path}: {name}: {first['msg']}.") from error

    def check_method(self, method: str) -> None:
        if not any(fnmatchcase(method, pattern) for pattern in self.methods):
            raise Refused(f"the site's limits do not allow the method {method}")

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
