"""Learning curves and ROC curves."""

from __future__ import annotations

from functools import partial

from fedauc.report.figures.curves import MOST_BANDS, curve_of, learning, roc, roc_of
from fedauc.report.load import Study
from fedauc.report.parts import HOWTO, figure, legend, views
from fedauc.report.svg import HALF, responsive
from fedauc.report.text import esc, listing


def learning_section(study: Study) -> str:
    shown = [e for e in study.entries if curve_of(e, "round")]
    if not shown:
        if any(e.runs for e in study.entries):
            return "<p>No round was evaluated on the valid rows, so there is no curve to draw.</p>"
        return ""
    drawn = [("rounds", "By round", responsive(partial(learning, study, "round")))]
    if any(curve_of(e, "bytes") for e in shown):
        drawn.append(("bytes", "By bytes travelled", responsive(partial(learning, study, "bytes"))))
    words = "Higher and further left is better: more AUC on the valid rows for fewer rounds or fewer bytes."
    if any(len(e.runs) > 1 for e in shown):
        words += " Lines are means over the seeds, bands reach from the lowest to the highest seed"
        words += "." if len(shown) <= MOST_BANDS else " (drawn for the best method only)."
    elif not study.compared:
        words += " The ring marks the round whose model was kept; dotted lines are changes of stage."
    left_out = [e.label for e in study.entries if e.runs and e not in shown]
    if left_out:
        words += f" Without evaluated rounds, so without a line: {esc(listing(left_out))}."
    return figure(views("Learning curves by", drawn), words, legend(shown))


def roc_section(study: Study) -> str:
    shown = [e for e in study.entries if roc_of(e) is not None]
    if not shown:
        return ""
    drawn = [
        ("roc-all", "Whole curve", responsive(partial(roc, study, 1.0), HALF)),
        ("roc-left", "Few false alarms", responsive(partial(roc, study, 0.1), HALF)),
    ]
    words = (
        "Each threshold gives one point: the share of positives found against the share of negatives raised"
        " as false alarms. The area below is the AUC; the dotted diagonal is guessing. For rare events the"
        " left edge matters most, where even a small share of false alarms outnumbers the positives."
    )
    if any(len(e.runs) > 1 for e in shown):
        words += " Curves are means over the seeds."
    return (
        f'<figure class="pair"><div>{views("ROC curve", drawn)}</div><div>{legend(shown, column=True)}'
        f"<figcaption>{HOWTO}{words}</figcaption></div></figure>"
    )
