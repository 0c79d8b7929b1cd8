"""Paper 002, "Client sampling for communication-efficient distributed minimax optimization": Figures 1-3.

Ten clients, each with one class; uplinks of 10 ms for the first five and 1 ms for the others; m = 5. A cell
is the time of the uplinks until the worst class of the test rows is classified with an accuracy; the curves
of the figures lie beside it (curve.json). The paper states accuracies and times of its Figure 2 alone, and
neither step sizes nor batch: each algorithm has the step sizes that served it best on the validation rows of
Fashion-MNIST, among those of the cells of `grid` with which it did not diverge later on on seed 0. The cells
of `small-steps` have the same, small ones for all. The values of λ in Figure 1 are ours.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

from fedauc.papers.cells import Cell, Paper
from fedauc.papers.pictures import Panel, Picture
from fedauc.papers.worst_case import TRIAL, Reaching, worst_on_validation

REACHED = "seconds of uplinks until the worst class is classified so well"
AVERAGE = f"validation accuracy of the worst class, mean over {TRIAL:.0f} s of uplinks"
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
"""λ of P1, as the paper chose it, with times in milliseconds."""
SOURCES = {"Fashion-MNIST": "fashion-mnist", "EMNIST": "emnist-digits"}
MODELS: dict[str, dict[str, Any]] = {
    "LR": {"model": "linear"},
    "MLP": {"model": "mlp", "model.hidden": [300, 100]},
}
FIGURES = {"LR": "figure-2", "MLP": "figure-3"}
TUNED: dict[tuple[str, str], tuple[float, float]] = {
    ("LR", "CE-Minimax"): (0.01, 0.001),
    ("LR", "Min-Uniform"): (0.03, 0.001),
    ("LR", "Minimax-All"): (0.03, 0.001),
    ("LR", "Minimax-Uniform"): (0.01, 0.001),
    ("LR", "Minimax-Weighted"): (0.03, 0.001),
    ("MLP", "CE-Minimax"): (0.1, 0.001),
    ("MLP", "Min-Uniform"): (0.1, 0.001),
    ("MLP", "Minimax-All"): (0.3, 0.001),
    ("MLP", "Minimax-Uniform"): (0.1, 0.001),
    ("MLP", "Minimax-Weighted"): (0.1, 0.001),
}
"""η and η_λ by model and algorithm: chosen on validation rows (papers/002/README.md)."""
STEPS = (0.003, 0.01, 0.03, 0.1, 0.3), (0.001, 0.01)
"""η and η_λ to choose from, on Fashion-MNIST."""
SMALL = 0.0003, 0.001
"""η and η_λ with which CE-Minimax takes roughly as long as the paper says."""
COMMON: dict[str, Any] = {
    "schedule.steps": 1,
    "train.batch": 32,
    "schedule.cycles": 10**8,  # (the time of the uplinks ends a run)
    "train.output": "last",
    "train.client_weight": "uniform",
    "train.compile": False,
}


def _settings(
    method: str, model: str, dataset: str, kappa: float, tuned: tuple[float, float] | None = None
) -> dict[str, Any]:
    eta, eta_lambda = tuned or TUNED.get((model, method), (0.01, 0.001))
    found = COMMON | MODELS[model] | {"data.source": SOURCES[dataset], "schedule.eta": eta}
    if method == "CE-Minimax":
        found["participation.kappa"] = 1000 * kappa  # (of a second)
    if method != "Minimax-All":
        found["participation.per_round"] = 5
    if method != "Min-Uniform":
        found |= {"server.report": 5, "server.eta_lambda": eta_lambda}
    return found


def _five(table: str, model: str, dataset: str, tuned: tuple[float, float] | None = None) -> list[Cell]:
    """All algorithms, each with its own step sizes or with these."""
    goal, seconds = THEIRS[model, dataset]
    cells = []
    for (method, preset), theirs in zip(PRESETS.items(), seconds, strict=True):
        settings = _settings(method, model, dataset, KAPPA[model, dataset], tuned)
        about = (dataset, f"{model} {100 * goal:.0f} %", preset, settings, theirs)
        note = "Theirs stand in the text of Section VI-B." if seconds[0] else ""
        if seconds[0] and not theirs:
            note = f"Theirs of {method} is not there within 1000 s."
        cells.append(Cell(table, method, *about, measure=Reaching(goal), quantity=REACHED, note=note))
    return cells


def _lambdas(model: str, dataset: str) -> list[Cell]:
    """Figure 1."""
    reaching = partial(Cell, measure=Reaching(THEIRS[model, dataset][0]), quantity=REACHED)
    cells = []
    for kappa in (0.01, 0.1, 0.2, 1.0, 10.0):
        settings = _settings("CE-Minimax", model, dataset, kappa)
        about = (dataset, f"{model} λ={kappa:g}", "ce-minimax", settings)
        cells.append(reaching("figure-1", "CE-Minimax", *about))
    return cells


def _grid() -> list[Cell]:
    """Not in the paper: trials on validation rows, by which step sizes are chosen."""
    cells, dataset = [], "Fashion-MNIST"
    trial = partial(Cell, measure=worst_on_validation, quantity=AVERAGE)
    for model in MODELS:
        for method, preset in PRESETS.items():
            for eta, eta_lambda in product(*STEPS):
                about = f"{model} η={eta:g}"
                if method != "Min-Uniform":
                    about += f" η_λ={eta_lambda:g}"
                settings = _settings(method, model, dataset, KAPPA[model, dataset], (eta, eta_lambda))
                cells.append(trial("grid", method, dataset, about, preset, settings))
    return list({cell.key: cell for cell in cells}.values())


def _pictures() -> list[Picture]:
    x = "seconds_up"

    def both(name: str, title: str, table: str, cells: str) -> Picture:
        return Picture(name, tuple(Panel(title, table, cells, x, y) for y in ("test_worst", "test_mean")))

    pictures = [both("small-steps", "LR, one small step size", "small-steps", "*")]
    for model, dataset in THEIRS:
        title, source = f"{model}, {dataset}", SOURCES[dataset]
        pictures.append(both(f"{FIGURES[model]}-{source}", title, FIGURES[model], f"*/{dataset}/*"))
        lambdas = Panel(title, "figure-1", f"*/{dataset}/{model}*", x, "test_worst", "setting")
        pictures.append(Picture(f"figure-1-{model.lower()}-{source}", (lambdas,)))
    return pictures


PAPER = Paper(
    "002",
    "Client sampling for communication-efficient distributed minimax optimization",
    (
        *(cell for model, dataset in THEIRS for cell in _five(FIGURES[model], model, dataset)),
        *(cell for model, dataset in THEIRS for cell in _lambdas(model, dataset)),
        *_five("small-steps", "LR", "Fashion-MNIST", SMALL),
        *_grid(),
    ),
    tuple(_pictures()),
    ours=("small-steps", "grid"),
)
