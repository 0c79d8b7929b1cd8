"""Pieces of HTML that the sections share."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedauc.report.load import Entry, Study
from fedauc.report.paint import foremost
from fedauc.report.svg import line, mark
from fedauc.report.text import NONE, auc, esc, short, size

HOWTO = "<b>How to read this.</b> "


def swatch(entry: Entry) -> str:
    return f'<i class="swatch {entry.colour}" aria-hidden="true"></i>'


def name(entry: Entry) -> str:
    """The swatch and the name of an entry; short names stay on one line, hyphens and all."""
    return f"<span{_unbroken(entry)}>{swatch(entry)}{long(entry.label)}</span>"


def _unbroken(entry: Entry) -> str:
    return " class=nb" if len(entry.label) <= 24 else ""


def long(words: str, most: int = 64) -> str:
    """A name of any length; the whole of it is a hint where it is shortened."""
    return (
        esc(words) if len(words) <= most else f'<span title="{esc(words)}">{esc(short(words, most))}</span>'
    )


def unbroken(words: str, study: Study) -> str:
    """Escapes a sentence and keeps the short names in it on one line."""
    names = sorted({esc(e.label) for e in study.entries if len(e.label) <= 24}, key=len, reverse=True)
    if not names:
        return esc(words)
    return re.sub("|".join(map(re.escape, names)), r"<span class=nb>\g<0></span>", esc(words))


def figure(drawn: str, howto: str, above: str = "") -> str:
    return f"<figure>{above}{drawn}<figcaption>{HOWTO}{howto}</figcaption></figure>"


def howto(words: str) -> str:
    return f'<p class="howto">{HOWTO}{words}</p>'


def key(entry: Entry, marked: bool, solo: bool) -> str:
    """A piece of the entry's line."""
    shape = line(1, 7, 33, 7, f"{entry.colour} curve{' solo' if solo else ''}")
    shape += mark(17, 7, 4, entry.form, f"{entry.colour} fill") if marked else ""
    return f'<svg class="key" viewBox="0 0 34 14" aria-hidden="true">{shape}</svg>'


def legend(entries: Sequence[Entry], column: bool = False) -> str:
    """Which colour is which entry; as a column with the AUCs."""
    return "" if len(entries) == 1 and not column else _items([name(e) for e in entries], entries, column)


def line_legend(study: Study, shown: Sequence[Entry], column: bool = False) -> str:
    """Which line is which entry: of many the foremost, and the others, in grey, in a fold."""
    if len(shown) == 1 and not column:
        return ""
    bright = foremost(shown)
    rest = [e for e in shown if e not in bright]
    keys = [
        f"<span{_unbroken(e)}>{key(e, not column, len(shown) == 1)}{long(e.label)}</span>"
        for e in (*bright, *rest)
    ]
    text = _items(keys[: len(bright)], bright, column)
    if not rest:
        return text
    numbers = [study.entries.index(e) for e in rest]
    others = _items(keys[len(bright) :], rest, column, numbers)
    return f'{text}<details class="rest"><summary>{len(rest)} others, in grey</summary>{others}</details>'


def _items(
    heads: Sequence[str], entries: Sequence[Entry], column: bool, numbers: Sequence[int] | None = None
) -> str:
    items = []
    for n, (head, entry) in enumerate(zip(heads, entries, strict=True)):
        known = f' data-e="{numbers[n]}"' if numbers else ""
        items.append(f"<li{known}>{head}{f' <b>{auc(entry.auc)}</b>' if column else ''}</li>")
    return f'<ul class="legend{" column" if column else ""}">{"".join(items)}</ul>'


def views(label: str, shown: Sequence[tuple[str, str, str]]) -> str:
    """Views (anchor, name, figure) of one thing: with script one at a time, without it all."""
    inner = "".join(
        f'<div class="view" id="{key}"><h3>{head}</h3>{drawn}</div>' for key, head, drawn in shown
    )
    return f'<div class="views" data-label="{label}">{inner}</div>'


def tiles(shown: Sequence[tuple[str, str, str]]) -> str:
    """Numbers at a glance (name, value, small print); those without a value are left out."""
    inner = "".join(
        f"<div><dt>{head}</dt><dd>{value}{f'<small>{small}</small>' if small else ''}</dd></div>"
        for head, value, small in shown
        if value != NONE
    )
    return f'<dl class="tiles">{inner}</dl>' if inner else ""


def table(label: str, heads: Sequence[str], rows: Sequence[str], last_spans: int = 1) -> str:
    """A table that scrolls sideways by itself where the screen is narrow."""
    cells = [f"<th scope=col>{head}</th>" for head in heads]
    if last_spans > 1:
        cells[-1] = f"<th scope=col colspan={last_spans}>{heads[-1]}</th>"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><thead><tr>'
        f"{''.join(cells)}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def row(head: str, cells: Sequence[str], cls: str = "") -> str:
    opened = f'<tr class="{cls}">' if cls else "<tr>"
    return f"{opened}<th scope=row>{head}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def fold(summary: str, body: str, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{summary}</summary>{body}</details>"


def bytes_cell(value: float | None) -> str:
    return NONE if value is None else f'<span title="{value:,.0f} bytes">{size(value)}</span>'
