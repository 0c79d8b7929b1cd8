"""What the numbers allow one to say, and no more."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from fedauc.report.load import Entry, Study
from fedauc.report.text import auc, listing, signed

# 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom.
_T: tuple[float, ...] = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_T += (2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093)


@dataclass(frozen=True)
class Difference:
    """Test AUC of ``a`` minus that of ``b``."""

    mean: float | None
    interval: tuple[float, float] | None  # 95 % over the seeds both ran, paired
    wins: int  # seeds with a above b
    of: int  # seeds both ran
    clear: bool | None  # None: cannot be told

    def words(self) -> str:
        if self.clear is None:
            return "cannot be told"
        if self.clear and self.of < 2:
            return "clear on one seed"
        return "clear" if self.clear else "no clear difference"

    def lead(self) -> str:
        """``though it leads on 3 of 3 seeds``, where all seeds agree and it still is not clear."""
        if self.clear is not False or self.of < 3 or self.wins not in (0, self.of):
            return ""
        return f"though it {'leads' if self.wins else 'trails'} on {self.of} of {self.of} seeds"


def difference(a: Entry, b: Entry) -> Difference:
    """Clear only if the seeds agree (the 95 % interval of the paired differences leaves out zero), the
    spreads over the seeds do not overlap, nor do the test-set intervals where both are known."""
    gap = None if a.auc is None or b.auc is None else a.auc - b.auc
    shared = sorted(a.by_seed.keys() & b.by_seed.keys())
    gaps = [a.by_seed[seed] - b.by_seed[seed] for seed in shared]
    wins = sum(g > 0 for g in gaps)
    apart = None  # do the test-set intervals leave room between them?
    if a.ci and b.ci:
        apart = a.ci[0] > b.ci[1] or b.ci[0] > a.ci[1]
    if gap is None:
        return Difference(None, None, wins, len(gaps), None)
    if len(gaps) < 2:
        return Difference(gap, None, wins, len(gaps), apart)
    middle = statistics.fmean(gaps)
    half = _T[min(len(gaps) - 2, len(_T) - 1)] * statistics.stdev(gaps) / len(gaps) ** 0.5
    low, high = middle - half, middle + half
    agree = low > 0 or high < 0
    spread = statistics.stdev(a.by_seed.values()) + statistics.stdev(b.by_seed.values())
    clear = agree and abs(gap) > spread and apart is not False
    return Difference(gap, (low, high), wins, len(gaps), clear)


def verdict(study: Study) -> str:
    """One sentence (plain text)."""
    best = study.best
    if best.auc is None:
        return "No test AUC was computed, so there is nothing to conclude."
    if not study.comparable:
        return "These runs are on different data, so their test AUCs must not be compared with each other."
    if not study.compared or len(study.entries) == 1:
        return _alone(best)
    parts = [f"{best.label} has the highest test AUC of the federated methods ({auc(best.auc)})"]
    if best.yardstick:
        parts = [f"{best.label} has the highest test AUC ({auc(best.auc)})"]
    elif not study.others:
        parts = [f"{best.label} reaches a test AUC of {auc(best.auc)}"]
    parts += _against(best, study.others)
    against_yardsticks = _against(best, study.yardsticks)
    text = _join(parts)
    if against_yardsticks:
        text += f"; against the yardsticks: {', '.join(against_yardsticks)}"
    if best.ci and best.ci[0] <= 0.5 <= best.ci[1]:
        text += "; its 95 % interval includes 0.5, so it is not clearly better than chance"
    return f"{text}."


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{parts[0]}: {', '.join(parts[1:])}"


def _against(best: Entry, others: list[Entry]) -> list[str]:
    """``clearly above x``, ``no clear difference from y and z``, ``clearly below central``."""
    said: dict[str, list[str]] = {}
    for other in others:
        d = difference(best, other)
        if d.clear is None or d.mean is None:
            key = "not enough seeds to tell it from"
        elif d.clear:
            key = f"{'on one seed' if d.of < 2 else 'clearly'} {'above' if d.mean > 0 else 'below'}"
        else:
            key = "no clear difference from"
        lead = f" ({d.lead()})" if d.lead() else ""
        said.setdefault(key, []).append(f"{other.label}{lead}")
    order = (
        *("clearly above", "on one seed above", "clearly below", "on one seed below"),
        *("no clear difference from", "not enough seeds to tell it from"),
    )
    return [f"{key} {listing(said[key])}" for key in order if key in said]


def _alone(entry: Entry) -> str:
    assert entry.auc is not None
    odds = f"It ranks a random positive above a random negative {100 * entry.auc:.0f} times out of 100"
    if entry.ci is None:
        return f"{odds}; without an interval it cannot be told how sure that is."
    low, high = entry.ci
    if low <= 0.5 <= high:
        return f"{odds}, but the 95 % interval includes 0.5: no clear difference from chance."
    if high < 0.5:
        return f"{odds}: clearly worse than chance, so look for swapped labels."
    return f"{odds} (95 % interval {100 * low:.0f} to {100 * high:.0f}): clearly better than chance."


def gap_closed(study: Study) -> str:
    """How far the best method gets from the clients alone to pooled data, where that gap is clear."""
    known = {e.label: e for e in study.yardsticks}
    alone, central = known.get("clients-alone"), known.get("central")
    if not alone or not central or study.best.auc is None or alone.auc is None or central.auc is None:
        return ""
    if central.auc <= alone.auc or not difference(central, alone).clear:
        return ""
    share = (study.best.auc - alone.auc) / (central.auc - alone.auc)
    if share < 0:
        return ""
    if share > 1:
        return f"{signed(study.best.auc - central.auc)} beyond the AUC of pooled data"
    return f"{100 * share:.0f} % of the way from clients alone to pooled data"
