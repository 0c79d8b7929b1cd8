"""Puts the page together."""

from __future__ import annotations

from fedauc.report.load import Study
from fedauc.report.sections import clients, curves, headline, methods, setting, traffic
from fedauc.report.style import CSS, JS
from fedauc.report.text import auc, esc, short

# Nothing may be loaded, from anywhere.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(study: Study) -> str:
    many = "s" if len(study.entries) > 1 else ""
    sections = [
        ("methods", "Methods compared", methods.section(study)),
        ("learning", f"Learning curve{many}", curves.learning_section(study)),
        ("time", "Communication time", curves.time_section(study)),
        ("roc", f"ROC curve{many}", curves.roc_section(study)),
        ("clients", "Client by client", clients.section(study)),
        ("travelled", "What travelled", traffic.ledger_section(study)),
        ("participation", "Who took part when", traffic.participation_section(study)),
        ("data", "Data", setting.data_section(study)),
        ("config", "Configuration", setting.config_section(study)),
    ]
    sections = [s for s in sections if s[2]]
    links = "".join(f'<a href="#{anchor}">{heading}</a>' for anchor, heading, _ in sections)
    body = "\n".join(
        f'<section id="{a}"><h2>{heading}</h2>{inner}</section>' for a, heading, inner in sections
    )
    title = study.best.label if study.best.auc is None else f"{study.best.label} {auc(study.best.auc)}"
    version = study.versions.get("fedauc")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>FedAUC report: {esc(short(title, 80))}</title>
<style>{CSS}</style>
</head>
<body>
<main>
<header>{headline.section(study)}<nav aria-label="Sections">{links}</nav></header>
{body}
</main>
<footer>Written by FedAUC{f" {esc(version)}" if version else ""} from the files of the run; this page loads
nothing from anywhere.</footer>
<script>{JS}</script>
</body>
</html>
"""
