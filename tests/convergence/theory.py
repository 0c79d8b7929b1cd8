"""What theory says of a problem: where a method settles, how fast it gets there, how much it trembles.

All of it is linear algebra with the clients' Jacobians A_i = ∂F_i(z*); nothing is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_lyapunov

from .problems import Array, Auc, Logistic, Pairwise, Problem, sigmoid

# --------------------------------------------------------------------------------------- where it settles


def drift(problem: Problem, eta: float, steps: int) -> Array:
    """z̃ - z* to first order in η, where I local steps of all clients average to nothing.

    From z a client moves by -ηI F_i + η² I(I-1)/2 A_i F_i - …, and the mean of that vanishes where
    ∂F (z̃ - z*) = η (I-1)/2 Σ ω_i A_i F_i(z*). Squared it is the term η²I²D² of Lemma 1 (CODA+).
    """
    z = problem.optimum
    pull = np.einsum("i,ijk,ik->j", problem.omega, problem.jacobians(z), problem.fields(z))
    return np.linalg.solve(problem.jacobian(z), eta * (steps - 1) / 2 * pull)


def order(problem: Problem, eta: float, steps: int, groups: Sequence[NDArray[np.int64]]) -> Array:
    """What the order of the groups adds at a cycle's end: ∂F e = ηIK Σ_{j<k} ∂G_k G_j(z*).

    G_k = Σ_{i∈k} ω_i F_i is group k's share of the field. It sees what the groups before it have done, each
    of which moved the server by K times its share.
    Squared it is the term η²I²K²G² of Lemma 4.4 (CyCp-Minimax); it is there for I = 1 as well.
    """
    z, length = problem.optimum, len(groups)
    share = [problem.omega[g] @ problem.fields(z)[g] for g in groups]
    bend = [np.tensordot(problem.omega[g], problem.jacobians(z)[g], axes=1) for g in groups]
    pull = sum((bend[k] @ share[j] for k in range(length) for j in range(k)), np.zeros(problem.size))
    return np.linalg.solve(problem.jacobian(z), eta * steps * length * pull)


# --------------------------------------------------------------------------------- how fast it gets there


def radius(matrix: Array) -> float:
    """The factor by which a linear map shrinks what it shrinks least."""
    return float(np.abs(np.linalg.eigvals(matrix)).max())


def local_steps(problem: Problem, eta: float, steps: int, mu: float = 0.0) -> Array:
    """A round of local steps, FedProx with μ: z ← z - Σ ω_i φ(A_i + μ) F_i, φ(A) = Σ_{t<I} η (1 - ηA)^t."""
    one = np.eye(problem.size)
    matrices = problem.jacobians(problem.optimum)
    moves = [sums(a + mu * one, eta, steps) @ a for a in matrices]
    return one - np.tensordot(problem.omega, np.array(moves), axes=1)


def sums(matrix: Array, eta: float, steps: int) -> Array:
    """Σ_{t<I} η (1 - ηA)^t."""
    once, total, power = np.eye(len(matrix)) - eta * matrix, np.zeros_like(matrix), np.eye(len(matrix))
    for _ in range(steps):
        total, power = total + eta * power, power @ once
    return total


def momentum(problem: Problem, eta: float, steps: int, beta: float) -> Array:
    """A round of I steps of z ← z - ηu, u ← (1-β)u + β F_i(z); both are averaged."""
    return momentum_round(problem, eta, steps, beta)[0]


def momentum_rest(problem: Problem, eta: float, steps: int, beta: float) -> Array:
    """z where such a round leads back to where it began, of an affine problem."""
    matrix, offset = momentum_round(problem, eta, steps, beta)
    return np.linalg.solve(np.eye(len(matrix)) - matrix, offset)[: problem.size]


def momentum_round(problem: Problem, eta: float, steps: int, beta: float) -> tuple[Array, Array]:
    """The round as s ← M s + m in s = (z, u)."""
    one, z = np.eye(problem.size), problem.optimum
    matrices, constants = problem.jacobians(z), problem.fields(z) - problem.jacobians(z) @ z
    total: list[Any] = [0, 0]
    for share, a, r in zip(problem.omega, matrices, constants, strict=True):
        step = np.block([[one, -eta * one], [beta * a, (1 - beta) * one - beta * eta * a]])
        matrix, offset = np.eye(len(step)), np.zeros(len(step))
        for _ in range(steps):
            matrix, offset = step @ matrix, step @ offset + np.concatenate([0 * r, beta * r])
        total = [total[0] + share * matrix, total[1] + share * offset]
    return total[0], total[1]


def control_variates(
    problem: Problem, eta: float, steps: int, groups: Sequence[NDArray[np.int64]] | None = None
) -> Array:
    """A cycle of rounds in (z, c_1, …, c_N): clients of the group move by -φ(A_i)(A_i z - c_i + c)."""
    n, clients = problem.size, len(problem.omega)
    groups = groups if groups is not None else [np.arange(clients)]
    matrices, cycle = problem.jacobians(problem.optimum), np.eye(n * (clients + 1))
    blocks = cycle.reshape(clients + 1, n, -1)  # blocks[0] picks z, blocks[1 + i] picks c_i
    mean = np.tensordot(problem.omega, blocks[1:], axes=1)
    for group in groups:
        new = blocks.copy()
        for i in group:
            shift = mean - blocks[1 + i]
            change = -sums(matrices[i], eta, steps) @ (matrices[i] @ blocks[0] + shift)
            new[0] += len(groups) * problem.omega[i] * change
            new[1 + i] = -change / (steps * eta) - shift
        cycle = new.reshape(n * (clients + 1), -1) @ cycle
    return cycle


def delayed(problem: Pairwise, eta: float) -> Array:
    """A round of I = 1 in (w, w of the round before): passive scores are a round old."""
    active, passive = (np.tensordot(problem.omega, m, axes=1) for m in (problem.active, problem.passive))
    one = np.eye(problem.size)
    return np.block([[one - eta * active, -eta * passive], [one, np.zeros_like(one)]])


# ----------------------------------------------------------------------------------- how much it trembles


def trembling(problem: Auc | Logistic, eta: float, steps: int, batch: int) -> float:
    """E‖z - z*‖² of clients that are alike: the trace of P = T P Tᵀ + η²/M · N with T = (1-ηA)^I.

    N is the covariance of Σ_t (1-ηA)^t ξ_t, ξ_t the noise of a batch of B rows. A round's batches are drawn
    from n rows without replacement, so E ξ_t ξ_tᵀ = C/B - C/n and E ξ_t ξ_sᵀ = -C/n.
    For small η it is η/(2μ) · σ²/M.
    """
    once = np.eye(problem.size) - eta * problem.jacobian(problem.optimum)
    powers = [np.linalg.matrix_power(once, t) for t in range(steps)]
    noise: Any = 0
    for each, drawn in gradients(problem, batch):
        c = np.cov(each.T)
        noise = noise + sum(g @ c @ g.T for g in powers) / drawn - sum(powers) @ c @ sum(powers).T / len(each)
    round = np.linalg.matrix_power(once, steps)
    return float(np.trace(solve_discrete_lyapunov(round, eta**2 / len(problem.omega) * noise)))


def gradients(problem: Auc | Logistic, batch: int) -> list[tuple[Array, int]]:
    """What is drawn from: the rows' gradients at z* (of each class), and how many of them make a batch."""
    z = problem.optimum
    if isinstance(problem, Logistic):
        x, y = problem.each[0]
        return [((sigmoid(x @ z) - y)[:, None] * x, batch)]
    d, found = problem.size - 3, []
    # negatives pull at b and push α with h, positives pull at a and push α with -h
    for x, own, sign in ((problem.rows.negatives[0], 1, 1), (problem.rows.positives[0], 0, -1)):
        rest = x @ z[:d] - z[d + own]
        each = np.zeros((len(x), problem.size))
        each[:, :d] = (2 * rest + sign * 2 * (1 + z[d + 2]))[:, None] * x
        each[:, d + own], each[:, d + 2] = -2 * rest, -sign * 2 * (x @ z[:d])
        found.append((each, batch // 2))
    return found


def variance(problem: Auc | Logistic, batch: int) -> float:
    """σ²: the expected square of a batch gradient's noise at z*."""
    return sum(
        np.trace(np.cov(each.T)) * (1 / drawn - 1 / len(each)) for each, drawn in gradients(problem, batch)
    )
