"""Pieces of HTML that the sections share."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedauc.report.load import Entry, Study
from fedauc.report.text import NONE, auc, esc, short, size

HOWTO = "<b>How to read this.</b> "


def swatch(entry: Entry) -> str:
    return f'<i class="swatch {entry.colour}" aria-hidden="true"></i>'


def name(entry: Entry) -> str:
    """The swatch and the name of an entry; short names stay on one line, hyphens and all."""
    unbroken = " class=nb" if len(entry.label) <= 24 else ""
    return f"<span{unbroken}>{swatch(entry)}{long(entry.label)}</span>"


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


def legend(entries: Sequence[Entry], column: bool = False) -> str:
    """Which colour is which entry; as a column with the AUCs."""
    if len(entries) == 1 and not column:
        return ""
    items = [f"<li>{name(e)}{f' <b>{auc(e.auc)}</b>' if column else ''}</li>" for e in entries]
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
