"""Control variates around any rule of plain steps: SCAFFOLD, CODASCA, amplified SCAFFOLD.

    server, round r                            client k                         F(z) = (∂primal, -∂dual)
      send z, c                                  z_{k,0} = z
                                                 for t = 1..I:  z ← z - η (F(z) - c_k + c)
                                                 c_k⁺ = c_k - c + (z - z_{k,I})/(Iη)     the mean of F
      z ← z + η_g Σ_k ŵ_k (z_{k,I} - z)          send z_{k,I} - z and c_k⁺ - c_k,   c_k ← c_k⁺
      c ← c + Σ_k ω_k (c_k⁺ - c_k)

Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020 (option II);
Yuan et al., "Federated deep AUC maximization for heterogeneous data", ICML 2021 (CODASCA, Alg. 3-4: both
primal and dual); Crawshaw & Liu, "Federated learning under periodic client participation and heterogeneous
data", NeurIPS 2024 (amplified SCAFFOLD: `refresh="cycle"`, inside `Amplified`).

Where this departs from the papers, and why: the server's c is the mean of all clients' c_k *with the weights
of the objective*, so that the corrections cancel over the federation whatever a client counts for. Control
variates survive a new stage (`reset=True` is CODASCA's listing, which starts from zero): the proximal anchor
that moves is the same for all clients and cancels in c - c_k once everybody has taken part again. Where a
bound is active (α' ≥ 0), c_k⁺ is what the listing says and not the mean of the raw gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedauc.core import tree
from fedauc.core.method import Aggregate, Batch, Cohort, Knobs, Method, Upload, moved
from fedauc.core.tree import Tree
from fedauc.errors import InputError
from fedauc.methods.base import Wrapper, of, under


class Server(NamedTuple):
    inner: Any
    c: Tree
    following: Tree
    """c as it will be after the cycle; empty where it changes every round."""

    @property
    def z(self) -> Tree:
        return self.inner.z


class Broadcast(NamedTuple):
    inner: Any
    c: Tree

    @property
    def z(self) -> Tree:
        return self.inner.z


class Local(NamedTuple):
    inner: Any
    shift: Tree
    """c - c_k."""

    @property
    def z(self) -> Tree:
        return self.inner.z


@dataclass(frozen=True)
class ControlVariates(Wrapper):
    """Every local step is corrected by what the federation's gradient differs from the client's own."""

    inner: Method
    eta_g: float = 1.0
    """η_g, the server's step along the averaged change; above 1 it extrapolates."""
    refresh: Literal["round", "cycle"] = "round"
    """When control variates change: with every participation, or at a cycle's end (amplified SCAFFOLD)."""
    reset: bool = False
    """Start from zero in every stage, as CODASCA is printed."""

    def __post_init__(self) -> None:
        if not self.plain_steps:
            raise InputError(
                "control variates correct plain gradient steps, whose mean over a round is the client's own"
                " gradient; this rule moves otherwise (a momentum mixes gradients of earlier rounds and other"
                " clients): use the rule local-sgda or active-passive."
            )
        if self.reweighs or getattr(self.inner, "keeps_shares", False):
            raise InputError(
                "control variates belong directly around a rule: around agnostic weights they would not"
                " cancel, and around other control variates they would correct what is corrected already."
            )
        if self.eta_g <= 0:
            raise InputError(f"eta_g={self.eta_g} must be positive.")

    def server_init(self, params: Tree, counts: NDArray[np.int64]) -> Server:
        inner = self.inner.server_init(params, counts)
        c = _zeros(inner.z)
        return Server(inner, c, c if self.refresh == "cycle" else {})

    def memory_init(self, z: Tree) -> Tree:
        """c_k and, where it is frozen, what replaces it, from how many rounds of which cycle."""
        memory = under("inner", self.inner.memory_init(z)) | under("c", _zeros(z))
        if self.refresh == "cycle":
            zero = next(iter(z.values())).new_zeros(())
            memory |= under("following", _zeros(z)) | {"rounds": zero, "cycle": zero - 1}
        return memory

    def memory_stage(self, c: Tree) -> Tree:
        kept = under("inner", self.inner.memory_stage(of("inner", c)))
        if not self.reset:
            return c | kept
        fresh = {n: torch.zeros_like(v) for n, v in c.items() if n not in kept}
        return kept | fresh | ({"cycle": fresh["cycle"] - 1} if "cycle" in fresh else {})

    @property
    def keeps_shares(self) -> bool:
        return True

    def broadcast(self, s: Server) -> Broadcast:
        return Broadcast(self.inner.broadcast(s.inner), s.c)

    def address(self, s: Server, cohort: Cohort, knobs: Knobs, seed: int) -> Tree:
        own = under("inner", self.inner.address(s.inner, cohort, knobs, seed))
        if self.refresh == "cycle":  # or a client could not know whether what it keeps is in force now
            like = next(iter(s.z.values()))
            own |= {"cycle": like.new_full((len(cohort.clients),), knobs.cycle)}
        return own

    def client_init(self, d: Broadcast, own: Tree, c: Tree) -> Local:
        inner = self.inner.client_init(d.inner, of("inner", own), of("inner", c))
        return Local(inner, tree.sub(d.c, self._in_force(c, own.get("cycle"))))

    def client_move(self, l: Local, batch: Batch, eta: Tensor) -> tuple[Local, Tree]:
        inner, outs = self.inner.client_move(l.inner, batch, eta)  # type: ignore[attr-defined]
        return l._replace(inner=moved(inner, tree.add(inner.z, l.shift, -eta))), outs

    def client_finish(self, d: Broadcast, l: Local, c: Tree, outs: Tree, knobs: Knobs) -> tuple[Upload, Tree]:
        upload, kept = self.inner.client_finish(d.inner, l.inner, of("inner", c), outs, knobs)
        scale = 1 / (knobs.steps * knobs.eta)
        gradient = {n: (d.z[n] - l.z[n]) * scale - shift for n, shift in l.shift.items()}  # the mean of F
        memory = under("inner", kept)
        if self.refresh == "round":
            change = tree.sub(gradient, of("c", c))
            return upload._replace(sum=change), memory | under("c", gradient)
        now = self._in_force(c, knobs.cycle)
        again = c["cycle"] == knobs.cycle
        rounds = torch.where(again, c["rounds"], 0.0) + 1
        # What the server has of this client so far, and the mean of its earlier rounds in this cycle.
        last = of("following", c)
        before = {n: torch.where(again, v, now[n]) for n, v in last.items()}
        so_far = {n: torch.where(again, v, 0.0) for n, v in last.items()}
        following = {n: v + (gradient[n] - v) / rounds for n, v in so_far.items()}
        memory |= under("c", now) | under("following", following)
        memory |= {"rounds": rounds, "cycle": torch.full_like(c["cycle"], knobs.cycle)}
        return upload._replace(sum=tree.sub(following, before)), memory

    def _in_force(self, c: Tree, cycle: Tensor | int | None) -> Tree:
        """c_k: what was learned in the client's last earlier cycle, or simply the last time."""
        if self.refresh == "round":
            return of("c", c)
        following = of("following", c)
        assert cycle is not None
        this = torch.eq(c["cycle"], cycle)
        return {n: torch.where(this, v, following[n]) for n, v in of("c", c).items()}

    def server_update(self, s: Server, aggregate: Aggregate, cohort: Cohort, knobs: Knobs) -> Server:
        inner = self.inner.server_update(s.inner, aggregate, cohort, knobs)
        if self.eta_g != 1:
            further = tree.sub(tree.learned(inner.z), s.z)
            inner = moved(inner, self.projected(tree.add(inner.z, further, self.eta_g - 1)))
        if self.refresh == "round":
            return Server(inner, tree.add(s.c, aggregate.sum), {})
        following = tree.add(s.following, aggregate.sum)
        return Server(inner, following if knobs.cycle_end else s.c, following)

    def server_stage(self, s: Server) -> Server:
        s = s._replace(inner=self.inner.server_stage(s.inner))
        return s._replace(c=_zeros(s.c), following=_zeros(s.following)) if self.reset else s


def _zeros(z: Tree) -> Tree:
    return {name: torch.zeros_like(value) for name, value in tree.learned(z).items()}
