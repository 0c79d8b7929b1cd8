"""Sampling with chances that look at the clients: what they count for, and how long they need to send.

    each round t (CE-Minimax, Alg. 1, lines 2-3):
      P1:  min_q  Σ_n λ_n/q_n + κ Σ_n q_n T_n      s.t.  Σ_n q_n = m,  q_min ≤ q_n ≤ 1
      client n takes part with chance q_n, independently of the others
      its update counts for λ_n/q_n

Xu, Liang, Boudreau & Sokun, "Client sampling for communication-efficient distributed minimax optimization"
(eq. 3-14): `optimal` is CE-Minimax, `weighted` is the benchmark Minimax-Weighted, q ∝ λ (Mohri et al. 2019).
Paper's symbols: λ_n is its p_n (what client n counts for now), κ is its λ, T_n the seconds of the uplink.

P1 is convex and separable. By its optimality conditions there is one price ν of the constraint Σ q = m with

    q_n = clip( √(λ_n/(κT_n + ν)), q_min, 1 ),        and q_n = 1 where κT_n + ν ≤ 0,

so the sum falls with ν and bisection finds it. (ν may be below -min κT: those clients are then at 1.)
`weighted` is the same problem with λ² instead of λ and κ = 0: q_n = clip(λ_n/√ν, q_min, 1) is q ∝ λ, with the
excess of those that would be above 1 given to the others.

Where this departs from the paper, and why:

- The lower bound q_min > 0 is part of the problem: λ_n = 0 would give q_n = 0, which (14) excludes.
- κ is per second. The paper's values of 0.1 to 1 must be per millisecond, 100 to 1000 here: per second even 1
  would change the q of its example (10 and 1 ms, N = 10, m = 5) by half a per cent, and Fig. 1 not visibly.
- A round needs somebody. If nobody was drawn the whole round is drawn again (with the next key), so a cohort
  follows the Bernoulli draws *given that somebody takes part*. The chance of client n is then exactly
  q_n/(1 - Π_j (1 - q_j)); π is made of that and not of q, so the importance weights are unbiased for any m.
  The price is that a little more than m clients take part on average, m/(1 - Π(1 - q)) ≤ m/(1 - e^(-m)): at
  most 0.7 % more for m = 5, but up to 58 % for m = 1.
- With `groups`, P1 is solved inside the active group of a cyclic schedule; its λ need not sum to one there.

What P1 minimises is the paper's bound on the variance (Jensen over λ in eq. 16). The variance of the estimate
(4) itself is Σ λ_n²(1/q_n - 1)‖∇f_n‖²; for gradients of equal size and κ = 0 its minimiser is `weighted`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedauc.core import rng
from fedauc.errors import InputError
from fedauc.participation.base import Situation
from fedauc.participation.cyclic import Cyclic, CyclicRoster, default_groups

_SLACK = 1e-12
Vector = NDArray[np.float64]


def solve_p1(weight: Vector, times: Vector, kappa: float, m: float, floor: float) -> Vector:
    """The q that minimises Σ weight/q + kappa·Σ q·times with Σ q = m and floor ≤ q ≤ 1.

    Where equally fast clients of weight 0 leave a choice (they take what the others cannot, and P1 does not
    care which of them does) they get the same.
    """
    weight, times = np.asarray(weight, dtype=np.float64), np.asarray(times, dtype=np.float64)
    count = len(weight)
    if not (np.isfinite(weight).all() and np.isfinite(times).all() and (weight >= 0).all()):
        raise InputError("Client sampling needs finite uplink times, and finite weights of at least 0.")
    if not 0 <= kappa < math.inf:
        raise InputError(f"kappa={kappa} must not be negative.")
    if not 0 < floor <= 1 or not floor * count * (1 - _SLACK) <= m <= count * (1 + _SLACK):
        raise InputError(f"{m:g} of {count} clients with chances from floor={floor:g} to 1 is not possible.")
    if m >= count:
        return np.ones(count)
    cost = kappa * (times - times.min())
    _, price = _priced(weight, cost, m, floor)
    # Again, with costs counted from a client about to change: beside a large κT, ν has no digits left for λ.
    critical = np.argmin(np.abs(cost + price))
    return _priced(weight, kappa * (times - times[critical]), m, floor)[0]


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _priced(weight: Vector, cost: Vector, m: float, floor: float) -> tuple[Vector, float]:
    """q and ν by bisection. The ends of the last interval are mixed so that Σ q = m holds to rounding, also
    where the sum jumps (clients of weight 0 go from 1 to the floor at once)."""

    def chances(price: float) -> Vector:
        each = cost + price
        return np.where(each > 0, np.minimum(np.maximum(np.sqrt(weight / each), floor), 1.0), 1.0)

    low = -float(cost.max())  # everybody at 1
    high = 2 * (float(weight.max()) / floor**2 + 1 + max(0.0, -float(cost.min())))  # everybody at the floor
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if chances(middle).sum() >= m:
            low = middle
        else:
            high = middle
    most, least = chances(low), chances(high)
    gap = float(most.sum() - least.sum())
    part = min(1.0, max(0.0, float(most.sum() - m) / gap)) if gap > 0 else 0.0
    return most + part * (least - most), low


@dataclass(frozen=True)
class Optimal:
    """Clients drawn with the chances of problem P1 (CE-Minimax)."""

    per_round: float | None = None
    """m, clients of a round in expectation; where not said, as many as a group of the default cyclic
    participation has, or half of the active group where there are groups."""
    kappa: float = 100.0
    """κ, what a second of uplink time costs; 100 is the paper's 0.1 per millisecond, 0 ignores the time."""
    floor: float | None = None
    """The smallest chance of a client in a round; a hundredth of the average chance where not said."""
    groups: int | None = None
    """K groups in a fixed order, and only clients of the active one are drawn; none where not said."""
    assign: Literal["random", "order"] = "random"
    """Deal clients to groups at random (by the seed) or in the order of their names."""

    def __post_init__(self) -> None:
        if not 0 <= self.kappa < math.inf:
            raise InputError(f"kappa={self.kappa} must not be negative.")

    def bind(self, clients: int, seed: int) -> BernoulliRoster:
        return _bind(self, clients, seed)

    def chances(self, weight: Vector, times: Vector, m: float, floor: float) -> Vector:
        """q of some clients, m of whom are to take part."""
        return solve_p1(weight, times, self.kappa, m, floor)


