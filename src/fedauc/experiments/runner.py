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
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from fedauc import models
from fedauc.core import checkpoint
from fedauc.core.ledger import Ledger
from fedauc.core.loop import Federation, RoundRecord, RunState, advance, begin
from fedauc.core.tree import Tree
from fedauc.errors import InputError, Untrainable, some
from fedauc.experiments import outputs, start
from fedauc.experiments.assembly import Part, Prepared, Scored
from fedauc.experiments.calibration import Calibration
from fedauc.experiments.config import FILES, Config
from fedauc.experiments.evaluation import Beside, Validated, validated
from fedauc.experiments.outcome import Trained, answered, summarise
from fedauc.experiments.prepare import prepare
from fedauc.experiments.records import MetricsFile, of_one_kind, read_object, write_json
from fedauc.experiments.selection import Candidate, Selection
from fedauc.locks import held
from fedauc.methods.base import of
from fedauc.models import Model
from fedauc.report import write_report
from fedauc.transports import ranks
from fedauc.transports.memory import sufficing

SMALL = 20_000  # parameters up to which a second thread costs more than it brings


WRITTEN = ("metrics.jsonl", "model.safetensors", "preprocess.json", "report.html")
"""Files of a run that come after its config.json."""


class Watch(Protocol):
    """Whoever shows how a run goes on; `round` may be called from another thread, in order."""

    def begin(self, title: str, rounds: int, done: int) -> None: ...

    def round(self, record: RoundRecord, auc: float | None, traffic: int) -> None: ...

    def several(self, runs: int, at_once: int) -> None:
        """Runs begin that are in processes of their own, out of sight; `one_less` is called after each."""

    def one_less(self) -> None: ...

    def end(self) -> None: ...


class Silent:
    """Shows nothing."""

    def begin(self, title: str, rounds: int, done: int) -> None: ...

    def round(self, record: RoundRecord, auc: float | None, traffic: int) -> None: ...

    def several(self, runs: int, at_once: int) -> None: ...

    def one_less(self) -> None: ...

    def end(self) -> None: ...


class Paused(Exception):
    """A run has come to the round at which it was to pause; resumed, it goes on bit for bit."""

    def __init__(self, round: int) -> None:
        super().__init__(f"paused after round {round}")


def run(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    prepared: Prepared | None = None,
    watch: Watch | None = None,
    until: int | None = None,
) -> dict[str, Any]:
    """Train one configuration into the folder `out`; returns the content of its result.json.

    A run that is to go on `until` a validated round only is `Paused` there. Where several processes train
    together, the first one reads and writes the folder.
    """
    here = ranks.here()
    if (done := here.told(lambda: _done(config, out, resume, prepared))) is not None:
        return done
    with sufficing(config.device):
        prepared = prepared if prepared is not None else prepare(config.data, config.seed, config.device)
        fresh, params, fed = _built(config, prepared)  # what cannot work fails before anything is written
        begin(fed, params)
        if config.train.init_from is not None:
            here.told(lambda: _from_file(config, prepared, fresh, params))
        if config.train.warmup is not None:
            _, first_params, first = _built(config.before(), prepared)
            begin(first, first_params)
        with held(out, here.first):
            done = here.told(lambda: _done(config, out, resume, prepared))  # by another process
            if done is not None:
                return done
            if here.first:
                write_json(out / "config.json", config.as_dict())
            trained = train(config, prepared, out=out, watch=watch, until=until)
            return here.told(lambda: _written(trained, out))


