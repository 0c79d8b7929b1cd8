"""Where commands print."""

import sys

from rich.console import Console

out_console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 200)
err_console = Console(stderr=True, soft_wrap=True)


def say(text: str) -> None:
    """A line as it is."""
    out_console.print(text, highlight=False, markup=False)
