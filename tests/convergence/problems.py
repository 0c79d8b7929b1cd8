"""Convex federations whose optimum is known without the library, and the library's presets on them.

A problem is its clients' fields F_i and what each counts for, ω_i; the federation's field is F = Σ ω_i F_i
and its optimum z* the zero of F, found by Newton's method (at once where F is affine). Everything on this
side is NumPy on the rows themselves.

Draws are without replacement within a round, every client's class counts divide half of the batch and all its
rows divide the batch, so every step of every client sees each of its rows equally often: there is no sampling
noise, and what is left at the end of a run is the method's own error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedauc.core.loop import Federation, RunState, advance, begin
from fedauc.core.method import moved
from fedauc.core.tree import Tree
from fedauc.data.federated import FederatedData
from fedauc.experiments.config import Config

Array = NDArray[np.float64]

# (negatives, positives): unequal sizes and balances; every number divides 24 and every sum divides 48.
COUNTS = ((12, 12), (8, 4), (4, 8), (6, 2), (16, 0), (2, 4))
BOTH_CLASSES = ((12, 12), (8, 4), (4, 8), (6, 2), (3, 1), (2, 4))
BATCH = 48
FEATURES = 3
DECAY = 0.3
"""ℓ₂ penalty on w."""


def score(z: Tree, x: torch.Tensor) -> torch.Tensor:
    """The model: h = w·x."""
    return x @ z["w"]


def sigmoid(t: Array) -> Array:
    return 1 / (1 + np.exp(-t))


@dataclass(frozen=True)
class Rows:
    """What the clients have: negatives and positives, [n, d] each."""

    negatives: tuple[Array, ...]
    positives: tuple[Array, ...]

    @classmethod
    def different(cls, counts: Sequence[tuple[int, int]] = COUNTS, seed: int = 2) -> Rows:
        """Clients whose classes have means and covariances of their own."""
        generator = np.random.default_rng(seed)
        drawn: tuple[list[Array], list[Array]] = ([], [])
        for of_class in counts:
            shift = 0.4 * generator.normal(size=FEATURES)
            for n, part, centre in zip(of_class, drawn, (-0.3, 0.3), strict=True):
                mean = centre + shift + 0.4 * generator.normal(size=FEATURES)
                spread = 0.6 * np.eye(FEATURES) + 0.2 * generator.normal(size=(FEATURES, FEATURES))
                part.append(mean + generator.normal(size=(n, FEATURES)) @ spread.T)
        return cls(tuple(drawn[0]), tuple(drawn[1]))

    @classmethod
    def alike(cls, clients: int, rows: int, features: int, seed: int = 0) -> Rows:
        """Clients that hold the same rows, `rows` of each class: no drift, only noise."""
        generator = np.random.default_rng(seed)
        minus, plus = (generator.normal(size=(rows, features)) + c / np.sqrt(features) for c in (-1, 1))
        return cls((minus,) * clients, (plus,) * clients)

    @property
    def counts(self) -> Array:
        """[N, 2] negatives and positives."""
        return np.array([[len(n), len(p)] for n, p in self], dtype=np.float64)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return zip(self.negatives, self.positives, strict=True)

    def __len__(self) -> int:
        return len(self.negatives)

    @cached_property
    def data(self) -> FederatedData:
        """The same rows for the library: the first row of every client, then the second of every client, …"""
        x = np.concatenate([part for both in self for part in both])
        y = np.concatenate([np.full(len(part), label) for both in self for label, part in enumerate(both)])
        each = self.counts.sum(axis=1).astype(int)
        client = np.repeat(np.arange(len(self)), each)
        dealt = np.argsort(np.concatenate([np.arange(n) for n in each]), kind="stable")
        names = [f"client-{i}" for i in range(len(self))]
        return FederatedData.build(torch.tensor(x[dealt]), torch.tensor(y[dealt]), client[dealt], names)


@dataclass(frozen=True)
class Problem:
    """Clients' fields F_i(z), their Jacobians, and ω_i; z = (w, the objective's own variables)."""

    rows: Rows = field(default_factory=Rows.different)
    decay: float = DECAY
    examples: bool = True
    """Whether every row counts the same, or every client."""
    settings: Mapping[str, Any] = field(default_factory=dict, init=False)
    """What a preset needs to solve this problem."""
    own: tuple[str, ...] = field(default=(), init=False)
    """The objective's own variables."""

    @property
    def size(self) -> int:
        return self.rows.negatives[0].shape[1] + len(self.own)

    @cached_property
    def omega(self) -> Array:
        n = self.rows.counts.sum(axis=1) if self.examples else np.ones(len(self.rows))
        return n / n.sum()

    def fields(self, z: Array) -> Array:
        """[N, n] F_i(z)."""
        raise NotImplementedError

    def jacobians(self, z: Array) -> Array:
        """[N, n, n] ∂F_i(z)."""
        raise NotImplementedError

    def field(self, z: Array) -> Array:
        """F(z)."""
        return self.omega @ self.fields(z)

    def jacobian(self, z: Array) -> Array:
        """∂F(z)."""
        return np.tensordot(self.omega, self.jacobians(z), axes=1)

    @cached_property
    def optimum(self) -> Array:
        """z*, the zero of the federation's field."""
        z = np.zeros(self.size)
        for _ in range(20):
            z = z - np.linalg.solve(self.jacobian(z), self.field(z))
        assert np.abs(self.field(z)).max() < 1e-14
        return z

    @cached_property
    def slowest(self) -> tuple[float, Array]:
        """μ, the smallest eigenvalue of ∂F(z*), and the direction that belongs to it."""
        values, vectors = np.linalg.eig(self.jacobian(self.optimum))
        first = int(np.argmin(values.real))
        assert values[first].imag == 0
        return float(values[first].real), vectors[:, first].real

    def tree(self, z: Array) -> Tree:
        """z for the library."""
        width = self.size - len(self.own)
        return {"w": torch.tensor(z[:width])} | {
            name: torch.tensor(z[width + i]) for i, name in enumerate(self.own)
        }

    def vector(self, z: Tree) -> Array:
        """z from the library."""
        return np.concatenate([z[name].numpy().reshape(-1) for name in ("w", *self.own)])


