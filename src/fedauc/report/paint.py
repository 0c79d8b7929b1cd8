"""What a method looks like: a colour, and a form, which is both the dash of its line and its mark.

A method of this package has the same look in every report: seven have fixed looks, and the others get theirs
in the order of the registry. As 6 colours and 5 forms have no common divisor, neighbours in the registry
(which are compared most) differ in both, and no look comes twice among 30. Names that are not in the registry
get what is left, by their names.

The form never changes. A colour does where a report would show two methods in it and no method in another:
then the one that comes later in the registry takes the free one. So up to six methods differ in colour (but
for rs-pairwise, whose fixed colour is that of cycp-pairwise), and any two differ in colour or form. Colours
are chosen to stay apart for colour-blind eyes (`tests/report/test_paint.py` measures it), and forms help.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeVar

from fedauc.experiments.presets import PRESETS
from fedauc.report.load import Entry

COLOURS, FORMS = 6, 6  # m0 … m5 and d0 … d5 of the style sheet
Look = tuple[int, int]
FIXED: dict[str, Look] = {
    "cycp-pairwise": (0, 0),
    "cycp-fedavg": (1, 0),
    "cycp-minimax": (2, 0),
    "fedavg": (3, 0),
    "rs-minimax": (4, 0),
    "coda+": (5, 0),
    "rs-pairwise": (0, 1),
}
FEW, FOREMOST = 8, 6  # of more than FEW methods a figure shows the FOREMOST in colour
T = TypeVar("T")


def foremost(ranked: Sequence[T]) -> list[T]:
    """What a figure shows in colour: all, or the first where they are too many to tell apart."""
    return list(ranked if len(ranked) <= FEW else ranked[:FOREMOST])


def looks(names: Sequence[str]) -> dict[str, Look]:
    """The looks of the registry's methods, of the first 36 if there are more."""
    known = {name: look for name, look in FIXED.items() if name in names}
    diagonal = [(n % COLOURS, 1 + n % (FORMS - 1)) for n in range(COLOURS * (FORMS - 1))]
    free = [look for look in diagonal if look not in FIXED.values()]
    return known | dict(zip([name for name in names if name not in FIXED], free, strict=False))


REGISTRY = looks(list(PRESETS))


def paint(ranked: Sequence[Entry]) -> None:
    """A look for each entry (best first); no two have the same while there are enough."""
    methods = [e for e in ranked if not e.yardstick]
    wanted = _wanted(sorted(e.label for e in methods))
    given = wanted | _resolved(wanted, [e.label for e in foremost(methods)])
    for entry in methods:
        colour, entry.form = given[entry.label]
        entry.colour = f"m{colour} d{entry.form}"
    for n, entry in enumerate(sorted((e for e in ranked if e.yardstick), key=lambda e: e.label)):
        entry.colour, entry.form = f"y{n % 2} d{1 + n % 2}", 1 + n % 2


def _wanted(names: Sequence[str]) -> dict[str, Look]:
    """Everybody's own look, by name; names that the registry does not know start with the first form."""
    found = {name: REGISTRY[name] for name in names if name in REGISTRY}
    for name in names:
        if name not in found:
            first = zlib.crc32(name.encode(errors="replace")) % COLOURS
            order = [((first + n) % COLOURS, form) for form in range(FORMS) for n in range(COLOURS)]
            found[name] = next((look for look in order if look not in found.values()), order[0])
    return found


def _resolved(wanted: dict[str, Look], shown: Sequence[str]) -> dict[str, Look]:
    """New looks of those among the shown whose colour another has, as far as there are free colours; who has
    such a look without being shown in colour gets theirs."""
    places = {name: n for n, name in enumerate(dict.fromkeys((*FIXED, *PRESETS)))}
    order = sorted(shown, key=lambda name: (places.get(name, len(places)), name))
    claimed: set[int] = set()
    late = []
    for name in order:
        if wanted[name][0] in claimed and name not in FIXED:
            late.append(name)
        claimed.add(wanted[name][0])
    kept = {look for name, look in wanted.items() if name in FIXED}
    moved: dict[str, Look] = {}
    for name in late:
        own, form = wanted[name]
        others = [(own + n) % COLOURS for n in range(1, COLOURS)]
        colour = next((c for c in others if c not in claimed and (c, form) not in kept), own)
        claimed.add(colour)
        holder = next((other for other, look in wanted.items() if look == (colour, form)), name)
        moved |= {holder: (own, form), name: (colour, form)}  # a holder is not among the shown
    return moved
