"""The plan of a federation: what `federation.toml` says."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedauc.data.table import natural
from fedauc.errors import InputError
from fedauc.experiments.config import Config
from fedauc.federation.calendar import Window, alike
from fedauc.federation.remote import Absent
from fedauc.federation.scores import Share
from fedauc.federation.settings import checked, read_toml, strict

FILE = "federation.toml"


@strict
@dataclass(frozen=True)
class Address:
    """Where the server is."""

    name: str = "federation"
    host: str = "localhost"
    """The name under which sites reach the server; its certificate is for this name."""
    port: int = 8002
    admin_port: int = 8003
    """Of the coordinator's own commands."""

    def __post_init__(self) -> None:
        for name in ("port", "admin_port"):
            if not 1 <= getattr(self, name) <= 65535:
                raise InputError(f"federation.{name} = {getattr(self, name)} is no port.")
        if self.port == self.admin_port:
            raise InputError(f"federation.port and admin_port are both {self.port}: they must differ.")


@strict
@dataclass(frozen=True)
class Experiment:
    """What is trained, as for `fedauc train`."""

    label: str
    positive: str
    """The label's positive value; sites may have rows of one class alone."""
    method: str = "cycp-pairwise"
    model: str = "linear"
    drop: tuple[str, ...] = ()
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    """As `--set`."""


@strict
@dataclass(frozen=True)
class Rounds:
    """How the coordinator waits."""

    deadline: float = 3600.0
    grace: float = 30.0
    patience: float = 3600.0
    quorum: float = 1.0
    absent: Absent = "retry"
    groups: Literal["named", "calendar", "dealt"] = "named"
    """By the sites' `group`, by their windows, or as the method deals them."""

    def __post_init__(self) -> None:
        if not 0 < self.quorum <= 1:
            raise InputError(f"rounds.quorum={self.quorum} must be above 0 and at most 1.")
        for name in ("deadline", "grace", "patience"):
            if not 0 <= getattr(self, name) < math.inf or (name == "deadline" and not self.deadline):
                raise InputError(f"rounds.{name}={getattr(self, name)} must be positive seconds.")


@strict
@dataclass(frozen=True)
class Organisation:
    """A site: its group, and when it can take part."""

    group: str | None = None
    timezone: str = "UTC"
    open: tuple[str, ...] = ()
    maintenance: tuple[str, ...] = ()

    @property
    def window(self) -> Window:
        return Window(self.timezone, self.open, self.maintenance)


@strict
@dataclass(frozen=True)
class Plan:
    """Everything that a federation has agreed on."""

    federation: Address
    experiment: Experiment
    sites: dict[str, Organisation]
    rounds: Rounds = field(default_factory=Rounds)
    share: Share = field(default_factory=Share)
    columns: dict[str, Literal["number", "text", "any"]] = field(default_factory=dict)
    """What sites' tables must have; nothing is asked of them where this is empty."""

    def __post_init__(self) -> None:
        if not self.sites:
            raise InputError("The federation has no sites: [sites.NAME].")
        for name, site in self.sites.items():
            try:
                _ = site.window
            except InputError as error:
                raise InputError(f"sites.{name}: {error}") from error
        grouped = [name for name, site in self.sites.items() if site.group is not None]
        if self.rounds.groups == "named" and grouped and len(grouped) < len(self.sites):
            missing = ", ".join(sorted(self.sites.keys() - set(grouped)))
            raise InputError(f"Some sites have a group, and {missing} has none.")
        _ = self.config

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], where: str) -> Plan:
        return checked(content, cls, where)

    @classmethod
    def read(cls, folder: Path) -> Plan:
        path = folder / FILE
        if not path.exists():
            raise InputError(f"{path} does not exist; `fedauc federation init {folder}` begins a federation.")
        return read_toml(path, cls)

    def as_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))

    @property
    def names(self) -> list[str]:
        """Sites in the order of their numbers: by name, as a table's clients are."""
        return sorted(self.sites, key=natural)

    @property
    def windows(self) -> dict[str, Window]:
        """Of sites that are not always there."""
        return {name: s.window for name, s in self.sites.items() if s.open or s.maintenance}

    @property
    def groups(self) -> list[list[str]] | None:
        """Names by group, in the order of their turns; None: the method deals them."""
        if self.rounds.groups == "calendar":
            return alike({name: site.window for name, site in self.sites.items()})
        by_name: dict[str, list[str]] = {}
        for name in self.names:
            if (group := self.sites[name].group) is not None:
                by_name.setdefault(group, []).append(name)
        if self.rounds.groups == "dealt" or not by_name:
            return None
        return [by_name[group] for group in sorted(by_name, key=natural)]

    @property
    def config(self) -> Config:
        """The experiment, as it runs in one process on a file per site."""
        about = self.experiment
        given: dict[str, Any] = {
            "data.label": about.label,
            "data.positive": about.positive,
            "data.drop": list(about.drop),
            "model": about.model,
            "seed": about.seed,
            "train.mode": "loop",
        }
        if (groups := self.groups) is not None:
            number = {name: i for i, group in enumerate(groups) for name in group}
            given["participation"] = "cyclic"
            given["participation.group_of"] = [number[name] for name in self.names]
        return Config.resolve(about.method, given | about.settings)


