"""Paper 000, "Federated AUC maximization with cyclic client participation": Tables 1-5, 8, 9, Figures 1-3.

What the paper leaves open, and what is taken here: which class is positive (the first one of CIFAR,
Fashion-MNIST's shirt, ChestMNIST's mass); the batch (32); a round's local steps (12, so that a cycle of ten
groups of ten clients is about one pass over the rows, and 100 cycles its 100 epochs); how many groups the
tables have (10, as in its Figure 2). The validation rows are a tenth of the published training rows, before
positives are removed, as in its Table 7. On CIFAR-10 there are 30 cycles: with steps three times those
here, AUC methods are at their best after 20 or so, and then learn the 225 positives by heart. In Table 8 a
tenth of the clients takes part in a round. Figures 1-3, Table 8 and the ten classes have cells for
Fashion-MNIST too, which the paper does not have: a small network, for machines without a large GPU. Nor
does it have the generated Medicare-like data, which stand beside its Insurance; which rows of that are
positive here, and what its features are, is said in `fedauc.data.sources.medicare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from fedauc.papers.cells import Cell, Paper, printed
from fedauc.papers.pictures import Panel, Picture

LABELLED = "Which exclusions make a row positive, and what features are used, the paper does not say."
EPOCHS = "Theirs are those of Table 1, after 100 epochs."
GENERATED = "Medicare-like data are generated, anew for each seed; theirs are of Medicare and LEIE files."
PRESETS = {
    "CyCp-FedAvg": "cycp-fedavg",
    "A-FedAvg": "a-fedavg",
    "A-SCAFFOLD": "a-scaffold",
    "RS-Minimax": "rs-minimax",
    "RS-Pairwise": "rs-pairwise",
    "CyCp-Minimax": "cycp-minimax",
    "CyCp-Pairwise": "cycp-pairwise",
}
IMAGES: dict[str, Any] = {
    "data.partition": "dirichlet",
    "data.clients": 100,
    "schedule.steps": 12,
    "schedule.cycles": 100,
    "train.batch": 32,
    "train.eval_every": 50,
}
CIFAR10 = IMAGES | {
    "data.source": "cifar10",
    "data.remove_positives": 0.95,
    "model": "resnet18",
    "schedule.cycles": 30,
    "train.eval_every": 20,
    "train.precision": "bfloat16",
    "train.compile": True,
}
FASHION = IMAGES | {
    "data.source": "fashion-mnist",
    "data.remove_positives": 0.95,
    "model": "cnn",
    "schedule.cycles": 30,
    "train.eval_every": 20,
    "train.compile": False,
}
CIFAR100 = IMAGES | {"data.source": "cifar100", "data.remove_positives": 0.5, "model": "resnet18"}
CHEST = IMAGES | {
    "data.source": "chestmnist",
    "data.positive": "mass",
    "data.remove_positives": 0.5,
    "model": "densenet121",
}
ABLATED = {"CIFAR-10": CIFAR10, "Fashion-MNIST": FASHION}
"""Where I, M, K, the number of clients and the positive class are varied."""
INSURANCE: dict[str, Any] = {"data.source": "medicare", "model": "linear", "schedule.cycles": 100}
MEDICARE_LIKE = INSURANCE | {
    "data.source": "medicare-like",
    "data.rows": 6_000_000,  # of which four years are 4 million for training, as in the paper's Table 7
}
ETA_MEDICARE_LIKE = {
    "CyCp-FedAvg": 1.0,
    "A-FedAvg": 1.0,
    "A-SCAFFOLD": 1.0,
    "RS-Minimax": 0.3,
    "RS-Pairwise": 1.0,
    "CyCp-Minimax": 0.3,
    "CyCp-Pairwise": 0.3,
}
_SIGMOID = {"objective.surrogate": "sigmoid", "objective.lam": 0.1}
PRINTED: Mapping[str, dict[str, Any]] = {
    "RS-Minimax": {"objective.scale": "printed"},
    "CyCp-Minimax": {"objective.scale": "printed"},
    "RS-Pairwise": _SIGMOID,
    "CyCp-Pairwise": {**_SIGMOID, "rule.refresh": "cycle"},
}
"""Losses as the paper has them, with the λ that validation has chosen."""
ETA: Mapping[str, Mapping[str, float]] = {
    "CIFAR-10": {
        "CyCp-FedAvg": 0.1,
        "A-FedAvg": 0.1,
        "A-SCAFFOLD": 0.03,
        "RS-Minimax": 0.001,
        "RS-Pairwise": 0.001,
        "CyCp-Minimax": 0.001,
        "CyCp-Pairwise": 0.001,
    },
    "Fashion-MNIST": {
        "CyCp-FedAvg": 1.0,
        "A-FedAvg": 1.0,
        "A-SCAFFOLD": 0.3,
        "RS-Minimax": 0.1,
        "RS-Pairwise": 0.1,
        "CyCp-Minimax": 0.1,
        "CyCp-Pairwise": 0.1,
    },
    "Fashion-MNIST M=1": {"CyCp-Pairwise": 0.03},
    "Fashion-MNIST M=2": {"CyCp-Minimax": 0.03},
    "Fashion-MNIST K=1": {"CyCp-Minimax": 0.03, "CyCp-Pairwise": 0.01},
    "Fashion-MNIST K=5": {"CyCp-Minimax": 0.01, "CyCp-Pairwise": 0.03},
    "Fashion-MNIST K=10": {"CyCp-Minimax": 0.01, "CyCp-Pairwise": 0.01},
    "Fashion-MNIST K=20": {"CyCp-Minimax": 0.01, "CyCp-Pairwise": 0.01},
    "Fashion-MNIST 50 clients dir=0.1": {
        "CyCp-FedAvg": 0.3,
        "A-SCAFFOLD": 0.03,
        "RS-Minimax": 0.03,
        "CyCp-Minimax": 0.03,
    },
    "Fashion-MNIST dir=0.5 as printed": {"RS-Minimax": 3.0, "CyCp-Minimax": 3.0},
    "Fashion-MNIST dir=10 as printed": {"RS-Minimax": 3.0, "CyCp-Minimax": 3.0},
    "Fashion-MNIST 200 clients dir=0.1": {
        "CyCp-FedAvg": 0.3,
        "A-FedAvg": 0.3,
        "A-SCAFFOLD": 0.03,
        "RS-Minimax": 0.3,
        "CyCp-Minimax": 0.3,
        "CyCp-Pairwise": 0.3,
    },
    "Medicare-like": ETA_MEDICARE_LIKE,
    "Insurance": ETA_MEDICARE_LIKE,  # not chosen on its own rows, which nobody here has seen
    "freMTPL2": {
        "CyCp-FedAvg": 1.0,
        "A-FedAvg": 1.0,
        "A-SCAFFOLD": 0.3,
        "RS-Minimax": 0.03,
        "RS-Pairwise": 0.1,
        "CyCp-Minimax": 0.1,
        "CyCp-Pairwise": 0.03,
    },
}
"""Step sizes that validation has chosen, for a data set or a setting of it (papers/000/README.md); elsewhere
those of the presets."""

ORIGINAL = """
CyCp-FedAvg   0.7836±0.0020 0.8894±0.0012 0.6012±0.0016 0.7339±0.0035
A-FedAvg      0.7950±0.0014 0.9137±0.0028 0.5994±0.0025 0.7384±0.0030
A-SCAFFOLD    0.7993±0.0018 0.9105±0.0017 0.6015±0.0022 0.7412±0.0021
RS-Minimax    0.8153±0.0025 0.9392±0.0029 0.5697±0.0031 0.7419±0.0013
RS-Pairwise   0.8357±0.0012 0.9688±0.0010 0.6118±0.0020 0.7619±0.0011
CyCp-Minimax  0.8446±0.0015 0.9318±0.0014 0.6163±0.0026 0.7616±0.0017
CyCp-Pairwise 0.8480±0.0008 0.9694±0.0013 0.6256±0.0015 0.7778±0.0002
"""
FLIPPED = """
CyCp-FedAvg   0.7739±0.0031 0.8781±0.0019 0.5927±0.0008 0.7292±0.0029
A-FedAvg      0.7891±0.0020 0.8951±0.0023 0.5901±0.0013 0.7298±0.0035
A-SCAFFOLD    0.7950±0.0025 0.9066±0.0024 0.5987±0.0011 0.7307±0.0036
RS-Minimax    0.8170±0.0021 0.9185±0.0019 0.5587±0.0026 0.7517±0.0038
RS-Pairwise   0.8201±0.0017 0.9480±0.0020 0.6004±0.0009 0.7173±0.0043
CyCp-Minimax  0.8316±0.0006 0.9275±0.0015 0.6150±0.0007 0.7505±0.0041
CyCp-Pairwise 0.8424±0.0038 0.9455±0.0020 0.6077±0.0012 0.7722±0.0018
"""
UNEVEN = {
    "table-3": """
