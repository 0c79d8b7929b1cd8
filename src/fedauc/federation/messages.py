"""What travels between the coordinator and a site, field by field.

A message is one safetensors file: the tensors, and everything else as JSON in its metadata. There is no code
in it and nothing is unpickled. Whoever receives one checks it before it is used, and refuses what is not as
agreed: what is missing or too much, of another shape or type, not finite, or too large.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from fedauc.core.tree import Tree

VERSION = 1
"""Of all messages; coordinator and sites must have the same."""

M = TypeVar("M", bound="Message")


class Refused(Exception):
    """A message is not as agreed; the text says why, without any of its numbers."""


@dataclass(frozen=True)
class Message:
    """A kind of message: its fields travel as JSON, but for `tensors`."""

    kind: ClassVar[str]
    tensors: Tree
    run: str
    client: int
    """The site's number."""

    def packed(self) -> bytes:
        about = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "tensors"}
        about |= {"kind": self.kind, "version": VERSION}
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        return save(plain, {"fedauc": json.dumps(about, sort_keys=True)})

    @classmethod
    def unpacked(cls: type[M], data: bytes) -> M:
        """The message in these bytes, which must be of this kind."""
        about = about_message(data)
        try:
            tensors = load(data)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise Refused(f"a message that cannot be read ({type(error).__name__})") from error
        if about.pop("version", None) != VERSION:
            raise Refused("a message of another version of fedauc")
        if about.pop("kind", None) != cls.kind:
            raise Refused(f"a message that is no {cls.kind}")
        wanted = {field.name: str(field.type) for field in fields(cls) if field.name != "tensors"}
        if about.keys() != wanted.keys():
            raise Refused(f"a {cls.kind} with other fields than agreed")
        for name, kind in wanted.items():
            if not _is(about[name], kind):
                raise Refused(f"a {cls.kind} whose field {name} is no {kind}")
        return cls(tensors=tensors, **about)


@dataclass(frozen=True)
class Start(Message):
    """Coordinator → site: the experiment. No tensors."""

    kind = "start"
    clients: int
    """Sites of the federation."""
    config: dict
    """All settings: method, model, schedule, label, columns that are not used."""


@dataclass(frozen=True)
class Counted(Message):
    """Site → coordinator: how many rows of each class the site has. No tensors."""

    kind = "counted"
    negatives: int
    positives: int


@dataclass(frozen=True)
class Split(Message):
    """Coordinator → site: how many rows of each class train, validate and test, and the random numbers
    that say which. No tensors."""

    kind = "split"
    plan: dict


@dataclass(frozen=True)
class Proposed(Message):
    """Site → coordinator: of every column whether it holds numbers, text, or an identifier. No tensors."""

    kind = "proposed"
    schema: dict


@dataclass(frozen=True)
class Summarise(Message):
    """Coordinator → site: which sums of which columns are wanted. No tensors."""

    kind = "summarise"
    schema: dict
    log1p: bool
    """Of the logarithm of 1 + x."""


@dataclass(frozen=True)
class Summary(Message):
    """Site → coordinator: of each numeric column count, mean, centred sums, minimum, maximum and missing
    values, of each text column how often each value occurs (`data.statistics`). No tensors."""

    kind = "summary"
    statistics: dict


@dataclass(frozen=True)
class Fitted(Message):
    """Coordinator → site: how columns become numbers, and what the objective knows of all classes. No
    tensors."""

    kind = "fitted"
    preprocessor: str
    objective: dict


@dataclass(frozen=True)
class Ready(Message):
    """Site → coordinator: rows are numbers now. No tensors."""

    kind = "ready"


@dataclass(frozen=True)
class Rate(Message):
    """Coordinator → site: score validation or test rows. Tensors: the model."""

    kind = "rate"
    part: str
    form: str
    """`scores`, or `histogram`: how many scores fall into each of `bins` equal bins from `low` to `high`."""
    bins: int
    low: float
    high: float


@dataclass(frozen=True)
class Rated(Message):
    """Site → coordinator: the scores of each class, in the order of the rows (two models are compared row by
    row), or their histograms. Tensors: `negatives`, `positives`."""

    kind = "rated"
    part: str
    form: str
    """What was sent: `scores`, `histogram`, or `nothing` where the site does not share more."""
    own_auc: bool
    """Whether the report may show this site's AUC."""


