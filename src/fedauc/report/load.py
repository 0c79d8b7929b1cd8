"""Reads run folders into one ``Study``: what the report is about, whatever was given."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedauc.errors import InputError
from fedauc.report.text import as_dict, as_list, mean, num, nums, word

SCHEMA = 1
YARDSTICKS = ("central", "clients-alone")


@dataclass(frozen=True)
class Run:
    """One train run: ``result.json`` and ``metrics.jsonl``; of a real federation ``participation.jsonl``."""

    folder: Path
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    log: list[dict[str, Any]] = field(default_factory=list)

    @property
    def method(self) -> str:
        return word(self.result.get("method")) or self.folder.resolve().name or "run"

    @property
    def seed(self) -> int | None:
        seed = num(self.result.get("seed"))
        return None if seed is None else int(seed)

    @property
    def ci(self) -> tuple[float, float] | None:
        ends = nums(self.result.get("test_auc_ci"))
        return (min(ends), max(ends)) if len(ends) == 2 else None

    def number(self, key: str) -> float | None:
        return num(self.result.get(key))

    def traffic(self) -> float | None:
        """Bytes that travelled in all, up and down."""
        ways = [b for b in (self.number("bytes_up"), self.number("bytes_down")) if b is not None]
        return sum(ways) if ways else None


@dataclass(eq=False)
class Entry:
    """One line of the comparison: a method (or yardstick) with its runs over seeds."""

    label: str
    yardstick: bool = False
    auc: float | None = None
    std: float | None = None
    valid: float | None = None
    by_seed: dict[int, float] = field(default_factory=dict)
    rounds: float | None = None
    bytes_up: float | None = None
    bytes_down: float | None = None
    seconds: float | None = None
    seconds_up: float | None = None
    note: str = ""
    runs: list[Run] = field(default_factory=list)
    colour: str = ""  # classes of the style sheet
    form: int = 0  # of its marks

    @property
    def ci(self) -> tuple[float, float] | None:
        """The test interval; over several seeds the mean of their intervals."""
        found = [run.ci for run in self.runs if run.ci]
        if not found:
            return None
        return sum(lo for lo, _ in found) / len(found), sum(hi for _, hi in found) / len(found)

    @property
    def uplink(self) -> float | None:
        """Seconds that the uploads took; None where the clients' speeds are not known."""
        return self.seconds_up if self.seconds_up else None

    @property
    def seeds(self) -> int:
        return len(self.by_seed) or len(self.runs)


@dataclass
class Study:
    entries: list[Entry]  # best test AUC first
    compared: bool  # more than one run
    config: dict[str, Any]
    data: dict[str, Any]
    versions: dict[str, Any]
    pairwise: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    comparable: bool = True  # all on the same data

    @property
    def best(self) -> Entry:
        """The federated method with the highest test AUC (a yardstick only where there is nothing else)."""
        return next((e for e in self.entries if not e.yardstick), self.entries[0])

    @property
    def others(self) -> list[Entry]:
        return [e for e in self.entries if not e.yardstick and e is not self.best]

    @property
    def yardsticks(self) -> list[Entry]:
        return [e for e in self.entries if e.yardstick and e is not self.best]


def load(paths: Sequence[Path]) -> Study:
    """One train run, several train runs, or one compare folder."""
    if not paths:
        raise InputError("No run folder was given; name at least one.")
    folders = list({Path(p).resolve(): Path(p) for p in paths}.values())
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder} is not a run folder: there is no such directory.")
    compares = [f for f in folders if (f / "compare.json").is_file()]
    if compares and len(folders) > 1:
        raise InputError(f"{compares[0]} is a compare folder; report on it alone, or on train runs only.")
    study = _from_compare(compares[0]) if compares else _from_runs([load_run(f) for f in folders])
    study.entries.sort(key=lambda e: (e.auc is None, -(e.auc or 0), e.label))
    return study


def load_run(folder: Path) -> Run:
    result, metrics = _read_object(folder / "result.json"), _read_metrics(folder / "metrics.jsonl")
    return Run(folder, result, metrics, _read_log(folder / "participation.jsonl"))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {path.parent} is not a finished run folder.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}).") from None


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not valid JSON ({error}).") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} holds no JSON object.")
    schema = num(value.get("schema"))
    if schema is not None and schema > SCHEMA:
        raise InputError(f"{path} has schema {schema:.0f}, and this version of fedauc reads up to {SCHEMA}.")
    return value


def _read_metrics(path: Path) -> list[dict[str, Any]]:
    """One object per round; a last line cut short by a crash is left out, a missing file is empty."""
    if not path.exists():
        return []
    lines = [(n, line) for n, line in enumerate(_read_text(path).split("\n"), 1) if line.strip()]
    rows = []
    for n, line in lines:
        try:
            row = json.loads(line)
        except ValueError as error:
            if n == lines[-1][0]:
                break
            raise InputError(f"{path} is not valid JSON in line {n} ({error}).") from None
        if isinstance(row, dict) and num(row.get("round")) is not None:
            rows.append(row)
    return sorted(rows, key=lambda row: row["round"])


def _read_log(path: Path) -> list[dict[str, Any]]:
    """One object per exchange or event, in the order written; what cannot be read is left out."""
    if not path.is_file():
        return []
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}).") from None
    found = [_read_line(line) for line in text.split("\n") if line.strip()]
    return [row for row in found if row]


