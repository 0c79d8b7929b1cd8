"""One run: train, validate, keep the best, test it, write the folder.

RUN/config.json      the configuration, complete          RUN/metrics.jsonl   a line per round
RUN/result.json      what came out                        RUN/model.safetensors
RUN/preprocess.json  the fitted preprocessing (tables)    RUN/report.html
RUN/checkpoint.safetensors  while the run goes on: `resume` continues from it, bit for bit; the one before it
                            is RUN/checkpoint.previous.safetensors
"""

from __future__ import annotations

import copy
import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from fedauc import metrics, models
from fedauc.core import checkpoint
from fedauc.core.ledger import Ledger
from fedauc.core.loop import Federation, RoundRecord, RunState, advance, begin
from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.experiments import outputs, start
from fedauc.experiments.assembly import Part, Prepared, Scored
from fedauc.experiments.calibration import Calibration
from fedauc.experiments.config import Config
from fedauc.experiments.evaluation import Beside, Validated, validated
from fedauc.experiments.prepare import prepare
from fedauc.experiments.selection import Candidate, Selection
from fedauc.methods.base import of
from fedauc.models import Model
from fedauc.report import write_report
from fedauc.transports import ranks
from fedauc.version import installed

SMALL = 20_000  # parameters up to which a second thread costs more than it brings


class Watch(Protocol):
    """Whoever shows how a run goes on; `round` may be called from another thread, in order."""

    def begin(self, title: str, rounds: int, done: int) -> None: ...

    def round(self, record: RoundRecord, auc: float | None, traffic: int) -> None: ...

    def end(self) -> None: ...


class Silent:
    """Shows nothing."""

    def begin(self, title: str, rounds: int, done: int) -> None: ...

    def round(self, record: RoundRecord, auc: float | None, traffic: int) -> None: ...

    def end(self) -> None: ...


@dataclass(frozen=True)
class Trained:
    """A run's outcome in memory."""

    config: Config
    prepared: Prepared
    federation: Federation
    model: Model
    best: Candidate
    state: RunState
    seconds: float
    calibration: Calibration

    def scored(self, part: Part) -> Scored:
        """Rows with the logits of the best model."""
        return part.scored(self.model, self.best.z)


