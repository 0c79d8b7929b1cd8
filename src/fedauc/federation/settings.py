"""Settings of people, in TOML files: read strictly, and what is wrong said in one sentence."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from fedauc.errors import InputError

T = TypeVar("T")
strict = with_config(ConfigDict(extra="forbid", strict=True))
"""A dataclass whose settings must be known and of the right type."""


def read_toml(path: Path, kind: type[T]) -> T:
    """The settings in a file."""
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no TOML: {error}.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    return checked(content, kind, str(path))


def checked(content: Mapping[str, Any], kind: type[T], where: str) -> T:
    """The settings in a mapping, as JSON would have them: lists for tuples, and dates as text."""
    try:
        return TypeAdapter(kind).validate_json(json.dumps(content, default=str))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "value_error":
            raise InputError(f"{where}: {first['ctx']['error']}") from error
        place = ".".join(map(str, first["loc"]))
        if first["type"] == "unexpected_keyword_argument":
            raise InputError(f"{where}: there is no setting {place}.") from error
        raise InputError(f"{where}: {place}: {first['msg'].rstrip('.')}.") from error