def _read_line(line: str) -> dict[str, Any]:
    """A line of the log. After a crash the next line may follow on a half one: then it is what counts."""
    starts = [0, *(match.start() for match in re.finditer(r"(?!^)\{", line))]
    for start in starts[:50]:
        try:
            value = json.loads(line[start:])
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and (num(value.get("round")) is not None or word(value.get("event"))):
            return value
    return {}


def _from_compare(folder: Path) -> Study:
    path = folder / "compare.json"
    found = _read_object(path)
    rows = [row for row in as_list(found.get("rows")) if isinstance(row, dict)]
    if not rows:
        raise InputError(f"{path} compares no methods: its list 'rows' is empty.")
    problems = []
    run_folders = as_dict(found.get("runs"))
    entries = []
    for row in rows:
        label = word(row.get("method")) or "unnamed"
        runs = []
        for name in as_list(run_folders.get(label)):
            if (folder / str(name) / "result.json").is_file():
                runs.append(load_run(folder / str(name)))
            else:
                problems.append(f"{name}: its run folder is not there, so its curves are left out.")
        entries.append(_entry_of_row(label, row, runs))
    first = next((run.result for entry in entries for run in entry.runs), {})
    return Study(
        entries=entries,
        compared=True,
        config=as_dict(found.get("config")),
        data=as_dict(found.get("data")) or as_dict(first.get("data")),
        versions=as_dict(found.get("versions")) or as_dict(first.get("versions")),
        pairwise=[p for p in as_list(found.get("pairwise")) if isinstance(p, dict)],
        problems=problems,
    )


def _entry_of_row(label: str, row: dict[str, Any], runs: list[Run]) -> Entry:
    entry = _entry_of_runs(label, runs)
    aucs, seeds = as_list(row.get("test_auc_by_seed")), as_list(row.get("seeds"))
    if aucs:
        seeds = seeds if len(seeds) == len(aucs) else list(range(len(aucs)))
        pairs = [(num(seed), num(value)) for seed, value in zip(seeds, aucs, strict=True)]
        entry.by_seed = {int(s): v for s, v in pairs if s is not None and v is not None}
    given = {
        "auc": num(row.get("test_auc")),
        "std": num(row.get("test_auc_std")),
        "valid": num(row.get("valid_auc")),
        **{key: num(row.get(key)) for key in ("rounds", "bytes_up", "bytes_down", "seconds", "seconds_up")},
    }
    computed = {"auc": mean(entry.by_seed.values()), "std": _std(entry.by_seed)}
    for key, value in given.items():
        value = computed.get(key) if value is None else value
        if value is not None:
            setattr(entry, key, value)
    entry.yardstick = row.get("kind") == "yardstick" or label in YARDSTICKS
    entry.note = word(row.get("note"))
    return entry


def _entry_of_runs(label: str, runs: list[Run]) -> Entry:
    seeded = [(run.seed, run.number("test_auc")) for run in runs]
    by_seed = {seed: value for seed, value in seeded if seed is not None and value is not None}
    return Entry(
        label=label,
        yardstick=label in YARDSTICKS,
        auc=mean(run.number("test_auc") for run in runs),
        std=_std(by_seed),
        valid=mean(run.number("valid_auc") for run in runs),
        by_seed=by_seed,
        rounds=mean(run.number("rounds") for run in runs),
        bytes_up=mean(run.number("bytes_up") for run in runs),
        bytes_down=mean(run.number("bytes_down") for run in runs),
        seconds=mean(run.number("seconds") for run in runs),
        seconds_up=mean(run.number("seconds_up") for run in runs),
        runs=runs,
    )


def _std(by_seed: dict[int, float]) -> float | None:
    return statistics.stdev(by_seed.values()) if len(by_seed) > 1 else None


def _from_runs(runs: list[Run]) -> Study:
    """Runs of one method with different seeds are one entry; otherwise each run stands for itself."""
    by_method: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_method[run.method].append(run)
    entries = []
    for method, group in by_method.items():
        seeds = [run.seed for run in group]
        if len(group) == 1 or (None not in seeds and len(set(seeds)) == len(seeds)):
            entries.append(_entry_of_runs(method, group))
        else:
            names = _folder_names([run.folder for run in group])
            entries += [_entry_of_runs(f"{method} · {n}", [r]) for n, r in zip(names, group, strict=True)]
    first = runs[0].result
    return Study(
        entries=entries,
        compared=len(runs) > 1,
        config=as_dict(first.get("config")) or _config_beside(runs[0].folder),
        data=as_dict(first.get("data")),
        versions=as_dict(first.get("versions")),
        comparable=_same_data(runs),
    )


def _folder_names(folders: list[Path]) -> list[str]:
    """The shortest endings of the paths that tell the folders apart."""
    parts = [f.resolve().parts for f in folders]
    for depth in range(1, max(len(p) for p in parts) + 1):
        names = ["/".join(p[-depth:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    return [f"run {n}" for n in range(1, len(folders) + 1)]


def _same_data(runs: list[Run]) -> bool:
    """One name for all, and the same counts in all runs of a seed (a seed may draw other rows)."""
    names, counts = set(), defaultdict(set)
    for run in runs:
        data = as_dict(run.result.get("data"))
        names.add(word(data.get("name")))
        counts[run.seed].add(tuple(num(data.get(key)) for key in ("rows", "positives", "clients")))
    return len(names) == 1 and all(len(found) == 1 for found in counts.values())


def _config_beside(folder: Path) -> dict[str, Any]:
    return _read_object(folder / "config.json") if (folder / "config.json").is_file() else {}
