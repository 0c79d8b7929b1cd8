"""Update rules, one file per rule beside its paper's pseudo-code, and what can be put around them."""

from fedauc.methods.active_passive import ActivePassive
from fedauc.methods.agnostic import Agnostic
from fedauc.methods.amplified import Amplified
from fedauc.methods.base import Unchanged
from fedauc.methods.compositional import LocalSCGDAM
from fedauc.methods.control_variates import ControlVariates
from fedauc.methods.local_sgda import LocalSGDA
from fedauc.methods.local_statistics import LocalStatistics
from fedauc.methods.momentum import LocalSGDAM
from fedauc.methods.ratio_weights import RatioWeights

RULES: dict[str, type] = {
    "local-sgda": LocalSGDA,
    "local-sgdam": LocalSGDAM,
    "local-scgdam": LocalSCGDAM,
    "active-passive": ActivePassive,
}
CORRECTIONS: dict[str, type] = {
    "none": Unchanged,
    "control-variates": ControlVariates,
    "ratio-weights": RatioWeights,
}
SERVERS: dict[str, type] = {"average": Unchanged, "amplified": Amplified, "agnostic": Agnostic}

__all__ = [
    "CORRECTIONS",
    "RULES",
    "SERVERS",
    "ActivePassive",
    "Agnostic",
    "Amplified",
    "ControlVariates",
    "LocalSCGDAM",
    "LocalSGDA",
    "LocalSGDAM",
    "LocalStatistics",
    "RatioWeights",
    "Unchanged",
]
