"""The comparison: seeds as dots, the table, pair by pair."""

from __future__ import annotations

from functools import partial

from fedauc.report.figures.scores import seed_dots
from fedauc.report.load import Entry, Study
from fedauc.report.parts import bytes_cell, figure, fold, howto, name, row, table
from fedauc.report.svg import responsive
from fedauc.report.text import NONE, auc, count, duration, esc, num, short, signed
from fedauc.report.verdict import difference

HEADS = ("Method", "Test AUC", "Against the best", "Valid AUC", "Seeds", "Rounds", "Up", "Down", "Time")
TIMED = (*HEADS[:3], "Valid<br>AUC", *HEADS[4:-1], "Uplink<br>time", "Time")


def section(study: Study) -> str:
    if not study.compared:
        return ""
    drawn = ""
    if any(e.auc is not None for e in study.entries):
        words = "Each dot is one seed, the bar is their mean, the band one standard deviation either way. "
        words += "Where bands overlap, there is no clear difference."
        if all(e.seeds < 2 for e in study.entries):
            words = "One seed each: the dot is its test AUC. How much it depends on the seed is not known."
        drawn = figure(responsive(partial(seed_dots, study.entries)), words)
    heads = TIMED if _timed(study) else HEADS
    rows = table("Methods compared", heads, [_row(study, e) for e in study.entries])
    return drawn + rows + _explain(study) + _pairwise(study)


def _timed(study: Study) -> bool:
    return any(e.uplink for e in study.entries)


def _row(study: Study, entry: Entry) -> str:
    best = study.best
    spread = f" ± {entry.std:.3f}" if entry.std is not None else ""
    against = "best" if entry is best else NONE
    if entry is not best and study.comparable:
        d = difference(entry, best)
        interval = f" [{signed(d.interval[0])}, {signed(d.interval[1])}]" if d.interval else ""
        against = f"{signed(d.mean)}{interval}<br><small>{d.words()}</small>"
    about = ": ".join(esc(t) for t in ("yardstick" if entry.yardstick else "", entry.note) if t)
    cells = [
        auc(entry.auc) + spread,
        against,
        auc(entry.valid),
        str(entry.seeds or NONE),
        count(entry.rounds),
        bytes_cell(entry.bytes_up),
        bytes_cell(entry.bytes_down),
        *([duration(entry.uplink)] if _timed(study) else []),
        duration(entry.seconds),
    ]
    head = name(entry) + (f"<br><small>{about}</small>" if about else "")
    return row(head, cells, "best" if entry is best else "")


def _explain(study: Study) -> str:
    words = "Mean ± standard deviation over the seeds; bytes and time are per run."
    if _timed(study):
        words += (
            " Uplink time is how long the uploads take by the uplink speeds of the configuration; time is how"
            " long this computer took."
        )
    if study.comparable:
        words += (
            f" “Against the best” is the test AUC minus that of {esc(short(study.best.label, 40))}, with its"
            " 95 % interval over the seeds both ran (paired). It is called clear only if that interval leaves"
            " out zero and neither the bands above nor the test intervals, where known, overlap; with one"
            " seed the test intervals decide alone. There is no correction for making several comparisons."
        )
    text = howto(words)
    if {"central", "clients-alone"} & {e.label for e in study.yardsticks}:
        text += (
            '<p class="howto">Yardsticks are not federated: “clients-alone” is each client learning from its'
            " own rows, “central” is all rows pooled in one place.</p>"
        )
    return text


def _pairwise(study: Study) -> str:
    rows = [
        row(
            f"{esc(p.get('a', NONE))} <small>against</small> {esc(p.get('b', NONE))}",
            [
                f"{count(num(p.get('wins')))} of {count(num(p.get('of')))}",
                signed(num(p.get("mean_difference"))),
            ],
        )
        for p in study.pairwise
    ]
    if not rows:
        return ""
    heads = ("Pair", "Seeds won by the first", "Mean difference")
    return fold("Pair by pair <small>seeds won, mean difference</small>", table("Pair by pair", heads, rows))
