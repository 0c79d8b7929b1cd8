"""How a run goes on: a progress bar on a terminal, nothing elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedauc.core.loop import RoundRecord
from fedauc.experiments.runner import Silent, Watch


def human_bytes(size: float) -> str:
    """1536 → 1.5 kB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


class Bar:
    """Round, validation AUC, bytes travelled and time left."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def begin(self, title: str, rounds: int, done: int) -> None:
        more = (TextColumn("valid AUC {task.fields[auc]}"), TextColumn("{task.fields[traffic]}"))
        self._start(title, rounds, done, *more, TimeRemainingColumn(compact=True))

    def round(self, record: RoundRecord, auc: float | None, traffic: int) -> None:
        self.progress.update(self.task, completed=record.round, traffic=human_bytes(traffic))
        if auc is not None:
            self.progress.update(self.task, auc=f"{auc:.4f}")

    def several(self, runs: int, at_once: int) -> None:
        self._start(f"runs, {at_once} at a time", runs, 0, TimeElapsedColumn())

    def one_less(self) -> None:
        self.progress.advance(self.task)

    def end(self) -> None:
        self.progress.stop()

    def _start(self, title: str, total: int, done: int, *more: ProgressColumn) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), *more)
        self.progress = Progress(*columns, console=self.console, transient=True)
        self.task = self.progress.add_task(title, total=total, completed=done, auc="–", traffic="")
        self.progress.start()


def watch_on(console: Console, quiet: bool) -> Watch:
    """A bar on a terminal; silence in a pipe, a log file or with --quiet."""
    return Bar(console) if console.is_terminal and not quiet else Silent()
