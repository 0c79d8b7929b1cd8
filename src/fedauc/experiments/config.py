"""The configuration of an experiment: sections of settings, each a frozen dataclass.

`data` and `train` are fixed; `model`, `rule`, `correction`, `server`, `objective`, `participation`,
`schedule` and `uplink` hold a component's name and the fields of its dataclass, so a component added to a
registry brings its own keys. Values come from the component's defaults, then the preset, then the user
(`--set schedule.eta=0.1`, or just `eta=0.1` where only one section has that key).
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import json
import re
import textwrap
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from fedauc.core.loop import Federation
from fedauc.core.method import Method
from fedauc.core.tree import Tree
from fedauc.core.uplink import UPLINKS, Unknown
from fedauc.data.federated import FederatedData
from fedauc.errors import InputError, nearest
from fedauc.experiments.presets import Preset, preset
from fedauc.experiments.settings import DataSettings, TrainSettings
from fedauc.methods import CORRECTIONS, RULES, SERVERS, LocalStatistics, Unchanged
from fedauc.models import MODELS, Model
from fedauc.objectives import OBJECTIVES
from fedauc.objectives.base import Apply
from fedauc.participation import PARTICIPATIONS
from fedauc.participation.base import Roster
from fedauc.schedules import SCHEDULES
from fedauc.transports import LocalTransport, Sharded, ranks

FILES = ("data.root", "data.path", "data.valid", "data.test", "data.download")
"""Settings that say where files are: the rows in them may be the same elsewhere."""
FIXED: dict[str, type] = {"data": DataSettings, "train": TrainSettings}
CHOSEN: dict[str, dict[str, type]] = {
    "model": MODELS,
    "rule": RULES,
    "correction": CORRECTIONS,
    "server": SERVERS,
    "objective": OBJECTIVES,
    "participation": PARTICIPATIONS,
    "schedule": SCHEDULES,
    "uplink": UPLINKS,
}
EVERYBODY = 100
"""Default of `schedule.cycles` with everybody in every round, where a cycle is one round."""
POWER = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
"""A number with a power of ten."""
TOP: dict[str, Any] = {"seed": int, "device": str}
SEEDS = 2**63
"""Seeds are below it."""
MACHINE = {
    f"train.{name}"
    for name in (
        "batch",
        "augment",
        "statistics",
        "mode",
        "compile",
        "precision",
        "chunk",
        "parts",
        "threads",
    )
}
"""Settings of the training that a warm-up shares."""
_PIECES = {"apply", "objective", "inner"}  # fields that are other components, not settings


class UnknownSetting(InputError):
    """A setting that this method does not have; another one may."""


@dataclass(frozen=True)
class Config:
    """A complete configuration; `sections` holds every value in force."""

    method: str
    seed: int
    device: str
    sections: Mapping[str, Mapping[str, Any]]

    @classmethod
    def resolve(cls, method: str, overrides: Mapping[str, Any] | None = None) -> Config:
        """Defaults, then the preset, then `overrides` (keys dotted or, where unambiguous, bare)."""
        named = preset(method)
        top: dict[str, Any] = {"seed": 0, "device": "cpu"}
        names = _component_names(named, overrides or {})
        values: dict[str, dict[str, Any]] = {section: _defaults(cls_) for section, cls_ in FIXED.items()}
        for section, name in names.items():
            values[section] = {"name": name, **_defaults(_component(section, name))}
        if names["participation"] == "full":
            values["schedule"]["cycles"] = EVERYBODY
        own = {s: n for s, n in names.items() if n == getattr(named, s, n)}
        for key, value in named.settings.items():
            section, field = key.split(".")
            if field == "cycles" and "participation" not in own:  # it counts cycles of another length
                continue
            if section in FIXED or (section in own and field in values[section]):
                values[section][field] = value
        for key, value in (overrides or {}).items():
            if key in TOP:
                top[key] = _converted(key, TOP[key], value)
                continue
            section, field = _locate(key, values)
            if field != "name":
                values[section][field] = _converted(key, _types(_class(section, values))[field], value)
        if not 0 <= top["seed"] < SEEDS:
            raise InputError(f"--seed must be at least 0 and below 2^63, but is {top['seed']}.")
        config = cls(method, top["seed"], top["device"], values)
        for section in ("data", "train", "model", "participation", "schedule", "uplink"):
            config.component(section)
        if config.train.warmup is not None:
            config.before()
        config.method_of(_no_model, config.component("objective"))  # impossible combinations fail here
        return config

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Config:
        """The inverse of `as_dict`."""
        return cls.resolve(data["method"], _flat(data))

    def as_dict(self) -> dict[str, Any]:
        """JSON-able, complete."""
        head = {"method": self.method, "seed": self.seed, "device": self.device}
        return head | {section: _plain(values) for section, values in self.sections.items()}

    def differing(self, kept: Mapping[str, Any], free: Sequence[str] = ()) -> list[str]:
        """Settings that a configuration which was kept as JSON has otherwise, but for those that are `free`.

        A setting that did not exist yet had the value that is now its default, whatever the preset says.
        """
        default = {section: _defaults(_class(section, self.sections)) for section in self.sections}
        now, missing = (_flat(json.loads(json.dumps(about))) for about in (self.as_dict(), default))
        before = missing | _flat(kept)
        keys = [key for key in {**now, **before} if before.get(key) != now.get(key) and key not in free]
        return keys if kept["method"] == self.method else ["method", *keys]

    def changed(self, overrides: Mapping[str, Any]) -> Config:
        """The same configuration with other values."""
        kept = _flat(self.as_dict())
        for section in CHOSEN:  # another component has other settings
            if overrides.get(section, overrides.get(f"{section}.name")) not in (
                None,
                kept[f"{section}.name"],
            ):
                kept = {key: v for key, v in kept.items() if not key.startswith(f"{section}.")}
        return Config.resolve(self.method, kept | dict(overrides))

    @property
    def data(self) -> DataSettings:
        return typing.cast(DataSettings, self.component("data"))

    @property
    def train(self) -> TrainSettings:
        return typing.cast(TrainSettings, self.component("train"))

    def component(self, section: str, **pieces: Any) -> Any:
        """The section's dataclass with the values in force."""
        values = {field: value for field, value in self.sections[section].items() if field != "name"}
        return _class(section, self.sections)(**pieces, **values)

    def before(self) -> Config:
        """The configuration of the method that trains first: the same data, model, clients and machine."""
        assert self.train.warmup is not None
        shared = ("seed", "device", "data", "model", "participation", "uplink")
        same = {
            key: value
            for key, value in _flat(self.as_dict()).items()
            if key.partition(".")[0] in shared or key in MACHINE
        }
        return Config.resolve(self.train.warmup, same | {"schedule.cycles": self.train.warmup_cycles})

    def roster(self, clients: int) -> Roster:
        """Who takes part when, of so many clients."""
        return self.component("participation").bind(clients, self.seed)

    def rounds(self, clients: int) -> int:
        """Of the whole run, with so many clients."""
        roster = self.roster(clients)
        schedule = self.component("schedule").bind(roster.cycle_length, roster.active)
        return schedule.cycles * roster.cycle_length

    def method_of(self, apply: Apply, objective: Any) -> Method:
        """server(correction(rule(objective)))."""
        rule = self.component("rule", apply=apply, objective=objective)
        if self.train.batch < (least := 2 * rule.samples):
            why = "a positive and a negative" + (f" in {rule.samples} samples" if rule.samples > 1 else "")
            raise InputError(f"train.batch={self.train.batch} must be at least {least}: {why}.")
        method: Method = rule
        if self.train.statistics == "local":
            method = LocalStatistics(method)
        for section in ("correction", "server"):
            if _class(section, self.sections) is not Unchanged:
                method = self.component(section, inner=method)
        return method

    def federation(self, data: FederatedData, model: Model) -> Federation:
        """rule × objective × participation × schedule × transport, on these data."""
        objective = self.component("objective")
        if hasattr(objective, "fitted"):
            objective = objective.fitted(data.counts)
        train = self.train
        if train.augment is not None:
            if data.x.dim() != 4:
                raise InputError(f"train.augment={train.augment} is for images; these are rows of a table.")
            data = replace(data, augment=train.augment)
        uplink = self.component("uplink")
        transport = Sharded if ranks.here().size > 1 and data.clients > 1 else LocalTransport
        return Federation(
            method=self.method_of(model, objective),
            data=data,
            participation=self.component("participation"),
            schedule=self.component("schedule"),
            uplink=None if isinstance(uplink, Unknown) else uplink,
            transport=transport(train.mode, train.chunk, train.compile, parts=train.parts),
            batch=train.batch,
            client_weight=train.client_weight,
            balance=train.balance,
            output=train.output,
            memory=train.memory,
            seed=self.seed,
        )