CyCp-FedAvg   0.7581±0.0023 0.6800±0.0030 0.8227±0.0025 0.8199±0.0019
A-FedAvg      0.7732±0.0029 0.7015±0.0028 0.8354±0.0033 0.8254±0.0015
A-SCAFFOLD    0.7815±0.0016 0.7119±0.0024 0.8336±0.0019 0.8315±0.0011
RS-Minimax    0.7976±0.0021 0.8083±0.0025 0.8154±0.0031 0.8086±0.0016
RS-Pairwise   0.8059±0.0014 0.7712±0.0027 0.8304±0.0032 0.8217±0.0023
CyCp-Minimax  0.8184±0.0018 0.8095±0.0017 0.8702±0.0023 0.8511±0.0008
CyCp-Pairwise 0.8283±0.0012 0.7828±0.0020 0.8626±0.0027 0.8540±0.0014
""",
    "table-4": """
CyCp-FedAvg   0.9203±0.0009 0.8774±0.0018 0.9587±0.0025 0.9363±0.0024
A-FedAvg      0.9230±0.0014 0.8825±0.0026 0.9605±0.0030 0.9402±0.0023
A-SCAFFOLD    0.9199±0.0021 0.8906±0.0015 0.9627±0.0027 0.9421±0.0016
RS-Minimax    0.9216±0.0011 0.9123±0.0022 0.9520±0.0018 0.9266±0.0030
RS-Pairwise   0.9243±0.0015 0.9180±0.0024 0.9601±0.0017 0.9475±0.0026
CyCp-Minimax  0.9299±0.0013 0.9148±0.0017 0.9610±0.0023 0.9564±0.0019
CyCp-Pairwise 0.9308±0.0016 0.9123±0.0028 0.9669±0.0015 0.9525±0.0021
""",
    "table-5": """
