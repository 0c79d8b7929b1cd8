"""The data, the configuration and the versions."""

from __future__ import annotations

import json

from fedauc.report.load import Study
from fedauc.report.parts import fold, tiles
from fedauc.report.text import as_list, count, esc, num, percent, word


def data_section(study: Study) -> str:
    data = study.data
    if not study.comparable:
        return '<p class="warn">The runs are on different data; each run folder describes its own.</p>'
    rows, positives = num(data.get("rows")), num(data.get("positives"))
    text = f"<p><b>{esc(name)}</b></p>" if (name := word(data.get("name"))) else ""
    lacking = num(data.get("clients_without_positives"))
    without = f"{count(lacking)} without positives to train on" if lacking else ""
    text += tiles(
        [
            ("Rows", count(rows), ""),
            ("Positives", count(positives), f"{percent(positives, rows)} of the rows" if rows else ""),
            ("Features", count(num(data.get("features"))), ""),
            ("Clients", count(num(data.get("clients"))), without),
        ]
    )
    notes = "".join(f"<li>{esc(note)}</li>" for note in as_list(data.get("notes")))
    return text + (f'<h3>Notes on the data</h3><ul class="notes">{notes}</ul>' if notes else "")


def config_section(study: Study) -> str:
    text = ""
    if study.config:
        settings = json.dumps(study.config, indent=2, ensure_ascii=False, default=str)
        text = fold("All settings", f"<pre>{esc(settings)}</pre>")
    versions = ", ".join(f"{esc(name)} {esc(version)}" for name, version in study.versions.items())
    return text + (f"<p>Versions: {versions}.</p>" if versions else "")