def parse_settings(items: Iterable[str]) -> dict[str, Any]:
    """`key=value` texts, as the command line takes them."""
    parsed = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals or not key:
            raise InputError(f"--set takes key=value, not {item!r}.")
        parsed[key.strip()] = text.strip()
    return parsed


def same_setting(a: str, b: str) -> bool:
    """Whether two keys, dotted or bare, mean one setting; a bare one that may mean several is refused."""
    return a == b or (("." in a) != ("." in b) and a.rpartition(".")[2] == b.rpartition(".")[2])


def parse_grid(items: Iterable[str]) -> dict[str, list[Any]]:
    """`key=value,value` texts; a value with commas of its own is written [in, brackets].

    1e-3 is a number, which YAML has as 1.0e-3 only.
    """
    parsed: dict[str, list[Any]] = {}
    for item in items:
        key, equals, text = item.partition("=")
        try:
            values = yaml.safe_load(f"[{text}]") if equals and key else None
        except yaml.YAMLError:
            values = None
        if not values:
            raise InputError(f"--grid takes key=value,value,…, not {item!r}.")
        if key.strip() in parsed:
            raise InputError(f"--grid names {key.strip()} twice: all its values go behind one --grid.")
        parsed[key.strip()] = [float(v) if isinstance(v, str) and POWER.fullmatch(v) else v for v in values]
    return parsed


