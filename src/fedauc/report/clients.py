"""Per-client results, the ledger and participation, gathered over the seeds of an entry."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from fedauc.report.load import Entry, Run
from fedauc.report.text import as_dict, as_list, mean, num, nums, word

# Names of the ledger that say more in the report.
NAMES = {
    "z": "model",
    "anchor": "proximal anchor",
    "c": "control variate",
    "control": "control variate",
    "h": "inner estimate",
    "started": "first-step flag",
    "ratio": "class ratio",
    "cycle": "cycle number",
    "positives": "scores of positives",
    "negatives": "scores of negatives",
    "estimates": "estimates of positives",
    "dual": "sums of scores",
    "statistics": "normalisation statistics",
    "inner": "wrapped message",
}
WARM_UP = "warm-up: "
# An item of the ledger named by one of these would be data that left a client, unless it is only counted.
_ROW_WORDS = {"row", "rows", "feature", "features", "label", "labels", "record", "records", "data"}
_COUNT_WORDS = {"count", "counts", "number", "numbers", "size", "sizes", "scores"}


@dataclass(frozen=True)
class Client:
    name: str
    rows: float | None
    positives: float | None
    train_rows: float | None
    train_positives: float | None
    auc: float | None
    why: str  # why the AUC is undefined
    known: int  # seeds where it is defined
    seeds: int


def clients_of(entry: Entry) -> list[Client]:
    """Means over the entry's seeds; lowest AUC first, undefined last."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in entry.runs:
        for row in as_list(run.result.get("per_client")):
            if isinstance(row, dict):
                found[word(row.get("client")) or "unnamed"].append(row)
    return sorted(
        (_client(name, rows) for name, rows in found.items()),
        key=lambda c: (c.auc is None, c.auc or 0, c.name),
    )


def _client(name: str, rows: list[dict[str, Any]]) -> Client:
    aucs = [num(row.get("auc")) for row in rows]
    value = mean(aucs)
    why = next(filter(None, (word(row.get("why")) for row in rows)), "")
    return Client(
        name=name,
        rows=mean(num(row.get("rows")) for row in rows),
        positives=mean(num(row.get("positives")) for row in rows),
        train_rows=mean(num(row.get("train_rows")) for row in rows),
        train_positives=mean(num(row.get("train_positives")) for row in rows),
        auc=value,
        why=why or ("" if value is not None else "not recorded"),
        known=sum(a is not None for a in aucs),
        seeds=len(rows),
    )


def ledger_of(entry: Entry) -> dict[str, tuple[float, float]]:
    """Bytes up and down by what travelled, mean over the seeds, most first."""
    runs = [_flat_ledger(run) for run in entry.runs if as_dict(run.result.get("ledger"))]
    items = {item for up, down in runs for item in (*up, *down)}
    means = {
        item: (
            sum(up.get(item, 0) for up, _ in runs) / len(runs),
            sum(down.get(item, 0) for _, down in runs) / len(runs),
        )
        for item in items
    }
    return dict(sorted(means.items(), key=lambda pair: (-sum(pair[1]), pair[0])))


def _flat_ledger(run: Run) -> tuple[dict[str, float], dict[str, float]]:
    ledger = as_dict(run.result.get("ledger"))
    return _flat(ledger.get("up")), _flat(ledger.get("down"))


def _flat(value: Any, prefix: str = "") -> dict[str, float]:
    flat: dict[str, float] = {}
    for key, inner in as_dict(value).items():
        number = num(inner)
        if number is not None:
            name = item_name(prefix + key)
            flat[name] = flat.get(name, 0) + number
        else:
            flat |= _flat(inner, f"{prefix}{key} / ")
    return flat


def item_name(raw: str) -> str:
    """What an item of the ledger is called: by its own name, however deep inside a message it was."""
    before = WARM_UP if raw.startswith(WARM_UP) else ""
    own = raw.removeprefix(before)
    return before + NAMES.get(own.rpartition("/")[2], own)


def rows_left(entry: Entry) -> list[str]:
    """Items sent up that, by their names, would be rows of data; none is what federated means."""
    found = []
    for item, (up, _) in ledger_of(entry).items():
        words = set(re.findall("[a-z]+", item.lower()))
        if up > 0 and words & _ROW_WORDS and not words & _COUNT_WORDS:
            found.append(item)
    return found


@dataclass(frozen=True)
class Participation:
    groups: list[list[str]]  # names of the clients of each group; one of everybody where there are none
    by_round: list[tuple[int, set[int]]]  # round, which groups took part; empty if there are no groups
    stages: list[tuple[int, str]]  # first round and name of each stage
    rounds: int
    cycles: int | None
    clients: tuple[float, float] | None  # least and most clients in a round
    average: float | None  # clients in a round
    how: str  # the participation's name in the configuration, where it is known
    reports: bool  # whether other clients report their losses besides


def participation_of(run: Run) -> Participation:
    settings = as_dict(as_dict(run.result.get("config")).get("participation"))
    how = word(settings.get("name"))
    groups = [[str(c) for c in as_list(g)] for g in as_list(run.result.get("groups"))]
    seen = [(int(row["round"]), row.get("group")) for row in run.metrics]
    numbers = [n for _, group in seen for n in _numbers(group)]
    base = 0 if 0 in numbers else 1  # groups may be counted from 0 or from 1
    by_round = [(r, {n - base for n in _numbers(group)}) for r, group in seen if _numbers(group)]
    drawn = how in ("optimal", "weighted") and settings.get("groups") is None
    if len(groups) == 1 or how in ("full", "uniform") or drawn:  # the number is a place in the cycle
        by_round = []
    most = max((n for _, took in by_round for n in took), default=-1)
    groups += [[] for _ in range(most + 1 - len(groups))]
    cycles = {row["cycle"] for row in run.metrics if isinstance(row.get("cycle"), int | str)}
    took_part = nums([row.get("clients") for row in run.metrics])
    clients = (min(took_part), max(took_part)) if took_part else None
    return Participation(
        groups=groups,
        by_round=by_round,
        stages=stages_of(run),
        rounds=len(seen),
        cycles=len(cycles) or None,
        clients=clients,
        average=mean(took_part),
        how=how,
        reports="loss" in _flat_ledger(run)[0],
    )


def stages_of(run: Run) -> list[tuple[int, str]]:
    """First round and name of each stage; numbers are shown from 1."""
    names = [(int(row["round"]), row.get("stage")) for row in run.metrics]
    add = 1 if any(name == 0 for _, name in names) else 0
    stages: list[tuple[int, str]] = []
    for number, name in names:
        shown = word(name + add if isinstance(name, int) else name)
        if shown and (not stages or stages[-1][1] != shown):
            stages.append((number, shown))
    return stages


def _numbers(group: Any) -> list[int]:
    numbers = [num(g) for g in (group if isinstance(group, list) else [group])]
    return [int(n) for n in numbers if n is not None and n >= 0]
