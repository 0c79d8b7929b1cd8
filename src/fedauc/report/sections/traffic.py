"""What travelled between clients and server, and who took part when."""

from __future__ import annotations

from functools import partial

from fedauc.report.clients import Participation, ledger_of, participation_of, rows_left
from fedauc.report.figures.timeline import SHOWN_GROUPS, legible_rounds, timeline
from fedauc.report.load import Study
from fedauc.report.parts import bytes_cell, figure, fold, howto, row, swatch, table
from fedauc.report.svg import responsive
from fedauc.report.text import count, esc, listing, percent, plural, short, size

# What the items of the ledger are, in words; others are shown by name alone.
ITEMS = {
    "model": "parameters of the model, and their changes",
    "anchor": "the model at the start of the stage",
    "scores": "numbers the model gave to rows, not the rows",
    "scores of positives": "numbers the model gave to positive rows, not the rows",
    "scores of negatives": "numbers the model gave to negative rows, not the rows",
    "setup": "once, before training",
    "setup: class counts": "how many rows and positives a client has; once",
    "setup: class weights": "what each client's rows weigh; once",
    "setup: statistics": "sums, ranges and value counts of the columns; once",
    "setup: preprocessing": "how to scale and encode the columns; once",
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
    for n, (entry, ledger) in enumerate(found):
        up, down = _totals(ledger)
        head = f"{swatch(entry)}{esc(short(entry.label, 64))} <small>{size(up)} up, {size(down)} down</small>"
        said += fold(head, _table(ledger), opened=n == 0)
    return said + howto(words)


def _totals(ledger: dict[str, tuple[float, float]]) -> tuple[float, float]:
    return sum(up for up, _ in ledger.values()), sum(down for _, down in ledger.values())


def _table(ledger: dict[str, tuple[float, float]]) -> str:
    up_all, down_all = _totals(ledger)
    whole = up_all + down_all
    rows = []
    for item, (up, down) in ledger.items():
        share = 100 * (up + down) / whole if whole else 0
        words = ITEMS.get(item.lower(), "")
        head = esc(item.replace("_", " ")) + (f"<br><small>{words}</small>" if words else "")
        bar = f'<span class="bar" style="width:{share:.1f}%"></span>'
        rows.append(row(head, [bytes_cell(up), bytes_cell(down), bar, percent(up + down, whole)]))
    total = [bytes_cell(up_all), bytes_cell(down_all), "", bytes_cell(whole)]
    rows.append(row("Total", total, "total"))
    inner = table("What travelled", ("Item", "Up", "Down", "Share"), rows, last_spans=2)
    return f'<div class="ledger">{inner}</div>'


def participation_section(study: Study) -> str:
    found = [(e, run) for e in (study.best, *study.others) for run in e.runs[:1] if run.metrics]
    if not found:
        return ""
    entry, run = found[0]
    part = participation_of(run)
    said = _who(part)
    if study.compared:
        said = f"{esc(short(entry.label, 64))}: {said}"
    if not part.by_round:
        return f"<p>{said}.</p>" if part.clients or part.groups else ""
    words = "Dark where the group took part in the round; at the right, how often."
    if (fit := legible_rounds(part)) < len(part.by_round):
        words += f" Shown are the first {count(fit)} rounds, as groups change too often for all."
    if len(part.groups) > SHOWN_GROUPS:
        words += f" Of {len(part.groups)} groups the first {SHOWN_GROUPS} are drawn."
    return f"<p>{said}.</p>{figure(responsive(partial(timeline, part)), words)}{_groups(part)}"


def _who(part: Participation) -> str:
    """``4 groups over 400 rounds in 100 cycles, 3 clients in each round``."""
    said = f"{plural(len(part.groups), 'group')} over " if part.by_round else ""
    said += plural(part.rounds, "round")
    if part.cycles and 1 < part.cycles < part.rounds:
        said += f" in {plural(part.cycles, 'cycle')}"
    if not part.clients:
        return said
    least, most = part.clients
    everybody = len(part.groups[0]) if len(part.groups) == 1 else 0
    if everybody and least == everybody:
        return f"{said}, all {plural(most, 'client')} in each"
    many = plural(most, "client") if least == most else f"{count(least)} to {plural(most, 'client')}"
    return f"{said}, {many}{f' of {count(everybody)}, drawn at random,' if everybody else ''} in each"


def _groups(part: Participation) -> str:
    items = [
        f"<li><b>Group {n}</b> ({plural(len(names), 'client')}): {esc(', '.join(names))}</li>"
        for n, names in enumerate(part.groups, 1)
        if names
    ]
    return fold("Clients of each group", f'<ul class="notes">{"".join(items)}</ul>') if items else ""