CyCp-FedAvg   0.5584±0.0006 0.5329±0.0003 0.6561±0.0013 0.6197±0.0017
A-FedAvg      0.5580±0.0004 0.5334±0.0006 0.6572±0.0015 0.6201±0.0013
A-SCAFFOLD    0.5573±0.0004 0.5341±0.0002 0.6568±0.0016 0.6233±0.0019
RS-Minimax    0.5245±0.0011 0.5155±0.0004 0.6541±0.0008 0.6232±0.0017
RS-Pairwise   0.5502±0.0007 0.5338±0.0009 0.6545±0.0012 0.6293±0.0014
CyCp-Minimax  0.5553±0.0010 0.5362±0.0005 0.6431±0.0012 0.6318±0.0018
CyCp-Pairwise 0.5598±0.0009 0.5498±0.0004 0.6595±0.0010 0.6356±0.0023
""",
}
MANY = """
CyCp-FedAvg   0.7227±0.0015 0.7846±0.0011 0.8817±0.0020 0.8920±0.0018
A-FedAvg      0.7418±0.0026 0.7923±0.0016 0.8756±0.0025 0.8973±0.0012
A-SCAFFOLD    0.7450±0.0024 0.7940±0.0013 0.8866±0.0017 0.9012±0.0015
RS-Minimax    0.7572±0.0018 0.8012±0.0006 0.8994±0.0013 0.9183±0.0013
RS-Pairwise   0.7721±0.0014 0.8225±0.0010 0.9188±0.0012 0.9422±0.0021
CyCp-Minimax  0.8209±0.0012 0.8478±0.0016 0.9275±0.0022 0.9365±0.0016
CyCp-Pairwise 0.8367±0.0013 0.8448±0.0017 0.9647±0.0015 0.9653±0.0019
"""
REPEATED = """
CyCp-FedAvg   0.8083±0.0175 0.8815±0.0073
A-FedAvg      0.8123±0.0037 0.9006±0.0052
A-SCAFFOLD    0.8208±0.0041 0.9016±0.0039
RS-Minimax    0.8225±0.0028 0.9342±0.0044
RS-Pairwise   0.8303±0.0019 0.9541±0.0037
CyCp-Minimax  0.8460±0.0060 0.9422±0.0029
CyCp-Pairwise 0.8503±0.0048 0.9730±0.0055
"""

Column = tuple[str, str, Mapping[str, Any]]
"""Data set, setting, and settings."""


def _table(name: str, text: str, columns: Sequence[Column]) -> list[Cell]:
    cells = []
    for method, row in printed(text):
        for column, (theirs, std) in zip(columns, row, strict=True):
            cells.append(_cell(name, method, column, theirs, std))
    return cells


def _cell(
    table: str, method: str, column: Column, theirs: float | None = None, std: float | None = None
) -> Cell:
    dataset, setting, settings = column
    more = {**settings, **_tuned(dataset, setting, method)}
    note = {"Insurance": LABELLED, "Medicare-like": GENERATED}.get(dataset, "")
    return Cell(table, method, dataset, setting, PRESETS[method], more, theirs, std, note=note)


def _tuned(dataset: str, setting: str, method: str) -> dict[str, Any]:
    found = {**ETA.get(dataset, {}), **ETA.get(f"{dataset} {setting}", {})}
    return {"schedule.eta": found[method]} if method in found else {}


def _noisy(settings: Mapping[str, Any], alpha: float | None, flip: float) -> dict[str, Any]:
    dealt = {} if alpha is None else {"data.alpha": alpha}
    return {**settings, **dealt, **({"data.flip_positives": flip} if flip else {})}


def _datasets(flip: float) -> list[Column]:
    """Tables 1 and 2. Generated data stand for those of Medicare and LEIE, which `_insurance` adds."""
    how = f"flip={flip:g}"
    return [
        ("CIFAR-10", f"dir=0.5 {how}", _noisy(CIFAR10, 0.5, flip)),
        ("CIFAR-100", f"dir=0.5 {how}", _noisy(CIFAR100, 0.5, flip)),
        ("ChestMNIST", how, _noisy(CHEST, 0.5, flip)),
        ("Medicare-like", how, _noisy(MEDICARE_LIKE, None, flip)),
    ]


def _insurance(name: str, text: str, flip: float) -> list[Cell]:
    """The last column of Tables 1 and 2 again, on the published files."""
    column = ("Insurance", f"flip={flip:g}", _noisy(INSURANCE, None, flip))
    return [_cell(name, method, column, *row[-1]) for method, row in printed(text)]


def _grid(dataset: str, settings: Mapping[str, Any]) -> list[Column]:
    """Tables 3 to 5."""
    return [
        (dataset, f"dir={alpha:g} flip={flip:g}", _noisy(settings, alpha, flip))
        for alpha in (0.1, 10.0)
        for flip in (0.0, 0.2)
    ]


def _clients(dataset: str, settings: Mapping[str, Any]) -> list[Column]:
    """Table 8."""
    return [
        (dataset, f"{count} clients dir=0.1", _noisy(settings, 0.1, 0.0) | {"data.clients": count})
        for count in (50, 200)
    ]


def _tenth(cell: Cell) -> Cell:
    """A tenth of the clients in a round, as with a hundred of them: ten groups, or so many drawn."""
    count = cell.settings["data.clients"]
    more = {"participation.per_round": count // 10}
    if not cell.method.startswith("RS-"):
        more["participation.groups"] = 10
    return replace(cell, settings={**cell.settings, **more})


def _table_8() -> list[Cell]:
    """Fashion-MNIST is not in the paper."""
    columns = [*_clients("CIFAR-10", CIFAR10), *_clients("CIFAR-100", CIFAR100)]
    fashion = [
        _cell("table-8", name, column) for name in PRESETS for column in _clients("Fashion-MNIST", FASHION)
    ]
    return [_tenth(cell) for cell in (*_table("table-8", MANY, columns), *fashion)]


def _figures() -> list[Cell]:
    """Pictures in the paper, without numbers: AUC against I, M and K with dir = 0.5."""
    cells = []
    for (dataset, settings), method in product(ABLATED.items(), ("CyCp-Minimax", "CyCp-Pairwise")):
        base = _noisy(settings, 0.5, 0.0)
        varied: dict[tuple[str, str], dict[str, Any]] = {}
        for steps in (4, 12, 24, 60):  # as many local steps in all
            some = {
                "schedule.steps": steps,
                "schedule.cycles": 360 // steps,
                "train.eval_every": 240 // steps,
            }
            varied["figure-1", f"I={steps}"] = some
        for active in (1, 2, 5, 10):
            varied["figure-2", f"M={active}"] = {"participation.per_round": active}
        for groups in (1, 5, 10, 20):  # as many rounds in all
            some = {"participation.groups": groups, "participation.per_round": 1}
            varied["figure-3", f"K={groups}"] = {**some, "schedule.cycles": 1000 // groups}
        for (table, setting), more in varied.items():
            cells.append(_cell(table, method, (dataset, setting, base | more)))
    return cells


def _longer() -> list[Cell]:
    """Not in the paper: Table 1 with about as many epochs as there."""
    base = _noisy(CIFAR10, 0.5, 0.0) | {"schedule.cycles": 100, "train.eval_every": 50}
    return [
        replace(_cell("longer", name, ("CIFAR-10", "1000 rounds", base), *row[0]), note=EPOCHS)
        for name, row in printed(ORIGINAL)
    ]


def _classes() -> list[Cell]:
    """The paper does not say which class is positive: Table 1 with each of the ten."""
    columns = [
        (dataset, f"positive={label}", _noisy(settings, 0.5, 0.0) | {"data.positive": str(label)})
        for dataset, settings in ABLATED.items()
        for label in range(10)
    ]
    return [_cell("ten-classes", name, column) for column in columns for name in PRESETS]


def _participation() -> list[Cell]:
    """Not in the paper: whether random participation is behind cyclic for want of what we do otherwise."""
    uniform, last = {"train.client_weight": "uniform"}, {"train.output": "last"}
    varied: dict[str, dict[str, Any]] = {"": {}, " uniform": uniform, " last": last}
    cells = []
    for method, loss in PRINTED.items():
        for alpha, names in ((0.5, varied), (10.0, {"": {}})):
            for name, more in {**names, " as printed": uniform | last | loss}.items():
                column = ("Fashion-MNIST", f"dir={alpha:g}{name}", _noisy(FASHION, alpha, 0.0) | more)
                cells.append(_cell("participation", method, column))
    return cells


def _motor() -> list[Cell]:
    """Not in the paper: real motor insurance, a client per region."""
    settings = {
        "data.path": ["freMTPL2/freMTPL2freq.parquet"],
        "data.label": "Claim",
        "data.client": "Region",
        "model": "linear",
        "schedule.cycles": 100,
    }
    return [_cell("motor", name, ("freMTPL2", "", settings)) for name in PRESETS]


def _pictures() -> list[Picture]:
    pictures = []
    for table in ("table-1", "longer"):
        along = Panel("CIFAR-10, dir=0.5", table, "*/CIFAR-10/*", "round", "valid_auc")
        pictures.append(Picture(f"{table}-cifar-10", (along,)))
    for dataset in ABLATED:
        panels = [
            Panel(f"class {label}", "ten-classes", f"*/{dataset}/positive={label}", "round", "valid_auc")
            for label in (1, 4, 6, 8)
        ]
        pictures.append(Picture(f"ten-classes-{dataset.lower()}", tuple(panels)))
    for dataset, (table, varied) in product(
        ABLATED, {"figure-1": "I", "figure-2": "M", "figure-3": "K"}.items()
    ):
        panels = [Panel(f"{dataset}, dir=0.5", table, f"*/{dataset}/*", varied, "ours")]
        for method in ("CyCp-Minimax", "CyCp-Pairwise"):
            panels.append(Panel(method, table, f"{method}/{dataset}/*", "step", "valid_auc", "setting"))
        pictures.append(Picture(f"{table}-{dataset.lower()}", tuple(panels)))
    return pictures


PAPER = Paper(
    "000",
    "Federated AUC maximization with cyclic client participation",
    (
        *_table("table-1", ORIGINAL, _datasets(0.0)),
        *_insurance("table-1", ORIGINAL, 0.0),
        *_table("table-2", FLIPPED, _datasets(0.2)),
        *_insurance("table-2", FLIPPED, 0.2),
        *_table("table-3", UNEVEN["table-3"], _grid("CIFAR-10", CIFAR10)),
        *_table("table-4", UNEVEN["table-4"], _grid("CIFAR-100", CIFAR100)),
        *_table("table-5", UNEVEN["table-5"], _grid("ChestMNIST", CHEST)),
        *_table_8(),
        *_table("table-9", REPEATED, _datasets(0.0)[:2]),
        *_figures(),
        *_longer(),
        *_classes(),
        *_participation(),
        *_motor(),
    ),
    tuple(_pictures()),
    ours=("longer", "ten-classes", "participation", "motor", "*/Fashion-MNIST", "*/Medicare-like"),
)
