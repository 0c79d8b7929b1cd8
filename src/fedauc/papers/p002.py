"""Paper 002, "Client sampling for communication-efficient distributed minimax optimization": Figures 1-3.

Ten clients, each with one class; uplinks of 10 ms for the first five and 1 ms for the others; m = 5. A cell
is the time of the uplinks until the worst class of the test rows is classified with an accuracy; the curves
of the figures lie beside it (curve.json). The paper states accuracies and times of its Figure 2 alone, and
neither step sizes nor batch; all five algorithms have the same ones here, chosen on validation rows.
"""

from __future__ import annotations

from typing import Any

from fedauc.papers.cells import Cell, Paper
from fedauc.papers.worst_case import Reaching

PRESETS = {
    "CE-Minimax": "ce-minimax",
    "Minimax-Uniform": "minimax-uniform",
    "Minimax-Weighted": "minimax-weighted",
    "Minimax-All": "minimax-all",
    "Min-Uniform": "min-uniform",
}
THEIRS = {
    ("LR", "Fashion-MNIST"): (0.55, (443.102, 666.402, 995.895, 872.795, None)),
    ("LR", "EMNIST"): (0.70, (149.238, 308.615, 275.691, 492.030, 677.229)),
    ("MLP", "Fashion-MNIST"): (0.55, (None,) * 5),
    ("MLP", "EMNIST"): (0.70, (None,) * 5),
}
"""The goal, and the seconds of the five algorithms."""
KAPPA = {
    ("LR", "Fashion-MNIST"): 0.1,
    ("LR", "EMNIST"): 0.2,
    ("MLP", "Fashion-MNIST"): 0.2,
    ("MLP", "EMNIST"): 1.0,
}
"""λ of P1, as the paper chose it."""
SOURCES = {"Fashion-MNIST": "fashion-mnist", "EMNIST": "emnist-digits"}
MODELS: dict[str, dict[str, Any]] = {
    "LR": {"model": "linear"},
    "MLP": {"model": "mlp", "model.hidden": [300, 100]},
}
TUNED: dict[str, dict[str, Any]] = {
    "LR": {"schedule.eta": 0.01, "server.eta_lambda": 0.001, "train.batch": 32},
    "MLP": {"schedule.eta": 0.01, "server.eta_lambda": 0.001, "train.batch": 32},
}
"""By model, what validation has chosen (papers/002/README.md)."""
COMMON: dict[str, Any] = {
    "schedule.steps": 1,
    "schedule.cycles": 10**8,  # (the time of the uplinks ends a run)
    "train.output": "last",
    "train.client_weight": "uniform",
    "train.compile": False,
}


def _settings(method: str, model: str, dataset: str, kappa: float) -> dict[str, Any]:
    found = COMMON | MODELS[model] | TUNED[model] | {"data.source": SOURCES[dataset]}
    if method == "CE-Minimax":
        found["participation.kappa"] = kappa
    if method != "Minimax-All":
        found["participation.per_round"] = 5
    if method == "Min-Uniform":
        del found["server.eta_lambda"]
    else:
        found["server.report"] = 5
    return found


def _cells() -> list[Cell]:
    cells = []
    for (model, dataset), (goal, seconds) in THEIRS.items():
        table = "figure-2" if model == "LR" else "figure-3"
        measure = Reaching(goal)
        for (method, preset), theirs in zip(PRESETS.items(), seconds, strict=True):
            settings = _settings(method, model, dataset, KAPPA[model, dataset])
            about = f"{model} {100 * goal:.0f} %"
            cells.append(Cell(table, method, dataset, about, preset, settings, theirs, measure=measure))
        for kappa in (0.01, 0.1, 0.2, 1.0, 10.0):
            settings = _settings("CE-Minimax", model, dataset, kappa)
            about = f"{model} λ={kappa:g}"
            cells.append(
                Cell("figure-1", "CE-Minimax", dataset, about, "ce-minimax", settings, measure=measure)
            )
    return cells


PAPER = Paper(
    "002",
    "Client sampling for communication-efficient distributed minimax optimization",
    tuple(_cells()),
    "seconds of uplinks until the worst class is classified so well",
)
