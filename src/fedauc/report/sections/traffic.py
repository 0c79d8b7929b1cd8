"""What travelled between clients and server, and who took part when."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fedauc.report.attendance import Attendance, attended
from fedauc.report.clients import WARM_UP, Participation, ledger_of, participation_of, rows_left
from fedauc.report.figures.timeline import SHOWN_GROUPS, legible_rounds, timeline
from fedauc.report.load import Entry, Run, Study
from fedauc.report.paint import foremost
from fedauc.report.parts import bytes_cell, figure, fold, howto, name, row, swatch, table
from fedauc.report.sections import attendance
from fedauc.report.svg import responsive
from fedauc.report.text import count, esc, listing, percent, plural, short, size

# What the items of the ledger are, in words; others are shown by name alone.
ITEMS = {
    "model": "parameters of the model, and their changes",
    "proximal anchor": "the model at the start of the stage",
    "control variate": "mean gradients of a client and of all clients, which correct local steps",
    "momentum": "moving averages of gradients, averaged like the model",
    "inner estimate": "the model after an inner step of cross-entropy, estimated",
    "first-step flag": "whether the moving averages have begun: one number",
    "class ratio": "up: gradients of the last layer by class; down: their ratio",
    "cycle number": "one number: which control variate is in force",
    "scores": "numbers the model gave to rows, not the rows",
    "scores of positives": "numbers the model gave to positive rows, not the rows",
    "scores of negatives": "numbers the model gave to negative rows, not the rows",
    "estimates of positives": "one number for each positive row that was scored, not the row",
    "sums of scores": "sums of scores and weights by class, to estimate the dual anew",
    "loss": "how large the client's loss is: one number",
    "normalisation statistics": "means and variances inside the model, computed anew to evaluate it",
    "wrapped message": "what the method inside sends: the model and what belongs to it",
    "setup": "once, before training",
    "setup: class counts": "how many rows and positives a client has; once",
    "setup: class weights": "what each client's rows weigh; once",
    "setup: statistics": "sums, ranges and value counts of the columns; once",
    "setup: preprocessing": "how to scale and encode the columns; once",
}
# How clients are drawn, by the participation's name; otherwise it is at random.
DRAWN = {
    "weighted": "with chances in proportion to their weights",
    "optimal": "with chances that follow their weights and uplink times",
}


def ledger_section(study: Study) -> str:
    found = [(e, ledger) for e in (study.best, *study.others) if (ledger := ledger_of(e))]
    if not found:
        return "" if study.best.yardstick else "<p>No ledger of what travelled was kept.</p>"
    leaks = sorted({item for e, _ in found for item in rows_left(e)})
    if leaks:
        said = f'<p class="warn">The ledger holds items that may be rows of data: {esc(listing(leaks))}.</p>'
    else:
        said = (
            '<p class="promise"><b>No training rows left the clients, by this ledger.</b> It lists what was'
            " sent between clients and server to prepare and to train. Scoring the valid and test rows is"
            " not counted in it.</p>"
        )
    words = "Up is from the clients to the server, down is back; the share is of all bytes."
    words += " Bytes are per run, means over the seeds." if study.best.seeds > 1 else ""
    if len(found) == 1:
        return said + _table(found[0][1]) + howto(words)
    folds = []
    for n, (entry, ledger) in enumerate(found):
        up, down = _totals(ledger)
        head = f"{swatch(entry)}{esc(short(entry.label, 64))} <small>{size(up)} up, {size(down)} down</small>"
        folds.append(fold(head, _table(ledger), opened=n == 0))
    first = foremost(folds)
    said += "".join(first)
    if len(first) < len(folds):
        said += fold(plural(len(folds) - len(first), "more method"), "".join(folds[len(first) :]))
    return said + howto(words)


def _totals(ledger: dict[str, tuple[float, float]]) -> tuple[float, float]:
    return sum(up for up, _ in ledger.values()), sum(down for _, down in ledger.values())


def _table(ledger: dict[str, tuple[float, float]]) -> str:
    up_all, down_all = _totals(ledger)
    whole = up_all + down_all
    rows = []
    for item, (up, down) in ledger.items():
        share = 100 * (up + down) / whole if whole else 0
        words = ITEMS.get(item.lower().removeprefix(WARM_UP), "")
        head = esc(item.replace("_", " ")) + (f"<br><small>{words}</small>" if words else "")
        bar = f'<span class="bar" style="width:{share:.1f}%"></span>'
        rows.append(row(head, [bytes_cell(up), bytes_cell(down), bar, percent(up + down, whole)]))
    total = [bytes_cell(up_all), bytes_cell(down_all), "", bytes_cell(whole)]
    rows.append(row("Total", total, "total"))
    inner = table("What travelled", ("Item", "Up", "Down", "Share"), rows, last_spans=2)
    return f'<div class="ledger">{inner}</div>'


@dataclass(frozen=True)
class _Turns:
    """Who took part in a run of an entry; ``log`` where sites on their own machines were asked."""

    entry: Entry
    run: Run
    part: Participation
    log: Attendance | None

    @property
    def said(self) -> str:
        return attendance.summary(self.log) if self.log else _who(self.part)


def participation_section(study: Study) -> str:
    found = [turns for e in (study.best, *study.others) if (turns := _turns(e))]
    if not found:
        return ""
    sentences: dict[str, list[Entry]] = {}
    for turns in found:
        sentences.setdefault(turns.said, []).append(turns.entry)
    if study.compared:
        lines = [
            f"<li>{''.join(f'<span class=key-name>{name(e)}</span> ' for e in entries)}<br>{said}.</li>"
            for said, entries in sentences.items()
        ]
        text = f'<ul class="who">{"".join(lines)}</ul>'
    else:
        text = f"<p>{next(iter(sentences))}.</p>"
    if any(turns.part.reports for turns in found):
        text += (
            '<p class="howto">Clients that only report their loss, to find the worst mixture of clients, are'
            " drawn apart and not counted here.</p>"
        )
    return text + _drawn(study, found)


def _turns(entry: Entry) -> _Turns | None:
    if logged := attended(entry):
        run, log = logged
        return _Turns(entry, run, participation_of(run), log)
    if not entry.runs or not entry.runs[0].metrics:
        return None
    part = participation_of(entry.runs[0])
    known = part.clients or part.groups or part.by_round
    return _Turns(entry, entry.runs[0], part, None) if known else None


def _drawn(study: Study, found: list[_Turns]) -> str:
    """The best run that recorded who answered; where none did, the best that has groups."""
    for turns in found:
        if turns.log:
            whose = f"The sites of {_whose(turns.entry, turns.run)}. " if study.compared else ""
            return attendance.drawn(turns.log, whose)
    grouped = next((turns for turns in found if turns.part.by_round), None)
    return _strip(study, grouped.entry, grouped.part) if grouped else ""


def _whose(entry: Entry, run: Run) -> str:
    seed = f", seed {run.seed}" if len(entry.runs) > 1 and run.seed is not None else ""
    return f"{esc(short(entry.label, 64))}{seed}"


def _strip(study: Study, entry: Entry, part: Participation) -> str:
    words = "Filled where it was the group's turn; at the right, in how many of the rounds."
    if study.compared:
        words = f"The groups of {_whose(entry, entry.runs[0])}. {words}"
    if (fit := legible_rounds(part)) < len(part.by_round):
        words += f" Shown are the first {count(fit)} rounds, as groups change too often for all."
    if len(part.groups) > SHOWN_GROUPS:
        words += f" Of {len(part.groups)} groups the first {SHOWN_GROUPS} are drawn."
    return figure(responsive(partial(timeline, part)), words) + _groups(part)


def _who(part: Participation) -> str:
    """``4 groups over 400 rounds in 100 cycles, 3 clients in each``."""
    said = f"{plural(len(part.groups), 'group')} over " if part.by_round else ""
    said += plural(part.rounds, "round")
    if part.cycles and 1 < part.cycles < part.rounds:
        said += f" in {plural(part.cycles, 'cycle')}"
    if not part.clients:
        return said
    least, most = part.clients
    sizes = {len(names) for names in part.groups if names}
    many = plural(most, "client") if least == most else f"{count(least)} to {plural(most, 'client')}"
    if not part.by_round and sizes == {least}:
        return f"{said}, all {plural(most, 'client')} in each"
    drawn = bool(sizes) and (part.how in DRAWN or least < min(sizes))
    if not drawn or not (part.by_round or len(sizes) == 1):
        return f"{said}, {many} in each"
    whence = "of the active group" if part.by_round else f"of {count(max(sizes))}"
    average = f" ({part.average:.1f} on average)" if least < most and part.average is not None else ""
    return f"{said}, {many} {whence} in each{average}, drawn {DRAWN.get(part.how, 'at random')}"


def _groups(part: Participation) -> str:
    items = [
        f"<li><b>Group {n}</b> ({plural(len(names), 'client')}): {esc(', '.join(names))}</li>"
        for n, names in enumerate(part.groups, 1)
        if names
    ]
    return fold("Clients of each group", f'<ul class="notes">{"".join(items)}</ul>') if items else ""