@dataclass(frozen=True)
class Auc(Problem):
    """Minimax AUC of h = w·x: affine and strongly monotone, z = (w, a, b, α).

    By examples its saddle is that of the pooled rows; ω and c as in `fedauc.core.weighting`.
    """

    settings: Mapping[str, Any] = field(default_factory=lambda: {"objective.link": "identity"}, init=False)
    own: tuple[str, ...] = field(default=("auc.a", "auc.b", "auc.alpha"), init=False)

    @cached_property
    def shares(self) -> Array:
        """C [N, 2]: what clients count for in the two class expectations."""
        powered = self.rows.counts if self.examples else (self.rows.counts > 0).astype(np.float64)
        return powered / powered.sum(axis=0)

    @cached_property
    def omega(self) -> Array:
        return self.shares.mean(axis=1)

    @cached_property
    def local(self) -> Array:
        """c [N, 2]: what a client's class parts count for in its own objective."""
        return self.shares / self.omega[:, None]

    @cached_property
    def affine(self) -> tuple[Array, Array]:
        """A_i and r_i of F_i(z) = A_i z - r_i.

        f = c⁺E⁺(h-a)² + c⁻E⁻(h-b)² + 2(1+α)(c⁻E⁻h - c⁺E⁺h) - α² + decay/2 ‖w‖²,  F = (∂w, ∂a, ∂b, -∂α) f
        """
        d, matrices, constants = self.size - 3, [], []
        for both, local in zip(self.rows, self.local, strict=True):
            second = [c * x.T @ x / max(len(x), 1) for x, c in zip(both, local, strict=True)]
            minus, plus = (c * x.sum(axis=0) / max(len(x), 1) for x, c in zip(both, local, strict=True))
            gap = minus - plus
            m = np.zeros((self.size, self.size))
            m[:d, :d] = 2 * (second[0] + second[1]) + self.decay * np.eye(d)
            m[:d, d], m[:d, d + 1], m[:d, d + 2] = -2 * plus, -2 * minus, 2 * gap
            m[d, :d], m[d + 1, :d], m[d + 2, :d] = -2 * plus, -2 * minus, -2 * gap
            m[d, d], m[d + 1, d + 1], m[d + 2, d + 2] = 2 * local[1], 2 * local[0], 2.0
            matrices.append(m)
            constants.append(np.concatenate([-2 * gap, np.zeros(3)]))
        return np.array(matrices), np.array(constants)

    def fields(self, z: Array) -> Array:
        return self.affine[0] @ z - self.affine[1]

    def jacobians(self, z: Array) -> Array:
        return self.affine[0]


