"""Participation: which clients take part in which round."""

from fedauc.participation.base import Participation, Roster, Situation
from fedauc.participation.cyclic import Cyclic
from fedauc.participation.full import Full
from fedauc.participation.optimal import Optimal, Weighted
from fedauc.participation.uniform import Uniform

PARTICIPATIONS: dict[str, type] = {
    "cyclic": Cyclic,
    "uniform": Uniform,
    "full": Full,
    "optimal": Optimal,
    "weighted": Weighted,
}

__all__ = [
    "PARTICIPATIONS",
    "Cyclic",
    "Full",
    "Optimal",
    "Participation",
    "Roster",
    "Situation",
    "Uniform",
    "Weighted",
]
