"""Update rules: one file per rule, beside its paper's pseudo-code."""

from fedauc.methods.active_passive import ActivePassive
from fedauc.methods.local_sgda import LocalSGDA

RULES: dict[str, type] = {"local-sgda": LocalSGDA, "active-passive": ActivePassive}

__all__ = ["RULES", "ActivePassive", "LocalSGDA"]