@dataclass(frozen=True)
class Logistic(Problem):
    """Cross-entropy of the logit w·x with weight decay: smooth and strongly convex, z = w."""

    @cached_property
    def each(self) -> list[tuple[Array, Array]]:
        """x and y of every client."""
        return [(np.concatenate(both), np.repeat([0.0, 1.0], [len(p) for p in both])) for both in self.rows]

    def losses(self, z: Array) -> Array:
        """[N] f_i without the decay."""
        return np.array([np.mean(np.logaddexp(0, x @ z) - y * (x @ z)) for x, y in self.each])

    def fields(self, z: Array) -> Array:
        return np.array([(sigmoid(x @ z) - y) @ x / len(x) + self.decay * z for x, y in self.each])

    def jacobians(self, z: Array) -> Array:
        curved = [(x.T * (sigmoid(x @ z) * sigmoid(-x @ z))) @ x / len(x) for x, _ in self.each]
        return np.array(curved) + self.decay * np.eye(self.size)


@dataclass(frozen=True)
class Pairwise(Problem):
    """E⁺E⁻ (1 - h⁺ + h⁻)² with weight decay, every client counting the same: quadratic, z = w.

    The score of an active example moves, that of the passive one it meets is older: ∂F = active + passive.
    """

    rows: Rows = field(default_factory=lambda: Rows.different(BOTH_CLASSES))
    examples: bool = False
    settings: Mapping[str, Any] = field(
        # 144 = clients · 24 scores: every step meets every score of the pool once
        default_factory=lambda: {"objective.surrogate": "square", "rule.passive": 144},
        init=False,
    )

    @cached_property
    def means(self) -> tuple[Array, Array]:
        """E⁻x and E⁺x."""
        minus, plus = ([x.mean(axis=0) for x in part] for part in zip(*self.rows, strict=True))
        return np.mean(minus, axis=0), np.mean(plus, axis=0)

    @cached_property
    def active(self) -> Array:
        """[N, d, d] a client's own part of the Jacobian."""
        second = [sum(x.T @ x / len(x) for x in both) for both in self.rows]
        return 2 * np.array(second) + self.decay * np.eye(self.size)

    @cached_property
    def passive(self) -> Array:
        """[N, d, d] the part that goes through the others' scores."""
        minus, plus = self.means
        return -2 * np.array([np.outer(p.mean(0), minus) + np.outer(n.mean(0), plus) for n, p in self.rows])

    def fields(self, z: Array) -> Array:
        constant = 2 * np.array([p.mean(axis=0) - n.mean(axis=0) for n, p in self.rows])
        return (self.active + self.passive) @ z - constant

    def jacobians(self, z: Array) -> Array:
        return self.active + self.passive


