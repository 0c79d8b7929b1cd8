"""The papers' names as presets: rule × objective × participation × schedule, and settings that differ.

A paper that changes only participation or schedule is a line here, not a method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedauc.errors import InputError, nearest

CYCP = "Vangapally et al., Federated AUC maximization with cyclic client participation"
CODASCA = "Yuan et al. 2021, Federated deep AUC maximization for heterogeneous data"
CODA = "Guo et al. 2020, Communication-efficient distributed stochastic AUC maximization"
FEDXL = "Guo et al. 2023, FedXL"
FEDAVG = "McMahan et al. 2017; Cho et al. 2023"
FEDPROX = "Li et al. 2020, Federated optimization in heterogeneous networks"
SCAFFOLD = "Karimireddy et al. 2020, SCAFFOLD"
AMPLIFIED = "Wang & Ji 2022, Federated learning with arbitrary client participation"
PERIODIC = "Crawshaw & Liu 2024, Federated learning under periodic client participation"
MOMENTUM = "Yu et al. 2019, Linear speedup of momentum SGD"
SGDAM = "Sharma et al. 2022, Federated minimax optimization"
SCGDAM = "Zhang et al. 2023, Federated compositional deep AUC maximization"
RATIO = "Wang et al. 2021, Addressing class imbalance in federated learning"
AGNOSTIC = "Mohri et al. 2019, Agnostic federated learning"
SAMPLING = "Xu et al., Client sampling for communication-efficient distributed minimax optimization"
OURS = "this project: a combination of published pieces"


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
    correction: str = "none"
    server: str = "average"
    schedule: str = "stagewise"
    uplink: str = "none"
    choose: str = ""
    """When to choose it."""


_CE: dict[str, Any] = {"train.client_weight": "uniform", "schedule.eta": 0.3}
_AUC: dict[str, Any] = {"schedule.eta": 0.1}
_AGNOSTIC: dict[str, Any] = {"schedule.eta": 0.1, "schedule.steps": 1, "schedule.cycles": 400}

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("cycp-pairwise", "pairwise AUC with earlier scores of the others, cyclic participation", CYCP,
               "active-passive", "pairwise-auc", "cyclic", _AUC,
               choose="The default: rare positives, clients that come in groups."),
        Preset("cycp-minimax", "square-loss AUC as a minimax problem, cyclic participation", CYCP,
               "local-sgda", "minimax-auc", "cyclic", _AUC,
               choose="Clients that come in groups and may not share scores."),
        Preset("cycp-fedavg", "federated averaging with cyclic participation: the accuracy baseline", FEDAVG,
               "local-sgda", "cross-entropy", "cyclic", _CE,
               choose="The baseline that the others have to beat."),
        Preset("rs-pairwise", "pairwise AUC with the previous round's scores, random clients (FedXL)",
               FEDXL, "active-passive", "pairwise-auc", "uniform", _AUC | {"rule.refresh": "round"},
               choose="Everybody is always there, and a round asks some of them."),
        Preset("rs-minimax", "square-loss AUC as a minimax problem, random clients", CYCP,
               "local-sgda", "minimax-auc", "uniform", _AUC,
               choose="As rs-pairwise, where scores may not travel."),
        Preset("cycp-pauc", "partial AUC (the hardest negatives, FedXL2), cyclic participation", FEDXL,
               "active-passive", "partial-auc", "cyclic", _AUC,
               choose="Only the left end of the ROC curve matters: few alarms can be looked at."),
        Preset("fedxl2", "partial AUC (the hardest negatives), random clients", FEDXL,
               "active-passive", "partial-auc", "uniform", _AUC | {"rule.refresh": "round"},
               choose="As cycp-pauc, with random clients."),
        Preset("cycp-pairwise-cv", "pairwise AUC with control variates, cyclic participation", OURS,
               "active-passive", "pairwise-auc", "cyclic", {"schedule.eta": 0.03},
               correction="control-variates",
               choose="Very different clients and small steps (it diverges sooner); twice the traffic."),
        Preset("coda+", "square-loss AUC as a minimax problem, everybody every round", CODASCA,
               "local-sgda", "minimax-auc", "full", _AUC,
               choose="A few clients that are always there."),
        Preset("coda", "coda+ with the dual estimated anew when a stage begins", CODA,
               "local-sgda", "minimax-auc", "full",
               _AUC | {"rule.reestimate": True, "schedule.stage_cycles": 50},
               choose="To compare with the paper; coda+ does without the extra step."),
        Preset("npa", "coda+ with one large batch per round instead of local steps", CODASCA,
               "local-sgda", "minimax-auc", "full",
               _AUC | {"schedule.steps": 1, "schedule.cycles": 400, "train.batch": 320},
               choose="The naive parallel baseline: communication costs nothing."),
        Preset("codasca", "coda+ with control variates for primal and dual", CODASCA,
               "local-sgda", "minimax-auc", "full", _AUC, correction="control-variates",
               choose="A few very different clients and many local steps; costs twice the traffic."),
        Preset("cycp-codasca", "codasca with cyclic participation", OURS,
               "local-sgda", "minimax-auc", "cyclic", _AUC, correction="control-variates",
               choose="As codasca, with clients that come in groups."),
        Preset("two-stage-codasca", "cross-entropy first, then codasca with a fresh head", CODASCA,
               "local-sgda", "minimax-auc", "full",
               _AUC | {"train.warmup": "fedavg", "train.warmup_cycles": 100, "train.head": "fresh"},
               correction="control-variates",
               choose="Deep models, which learn features from cross-entropy more easily."),
        Preset("local-scgdam", "minimax AUC after an inner step of cross-entropy, with momentum", SCGDAM,
               "local-scgdam", "minimax-auc", "full", _AUC,
               choose="Deep models from scratch, a few clients; costs three times the traffic."),
        Preset("cycp-scgdam", "local-scgdam with cyclic participation", OURS,
               "local-scgdam", "minimax-auc", "cyclic", _AUC,
               choose="As local-scgdam, with clients that come in groups."),
        Preset("local-sgdam", "minimax AUC with momentum", SGDAM,
               "local-sgdam", "minimax-auc", "full", _AUC,
               choose="As coda+, with noisy gradients; costs twice the traffic."),
        Preset("local-sgdm", "cross-entropy with momentum", MOMENTUM,
               "local-sgdam", "cross-entropy", "full", _CE,
               choose="Baseline: fedavg with momentum."),
        Preset("local-sgdm-rl", "cross-entropy with momentum and ratio weights for rare classes", RATIO,
               "local-sgdam", "cross-entropy", "full", _CE, correction="ratio-weights",
               choose="Baseline: cross-entropy that pays attention to the rare class."),
        Preset("fedavg", "federated averaging of cross-entropy, everybody every round", FEDAVG,
               "local-sgda", "cross-entropy", "full", _CE,
               choose="Baseline."),
        Preset("fedprox", "fedavg with a pull towards the round's start", FEDPROX,
               "local-sgda", "cross-entropy", "full", _CE | {"rule.mu": 0.1},
               choose="Baseline: cross-entropy with very different clients."),
        Preset("scaffold", "fedavg with control variates", SCAFFOLD,
               "local-sgda", "cross-entropy", "full", _CE, correction="control-variates",
               choose="Baseline: cross-entropy with very different clients; twice the traffic."),
        Preset("a-fedavg", "cycp-fedavg that goes on in the direction of each cycle", AMPLIFIED,
               "local-sgda", "cross-entropy", "cyclic", _CE, server="amplified",
               choose="Baseline for cyclic participation."),
        Preset("a-scaffold", "scaffold with frozen control variates and amplified cycles", PERIODIC,
               "local-sgda", "cross-entropy", "cyclic", _CE | {"correction.refresh": "cycle"},
               correction="control-variates", server="amplified",
               choose="Baseline for cyclic participation with very different clients."),
        Preset("ce-minimax", "the worst mixture of clients, sampled by what they bring and cost (P1)",
               SAMPLING, "local-sgda", "cross-entropy", "optimal", _CE | _AGNOSTIC, server="agnostic",
               uplink="fixed",
               choose="The worst client must be served, and slow uplinks are what training waits for."),
        Preset("minimax-uniform", "the worst mixture of clients, random clients", SAMPLING,
               "local-sgda", "cross-entropy", "uniform", _CE | _AGNOSTIC, server="agnostic", uplink="fixed",
               choose="Baseline of ce-minimax."),
        Preset("minimax-weighted", "the worst mixture of clients, sampled in proportion to their weights",
               SAMPLING, "local-sgda", "cross-entropy", "weighted", _CE | _AGNOSTIC, server="agnostic",
               uplink="fixed", choose="Baseline of ce-minimax."),
        Preset("minimax-all", "the worst mixture of clients, everybody every round", AGNOSTIC,
               "local-sgda", "cross-entropy", "full", _CE | _AGNOSTIC, server="agnostic", uplink="fixed",
               choose="The worst of a few clients must be served."),
        Preset("min-uniform", "federated SGD of the mean over clients, random clients", SAMPLING,
               "local-sgda", "cross-entropy", "uniform", _CE | _AGNOSTIC, uplink="fixed",
               choose="Baseline of ce-minimax: the average instead of the worst."),
        Preset("agnostic-auc", "minimax AUC of the worst mixture of clients, sampled by P1", OURS,
               "local-sgda", "minimax-auc", "optimal", _AUC, server="agnostic", uplink="fixed",
               choose="Every client's own ranking matters, not the pooled one; slow uplinks."),
    )
}  # fmt: skip

DEFAULT = "cycp-pairwise"


def preset(name: str) -> Preset:
    """A preset by name."""
    if name not in PRESETS:
        raise InputError(f"There is no method {name!r}.{nearest(name, PRESETS)}")
    return PRESETS[name]