@dataclass(frozen=True)
class Weighted:
    """Clients drawn in proportion to what they count for (Minimax-Weighted)."""

    per_round: float | None = None
    """m, clients of a round in expectation; where not said, as many as a group of the default cyclic
    participation has, or half of the active group where there are groups."""
    floor: float | None = None
    """The smallest chance of a client in a round; a hundredth of the average chance where not said."""
    groups: int | None = None
    """K groups in a fixed order, and only clients of the active one are drawn; none where not said."""
    assign: Literal["random", "order"] = "random"
    """Deal clients to groups at random (by the seed) or in the order of their names."""

    def bind(self, clients: int, seed: int) -> BernoulliRoster:
        return _bind(self, clients, seed)

    def chances(self, weight: Vector, times: Vector, m: float, floor: float) -> Vector:
        """q of some clients, m of whom are to take part."""
        return solve_p1(np.square(weight, dtype=np.float64), np.zeros_like(times), 0.0, m, floor)


@dataclass(frozen=True)
class BernoulliRoster:
    """Independent draws with chances that depend on the round's situation."""

    sampling: Optimal | Weighted
    cyclic: CyclicRoster
    """The groups; one of everybody where there are none."""
    cycle_length: int
    expected: tuple[float, ...]
    """m of every group."""
    floors: tuple[float, ...]
    seed: int

    @property
    def active(self) -> float:
        return float(np.mean(self.expected))

    @property
    def groups(self) -> list[NDArray[np.int64]]:
        return self.cyclic.groups

    def select(self, round: int, now: Situation) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        count = len(self.expected)
        k = round % count
        group = np.sort(self.cyclic.order[self.cyclic.bounds[k] : self.cyclic.bounds[k + 1]])
        q = self.sampling.chances(now.weight[group], now.times(group), self.expected[k], self.floors[k])
        for turn in itertools.count():
            drawn = rng.uniform(self.seed, rng.COHORT, round, turn, group) < q
            if drawn.any():
                break
        somebody = 1 - np.prod(1 - q)  # at least 1 - 1/e, as Σ q ≥ 1
        return group[drawn], (self.cycle_length / count * q / somebody)[drawn]


def _bind(sampling: Optimal | Weighted, clients: int, seed: int) -> BernoulliRoster:
    per_round = sampling.per_round
    if sampling.groups is None:
        cyclic = Cyclic(1, assign="order").bind(clients, seed)
        m = per_round if per_round is not None else max(1, round(clients / default_groups(clients)))
        if not 1 <= m <= clients:
            raise InputError(f"per_round={m} needs between 1 and {clients} for {clients} clients.")
        length = math.ceil(clients / m - 1e-9)  # a cycle costs what a cycle of the cyclic schedule costs
        expected = np.array([m], dtype=np.float64)
    else:
        cyclic = Cyclic(sampling.groups, assign=sampling.assign).bind(clients, seed)
        if per_round is not None and not per_round >= 1:
            raise InputError(f"per_round={per_round} must be at least 1.")
        length, sizes = cyclic.cycle_length, np.diff(cyclic.bounds)
        expected = np.maximum(1.0, sizes / 2) if per_round is None else np.minimum(float(per_round), sizes)
    average = expected / np.diff(cyclic.bounds)
    floors = average / 100 if sampling.floor is None else np.full_like(average, sampling.floor)
    if not ((floors > 0) & (floors <= average * (1 + _SLACK))).all():
        raise InputError(
            f"floor={sampling.floor} must be positive and not above {average.min():g}, the average chance."
        )
    return BernoulliRoster(sampling, cyclic, length, tuple(expected.tolist()), tuple(floors.tolist()), seed)
