"""Which settings are best: a grid of them, successive halving, and the validation AUC as the judge.

    T ← the trials: every combination of the grid, or some of them drawn at random (`tune_draw`)
    for a share s of the rounds in  η⁻ᴷ, …, η⁻¹, 1:
        every trial of T goes on to the share s of its rounds, with every seed
        T ← the best ⌈|T|/η⌉ by the mean validation AUC        (not after the last share)

Where all of T fail at a share, the next best that have not failed take their place.

Jamieson & Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016.

A trial is a run that pauses and goes on bit for bit, so nothing is trained twice, the best trial's folder is
what `fedauc train` writes, and whatever was interrupted can be resumed. The test rows choose nothing.

A search can be resumed with another grid, other shares or more seeds. A folder stands for one configuration
for ever, and what a trial had reached at any round is in its metrics.jsonl, wherever it paused; so a search
finds what earlier ones have trained, and comes to what it would come to in an empty folder, or to better: a
trial of its grid that an earlier one has trained to the end is not dropped. Trials that were drawn stay those
that were drawn, whatever another version would draw.

A trial whose own files cannot be used is missing: the search goes on without it, and says so.

OUT/tune.json, OUT/tune.csv   what came out          OUT/trial-NNN/seed-S/   runs (`runner`), with trial.json
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedauc.core import checkpoint, rng
from fedauc.errors import InputError, OutOfMemory, Untrainable, some
from fedauc.experiments import runner, tune_files, tune_notes
from fedauc.experiments.command import train_command
from fedauc.experiments.config import FILES, Config, same_setting
from fedauc.experiments.jobs import each, prepared
from fedauc.experiments.outcome import versions
from fedauc.experiments.records import of_one_kind, write_json
from fedauc.experiments.runner import Paused, Watch
from fedauc.experiments.tune_draw import Place, drawn
from fedauc.experiments.tune_files import RESULT, SCHEMA, TRIAL
from fedauc.locks import held
from fedauc.transports import ranks

AROUND = (0.1, 0.3, 1.0, 3.0)
"""Step sizes that are tried where no grid is given, in units of the method's own."""
MOST = 1000
"""Trials of a grid that is not drawn from."""
NUMBERED = re.compile(r"trial-(\d+)")


class Stop(NamedTuple):
    """A trial with one seed, up to a share of its rounds."""

    config: Config
    folder: Path
    share: float

    def until(self, rounds: int, every: int) -> int:
        """The round at which it stops, of so many that are validated every so often."""
        return min(rounds, math.ceil(self.share * rounds / every) * every)


class Reached(NamedTuple):
    """How good it was there; None: it has failed."""

    auc: float | None
    round: int
    why: str = ""
    lost: bool = False
    """Its files are to blame, and not its settings."""


@dataclass
class Trial:
    """One combination of settings, and how it fared."""

    settings: dict[str, Any]
    config: Config
    number: int = -1
    """Of its folder."""
    aucs: dict[float, float | None] = field(default_factory=dict)
    """Mean validation AUC by the share of the rounds that it has come to; None: it has failed there."""
    rounds: int = 0
    why: str = ""
    missing: bool = False
    """It has failed, and might not have if its files could be used."""

    def take(self, share: float, reached: Sequence[Reached]) -> None:
        """What it reached with every seed."""
        known = [one.auc for one in reached if one.auc is not None]
        failed = sorted((one for one in reached if one.auc is None), key=lambda one: one.lost)
        self.aucs[share] = None if failed else statistics.fmean(known)
        self.why = failed[0].why if failed else ""
        self.missing = bool(failed) and failed[0].lost
        self.rounds = max(self.rounds, *(one.round for one in reached))

    @property
    def failed(self) -> bool:
        return None in self.aucs.values()

    @property
    def last(self) -> tuple[float, float | None]:
        """The largest share of the rounds that it has come to without failing, and the AUC there."""
        return max(((share, auc) for share, auc in self.aucs.items() if auc is not None), default=(0.0, None))

    @property
    def rank(self) -> tuple[bool, float, float]:
        """Larger is better: who has not failed, who came further, then the validation AUC."""
        share, auc = self.last
        return not self.failed, share, -math.inf if auc is None else auc

    def twin(self, other: Trial, name: str) -> bool:
        """Whether another value of a setting has changed nothing."""
        return (
            self.settings[name] != other.settings[name]
            and {**self.settings, name: None} == {**other.settings, name: None}
            and all(self.aucs[share] == auc for share, auc in other.aucs.items() if share in self.aucs)
        )


