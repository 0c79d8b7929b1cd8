"""Paper 001, "Federated deep AUC maximization for heterogeneous data": Figure 1 (CIFAR), Table 3.

Half of the classes is positive (the first half here, drawn at random in the paper); whole classes are dealt
to K clients, and so many positives are removed that a tenth of the training rows is positive. DenseNet121,
batch 32, 20,000 iterations, the step size divided by three every 4,000, or where a round ends next to that;
no proximal term (the paper tunes it). CIFAR-100 cannot be had here, so CIFAR-10 (ResNet20) and Fashion-MNIST
(a small CNN) with five clients stand beside it; they are not in the paper. Figure 1 is a picture without
numbers. The chest X-rays of Table 3 are of five organisations (`fedauc.data.sources.chest`), in 16 groups; a
twentieth is for the test and 30 % of the rest for validation, as in the paper. Elsewhere it scales images to
320 x 320 pixels; in memory these would take 300 GB, so they have 64 here (`data.image_size`).
"""

from __future__ import annotations

from typing import Any

from fedauc.papers.cells import Cell, Paper, removed
from fedauc.papers.pictures import Panel, Picture

PRESETS = {"CODA+": "coda+", "CODASCA": "codasca"}
WINDOWS = (1, 32, 64, 128, 512, 1024)
"""I, the local steps of a round."""
STAGES, STAGE = 5, 4_000
"""And the iterations of each."""
DATA: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "CIFAR-100": ((16, 8), {"data.source": "cifar100", "data.positive": "0-49", "model": "densenet121"}),
    "CIFAR-10": ((5,), {"data.source": "cifar10", "data.positive": "0-4", "model": "resnet20"}),
    "Fashion-MNIST": (
        (5,),
        {
            "data.source": "fashion-mnist",
            "data.positive": "0-4",
            "model": "cnn",
            "train.compile": False,
            "schedule.eta": 0.3,  # chosen on validation rows, papers/001/README.md
        },
    ),
}
CHEST = {
    ("CODA+", 1): (0.8472, 0.8499, 0.7406, 0.7475, 0.8688),
    ("CODA+", 512): (0.8361, 0.8464, 0.7356, 0.7449, 0.8680),
    ("CODASCA", 512): (0.8427, 0.8457, 0.7401, 0.7468, 0.8680),
    ("CODA+", 1024): (0.8280, 0.8451, 0.7322, 0.7431, 0.8660),
    ("CODASCA", 1024): (0.8363, 0.8444, 0.7346, 0.7481, 0.8674),
}
DISEASES = {
    "Cardiomegaly": "cardiomegaly",
    "Edema": "edema",
    "Consolidation": "consolidation",
    "Atelectasis": "atelectasis",
    "Pleural effusion": "effusion",
}
"""As the paper and as the source calls them."""


def _settings(window: int) -> dict[str, Any]:
    rounds = round(STAGE / window)
    return {
        "schedule.steps": window,
        "schedule.cycles": STAGES * rounds,
        "schedule.stage_cycles": rounds,
        "schedule.decay": 1 / 3,
        "schedule.growth": 1.0,
        "train.batch": 32,
        "train.eval_every": max(1, 1000 // window),
    }


def _figure() -> list[Cell]:
    cells = []
    for dataset, (sizes, settings) in DATA.items():
        for clients in sizes:
            dealt = {"data.partition": "disjoint-classes", "data.clients": clients}
            dealt |= {"data.remove_positives": removed(0.1), **settings}
            for method, preset in PRESETS.items():
                for window in WINDOWS:
                    about = f"K={clients} I={window}"
                    cells.append(Cell("figure-1", method, dataset, about, preset, dealt | _settings(window)))
    return cells


def _table() -> list[Cell]:
    cells = []
    for (method, window), row in CHEST.items():
        for (disease, finding), theirs in zip(DISEASES.items(), row, strict=True):
            settings = _settings(window) | {
                "data.source": "chest-xrays",
                "data.positive": finding,
                "data.test_fraction": 0.05,
                "data.valid_fraction": 0.285,
                "model": "densenet121",
            }
            about = (f"{disease} I={window}", PRESETS[method], settings, theirs)
            cells.append(Cell("table-3", method, "ChestXray-IH", *about))
    return cells


def _pictures() -> list[Picture]:
    pictures = []
    for dataset, (sizes, _) in DATA.items():
        for clients in sizes:
            about = f"{dataset}/K={clients}*"
            panels = [Panel(f"{dataset}, K={clients}", "figure-1", f"*/{about}", "I", "ours")]
            for method in PRESETS:
                panels.append(Panel(method, "figure-1", f"{method}/{about}", "step", "valid_auc", "setting"))
            pictures.append(Picture(f"figure-1-{dataset.lower()}-{clients}", tuple(panels)))
    return pictures


PAPER = Paper(
    "001",
    "Federated deep AUC maximization for heterogeneous data",
    (*_figure(), *_table()),
    tuple(_pictures()),
    ours=("*/CIFAR-10", "*/Fashion-MNIST"),
)