@dataclass(frozen=True)
class Task(Message):
    """Coordinator → site: one exchange of a round. Tensors: `down/…`, the broadcast; `own/…`, what is
    addressed to this site alone; `eta`."""

    kind = "task"
    phase: int
    """Which of the round's exchanges; 0 is the method's own."""
    new_stage: bool
    """Whether a stage begins with this round."""
    seed: int
    """Of the draws of this exchange."""
    steps: int
    batch: int
    round: int
    cycle: int
    stage: int
    cycle_length: int
    negatives: float
    """c⁻ and c⁺: what the class parts count for in the site's own objective."""
    positives: float
    accepted: int
    """The last round of which the coordinator has taken in what this site sent; -1: none."""
    saved: int
    """The same in the checkpoint before the coordinator's last one, which may have to do: what the site kept
    before that is not needed again."""
    key: str
    """The same for a task that is delivered twice, and for no other."""


@dataclass(frozen=True)
class Answer(Message):
    """Site → coordinator: what came of a task. Tensors: `mean/…`, `sum/…`, `gather/…` (the rows that are
    kept), `loss`."""

    kind = "answer"
    round: int
    phase: int
    task: str
    """The task's key."""


def norm_of(values: Tree) -> float:
    """The Euclidean norm of all numbers in a tree."""
    return math.hypot(*(torch.linalg.vector_norm(value).item() for value in values.values()))


def digest(*contents: Any) -> str:
    """Of texts, numbers and trees; a large tree is read once and not copied."""
    found = hashlib.sha256()
    for content in contents:
        if not isinstance(content, dict):
            found.update(json.dumps(content).encode())
            continue
        for name in sorted(content):
            value = content[name].detach().cpu().contiguous()
            found.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
            found.update(value.reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def kind_of(data: bytes) -> str:
    """The kind that a message says it is."""
    return str(about_message(data).get("kind"))


def about_message(data: bytes) -> dict[str, Any]:
    """What a message says besides its tensors, without looking at these."""
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        about = json.loads(header["__metadata__"]["fedauc"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refused(f"a message that cannot be read ({type(error).__name__})") from error
    if not isinstance(about, dict):
        raise Refused("a message that cannot be read")
    return about


def checked(answer: Answer, task: Task, like: Tree, largest: float) -> Answer:
    """The answer, if it belongs to this task and is as agreed.

    `like` has the names, types and shapes; of what is gathered the number of rows is free. `largest` bounds
    the norm of what is averaged.
    """
    for field in ("run", "client", "round", "phase"):
        if getattr(answer, field) != getattr(task, field):
            raise Refused(f"an answer for another {field}")
    if answer.task != task.key:
        raise Refused("an answer to another task")
    if answer.tensors.keys() != like.keys():
        raise Refused("an answer with other tensors than agreed")
    for name, value in answer.tensors.items():
        expected = like[name]
        free = name.startswith("gather/")
        if value.dtype != expected.dtype:
            raise Refused(f"an answer whose {name} is of another type")
        if value.dim() != expected.dim() or value.shape[free:] != expected.shape[free:]:
            raise Refused(f"an answer whose {name} is of another shape")
        if name != "loss" and not torch.isfinite(value).all():  # nothing was trained where the loss is NaN
            raise Refused(f"an answer whose {name} is not finite")
    changes = {n: v for n, v in answer.tensors.items() if not n.startswith(("gather/", "loss"))}
    if (norm := norm_of(changes)) > largest:
        raise Refused(f"an answer of norm {norm:.3g}, which is more than {largest:.3g}")
    return answer


def _is(value: Any, kind: str) -> bool:
    """Whether JSON gave a value of this type; a whole float is written as an integer nowhere."""
    if kind == "bool" or isinstance(value, bool):
        return kind == "bool" and isinstance(value, bool)
    types: dict[str, Any] = {"str": str, "int": int, "float": (int, float), "dict": dict}
    return isinstance(value, types[kind])