def tune(
    method: str,
    overrides: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]] | None,
    seeds: Sequence[int],
    out: Path,
    *,
    most: int | None = None,
    factor: int = 3,
    jobs: int = 1,
    resume: bool = False,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Try the grid's settings, or step sizes where there is none, and return the content of tune.json.

    Of a grid with more than `most` combinations so many are drawn, by the first seed. A `factor` of 1 trains
    all of them to the end. To `resume` with another grid, `most`, `factor` or number of seeds uses the trials
    that are there; those that are not of this grid stay, and are no part of what comes out. Trials that are
    `missing` from what comes out are those whose files could not be used.
    """
    if ranks.here().size > 1:
        raise InputError("A search trains its trials one by one, or --jobs at a time: without torchrun.")
    if factor < 1:
        raise InputError(f"--factor {factor} must be at least 1.")
    for name in grid or {}:
        if name in ("seed", "device"):
            also = " --seeds says how many seeds a trial has." if name == "seed" else ""
            raise InputError(f"--grid {name}: this cannot be tuned.{also}")
        if any(same_setting(name, other) for other in overrides):
            raise InputError(f"--grid {name}: this is set as well; leave one of them out.")
    grid = grid or default_grid(method, overrides)
    _free(out, resume)
    before = tune_files.tried(out, grid, most) if most is not None and (out / RESULT).exists() else None
    trials = _trials(method, overrides, grid, most, seeds[0], before)
    base = Config.resolve(method, {**overrides, "seed": seeds[0]})
    about: dict[str, Any] = {
        "method": method,
        "grid": {name: list(values) for name, values in grid.items()},
        "seeds": list(seeds),
        "most": most,
        "factor": factor,
        "config": base.as_dict(),
    }
    # (what cannot be read leaves nothing behind)
    about["rows"] = prepared(trials[0].config.changed({"seed": seeds[0]})).fingerprint
    with held(out):
        _free(out, resume)  # (another process may have been faster)
        _begin(out, base, about)
        _number(out, trials)
        content = _search(out, about, trials, jobs, watch)
        best = content["best"]
        results = [tune_files.ended(out / run) for run in best["runs"]]
        aucs = [result["test_auc"] for result in results]
        best |= {"test_auc": statistics.fmean(aucs), "test_auc_by_seed": aucs}
        best["test_auc_std"] = statistics.stdev(aucs) if len(aucs) > 1 else None
        best["notes"] = [*results[0]["data"]["notes"], *tune_notes.notes(_ranked(trials)[0], trials, grid)]
        one = _ranked(trials)[0].config.changed({"seed": seeds[0]})
        best["command"] = train_command(one, {**overrides, **best["settings"]})
        write_json(out / RESULT, content)
        return content


def _search(
    out: Path, about: Mapping[str, Any], trials: Sequence[Trial], jobs: int, watch: Watch | None
) -> dict[str, Any]:
    """Successive halving; what is known so far is written after every share of the rounds."""
    seeds, factor = about["seeds"], about["factor"]

    def stops_of(trial: Trial, share: float) -> list[Stop]:
        folders = {seed: out / _folder(trial.number, seed) for seed in seeds}
        return [Stop(trial.config.changed({"seed": seed}), folders[seed], share) for seed in seeds]

    def ended(trial: Trial) -> bool:
        """Whether an earlier search has trained it to the end."""
        return all(_known(stop) for stop in stops_of(trial, 1))

    shares, room, content = _shares(trials, factor), len(trials), {}
    for place, share in enumerate(shares):
        chosen: list[Trial] = []
        while all(trial.failed for trial in chosen):
            able = [trial for trial in _ranked(trials) if not trial.failed]
            chosen = able[:room] + [trial for trial in able[room:] if share == 1 and ended(trial)]
            if not chosen:
                one = max(trials, key=lambda trial: trial.missing)
                raise InputError(f"All trials have failed; one of them: {one.why}")
            stops = [stop for trial in chosen for stop in stops_of(trial, share)]
            found = iter(each(stops, _reached, jobs, watch, known=_known))
            for trial in chosen:
                trial.take(share, [next(found) for _ in seeds])
            content = _content(about, trials, shares[: place + 1], seeds)
            write_json(out / RESULT, content)
            checkpoint.write_atomic(out / "tune.csv", _csv(content["trials"]).encode())
        room = math.ceil(len(chosen) / factor)
    return content


def default_grid(method: str, overrides: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Step sizes around the one in force."""
    eta = Config.resolve(method, overrides).sections["schedule"]["eta"]
    return {"schedule.eta": [float(f"{factor * eta:.6g}") for factor in AROUND]}


