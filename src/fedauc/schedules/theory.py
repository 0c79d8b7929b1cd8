"""Schedules with the constants of the papers' theorems.

    stage s      η_s                 I_s                        length
    minimax      η₀ e^(-(s-1)c)      a/(K √(M η_s))             T_s = 212/(η_s min(ℓ, μ₂)) local steps
    pairwise     η₀ r^(s-1)          a/√(K η_s)                 T_s = 3/(r μ η_s) local steps
    codasca      η̃/(√M I_s)          I₀ e^((s-1)·2μ/(C+2μ))     R = 1000/(η̃ μ₂) rounds

K rounds make a cycle and M clients take part in each (`bind` takes both from the participation), so a stage
has E_s = ⌈T_s/(K I_s)⌉ cycles, or ⌈R/K⌉. L is the smoothness of φ(v) = max_α f(v, α), ℓ that of f, μ the
Polyak-Łojasiewicz constant of φ, μ₂ the strong concavity of f in α, L̂ = L + 2ℓ, and a is the constant that Θ
leaves open. I_s and E_s are whole numbers and at least 1 (the proofs, too, take I_s = 1 where the formula is
below). The minimax theorems want γ = 2ℓ in the rule's proximal term (`gamma`).

- `theory-minimax`: Theorem 4.5 of "Communication-efficient federated AUC maximization with cyclic client
  participation" (CyCp), c = (μ/L̂)/(5 + μ/L̂); with K = 1 it is Theorem 1 of Yuan et al. 2021 (CODA+), whose
  K is the number of clients, our M.
- `theory-pairwise`: Theorem 5.3 of CyCp and its proof.
- `theory-codasca`: Theorem 2 of Yuan et al. 2021, C = 4ℓ + (248/53)L̂.

L, ℓ and μ are not known in practice, and the printed factors are not practical: the first stage has
212/(η₀ μ₂) local steps, or 1000/(η̃ μ₂) rounds. `length` is that factor, so that a short run can keep the
theorem's shape. Eq. (3) as printed has μ₂ = 2p(1-p); scaled to its classes, the default here, it has μ₂ = 2.

Where the papers do not agree with themselves, and what is done here:

- The theorems on minimax print c = μ/(5L̂ + μ), their proofs decay with 2μ/(C + 2μ) = μ/(C/2 + μ). As
  C/2 < 5L̂ the printed decay is slower, hence safe, and is used.
- Lemma 4.4 has 1/(4ηT) where Lemma B.5, of which it is the summary, has 1/(ηT). 212 = 4·53 belongs to 1/(ηT).
- The lemma asks for η ≤ min(1/(3ℓ + 3ℓ²/μ₂), 1/(4ℓ)); its proof needs that of ηKI (the term C₁ of eq. 39).
  `eta_max` is the printed bound. It is not enforced: the constants are guesses.
- Theorem 5.3 prints I_s = Θ(1/√(Kη_s)); its proof takes σ²/(MK√(με_s)), which with its η_s = με_s M/σ² is
  Θ(1/(K√(Mη_s))), as in Theorem 4.5. The printed one is larger by √(KM) and breaks the second line of
  eq. (72) unless 3KM·D² ≤ σ²; it is what Theorem 1 of CODA+ says with K clients. `variant` chooses.
- The proof of Theorem 5.3 leaves ε_s open (eq. 73 is empty); geometric stages ε_s = r·ε_{s-1} are what its
  sums need. Then the first line of (72) is T_s = E_s K I_s ≥ 3ε_{s-1}/(μ ε_s η_s).
- Theorem 2 of CODASCA prints R = 1000/(η̃μ₂) and its proof min(ℓ, μ₂), which is μ₂ (no ℓ-smooth function is
  more than ℓ-strongly concave); the proof says I_s = I₀·2^s once and goes on with the theorem's exponential.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

from fedauc.errors import InputError
from fedauc.schedules.base import Stage


def grown_steps(steps: int, eta0: float, eta: float) -> int:
    """I_s ∝ 1/√η_s for a schedule that starts with `steps` at η₀ (Theorem 4.5 without its constants)."""
    return max(1, round(steps * math.sqrt(eta0 / eta)))


class Plan(NamedTuple):
    """A stage: step size, local steps per round, and how many cycles it lasts."""

    eta: float
    steps: int
    cycles: int


class _Theory:
    """What the schedules share: stages one after another, and K and M from the participation."""

    cycle_length: int
    active: float

    def bind(self, cycle_length: int, active: float) -> Self:
        """The schedule for K rounds a cycle and M clients a round."""
        bound = copy.copy(self)
        object.__setattr__(bound, "cycle_length", cycle_length)
        object.__setattr__(bound, "active", active)
        return bound

    def plan(self, s: int) -> Plan:
        """Stage s = 1, 2, ..., counted as in the papers."""
        raise NotImplementedError

    def at(self, cycle: int) -> Stage:
        start, s = 0, 1
        while cycle >= start + (stage := self.plan(s)).cycles:
            start += stage.cycles
            s += 1
        return Stage(s - 1, stage.eta, stage.steps, cycle == start)


@dataclass(frozen=True)
class _Saddle(_Theory):
    """The constants of the theorems on minimax AUC."""

    L: float = 4.0
    """Smoothness of max_α f(v, α)."""
    l: float = 2.0
    """ℓ, smoothness of f."""
    mu: float = 1.0
    """μ, Polyak-Łojasiewicz constant of max_α f(v, α)."""
    mu2: float = 2.0
    """μ₂, strong concavity of f in α; 2 for the objective scaled to its classes, 2p(1-p) as printed."""

    @property
    def gamma(self) -> float:
        """γ of the rule's proximal term, 2ℓ."""
        return 2 * self.l

    def __post_init__(self) -> None:
        positive(self, "L", "l", "mu", "mu2")
        if self.mu > self.L:
            raise InputError(
                f"mu={self.mu} cannot exceed L={self.L}: no L-smooth function grows faster than that."
            )
        if self.mu2 > self.l:
            raise InputError(
                f"mu2={self.mu2} cannot exceed l={self.l}: no l-smooth function is more concave than that."
            )


