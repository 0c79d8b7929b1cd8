"""What came out of a run: the model in memory, and the content of result.json."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedauc import metrics
from fedauc.core.loop import Federation, RunState
from fedauc.errors import InputError
from fedauc.experiments.assembly import Part, Prepared, Scored
from fedauc.experiments.calibration import Calibration
from fedauc.experiments.config import Config
from fedauc.experiments.selection import Candidate
from fedauc.experiments.start import is_only_head
from fedauc.models import Model
from fedauc.objectives import MinimaxAUC
from fedauc.version import installed

FLAT = 6.0
"""A score beyond which a sigmoid has next to no slope."""


@dataclass(frozen=True)
class Trained:
    """A run's outcome in memory."""

    config: Config
    prepared: Prepared
    federation: Federation
    model: Model
    best: Candidate
    state: RunState
    seconds: float
    calibration: Calibration

    def scored(self, part: Part) -> Scored:
        """Rows with the logits of the best model."""
        return part.scored(self.model, self.best.z)


def summarise(trained: Trained) -> dict[str, Any]:
    """The content of result.json; the test rows are looked at here and nowhere else."""
    prepared, fed, ledger = trained.prepared, trained.federation, trained.state.ledger
    train, test = prepared.train, answered(prepared, trained.scored(prepared.test), "test")
    scores = test.scores
    fpr, tpr = metrics.roc_points(scores, test.y)
    rows = train.counts.sum(axis=1)
    return {
        "schema": 1,
        "kind": "train",
        "method": trained.config.method,
        "seed": trained.config.seed,
        "test_auc": metrics.auc(scores, test.y),
        "test_auc_ci": list(metrics.auc_interval(scores, test.y)),
        "valid_auc": trained.best.auc,
        "best_round": trained.best.round,
        "rounds": trained.state.round,
        "bytes_up": ledger.total_up,
        "bytes_down": ledger.total_down,
        "seconds_up": ledger.seconds_up,
        "seconds": trained.seconds,
        "per_client": _per_client(prepared, test),
        "groups": [[train.names[i] for i in group] for group in fed.roster.groups],
        "ledger": ledger.as_dict(),
        "test": {
            "rows": len(test.y),
            "positives": int(test.y.sum()),
            "auc_bounds": test.bounds,
            "average_precision": metrics.average_precision(scores, test.y),
            "roc": {"fpr": np.round(fpr, 6).tolist(), "tpr": np.round(tpr, 6).tolist()},
        },
        "calibration": trained.calibration._asdict(),
        "rows": prepared.fingerprint,
        "data": {
            "name": prepared.name,
            "rows": int(rows.sum()) + len(prepared.valid.y) + len(prepared.test.y),
            "train_rows": int(rows.sum()),
            "train_positives": int(train.counts[:, 1].sum()),
            "positives": int(train.counts[:, 1].sum() + prepared.valid.y.sum() + prepared.test.y.sum()),
            "features": int(np.prod(prepared.shape)),
            "clients": train.clients,
            "clients_without_positives": int((train.counts[:, 1] == 0).sum()),
            "notes": [*prepared.notes, *_own_notes(trained), *_test_notes(prepared, test)],
        },
        "config": trained.config.as_dict(),
        "versions": versions(),
    }


def answered(prepared: Prepared, found: Scored, name: str) -> Scored:
    """What was scored, if it has both classes; clients that are elsewhere may not have answered."""
    if 0 < found.y.sum() < len(found.y):
        return found
    missing = "; ".join(f"{prepared.names[i]}: {why}" for i, why in found.why.items())
    raise InputError(f"The {name} rows of the clients that answered have one class ({missing}).")


def _own_notes(trained: Trained) -> list[str]:
    notes = []
    if trained.config.train.statistics == "local":
        notes.append(
            "Running statistics stayed at the clients, whose rows are scored with their own; the saved model"
            " has the mean of all clients' statistics, so scores of `fedauc predict` differ."
        )
    train = trained.config.train
    if train.warmup is not None and train.head != "kept" and is_only_head(trained.model, trained.best.z):
        notes.append(
            f"Nothing is left of the warm-up with {train.warmup}: this model is only a last layer, which"
            f" starts anew (head={train.head}). Go on from it (--set head=kept) or take another model."
        )
    if (level := _flat(trained)) is not None:
        notes.append(
            f"After the last round all scores are {'above' if level > 0 else 'below'} {level:g}, where the"
            " sigmoid of minimax AUC is flat and nothing is learnt any more: take a smaller step size, or"
            " begin in the middle (--set start=middle --set head=zero)."
        )
    return notes


def _flat(trained: Trained) -> float | None:
    """Beyond which level all scores of the last iterate are, if they are; not asked of clients elsewhere."""
    objective, prepared = trained.config.component("objective"), trained.prepared
    if not (isinstance(objective, MinimaxAUC) and objective.link == "sigmoid" and prepared.reach is None):
        return None
    scores = prepared.valid.scored(trained.model, trained.state.averaged.z).scores
    if scores.min() > FLAT:
        return FLAT
    return -FLAT if scores.max() < -FLAT else None


def _test_notes(prepared: Prepared, test: Scored) -> list[str]:
    """What is to be known of a test with clients that are elsewhere."""
    notes = []
    if test.rows is not None and len(test.rows) < len(prepared.test.y):
        here = set(test.client.tolist()) if test.client is not None else set()
        away = [f"{prepared.names[i]} ({why})" for i, why in test.why.items() if i not in here]
        notes.append(f"The test is without the rows of {', '.join(away)}.")
    if test.bounds is not None:
        low, high = test.bounds
        notes.append(
            f"Some clients share histograms of scores: the test AUC is between {low:.4f} and {high:.4f}."
        )
    return notes


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    names = ("fedauc", "torch", "numpy", "pandas", "scikit-learn")
    return {"python": platform.python_version()} | {name: installed(name) for name in names}


def _per_client(prepared: Prepared, test: Scored) -> list[dict[str, Any]]:
    counts = prepared.train.counts
    if test.client is None:
        why = "the test rows belong to no client"
        rows: list[dict[str, Any]] = [
            {"client": name, "rows": 0, "positives": 0, "auc": None, "why": why} for name in prepared.names
        ]
    else:
        rows = metrics.per_client(test.scores, test.y, test.client, prepared.names)
    for i, why in test.why.items():
        rows[i] |= {"auc": None, "why": why}
    for i, row in enumerate(rows):
        has = i < len(counts)
        row["train_rows"] = int(counts[i].sum()) if has else 0
        row["train_positives"] = int(counts[i, 1]) if has else 0
    return rows
