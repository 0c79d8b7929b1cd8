"""What must be known of the best of a search.

Which trials are missing beside it, which values were not tried, and whether it stands at an end of the grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedauc.errors import some
from fedauc.experiments.command import setting

if TYPE_CHECKING:
    from fedauc.experiments.tune import Trial


def notes(best: Trial, trials: Sequence[Trial], grid: Mapping[str, Sequence[Any]]) -> list[str]:
    """What is to be known of the best."""
    return [*(_missing(trials) or _edges(best, trials, grid)), *_untried(trials, grid)]


def _missing(trials: Sequence[Trial]) -> list[str]:
    """Which trials might have been better."""
    names = [
        f"trial-{trial.number:03d} ({', '.join(setting(name, v) for name, v in trial.settings.items())})"
        for trial in trials
        if trial.missing
    ]
    if not names:
        return []
    return [
        f"This is without {some(names)}, whose files cannot be used: the best is the best of the others,"
        " until that is mended and --resume has tried again."
    ]


def _untried(trials: Sequence[Trial], grid: Mapping[str, Sequence[Any]]) -> list[str]:
    """Which values no trial has."""
    names = [
        setting(name, value)
        for name, values in grid.items()
        for value in values
        if value not in [trial.settings[name] for trial in trials]
    ]
    if not names:
        return []
    enough = max(len(trials) + 1, *map(len, grid.values()))
    return [f"Not tried of what was given: {some(names)}; --trials {enough} tries every value."]


def _edges(best: Trial, trials: Sequence[Trial], grid: Mapping[str, Sequence[Any]]) -> list[str]:
    """Whether the best values are at an end of what was given, or as good as others."""
    notes = []
    for name, value in best.settings.items():
        if twins := [trial for trial in trials if best.twin(trial, name)]:
            notes.append(f"{name}={twins[0].settings[name]} came to the same as {name}={value}.")
            continue
        try:
            given, found = [float(other) for other in grid[name]], float(value)
        except (TypeError, ValueError):  # no numbers
            continue
        if len(given) > 1 and found in (min(given), max(given)) and not isinstance(value, bool):
            end, beyond = ("smallest", "smaller") if found == min(given) else ("largest", "larger")
            notes.append(f"{name}={value} is the {end} that was tried: {beyond} ones may be better still.")
    return notes