@dataclass(frozen=True)
class MinimaxTheory(_Saddle):
    """Theorem 4.5 of CyCp-Minimax; with everybody in every round, Theorem 1 of CODA+."""

    eta: float = 0.05
    """η₀, the step size of the first stage."""
    cycles: int = 40
    """Cycles in all stages together."""
    interval: float = 10.0
    """a in I_s = a/(K√(Mη_s)), which the theorem leaves open."""
    length: float = 212.0
    """The factor of T_s; 212 in the theorem."""
    homogeneous: bool = False
    """All clients have the same distribution (D = 0): I_s = a/(Mη_s), if everybody is in every round."""
    cycle_length: int = field(default=1, init=False)
    active: float = field(default=1.0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "eta", "interval", "length")

    def bind(self, cycle_length: int, active: float) -> Self:
        if self.homogeneous and cycle_length > 1:
            raise InputError(
                "homogeneous=True is Theorem 1 of CODA+, where everybody takes part in every round, but here"
                f" a cycle has {cycle_length} rounds."
            )
        return super().bind(cycle_length, active)

    @property
    def eta_max(self) -> float:
        """The largest η₀ that the theorem's lemma covers."""
        return min(1 / (3 * self.l + 3 * self.l**2 / self.mu2), 1 / (4 * self.l))

    def plan(self, s: int) -> Plan:
        ratio = self.mu / (self.L + 2 * self.l)
        c = ratio / (5 + ratio)
        eta = self.eta * math.exp(-(s - 1) * c)
        steps = self.length / (eta * min(self.l, self.mu2))
        if self.homogeneous:
            return _whole(eta, self.interval / (self.active * eta), steps, self.cycle_length)
        per_round = self.interval / (self.cycle_length * math.sqrt(self.active * eta))
        return _whole(eta, per_round, steps, self.cycle_length)


