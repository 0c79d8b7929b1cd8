"""What can be wrong with what a user gave us.

Each error is one clear sentence that names the file, column, row, client or key; the command line
prints it and exits with 2, the Python API raises it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class InputError(ValueError):
    """The user's input cannot be used; the message is one sentence that says why and what to do."""


class OutOfMemory(InputError):
    """What was asked for needs more memory than is free; the message says what needs less."""


class Untrainable(InputError):
    """Training with these settings on these rows came to nothing, and would again."""


class Lost(Exception):
    """Another process of a run has ended, or the run was told to end."""


def some(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence: the first ones, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def nearest(name: str, known: Iterable[str], most: int | None = None) -> str:
    """A hint for a mistyped name: `` Did you mean 'eta'?`` or the list of what there is, or its beginning."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    if close:
        return f" Did you mean {close[0]!r}?"
    return f" Known: {some(options, most or len(options))}." if options else ""