def run(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    prepared: Prepared | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Train one configuration into the folder `out`; returns the content of its result.json.

    Where several processes train together, the first one reads and writes the folder.
    """
    here = ranks.here()
    if (done := here.told(lambda: _done(config, out, resume))) is not None:
        return done
    prepared = prepared if prepared is not None else prepare(config.data, config.seed, config.device)
    fresh, params, fed = _built(config, prepared)  # what cannot work fails before anything is written
    begin(fed, params)
    if config.train.init_from is not None:
        here.told(lambda: _from_file(config, prepared, fresh, params))
    if config.train.warmup is not None:
        _, first_params, first = _built(config.before(), prepared)
        begin(first, first_params)
    if here.first:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "config.json", config.as_dict())
    trained = train(config, prepared, out=out, watch=watch)
    return here.told(lambda: _written(trained, out))


def _done(config: Config, out: Path, resume: bool) -> dict[str, Any] | None:
    """The result of a folder that holds a finished run; a run that is not this one is an error."""
    if (out / "result.json").exists():
        if not resume:
            raise InputError(
                f"{out} already holds a run; choose another --out, or --resume to go on with it."
            )
        _same_config(out, config)
        return read_json(out / "result.json")
    started = (out / "config.json").exists()
    if started and not resume:
        raise InputError(
            f"{out} holds an unfinished run; choose another --out, or --resume to go on with it."
        )
    if started:
        _same_config(out, config)
    return None


def _written(trained: Trained, out: Path) -> dict[str, Any]:
    """Write what came out; returns the content of result.json."""
    config, prepared, result = trained.config, trained.prepared, summarise(trained)
    model = trained.model.params(trained.best.z)
    shape = {"shape": list(prepared.shape), "model": dict(config.as_dict()["model"])}
    checkpoint.write_tensors(
        out / "model.safetensors", model, shape | {"calibration": trained.calibration._asdict()}
    )
    if prepared.preprocessor is not None:
        checkpoint.write_atomic(out / "preprocess.json", prepared.preprocessor.to_json().encode())
    write_json(out / "result.json", result)
    write_report([out], out / "report.html")
    checkpoint.remove(out / "checkpoint.safetensors")
    return result


def train(
    config: Config, prepared: Prepared, *, out: Path | None = None, watch: Watch | None = None
) -> Trained:
    """The loop with validation and, given a folder, checkpoints and metrics.jsonl."""
    watch, here = watch or Silent(), ranks.here()
    model, params, fed = _built(config, prepared)
    params, earlier, before = _start(config, prepared, model, params, out, watch)
    state = begin(fed, params)
    state.ledger.up({"setup: statistics": prepared.setup_up}, 0)
    state.ledger.down({"setup: preprocessing": prepared.setup_down}, 0)
    state.ledger.include("warm-up", earlier)
    selection: Selection | None = None
    evaluator = copy.deepcopy(model)  # a model is called by one thread at a time
    threads = config.train.threads or _serving(params)
    saved = out / "checkpoint.safetensors" if out is not None else None
    found = here.told(lambda: checkpoint.read_latest(saved) if saved else None)
    if saved is not None and found is not None:
        state, flat, extra = checkpoint.restored(saved, *found, state, config.device)
        selection = _selected(flat, extra, prepared.valid)
        before = extra["seconds"]
    every = config.train.eval_every or fed.roster.cycle_length
    began = time.monotonic()
    watch.begin(f"{config.method} · seed {config.seed}", fed.rounds, state.round)

    def end(record: RoundRecord, state: RunState, seconds: float, score: Validated | None = None) -> None:
        ledger = state.ledger
        log.write(record, score, ledger, seconds)
        watch.round(record, score and score.auc, ledger.total_up + ledger.total_down)
        # Clients that are elsewhere are not asked twice: every one of their rounds is kept.
        if saved is not None and (score is not None or prepared.reach is not None):
            log.flush()
            _save(saved, state, selection, seconds)
            fed.transport.committed(state.memory)

    def validate(record: RoundRecord, state: RunState, z: Tree, seconds: float) -> None:
        nonlocal selection
        if not here.first:  # the choice of the model, and with it the folder, is the first one's affair
            return
        last = record.round == fed.rounds
        selection, score = validated(evaluator, z, state.round, prepared.valid, config, selection, last)
        end(record, state, seconds, score)

    try:
        with (
            _threads(threads),
            _MetricsFile(out if here.first else None, state.round) as log,
            Beside(config.device, threads, alone=prepared.reach is None) as beside,
        ):
            while state.round < fed.rounds:
                state, record = advance(fed, state)
                seconds = before + time.monotonic() - began
                if record.round % every == 0 or record.round == fed.rounds:
                    z, ledger = outputs.output(fed, model, state, config.train.statistics)
                    state = state._replace(ledger=ledger)
                    beside.do(partial(validate, record, state, z, seconds), large=True)
                else:
                    beside.do(partial(end, record, state, seconds), large=False)
    finally:
        watch.end()
    seconds = before + time.monotonic() - began

    def chosen() -> tuple[Candidate, Calibration]:
        if selection is None:
            raise InputError(
                "No round could be validated: the rows of the clients that answered have one class."
            )
        best = selection.choice
        valid = _answered(prepared, prepared.valid.scored(model, best.z), "validation")
        return best, Calibration.fit(valid.scores, valid.y)

    best, calibration = here.told(chosen, config.device)
    return Trained(config, prepared, fed, model, best, state, seconds, calibration)


def _built(config: Config, prepared: Prepared) -> tuple[Model, Tree, Federation]:
    """The model, its start values and the federation; all processes must have come to the same."""
    here = ranks.here()
    here.agree("settings", json.dumps(config.as_dict()).encode())
    here.agree("training rows", prepared.train.counts, prepared.train.order)
    model, params = models.init(
        config.component("model"), prepared.shape, config.seed, config.device, config.train.precision
    )
    if config.train.statistics != "averaged" and not model.statistics:
        raise InputError(
            f"train.statistics={config.train.statistics}: this model has no running statistics; only a resnet"
            " or densenet with norm=batch has."
        )
    fed = config.federation(prepared.train, model)
    return model, params, fed if prepared.reach is None else fed.via(prepared.reach(config))


def _from_file(config: Config, prepared: Prepared, model: Model, params: Tree) -> Tree:
    assert config.train.init_from is not None
    if config.train.head == "fresh" and set(params) <= set(model.head):
        raise InputError(
            f"With a fresh head there is nothing to take over from {config.train.init_from}: this model is"
            " only a head."
        )
    columns = None if prepared.preprocessor is None else prepared.preprocessor.feature_names
    return start.from_file(Path(config.train.init_from), model, params, config.train.head, columns)


def _start(
    config: Config, prepared: Prepared, model: Model, params: Tree, out: Path | None, watch: Watch
) -> tuple[Tree, Ledger, float]:
    """The parameters to start from, and what it took to get them: traffic and seconds."""
    settings, here = config.train, ranks.here()
    if settings.init_from is not None:
        taken = here.told(lambda: _from_file(config, prepared, model, params), config.device)
        return taken, Ledger(), 0.0
    if settings.warmup is None:
        return params, Ledger(), 0.0
    first = config.before()
    if out is None:
        trained = train(first, prepared, watch=watch)
        taken = start.taken_over(trained.best.z, model, params, settings.head, "memory")
        return taken, trained.state.ledger, trained.seconds
    result = run(first, out / "warmup", resume=True, prepared=prepared, watch=watch)
    taken = here.told(lambda: start.from_file(out / "warmup", model, params, settings.head), config.device)
    return taken, Ledger.from_dict(result["ledger"]), float(result["seconds"])


def summarise(trained: Trained) -> dict[str, Any]:
    """The content of result.json; the test rows are looked at here and nowhere else."""
    prepared, fed, ledger = trained.prepared, trained.federation, trained.state.ledger
    train, test = prepared.train, _answered(prepared, trained.scored(prepared.test), "test")
    scores = test.scores
    fpr, tpr = metrics.roc_points(scores, test.y)
    rows = train.counts.sum(axis=1)
    return {
        "schema": 1,
        "kind": "train",
        "method": trained.config.method,
        "seed": trained.config.seed,
        "test_auc": metrics.auc(scores, test.y),
        "test_auc_ci": list(metrics.auc_interval(scores, test.y)),
        "valid_auc": trained.best.auc,
        "best_round": trained.best.round,
        "rounds": trained.state.round,
        "bytes_up": ledger.total_up,
        "bytes_down": ledger.total_down,
        "seconds_up": ledger.seconds_up,
        "seconds": trained.seconds,
        "per_client": _per_client(prepared, test),
        "groups": [[train.names[i] for i in group] for group in fed.roster.groups],
        "ledger": ledger.as_dict(),
        "test": {
            "rows": len(test.y),
            "positives": int(test.y.sum()),
            "auc_bounds": test.bounds,
            "average_precision": metrics.average_precision(scores, test.y),
            "roc": {"fpr": np.round(fpr, 6).tolist(), "tpr": np.round(tpr, 6).tolist()},
        },
        "calibration": trained.calibration._asdict(),
        "data": {
            "name": prepared.name,
            "rows": int(rows.sum()) + len(prepared.valid.y) + len(prepared.test.y),
            "train_rows": int(rows.sum()),
            "train_positives": int(train.counts[:, 1].sum()),
            "positives": int(train.counts[:, 1].sum() + prepared.valid.y.sum() + prepared.test.y.sum()),
            "features": int(np.prod(prepared.shape)),
            "clients": train.clients,
            "clients_without_positives": int((train.counts[:, 1] == 0).sum()),
            "notes": [*prepared.notes, *_own_notes(trained), *_test_notes(prepared, test)],
        },
        "config": trained.config.as_dict(),
        "versions": versions(),
    }


def _answered(prepared: Prepared, found: Scored, name: str) -> Scored:
    """What was scored, if it has both classes; clients that are elsewhere may not have answered."""
    if 0 < found.y.sum() < len(found.y):
        return found
    missing = "; ".join(f"{prepared.names[i]}: {why}" for i, why in found.why.items())
    raise InputError(f"The {name} rows of the clients that answered have one class ({missing}).")


def _own_notes(trained: Trained) -> list[str]:
    if trained.config.train.statistics != "local":
        return []
    return [
        "Running statistics stayed at the clients, whose rows are scored with their own; the saved model has"
        " the mean of all clients' statistics, so scores of `fedauc predict` differ."
    ]


def _test_notes(prepared: Prepared, test: Scored) -> list[str]:
    """What is to be known of a test with clients that are elsewhere."""
    notes = []
    if test.rows is not None and len(test.rows) < len(prepared.test.y):
        here = set(test.client.tolist()) if test.client is not None else set()
        away = [f"{prepared.names[i]} ({why})" for i, why in test.why.items() if i not in here]
        notes.append(f"The test is without the rows of {', '.join(away)}.")
    if test.bounds is not None:
        low, high = test.bounds
        notes.append(
            f"Some clients share histograms of scores: the test AUC is between {low:.4f} and {high:.4f}."
        )
    return notes


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    names = ("fedauc", "torch", "numpy", "pandas", "scikit-learn")
    return {"python": platform.python_version()} | {name: installed(name) for name in names}


def read_json(path: Path) -> Any:
    """A JSON file of a run."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path} does not exist, so {path.parent} holds no finished run.") from None
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error