def written(
    address: Address, experiment: Experiment, sites: Sequence[str], columns: Mapping[str, str]
) -> str:
    """A new `federation.toml`, with a word on every line that is worth changing."""

    def lines(values: Mapping[str, Any]) -> str:
        known = ((name, value) for name, value in values.items() if value is not None)
        return "\n".join(f"{_key(name)} = {_value(value)}" for name, value in known)

    settings = {name: value for name, value in asdict(experiment).items() if name != "settings"}
    every = "\n\n".join(named(name, number) for number, name in _dealt(sites))
    kinds = lines(columns) or '# age = "number"\n# ward = "text"'
    return f"""# A federation. `fedauc federation start` runs it; change what you like before that.

[federation]
{lines(asdict(address))}

[experiment]
{lines(settings)}

[experiment.settings]
# As `fedauc train --set`; `fedauc methods {experiment.method}` lists them.
{lines(experiment.settings)}

[rounds]
deadline = 3600     # seconds that a site has for an answer
grace = 30          # seconds that a round waits for a site that cannot be reached
patience = 3600     # the same where everybody is needed (before training, for the test) or too few are there
quorum = 1.0        # share of a group that must have answered
absent = "retry"    # with fewer: "retry" until patience ends, "skip" the round, or "stop" (to be resumed)
groups = "named"    # who trains together: "named" (groups below), "calendar" (same window), or "dealt"

[share]
form = "scores"     # of validation and test rows: every score, or a "histogram" (a site may share less)
bins = 4096
range = 20.0

[columns]
# What every site's table must have: "number", "text" or "any". Nothing is asked for where this is empty.
{kinds}

# A site's group, and when it can take part (always, where nothing is said):
#   timezone = "Europe/Zurich"
#   open = ["Mon-Fri 20:00-06:00", "Sat,Sun"]
#   maintenance = ["2026-12-24..2026-12-26"]

{every}
"""


def named(site: str, group: int | None) -> str:
    """The lines of one site."""
    turn = [] if group is None else [f"group = {_value(f'group-{group}')}"]
    return "\n".join([f"[sites.{_key(site)}]", *turn])


def _dealt(sites: Sequence[str]) -> list[tuple[int, str]]:
    """Two groups of about the same size, in the order of names."""
    names = sorted(sites)
    return [(1 + (2 * i >= len(names)), name) for i, name in enumerate(names)]


def _key(name: str) -> str:
    plain = name.replace("-", "").replace("_", "")
    return name if plain.isascii() and plain.isalnum() else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    text = json.dumps(value, ensure_ascii=False)  # texts, numbers, true and false are written alike in TOML
    return text.replace("\x7f", "\\u007f")