def _done(config: Config, out: Path, resume: bool, rows: Prepared | None) -> dict[str, Any] | None:
    """The result of a folder that holds a finished run; a run that is not this one is an error, or one of
    other rows, where they have been read already."""
    of_one_kind(out, "config.json")
    if (out / "result.json").exists():
        if not resume:
            raise InputError(
                f"{out} already holds a run; choose another --out, or --resume to go on with it."
            )
        _same_config(out, config, ("data.root",) if rows is None else FILES)
        result = read_object(out / "result.json", {"test_auc": float, "rounds": int, "data": dict})
        if rows is not None:
            _same_rows(out, result.get("rows"), rows, "ended")
        return result
    started = (out / "config.json").exists()
    if not started and (foreign := [name for name in WRITTEN if (out / name).exists()]):
        raise InputError(f"{out} holds {foreign[0]} of something else than a run; choose another --out.")
    if started and not resume:
        raise InputError(
            f"{out} holds an unfinished run; choose another --out, or --resume to go on with it."
        )
    if started:
        _same_config(out, config, FILES)  # (its checkpoint knows the rows)
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
    config: Config,
    prepared: Prepared,
    *,
    out: Path | None = None,
    watch: Watch | None = None,
    until: int | None = None,
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
        _same_rows(out, found[1].get("rows"), prepared, "was interrupted")
        state, flat, extra = checkpoint.restored(saved, *found, state, config.device)
        selection = _selected(flat, extra, prepared.valid)
        before = extra["seconds"]
    every = config.train.eval_every or fed.roster.cycle_length
    pause = fed.rounds if until is None else min(until, fed.rounds)
    began, pace = time.monotonic(), checkpoint.Pace()
    watch.begin(f"{config.method} · seed {config.seed}", fed.rounds, state.round)

    def kept(round: int) -> bool:
        """Clients that are elsewhere are not asked twice: every one of their rounds is kept."""
        return prepared.reach is not None or round == pause < fed.rounds

    def end(
        record: RoundRecord,
        ledger: Ledger,
        seconds: float,
        score: Validated | None = None,
        state: RunState | None = None,
    ) -> None:
        """A round is over. A state that may be written is given; others must not wait here for their turn,
        since each holds what its clients have kept."""
        log.write(record, score, ledger, seconds)
        watch.round(record, score and score.auc, ledger.total_up + ledger.total_down)
        if saved is None or state is None or not here.first:
            return
        log.flush()
        if kept(record.round) or pace.due():
            with pace.writing():
                _save(saved, state, selection, {"seconds": seconds, "rows": prepared.fingerprint})
            fed.transport.committed(state.memory)

    def validate(record: RoundRecord, state: RunState, z: Tree, seconds: float) -> None:
        nonlocal selection
        if not here.first:  # the choice of the model, and with it the folder, is the first one's affair
            return
        last = record.round == fed.rounds
        selection, score = validated(evaluator, z, state.round, prepared.valid, config, selection, last)
        end(record, state.ledger, seconds, score, state)

    try:
        with (
            _threads(threads),
            MetricsFile(out if here.first else None, state.round) as log,
            Beside(config.device, threads, alone=prepared.reach is None) as beside,
        ):
            while state.round < pause:
                state, record = advance(fed, state)
                seconds = before + time.monotonic() - began
                if record.round % every == 0 or record.round == fed.rounds:
                    z, ledger = outputs.output(fed, model, state, config.train.statistics)
                    state = state._replace(ledger=ledger)
                    beside.do(partial(validate, record, state, z, seconds), large=True)
                else:
                    wanted = state if kept(record.round) else None
                    beside.do(partial(end, record, state.ledger, seconds, None, wanted), large=False)
    finally:
        watch.end()
    seconds = before + time.monotonic() - began
    if state.round < fed.rounds:
        raise Paused(state.round)

    def chosen() -> tuple[Candidate, Calibration]:
        if selection is None:
            raise Untrainable(
                "No round could be validated: the rows of the clients that answered have one class."
            )
        best = selection.choice
        valid = answered(prepared, prepared.valid.scored(model, best.z), "validation")
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
    if config.train.head == "zero":
        params |= {name: torch.zeros_like(params[name]) for name in model.head}
    if config.train.statistics != "averaged" and not model.statistics:
        raise InputError(
            f"train.statistics={config.train.statistics}: this model has no running statistics; only a resnet"
            " or densenet with norm=batch has."
        )
    fed = config.federation(prepared.train, model)
    return model, params, fed if prepared.reach is None else fed.via(prepared.reach(config))


def _from_file(config: Config, prepared: Prepared, model: Model, params: Tree) -> Tree:
    assert config.train.init_from is not None
    if config.train.head != "kept" and start.is_only_head(model, params):
        raise InputError(
            f"With a new head there is nothing to take over from {config.train.init_from}: this model is"
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


def _same_config(out: Path, config: Config, places: Sequence[str]) -> None:
    """Where the same rows lie, `places` say: that may have changed."""
    if keys := config.differing(read_object(out / "config.json", {"method": str}), places):
        raise InputError(
            f"{out} holds a run with another configuration ({some(keys)}) and cannot be resumed with"
            " this one; choose another --out."
        )


def _same_rows(out: Path | None, known: str | None, prepared: Prepared, what: str) -> None:
    if known not in (None, prepared.fingerprint):  # (older runs do not know theirs)
        raise InputError(
            f"The rows have changed since the run in {out} {what}, so it cannot be resumed with them; choose"
            " another --out."
        )


def _save(path: Path, state: RunState, selection: Selection | None, about: Mapping[str, Any]) -> None:
    trees: dict[str, Tree] = {}
    extra: dict[str, Any] = dict(about)
    if selection is not None:
        for name, candidate in (("peak", selection.peak), ("choice", selection.choice)):
            trees[name] = candidate.z
            extra[name] = [candidate.auc, candidate.round]
        extra["paired"] = selection.scored.paired
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
    found = Scored(scored["scores"], valid.y[here], client, rows, paired=extra["paired"])
    return Selection(peak, found, choice)


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
