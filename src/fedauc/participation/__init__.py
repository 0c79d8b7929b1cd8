"""Participation: which clients take part in which round."""

from fedauc.participation.base import Participation, Roster
from fedauc.participation.cyclic import Cyclic
from fedauc.participation.full import Full
from fedauc.participation.uniform import Uniform

PARTICIPATIONS: dict[str, type] = {"cyclic": Cyclic, "uniform": Uniform, "full": Full}

__all__ = ["PARTICIPATIONS", "Cyclic", "Full", "Participation", "Roster", "Uniform"]