def write_json(path: Path, content: Any) -> None:
    """A JSON file of a run, written atomically; NaN becomes null."""
    text = json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False)
    checkpoint.write_atomic(path, text.encode())


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _same_config(out: Path, config: Config) -> None:
    old, new = read_json(out / "config.json"), json.loads(json.dumps(config.as_dict()))
    if old != new:
        keys = [
            f"{s}.{k}" if isinstance(v, dict) else s
            for s, v in new.items()
            for k in (v if isinstance(v, dict) else [s])
            if (old.get(s, {}).get(k) != v[k] if isinstance(v, dict) else old.get(s) != v)
        ]
        raise InputError(
            f"{out} holds a run with another configuration ({', '.join(keys)}); it cannot be resumed."
        )


def _save(path: Path, state: RunState, selection: Selection | None, seconds: float) -> None:
    trees: dict[str, Tree] = {}
    extra: dict[str, Any] = {"seconds": seconds}
    if selection is not None:
        for name, candidate in (("peak", selection.peak), ("choice", selection.choice)):
            trees[name] = candidate.z
            extra[name] = [candidate.auc, candidate.round]
        scored = {"scores": selection.scored.scores, "rows": selection.scored.rows}
        trees["scored"] = {n: torch.from_numpy(values) for n, values in scored.items() if values is not None}
    checkpoint.save_state(path, state, trees, extra)


