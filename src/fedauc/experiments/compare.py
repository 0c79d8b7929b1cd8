"""Several methods on the same splits and seeds, and two yardsticks: each client alone, and pooled data."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedauc import metrics, models
from fedauc.core import checkpoint, rng
from fedauc.data.federated import FederatedData
from fedauc.errors import InputError
from fedauc.experiments import runner
from fedauc.experiments.assembly import Prepared
from fedauc.experiments.config import CHOSEN, FILES, Config, UnknownSetting
from fedauc.experiments.jobs import Numbered, each, prepared
from fedauc.experiments.outcome import versions
from fedauc.experiments.records import of_one_kind, read_object, write_json
from fedauc.experiments.runner import Watch
from fedauc.locks import held
from fedauc.models import Model
from fedauc.transports import ranks

ALONE, CENTRAL = "clients-alone", "central"
MOST_ALONE = 100
"""So many clients at most are trained alone, drawn by the seed."""


@dataclass(frozen=True)
class Outcome:
    """One method or yardstick with one seed."""

    test_auc: float
    valid_auc: float | None
    rounds: int
    bytes_up: int
    bytes_down: int
    seconds: float
    note: str = ""
    seconds_up: float = 0.0


class Job(NamedTuple):
    """One run to do."""

    name: str
    config: Config
    folder: Path
    resume: bool


def compare(
    methods: Sequence[str],
    overrides: Mapping[str, Any],
    seeds: Sequence[int],
    out: Path,
    *,
    resume: bool = False,
    yardsticks: bool = True,
    jobs: int = 1,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Run `methods` × `seeds` and the yardsticks into the folder `out`; returns compare.json's content.

    With `jobs` > 1 so many of them run at the same time, each in its own process.
    """
    here = ranks.here()
    if len(set(methods)) != len(methods):
        raise InputError("--methods names a method twice.")
    configs = {name: Config.resolve(name, relevant(name, overrides, methods)) for name in methods}
    yardstick = yardstick_method(configs)
    work = [
        Job(name, configs[name].changed({"seed": seed}), out / name / f"seed-{seed}", resume)
        for seed in seeds
        for name in methods
    ]
    if yardsticks:
        work += [
            Job(name, configs[yardstick].changed({"seed": seed}), out / name / f"seed-{seed}", resume)
            for seed in seeds
            for name in YARDSTICKS
        ]
    with held(out, here.first):
        here.told(lambda: _free(out, resume))
        made = each(work, _run, jobs, watch)
        outcomes: dict[str, list[Outcome]] = {}
        for job, outcome in zip(work, made, strict=True):  # (seed by seed)
            outcomes.setdefault(job.name, []).append(outcome)
        data = here.told(lambda: read_object(work[0].folder / "result.json", {"data": dict})["data"])
        order = [*methods, *(YARDSTICKS if yardsticks else ())]
        rows = [_row(name, outcomes[name], seeds, yardstick) for name in order]
        content = {
            "schema": 1,
            "kind": "compare",
            "rows": rows,
            "runs": {name: [f"{name}/seed-{seed}" for seed in seeds] for name in methods},
            "pairwise": _duels({name: outcomes[name] for name in methods}),
            "data": data,
            "config": configs[yardstick].as_dict(),
            "versions": versions(),
        }
        if here.first:
            write_json(out / "compare.json", content)
            checkpoint.write_atomic(out / "compare.csv", _csv(rows).encode())
    return content


def _free(out: Path, resume: bool) -> None:
    """The folder is new, or a comparison is to go on in it."""
    of_one_kind(out, "compare.json")
    if (out / "compare.json").exists() and not resume:
        raise InputError(f"{out} already holds a comparison; choose another --out, or --resume to go on.")


