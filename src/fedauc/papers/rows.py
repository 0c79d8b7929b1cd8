"""What stands in results.json, curves.json and a run's measured.json, checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from fedauc.errors import InputError
from fedauc.experiments.records import read_json
from fedauc.papers.names import CURVES, DONE, RESULTS


class Measured(NamedTuple):
    """What one seed gave."""

    value: float | None
    """None: the goal was not reached."""
    rounds: int
    bytes_up: int
    bytes_down: int
    seconds: float
    more: Mapping[str, Any] = {}
    curve: Mapping[str, Sequence[float]] = {}
    """Columns of numbers along the run."""


def _even(columns: dict[str, list[float]]) -> dict[str, list[float]]:
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("its columns are not of one length")
    return columns


class _Cell(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    table: str
    method: str
    dataset: str
    setting: str
    seeds: list[int]

    def has_for_each_seed(self, *columns: Sized) -> None:
        if any(len(column) != len(self.seeds) for column in columns):
            raise ValueError("it has not as many numbers as seeds")


class _Row(_Cell):
    settings: dict[str, Any]
    ours_by_seed: list[float | None]
    ours_mean: float | None
    ours_std: float | None
    devices: list[str]
    more: dict[str, list[Any]]
    rounds: int
    bytes_up: int
    bytes_down: int
    seconds: float

    @model_validator(mode="after")
    def _whole(self) -> _Row:
        self.has_for_each_seed(self.ours_by_seed, self.devices, *self.more.values())
        return self


class _Along(_Cell):
    curves: list[Annotated[dict[str, list[float]], AfterValidator(_even)]]

    @model_validator(mode="after")
    def _whole(self) -> _Along:
        self.has_for_each_seed(self.curves)
        return self


class _Config(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    method: str
    device: str


class _Done(BaseModel):
    config: _Config
    measured: Measured


KINDS: dict[str, TypeAdapter[Any]] = {
    RESULTS: TypeAdapter(list[_Row]),
    CURVES: TypeAdapter(list[_Along]),
    DONE: TypeAdapter(_Done),
}


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of results.json or curves.json, if it is there."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = read_json(path)
    if why := _wrong(path.name, rows):
        raise InputError(
            f"{path} is not a list of cells, as this command writes it ({why}); mend it, or choose another"
            " --results."
        )
    return rows


def done_in(folder: Path) -> dict[str, Any]:
    """What measured.json says: the configuration, and what was measured with it."""
    kept: dict[str, Any] = read_json(folder / DONE)
    if why := _wrong(DONE, kept):
        raise InputError(f"{folder / DONE} is damaged ({why}); remove it to measure this cell anew.")
    return kept


def _wrong(kind: str, content: Any) -> str:
    try:
        KINDS[kind].validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    return ""