def _selected(flat: Tree, extra: Mapping[str, Any], valid: Part) -> Selection | None:
    """The inverse of what `_save` does with a selection."""
    if "peak" not in extra:
        return None
    peak, choice = (Candidate(of(name, flat), *extra[name]) for name in ("peak", "choice"))
    scored = {name: values.numpy(force=True) for name, values in of("scored", flat).items()}
    rows = scored.get("rows")
    here = slice(None) if rows is None else rows
    client = None if valid.client is None else valid.client[here]
    return Selection(peak, Scored(scored["scores"], valid.y[here], client, rows), choice)


def _per_client(prepared: Prepared, test: Scored) -> list[dict[str, Any]]:
    counts = prepared.train.counts
    if test.client is None:
        why = "the test rows belong to no client"
        rows: list[dict[str, Any]] = [
            {"client": name, "rows": 0, "positives": 0, "auc": None, "why": why} for name in prepared.names
        ]
    else:
        rows = metrics.per_client(test.scores, test.y, test.client, prepared.names)
    for i, why in test.why.items():
        rows[i] |= {"auc": None, "why": why}
    for i, row in enumerate(rows):
        has = i < len(counts)
        row["train_rows"] = int(counts[i].sum()) if has else 0
        row["train_positives"] = int(counts[i, 1]) if has else 0
    return rows


def _serving(params: Tree) -> int:
    """As many CPU threads as serve training this model."""
    return 1 if sum(value.numel() for value in params.values()) <= SMALL else torch.get_num_threads()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many CPU threads; what was set before comes back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _MetricsFile:
    """metrics.jsonl, cut back to the checkpoint when a run is resumed."""

    def __init__(self, out: Path | None, done: int) -> None:
        self.path = out / "metrics.jsonl" if out is not None else None
        self.done = done

    def __enter__(self) -> _MetricsFile:
        if self.path is not None:
            kept: list[str] = []
            if self.done and self.path.exists():
                kept = self.path.read_text().splitlines(keepends=True)[: self.done]
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
            "bytes_up": ledger.total_up,
            "bytes_down": ledger.total_down,
            "seconds_up": ledger.seconds_up,
            "seconds": round(seconds, 4),
        }
        self.file.write(json.dumps(_finite(row)) + "\n")