def relevant(name: str, overrides: Mapping[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """The settings that this method has; a setting that no compared method has is an error.

    `METHOD:key=value` is for one method only.
    """
    mine: dict[str, Any] = {}
    for key, value in sorted(overrides.items(), key=_components_first):
        target, colon, rest = key.partition(":")
        if colon:
            if target not in methods:
                raise InputError(f"The setting {key!r} is for {target!r}, which is not among --methods.")
            if target == name:
                mine[rest] = value
            continue
        try:
            Config.resolve(name, mine | {key: value})
        except UnknownSetting:
            if not any(_takes(other, overrides, key) for other in methods if other != name):
                raise
            continue
        mine[key] = value
    return mine


def _components_first(item: tuple[str, Any]) -> bool:
    """Which components there are decides which settings there are."""
    return item[0].partition(":")[2].removesuffix(".name") not in CHOSEN and item[0] not in CHOSEN


def _takes(method: str, overrides: Mapping[str, Any], key: str) -> bool:
    """Whether a method has this setting, with the components that are asked for."""
    components = {name: value for name, value in overrides.items() if name in CHOSEN}
    try:
        Config.resolve(method, components | {key: overrides[key]})
    except UnknownSetting:
        return False
    return True


def yardstick_method(configs: Mapping[str, Config]) -> str:
    """The yardsticks train like the last method that maximises AUC, or else like the last."""
    ranking = [
        name for name, config in configs.items() if config.sections["objective"]["name"] != "cross-entropy"
    ]
    return (ranking or list(configs))[-1]


def _simple(config: Config) -> dict[str, Any]:
    """A yardstick trains one client: nobody to choose from, to wait for or to weigh, nothing before it."""
    fresh = config.train.head == "fresh" and config.train.init_from is None  # (after a warm-up)
    head = "kept" if fresh else config.train.head
    alone = {"participation": "full", "uplink": "none", "server": "average"}
    return {**alone, "train.warmup": None, "train.head": head}


def central(config: Config, prepared: Prepared, watch: Watch | None = None) -> Outcome:
    """The same model and objective on the pooled rows: one client, as many steps and examples per step."""
    fed = config.federation(prepared.train, _model(config, prepared))
    everybody = np.zeros(len(prepared.train.y), dtype=np.int64)
    train = FederatedData.build(prepared.train.x, prepared.train.y, everybody, ["all"], config.device)
    staged = config.sections["schedule"].get("stage_cycles")
    pooled = config.changed(
        _simple(config)
        | ({"schedule.stage_cycles": staged * fed.roster.cycle_length} if staged else {})
        | {
            "schedule.cycles": fed.rounds,
            "train.batch": min(round(config.train.batch * fed.roster.active), 4096),
            "train.eval_every": config.train.eval_every or fed.roster.cycle_length,
            "train.memory": config.train.memory * fed.roster.cycle_length,
        }
    )
    trained = runner.train(pooled, replace(prepared, train=train), watch=watch)
    auc = metrics.auc(trained.scored(prepared.test).scores, prepared.test.y)
    return Outcome(auc, trained.best.auc, trained.state.round, 0, 0, trained.seconds)


def alone(config: Config, prepared: Prepared, watch: Watch | None = None) -> Outcome:
    """The mean over clients of the test AUC that each reaches with its own rows and the same local work.

    A client that lacks a class learns no order: it counts with 0.5.
    """
    train = prepared.train
    able = np.flatnonzero((train.counts > 0).all(axis=1))
    chosen = able
    if len(able) > MOST_ALONE:
        chosen = np.sort(rng.generator(config.seed, rng.COHORT).permutation(able)[:MOST_ALONE])
    solo = config.changed(
        _simple(config) | {"train.eval_every": max(1, config.sections["schedule"]["cycles"] // 10)}
    )
    aucs, seconds = [], 0.0
    for place, i in enumerate(chosen, start=1):
        rows = train.order[train.start[i] : train.start[i + 1]]
        own = FederatedData.build(
            train.x[rows],
            train.y[rows],
            np.zeros(len(rows), dtype=np.int64),
            [train.names[int(i)]],
            config.device,
        )
        shown = Numbered(watch, place, len(chosen), "alone, client ") if watch is not None else None
        trained = runner.train(solo, replace(prepared, train=own), watch=shown)
        aucs.append(metrics.auc(trained.scored(prepared.test).scores, prepared.test.y))
        seconds += trained.seconds
    share = len(able) / train.clients
    mean = share * float(np.mean(aucs)) + (1 - share) * 0.5 if aucs else 0.5
    note = f"{train.clients - len(able)} of {train.clients} clients lack a class and count with 0.5"
    if len(able) > MOST_ALONE:
        note += f"; {MOST_ALONE} of the others were drawn"
    return Outcome(mean, None, config.sections["schedule"]["cycles"], 0, 0, seconds, note)


YARDSTICKS: dict[str, Callable[[Config, Prepared, Watch | None], Outcome]] = {ALONE: alone, CENTRAL: central}


def _model(config: Config, prepared: Prepared) -> Model:
    return models.init(config.component("model"), prepared.shape, config.seed, config.device)[0]


def _run(job: Job, watch: Watch | None) -> Outcome:
    """A method's run, or a yardstick measured once and kept for --resume."""
    rows = prepared(job.config)
    if job.name not in YARDSTICKS:
        result = runner.run(job.config, job.folder, resume=job.resume, prepared=rows, watch=watch)
        keys = ("test_auc", "valid_auc", "rounds", "bytes_up", "bytes_down", "seconds", "seconds_up")
        return Outcome(**{key: result[key] for key in keys})
    kept, here = job.folder / "yardstick.json", ranks.here()
    if (found := here.told(lambda: _measured(kept, job.config, rows.fingerprint))) is not None:
        return found
    outcome = YARDSTICKS[job.name](job.config, rows, watch)
    if here.first:
        job.folder.mkdir(parents=True, exist_ok=True)
        about = {"config": job.config.as_dict(), "rows": rows.fingerprint, "outcome": asdict(outcome)}
        write_json(kept, about)
    return outcome


def _measured(kept: Path, config: Config, rows: str) -> Outcome | None:
    """A yardstick that was measured before: trained like the same method, on the same rows."""
    if not kept.exists():
        return None
    found = read_object(kept, {"config.method": str, "rows": str, "outcome": dict})
    if found["rows"] != rows or config.differing(found["config"], FILES):
        return None
    return Outcome(**found["outcome"])


def _row(name: str, outcomes: Sequence[Outcome], seeds: Sequence[int], yardstick: str) -> dict[str, Any]:
    def mean(key: str) -> float:
        return statistics.fmean(getattr(outcome, key) for outcome in outcomes)

    aucs = [outcome.test_auc for outcome in outcomes]
    notes = {
        ALONE: f"mean over clients, trained like {yardstick}",
        CENTRAL: f"pooled rows, trained like {yardstick}",
    }
    details = [notes[name]] if name in notes else []
    details += dict.fromkeys(outcome.note for outcome in outcomes if outcome.note)
    return {
        "method": name,
        "kind": "yardstick" if name in notes else "federated",
        "test_auc": statistics.fmean(aucs),
        "test_auc_std": statistics.stdev(aucs) if len(aucs) > 1 else None,
        "valid_auc": None if outcomes[0].valid_auc is None else mean("valid_auc"),
        "seeds": list(seeds),
        "test_auc_by_seed": aucs,
        "rounds": round(mean("rounds")),
        "bytes_up": round(mean("bytes_up")),
        "bytes_down": round(mean("bytes_down")),
        "seconds": mean("seconds"),
        "seconds_up": mean("seconds_up"),
        "note": "; ".join(details),
    }


def _duels(outcomes: Mapping[str, Sequence[Outcome]]) -> list[dict[str, Any]]:
    """How often each method beat each other on the same split."""
    duels = []
    names = list(outcomes)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            gaps = [x.test_auc - y.test_auc for x, y in zip(outcomes[a], outcomes[b], strict=True)]
            duels.append(
                {
                    "a": a,
                    "b": b,
                    "wins": sum(gap > 0 for gap in gaps),
                    "of": len(gaps),
                    "mean_difference": statistics.fmean(gaps),
                }
            )
    return duels


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    file = io.StringIO()
    plain = [{k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()} for row in rows]
    writer = csv.DictWriter(file, fieldnames=list(plain[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    return file.getvalue()