@dataclass(frozen=True)
class Compositional(Auc):
    """Minimax AUC at w - ρ∇L_CE(w), with `decay` outside: eq. (4) of Zhang et al. 2023, with all rows.

    Its field is the gradient of Σ_k ω_k f_k(Σ_j ω_j g_j(x), y), a product of two sums over clients.
    """

    rho: float = 0.1

    @cached_property
    def outer(self) -> Auc:
        """f_k."""
        return Auc(self.rows, 0.0, self.examples)

    def inner(self, w: Array) -> tuple[Array, Array]:
        """[N, n] the steps ρ∇L_CE of x - g_k(x), and [N, n, n] their Jacobians."""
        d = self.size - 3
        steps, bends = np.zeros((len(self.rows), self.size)), np.zeros((len(self.rows), self.size, self.size))
        for k, (both, local) in enumerate(zip(self.rows, self.local, strict=True)):
            n = [len(part) for part in both]
            x, y = np.concatenate(both), np.repeat([0.0, 1.0], n)
            weight = np.repeat(self.rho * local / 2 / np.maximum(n, 1), n)
            p = sigmoid(x @ w)
            steps[k, :d] = (weight * (p - y)) @ x
            bends[k, :d, :d] = (x.T * (weight * p * (1 - p))) @ x
        return steps, bends

    def field(self, z: Array) -> Array:
        """(Σ ω_k ∇g_k)ᵀ (Σ ω_k ∇f_k)."""
        steps, bends = self.inner(z[: self.size - 3])
        value = self.outer.field(z - self.omega @ steps)
        return value - np.tensordot(self.omega, bends, 1) @ value + self.pull(z)

    def averaged(self, z: Array, alpha: float) -> Array:
        """What Alg. 1 averages over clients: Σ ω_k ∇g_kᵀ ∇f_k, at h_k = (1-α)·Σ ω_j g_j + α·g_k."""
        steps, bends = self.inner(z[: self.size - 3])
        total = self.pull(z)
        for k, share in enumerate(self.omega):
            value = self.outer.fields(z - (1 - alpha) * self.omega @ steps - alpha * steps[k])[k]
            total = total + share * (value - bends[k] @ value)
        return total

    def pull(self, z: Array) -> Array:
        """The weight decay."""
        return np.where(np.arange(self.size) < self.size - 3, self.decay * z, 0.0)

    def jacobian(self, z: Array) -> Array:
        width = 1e-5
        sides = [
            (self.field(z + width * e) - self.field(z - width * e)) / (2 * width) for e in np.eye(self.size)
        ]
        return np.array(sides).T


def federation(
    problem: Problem, preset: str, eta: float, steps: int, more: Mapping[str, Any] | None = None
) -> Federation:
    """A preset on the problem: a constant step size, all rows in every batch, the last iterate."""
    settings: dict[str, Any] = {
        "schedule.eta": eta,
        "schedule.steps": steps,
        "schedule.cycles": 10**9,
        "train.batch": BATCH,
        "train.compile": False,
        "train.client_weight": "examples" if problem.examples else "uniform",
        "train.output": "last",
        "rule.weight_decay": problem.decay,
    }
    config = Config.resolve(preset, settings | dict(problem.settings) | dict(more or {}))
    return config.federation(problem.rows.data, score)  # type: ignore[arg-type]


def groups(count: int) -> dict[str, Any]:
    """Settings of cyclic participation: neighbours in the list are a group."""
    return {"participation.groups": count, "participation.assign": "order"}


def start(fed: Federation, problem: Problem, z: Array) -> RunState:
    """The state of a run that begins at z."""
    tree = problem.tree(z)
    state = begin(fed, {"w": tree["w"]})
    return state._replace(server=fed.method.server_stage(moved(state.server, tree)))


def iterates(fed: Federation, problem: Problem, z: Array, cycles: int) -> Array:
    """[cycles + 1, n] the server's iterates at the cycles' ends, from z on."""
    state, found = start(fed, problem, z), [z]
    for _ in range(cycles):
        for _ in range(fed.roster.cycle_length):
            state, _ = advance(fed, state)
        found.append(problem.vector(state.server.z))
    return np.array(found)


def settled(fed: Federation, problem: Problem) -> Array:
    """Where a cycle leads back to where it began, by Newton's method on the library's own cycle.

    For methods that keep nothing but the iterate. Plain repetition leads there too, a step of ηIμ at a time.
    """
    z, width = problem.optimum.copy(), 1e-4

    def moves(z: Array) -> Array:
        return iterates(fed, problem, z, 1)[1] - z

    here = moves(z)
    slopes = np.array([(moves(z + width * e) - here) / width for e in np.eye(problem.size)]).T
    for _ in range(30):
        step = np.linalg.solve(slopes, here)
        z = z - step
        if np.abs(step).max() < 1e-12:
            return z
        here = moves(z)
    raise AssertionError("the cycle has no fixed point near the optimum")


def contraction(path: Array, first: int) -> float:
    """By what the change per cycle shrinks from cycle to cycle, from `first` to the end of the path."""
    change = np.linalg.norm(np.diff(path, axis=0), axis=1)
    return float((change[-1] / change[first]) ** (1 / (len(change) - 1 - first)))


def distance(z: Array, problem: Problem) -> Any:
    """‖z - z*‖, of one iterate or of many."""
    return np.linalg.norm(z - problem.optimum, axis=-1)


def slope(x: Any, y: Any) -> float:
    """Of log y over log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
