"""The report: one self-contained HTML page from run folders.

``write_report`` reads one train run, several train runs or a compare folder and writes a page that needs no
network, follows the reader's light or dark scheme and prints well.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedauc.errors import InputError
from fedauc.report.load import load
from fedauc.report.page import page
from fedauc.report.paint import paint

__all__ = ["write_report"]


def write_report(paths: Sequence[Path], out: Path) -> Path:
    """Writes the page to ``out`` (into it, as ``report.html``, if it is a directory) and returns its path."""
    study = load(paths)
    paint(study.entries)
    text = page(study)
    out = Path(out)
    target = out / "report.html" if out.is_dir() else out
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    except OSError as error:
        raise InputError(f"The report cannot be written to {target} ({error.strerror}).") from None
    return target
