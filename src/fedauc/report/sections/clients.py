"""Results client by client: chart and table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fedauc.report.clients import Client, clients_of
from fedauc.report.figures.clients import LABELLED_CLIENTS, client_dots, labelled
from fedauc.report.load import Entry, Study
from fedauc.report.paint import foremost
from fedauc.report.parts import figure, fold, legend, long, row, swatch, table, unbroken
from fedauc.report.svg import responsive
from fedauc.report.text import NONE, auc, count, esc, plural, short

OPEN_ROWS = 30  # of the table; the rest is folded
Shown = Sequence[tuple[Entry, list[Client]]]


def section(study: Study) -> str:
    entries = (study.best, *study.others, *study.yardsticks)
    shown = [(e, clients) for e in entries if (clients := clients_of(e))]
    if not shown:
        return ""
    if not study.comparable:
        shown = shown[:1]
    best, lead = shown[0]
    known = [c for c in lead if c.auc is not None]
    same = not known and len({c.why for c in lead}) == 1  # one reason for all
    said = plural(len(lead), "client")
    if known:
        span = f"{auc(known[0].auc)} to {auc(known[-1].auc)}" if len(known) > 1 else auc(known[0].auc)
        said += f", AUC {span} with {unbroken(short(best.label, 40), study)}"
    if len(known) < len(lead):
        said += f"; undefined for {count(len(lead) - len(known)) if known else 'all'}"
        said += f" ({esc(short(lead[0].why, 120))})" if same else ""
    drawn = ""
    if known:
        few = labelled(lead)
        front = foremost(shown)
        colours = legend([e for e, _ in front]) if few else ""
        words = _howto(front, few)
        if few and len(front) < len(shown):
            words += f" Drawn are the {len(front)} best of {len(shown)} methods; the table has all."
        drawn = figure(responsive(partial(client_dots, front)), words, colours)
    return f"<p>{said}.</p>{drawn}{_table(shown, not same)}"


def _howto(shown: Shown, few: bool) -> str:
    best, lead = shown[0]
    words = "Dots grow with the client's test rows. The dashed line is the test AUC over all rows"
    words += " of the best method. " if len(shown) > 1 and few else ". "
    if few:
        words += "A client with few positives can land anywhere by chance."
        if len(shown) > 1:
            words += f" Filled: {esc(short(best.label, 40))}; hollow: the others."
        if len(lead) > LABELLED_CLIENTS:
            words += " Clients without an AUC are left out."
    else:
        words += "To the left, where a client has few positives, AUCs scatter by chance."
    if max(c.seeds for c in lead) > 1:
        words += " Values are means over the seeds."
    return words


def _table(shown: Shown, reasons: bool) -> str:
    lead = shown[0][1]
    names = [f"{swatch(e)}{esc(short(e.label, 24))}" for e, _ in shown] if len(shown) > 1 else ["AUC"]
    heads = ["Client", *names, "Test rows", "Train rows"]
    others = [{c.name: c for c in clients} for _, clients in shown[1:]]
    rows = []
    for client in lead:
        why = ""
        if reasons and client.auc is None:
            why = f" <small>undefined: {esc(short(client.why, 120))}</small>"
        cells = [_auc(c) for c in (client, *(o.get(client.name) for o in others))]
        cells.append(_rows(client.rows, client.positives))
        cells.append(_rows(client.train_rows, client.train_positives))
        rows.append(row(long(client.name) + why, cells))
    text = table("Results by client", heads, rows[:OPEN_ROWS])
    text += '<p class="howto">Lowest AUC first, undefined last; in brackets the positives among the rows.</p>'
    if len(rows) > OPEN_ROWS:
        undefined = sum(c.auc is None for c in lead[OPEN_ROWS:])
        more = plural(len(rows) - OPEN_ROWS, "more client")
        more += f" <small>undefined for {undefined}</small>" if undefined else ""
        text += fold(more, table("Results by client, continued", heads, rows[OPEN_ROWS:]))
    return text


def _rows(rows: float | None, positives: float | None) -> str:
    """``120 (8)``; means over seeds of few positives are not rounded away."""
    if positives is None:
        return count(rows)
    few = positives < 10 and not float(positives).is_integer()
    return f"{count(rows)} <small>({f'{positives:.1f}' if few else count(positives)})</small>"


def _auc(client: Client | None) -> str:
    if client is None or client.auc is None:
        return NONE
    partly = f" <small>{client.known} of {client.seeds} seeds</small>" if client.known < client.seeds else ""
    return auc(client.auc) + partly