def _trials(
    method: str,
    overrides: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
    most: int | None,
    seed: int,
    before: Sequence[Place] | None = None,
) -> list[Trial]:
    """The combinations, each checked before anything is trained; those that were drawn `before`, if any."""
    for name, values in grid.items():
        if not values:
            raise InputError(f"--grid {name} names no value.")
        if twice := [value for i, value in enumerate(values) if value in values[:i]]:
            raise InputError(f"--grid {name} names {twice[0]} twice.")
        if twice := [other for other in grid if other != name and same_setting(name, other)]:
            raise InputError(f"--grid {name} and --grid {twice[0]} are the same setting: name it once.")
    found: list[Trial] = []
    same: dict[str, Trial] = {}
    for place in before or _places([len(values) for values in grid.values()], most, seed):
        settings = {name: values[i] for (name, values), i in zip(grid.items(), place, strict=True)}
        trial = Trial(settings, Config.resolve(method, {**overrides, **settings}))
        if found and trial.config.data != found[0].config.data:
            raise InputError(
                "The grid changes the data, but trials are compared on the same validation rows."
            )
        if (twin := same.setdefault(_meaning(trial.config), trial)) is not trial:
            raise InputError(f"The grid has the same settings twice: {twin.settings} and {settings}.")
        found.append(trial)
    return found


def _places(lengths: Sequence[int], most: int | None, seed: int) -> Iterable[Place]:
    """Which combinations to try of settings with so many values each, in their order."""
    count = math.prod(lengths)
    if most is None and count > MOST:
        raise InputError(f"The grid has {count} combinations: --trials says how many of them to draw.")
    if most is None or most >= count:
        return itertools.product(*map(range, lengths))
    return drawn(lengths, most, rng.generator(seed, rng.TRIALS))


def _shares(trials: Sequence[Trial], factor: int) -> list[float]:
    """Of the rounds, at which trials are compared: the first one has at least a cycle."""
    if factor == 1:
        return [1.0]
    cycles = min(trial.config.component("schedule").cycles for trial in trials)
    halvings = 0
    while factor ** (halvings + 1) <= min(len(trials), cycles):
        halvings += 1
    return [1 / factor**k for k in range(halvings, -1, -1)]


def _ranked(trials: Sequence[Trial]) -> list[Trial]:
    """The best first."""
    return sorted(trials, key=lambda trial: trial.rank, reverse=True)


def _known(stop: Stop) -> Reached | None:
    """What a trial that has been at its share of the rounds had reached there, whether or not it paused."""
    if not (stop.folder / TRIAL).exists():
        return None
    about = tune_files.begun(stop.folder)
    result = tune_files.ended(stop.folder) if (stop.folder / "result.json").exists() else None
    if stop.share == 1 and result is not None:
        return Reached(result["valid_auc"], result["rounds"])
    if stop.share < 1 and (row := _row(stop.folder, stop.until(about["rounds"], about["every"]))):
        auc = row["chosen_auc"]
        return Reached(auc, row["round"], "" if auc is not None else "it was never validated")
    return Reached(None, 0, about["failed"]) if about["failed"] else None


def _row(folder: Path, round: int) -> dict[str, Any] | None:
    """The line of metrics.jsonl that is of this round."""
    if not (folder / "metrics.jsonl").exists():
        return None
    with open(folder / "metrics.jsonl", errors="replace") as lines:
        line = next(itertools.islice(lines, round - 1, None), "")
    try:
        row = json.loads(line) if line.endswith("\n") else {}  # (the last one may be cut short)
    except json.JSONDecodeError:  # or be lost
        return None
    return row if isinstance(row, dict) and row.get("round") == round and "chosen_auc" in row else None


