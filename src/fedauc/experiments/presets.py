"""The papers' names as presets: rule × objective × participation × schedule, and settings that differ.

A paper that changes only participation or schedule is a line here, not a method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedauc.errors import InputError, nearest

CYCP = "Vangapally et al., Federated AUC maximization with cyclic client participation"
CODA = "Yuan et al. 2021, Federated deep AUC maximization for heterogeneous data"
FEDXL = "Guo et al. 2023, FedXL"
FEDAVG = "McMahan et al. 2017; Cho et al. 2023"


@dataclass(frozen=True)
class Preset:
    """A named method."""

    name: str
    summary: str
    paper: str
    rule: str
    objective: str
    participation: str
    settings: Mapping[str, Any] = field(default_factory=dict)


_FEDAVG: dict[str, Any] = {"train.client_weight": "uniform", "schedule.eta": 0.3}
_MINIMAX: dict[str, Any] = {"schedule.eta": 0.1}
_PAIRWISE: dict[str, Any] = {"schedule.eta": 0.1}

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("fedavg", "federated averaging of cross-entropy, everybody every round", FEDAVG,
               "local-sgda", "cross-entropy", "full", _FEDAVG),
        Preset("cycp-fedavg", "federated averaging with cyclic participation: the accuracy baseline", FEDAVG,
               "local-sgda", "cross-entropy", "cyclic", _FEDAVG),
        Preset("coda+", "square-loss AUC as a minimax problem, everybody every round", CODA,
               "local-sgda", "minimax-auc", "full", _MINIMAX),
        Preset("cycp-minimax", "square-loss AUC as a minimax problem, cyclic participation", CYCP,
               "local-sgda", "minimax-auc", "cyclic", _MINIMAX),
        Preset("rs-minimax", "square-loss AUC as a minimax problem, random clients", CYCP,
               "local-sgda", "minimax-auc", "uniform", _MINIMAX),
        Preset("cycp-pairwise", "pairwise AUC with earlier scores of the others, cyclic participation", CYCP,
               "active-passive", "pairwise-auc", "cyclic", _PAIRWISE),
        Preset("rs-pairwise", "pairwise AUC with the previous round's scores, random clients (FedXL)",
               FEDXL, "active-passive", "pairwise-auc", "uniform", _PAIRWISE | {"rule.refresh": "round"}),
    )
}  # fmt: skip

DEFAULT = "cycp-pairwise"


def preset(name: str) -> Preset:
    """A preset by name."""
    if name not in PRESETS:
        raise InputError(f"There is no method {name!r}.{nearest(name, PRESETS)}")
    return PRESETS[name]