def describe(section: str, name: str | None = None) -> list[tuple[str, Any, str]]:
    """(key, default, help) of a section's settings; the help is the string under the field."""
    cls = FIXED[section] if section in FIXED else _component(section, name or "")
    helps = _field_helps(cls)
    return [(f"{section}.{field}", value, helps.get(field, "")) for field, value in _defaults(cls).items()]


def _no_model(z: Tree, x: Tensor) -> Tensor:
    raise RuntimeError("a configuration that is only being checked has no model")


def _component_names(named: Preset, overrides: Mapping[str, Any]) -> dict[str, str]:
    names = {
        "model": "linear",
        "rule": named.rule,
        "correction": named.correction,
        "server": named.server,
        "objective": named.objective,
        "participation": named.participation,
        "schedule": named.schedule,
        "uplink": named.uplink,
    }
    for section in names:
        for key in (section, f"{section}.name"):
            if key in overrides:
                names[section] = str(overrides[key])
    return names


def _component(section: str, name: str) -> type:
    registry = CHOSEN[section]
    if name not in registry:
        raise InputError(f"There is no {section} {name!r}.{nearest(name, registry)}")
    return registry[name]


def _class(section: str, values: Mapping[str, Mapping[str, Any]]) -> type:
    return FIXED[section] if section in FIXED else _component(section, values[section]["name"])


def _defaults(cls: type) -> dict[str, Any]:
    return {f.name: f.default for f in dataclasses.fields(cls) if f.init and f.name not in _PIECES}


@functools.cache
def _types(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _locate(key: str, values: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """The section and field that a key means."""
    if key in CHOSEN:
        return key, "name"
    section, dot, field = key.partition(".")
    if dot:
        if section not in values:
            raise UnknownSetting(f"There is no setting {key!r}.{nearest(section, values)}")
        if field not in values[section]:
            known = [f"{section}.{name}" for name in values[section]]
            raise UnknownSetting(f"There is no setting {key!r} here.{nearest(key, known)}")
        return section, field
    homes = [name for name, fields in values.items() if key in fields and key != "name"]
    if len(homes) == 1:
        return homes[0], key
    if homes:
        options = " or ".join(f"{home}.{key}" for home in homes)
        raise InputError(f"The setting {key!r} is ambiguous: say {options}.")
    owners = [
        f"{section}={name}"
        for section, registry in CHOSEN.items()
        for name, cls in registry.items()
        if key in _defaults(cls)
    ]
    if owners:
        raise UnknownSetting(f"There is no setting {key!r} here: it belongs to {', '.join(owners)}.")
    every = {name for fields in values.values() for name in fields if name != "name"} | set(TOP)
    raise UnknownSetting(f"There is no setting {key!r} for this method.{nearest(key, every)}")


def _converted(key: str, kind: Any, value: Any) -> Any:
    """A value in the field's type; texts are read as YAML scalars or lists."""
    if isinstance(value, str) and kind is not str:
        value = _from_text(value, kind)
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"The setting {key}={value!r} is not possible: {reason}.") from None


def _from_text(text: str, kind: Any) -> Any:
    wants_list = typing.get_origin(kind) is tuple
    options = typing.get_args(kind)
    if text.lower() in ("none", "null") and type(None) in options:
        return None
    if wants_list:
        return [part.strip() for part in text.strip("()[] ").split(",") if part.strip()]
    if str in options or typing.get_origin(kind) is typing.Literal:
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _flat(data: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{field}": inner for field, inner in value.items()}
        elif key != "method":
            flat[key] = value
    return flat


@functools.cache
def _field_helps(cls: type) -> dict[str, str]:
    """The string literal under each field of a dataclass."""
    helps: dict[str, str] = {}
    for base in cls.__mro__[-2::-1]:  # fields are inherited, and so are their helps
        if dataclasses.is_dataclass(base):
            helps |= _own_helps(base)
    return helps


def _own_helps(cls: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    helps: dict[str, str] = {}
    for line, following in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(line, ast.AnnAssign)
            and isinstance(line.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            helps[line.target.id] = " ".join(str(following.value.value).split())
    return helps
