"""Learning curves, by round, bytes and communication time, and ROC curves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fedauc.report.figures.curves import MOST_BANDS, By, What, curve_of, learning, roc, roc_of
from fedauc.report.load import Entry, Study
from fedauc.report.paint import foremost
from fedauc.report.parts import HOWTO, figure, line_legend, views
from fedauc.report.svg import HALF, WIDE, responsive
from fedauc.report.text import esc, listing

AUC: What = "valid_auc"
WORST: What = "worst_accuracy"


def learning_section(study: Study) -> str:
    shown = [e for e in study.entries if curve_of(e, "round")]
    if not shown:
        if any(e.runs for e in study.entries):
            return "<p>No round was evaluated on the valid rows, so there is no curve to draw.</p>"
        return ""
    bright = foremost(shown)
    kinds: list[tuple[str, str, By]] = [("rounds", "By round", "round")]
    if any(curve_of(e, "bytes") for e in shown):
        kinds.append(("bytes", "By bytes travelled", "bytes"))
    drawn = [(key, head, responsive(partial(learning, study, bright, by, AUC))) for key, head, by in kinds]
    words = "Higher and further left is better: more AUC on the valid rows for fewer rounds or fewer bytes."
    words += _lines(study, shown)
    if not study.compared:
        words += " The ring marks the round whose model was kept; dotted lines are changes of stage."
    left_out = [e.label for e in study.entries if e.runs and e not in shown]
    if left_out:
        words += f" Without evaluated rounds, so without a line: {esc(listing(left_out))}."
    return figure(views("Learning curves by", drawn), words, line_legend(study, shown))


def _lines(study: Study, shown: Sequence[Entry]) -> str:
    """What the lines are."""
    words = ""
    if any(len(e.runs) > 1 for e in shown):
        words += " Lines are means over the seeds, bands reach from the lowest to the highest seed"
        words += "." if len(shown) <= MOST_BANDS else " (drawn for the best method only)."
    return words + _greys(shown)


def _greys(shown: Sequence[Entry]) -> str:
    bright = foremost(shown)
    if len(bright) == len(shown):
        return ""
    return (
        f" In colour are the {len(bright)} methods with the highest test AUC; the others are grey, say their"
        " names when pointed at, and take on their colours when chosen in the list of the others."
    )


def time_section(study: Study) -> str:
    """By the time of the uplinks, where any run has one."""
    shown = [e for e in study.entries if curve_of(e, "time")]
    if not shown:
        return ""
    bright = foremost(shown)
    kinds: list[tuple[str, What]] = [("Valid AUC", AUC)]
    if any(curve_of(e, "time", WORST) for e in shown):
        kinds.append(("Accuracy of the worst client", WORST))
    width = WIDE if len(kinds) == 1 else HALF
    drawn = ""
    for head, what in kinds:
        one = responsive(partial(learning, study, bright, "time", what), width)
        drawn += one if len(kinds) == 1 else f"<div><h3>{head}</h3>{one}</div>"
    drawn = drawn if len(kinds) == 1 else f'<div class="twin">{drawn}</div>'
    words = (
        "Higher and further left is better. Communication time is how long the clients' uploads take by the"
        " uplink speeds of the configuration, one after another or at the same time as it says; computing"
        " and downloads are not in it."
    )
    if len(kinds) > 1:
        words += (
            " The worst client is the one with the smallest share of valid rows classified rightly (positive"
            " where the score is above 0); methods that maximise AUC order rows and do not place that"
            " threshold, so their accuracy says little."
        )
    words += _lines(study, shown)
    left_out = [e.label for e in study.entries if e.runs and e not in shown]
    if left_out:
        words += f" Without uplink speeds, so without a line: {esc(listing(left_out))}."
    return figure(drawn, words, line_legend(study, shown))


def roc_section(study: Study) -> str:
    shown = [e for e in study.entries if roc_of(e) is not None]
    if not shown:
        return ""
    bright = foremost(shown)
    drawn = [
        ("roc-all", "Whole curve", responsive(partial(roc, study, bright, 1.0), HALF)),
        ("roc-left", "Few false alarms", responsive(partial(roc, study, bright, 0.1), HALF)),
    ]
    words = (
        "Each threshold gives one point: the share of positives found against the share of negatives raised"
        " as false alarms. The area below is the AUC; the dotted diagonal is guessing. For rare events the"
        " left edge matters most, where even a small share of false alarms outnumbers the positives."
    )
    if any(len(e.runs) > 1 for e in shown):
        words += " Curves are means over the seeds."
    words += _greys(shown)
    return (
        f'<figure class="pair"><div>{views("ROC curve", drawn)}</div>'
        f"<div>{line_legend(study, shown, column=True)}"
        f"<figcaption>{HOWTO}{words}</figcaption></div></figure>"
    )