@dataclass(frozen=True)
class PairwiseTheory(_Theory):
    """Theorem 5.3 of CyCp-Pairwise, with η_s and T_s from its proof."""

    eta: float = 0.1
    """η₀, the step size of the first stage (Θ(μ ε₁ M/σ²) in the proof)."""
    cycles: int = 40
    """Cycles in all stages together."""
    mu: float = 1.0
    """μ, Polyak-Łojasiewicz constant of the objective."""
    decay: float = 0.5
    """r = ε_s/ε_{s-1}, by how much a stage brings the error down, and the step size with it."""
    interval: float = 10.0
    """a in I_s, which the theorem leaves open."""
    variant: Literal["theorem", "proof"] = "theorem"
    """I_s = a/√(Kη_s) as the theorem says, or a/(K√(Mη_s)) as its proof does."""
    length: float = 3.0
    """The factor of T_s; 3 by eq. (72)."""
    cycle_length: int = field(default=1, init=False)
    active: float = field(default=1.0, init=False)

    def __post_init__(self) -> None:
        positive(self, "eta", "mu", "decay", "interval", "length")
        if self.decay >= 1:
            raise InputError(f"decay={self.decay} must be below 1.")

    @property
    def gamma(self) -> float:
        """γ of the rule's proximal term: the theorem has none."""
        return 0.0

    def plan(self, s: int) -> Plan:
        eta = self.eta * self.decay ** (s - 1)
        root = math.sqrt(self.cycle_length * eta)
        if self.variant == "proof":
            root = self.cycle_length * math.sqrt(self.active * eta)
        return _whole(
            eta, self.interval / root, self.length / (self.decay * self.mu * eta), self.cycle_length
        )


@dataclass(frozen=True)
class CodascaTheory(_Saddle):
    """Theorem 2 of CODASCA: the same number of rounds in every stage, more and smaller local steps."""

    eta: float = 0.0125
    """η̃ = η_l η_g I, the step of a whole round, the same in all stages; local steps have η̃/(η_g I_s)."""
    steps: int = 10
    """I₀, local steps per round of the first stage."""
    cycles: int = 40
    """Cycles in all stages together."""
    length: float = 1000.0
    """The factor of R; 1000 in the theorem."""
    cycle_length: int = field(default=1, init=False)
    active: float = field(default=1.0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "eta", "length")
        if self.steps < 1:
            raise InputError(f"steps={self.steps} must be at least 1.")

    @property
    def eta_g(self) -> float:
        """η_g = √M, the server's extrapolation; the theorem's K clients all take part."""
        return math.sqrt(self.active)

    @property
    def eta_max(self) -> float:
        """The largest η̃ that the theorem covers."""
        return min(1 / (3 * self.l + 3 * self.l**2 / self.mu2), self.mu2 / (40 * self.l**2))

    def plan(self, s: int) -> Plan:
        c = 4 * self.l + 248 / 53 * (self.L + 2 * self.l)
        steps = max(1, round(self.steps * math.exp(2 * self.mu / (c + 2 * self.mu) * (s - 1))))
        rounds = self.length / (self.eta * self.mu2)
        return Plan(self.eta / (self.eta_g * steps), steps, _cycles(rounds, self.cycle_length))


def _whole(eta: float, per_round: float, in_stage: float, cycle_length: int) -> Plan:
    """A stage of at least `in_stage` local steps."""
    steps = max(1, round(per_round))
    return Plan(eta, steps, _cycles(in_stage / steps, cycle_length))


def _cycles(rounds: float, cycle_length: int) -> int:
    return max(1, math.ceil(rounds / cycle_length * (1 - 1e-12)))


def positive(schedule: Any, *names: str) -> None:
    """Refuse settings that are not, and a schedule without a cycle."""
    for name in names:
        if not 0 < getattr(schedule, name) < math.inf:
            raise InputError(f"{name}={getattr(schedule, name)} must be positive and finite.")
    if schedule.cycles < 1:
        raise InputError(f"cycles={schedule.cycles} must be at least 1.")