def _reached(stop: Stop, watch: Watch | None) -> Reached:
    """Have a trial go on to its share of the rounds."""
    config, rows = stop.config, prepared(stop.config)
    stop.folder.mkdir(parents=True, exist_ok=True)
    gone = f"{stop.folder} has lost lines of its metrics.jsonl; remove the folder to train this trial anew."
    try:
        tune_files.configured(stop.folder)
        rounds = config.rounds(rows.train.clients)
        every = config.train.eval_every or config.roster(rows.train.clients).cycle_length
        about = {"config": config.as_dict(), "rounds": rounds, "every": every, "failed": ""}
        write_json(stop.folder / TRIAL, about)
        until = stop.until(rounds, every)
        runner.run(config, stop.folder, resume=True, prepared=rows, watch=watch, until=until)
    except Paused:
        pass
    except OutOfMemory:
        raise  # not the trial's fault: it goes on with --resume
    except Untrainable as error:
        write_json(stop.folder / TRIAL, about | {"failed": str(error)})
    except UnicodeDecodeError:  # (no text is read but the metrics)
        return Reached(None, 0, gone, lost=True)
    except InputError as error:
        return Reached(None, 0, f"{error} (With --resume it is tried again.)", lost=_begun(stop.folder))
    return _known(stop) or Reached(None, 0, gone, lost=True)


def _begun(folder: Path) -> bool:
    """Whether a trial's run has begun: with settings that are not possible it writes nothing."""
    return any(not path.name.startswith(TRIAL) for path in folder.iterdir())


def _free(out: Path, resume: bool) -> None:
    """The folder is new, or a search is to go on in it."""
    of_one_kind(out, RESULT)
    if (out / RESULT).exists() and not resume:
        raise InputError(f"{out} already holds a search; choose another --out, or --resume to go on.")
    if not (out / RESULT).exists() and any(out.glob("trial-*")):
        raise InputError(f"{out} holds trials of a search that has lost its {RESULT}; choose another --out.")


def _begin(out: Path, base: Config, about: Mapping[str, Any]) -> None:
    """The folder is new, or its trials are of the same rows, and the same but for what the grids name."""
    if not (out / RESULT).exists():
        write_json(out / RESULT, {"schema": SCHEMA, "kind": "tune", **about})
        return
    known = tune_files.search(out)
    tuned = {**known["grid"], **about["grid"]}
    other = [
        key
        for key in base.differing(known["config"], FILES)
        if not any(same_setting(key, name) for name in tuned)
    ]
    if other:
        raise InputError(
            f"{out} holds a search with another configuration ({some(other)}); choose another --out."
        )
    if known["rows"] != about["rows"]:
        raise InputError(f"The rows have changed since the search in {out} began; choose another --out.")


def _number(out: Path, trials: Sequence[Trial]) -> None:
    """Trials that were begun in earlier searches have their folders; the others get the next ones."""
    begun = {
        _meaning(tune_files.config(path.parent)): int(named[1])
        for path in out.glob(f"trial-*/seed-*/{TRIAL}")
        if (named := NUMBERED.fullmatch(path.parent.parent.name))
    }
    taken = set(begun.values())
    free = (number for number in itertools.count() if number not in taken)
    for trial in trials:
        number = begun.get(_meaning(trial.config))
        trial.number = next(free) if number is None else number


def _meaning(config: Config) -> str:
    """What a trial's folder stands for: a configuration, whatever the seed and wherever the files."""
    about = config.as_dict() | {"seed": 0}
    about["data"] = {name: v for name, v in about["data"].items() if f"data.{name}" not in FILES}
    return json.dumps(about, sort_keys=True)


def _content(
    about: Mapping[str, Any], trials: Sequence[Trial], shares: Sequence[float], seeds: Sequence[int]
) -> dict[str, Any]:
    """tune.json: all trials, the best first."""
    ranked = _ranked(trials)
    rows = [
        {
            "trial": trial.number,
            "settings": trial.settings,
            "valid_auc": trial.last[1],
            "share": trial.last[0],
            "rounds": trial.rounds,
            "valid_auc_by_share": [trial.aucs.get(share) for share in shares if share <= max(trial.aucs)],
            "note": trial.why,
        }
        for trial in ranked
    ]
    best = ranked[0]
    runs = [_folder(best.number, seed) for seed in seeds]
    found = {"settings": best.settings, "valid_auc": rows[0]["valid_auc"], "runs": runs}
    return {
        "schema": SCHEMA,
        "kind": "tune",
        **about,
        "shares": list(shares),
        "trials": rows,
        "missing": [trial.number for trial in trials if trial.missing],
        "best": None if best.failed else found,
        "versions": versions(),
    }


def _folder(trial: int, seed: int) -> str:
    return f"trial-{trial:03d}/seed-{seed}"


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    file = io.StringIO()
    others = ("valid_auc", "share", "rounds", "note")
    plain = [{"trial": r["trial"], **r["settings"], **{name: r[name] for name in others}} for r in rows]
    writer = csv.DictWriter(file, fieldnames=list(plain[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    return file.getvalue()
