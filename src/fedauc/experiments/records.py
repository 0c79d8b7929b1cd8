"""The files of a run that are text: JSON, and metrics.jsonl with a line per round."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedauc.core import checkpoint
from fedauc.core.ledger import Ledger
from fedauc.core.loop import RoundRecord
from fedauc.errors import InputError
from fedauc.experiments.evaluation import Validated

KINDS = {"config.json": "a run", "tune.json": "a search", "compare.json": "a comparison"}
"""What a folder holds in which there is such a file."""
Needs = Mapping[str, type | tuple[type, ...]]


def of_one_kind(folder: Path, own: str) -> None:
    """Refuse a folder that holds something of another kind: their reports would replace one another."""
    for file, what in KINDS.items():
        if file != own and (folder / file).exists():
            raise InputError(f"{folder} holds {what}; choose another --out.")


def read_json(path: Path) -> Any:
    """A JSON file of a run."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist, so {path.parent} holds no finished run.") from None
    except (OSError, ValueError) as error:  # (not JSON, or not even text)
        raise InputError(f"{path} cannot be read: {error}.") from error


def read_object(path: Path, needs: Needs, what_to_do: str = "choose another folder") -> dict[str, Any]:
    """A JSON file that holds an object with what is needed: types by dotted name."""
    try:
        found = read_json(path)
    except InputError as error:
        raise InputError(f"{str(error).removesuffix('.')}; {what_to_do}.") from error
    if not isinstance(found, dict) or not all(
        isinstance(_at(found, name), kind) for name, kind in needs.items()
    ):
        raise damaged(path, what_to_do)
    return found


def damaged(path: Path, what_to_do: str) -> InputError:
    return InputError(f"{path} is damaged: it is not what fedauc writes there; {what_to_do}.")


def _at(content: Any, name: str) -> Any:
    """What stands under a dotted name; None: nothing."""
    for key in name.split("."):
        content = content.get(key) if isinstance(content, dict) else None
    return content


def write_json(path: Path, content: Any) -> None:
    """A JSON file of a run, written atomically; NaN becomes null."""
    text = json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False)
    checkpoint.write_atomic(path, text.encode())


def write_rows(path: Path, rows: list[Any]) -> None:
    """A JSON list with a line for each of its elements, written atomically; NaN becomes null."""
    lines = ",\n".join(json.dumps(_finite(row), ensure_ascii=False, allow_nan=False) for row in rows)
    checkpoint.write_atomic(path, f"[\n{lines}\n]\n".encode())


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class MetricsFile:
    """metrics.jsonl, cut back to the checkpoint when a run is resumed."""

    def __init__(self, out: Path | None, done: int) -> None:
        self.path = out / "metrics.jsonl" if out is not None else None
        self.done = done

    def __enter__(self) -> MetricsFile:
        if self.path is not None:
            kept: list[str] = []
            if self.done and self.path.exists():
                kept = self.path.read_text(errors="replace").splitlines(keepends=True)[: self.done]
            checkpoint.write_atomic(self.path, "".join(kept).encode())
            self.file = open(self.path, "a")
        return self

    def __exit__(self, *_: object) -> None:
        if self.path is not None:
            self.file.close()

    def flush(self) -> None:
        if self.path is not None:
            self.file.flush()
            os.fsync(self.file.fileno())

    def write(self, record: RoundRecord, score: Validated | None, ledger: Ledger, seconds: float) -> None:
        if self.path is None:
            return
        row = record.as_dict() | {
            "valid_auc": score and score.auc,
            "worst_accuracy": score and score.worst_accuracy,
            "chosen_auc": score and score.chosen,
            "bytes_up": ledger.total_up,
            "bytes_down": ledger.total_down,
            "seconds_up": ledger.seconds_up,
            "seconds": round(seconds, 4),
        }
        self.file.write(json.dumps(_finite(row)) + "\n")
