"""The contrastive loss, eq. (14) of CyCp: by hand, and as a pairwise objective of embeddings over rounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedauc.core.loop import Federation
from fedauc.errors import InputError
from fedauc.methods import ActivePassive, LocalSGDA
from fedauc.objectives import Contrastive
from fedauc.participation import Cyclic, Full
from fedauc.schedules import Stagewise

from ..reference import naive, naive_more
from ..reference.naive import NEGATIVE, POSITIVE

STEPS, BATCH, PASSIVE, ETA, SEED, MARGIN = 2, 5, 4, 0.2, 3, 1.2


def psi(e, other, similar, margin):
    """Eq. (14)."""
    distance = math.sqrt(sum((a - b) ** 2 for a, b in zip(e, other, strict=True)))
    return distance**2 / 2 if similar else max(0.0, margin - distance) ** 2 / 2


def psi_slope(e, other, similar, margin):
    """∂ψ/∂e: e - e' for similar ones, -(m - ‖e - e'‖)₊ (e - e')/‖e - e'‖ for others."""
    away = np.array(e) - np.array(other)
    if similar:
        return away
    distance = math.sqrt(float(away @ away))
    return -max(0.0, margin - distance) / distance * away


def by_hand(h, ys, weights, passive, margin):
    """The loss of a batch and its gradient with respect to the embeddings."""
    total, slopes = 0.0, []
    for e, y, weight in zip(h, ys, weights, strict=True):
        slope = np.zeros(len(e))
        for label in (NEGATIVE, POSITIVE):
            for other in passive[label]:
                total += weight * psi(e, other, y == label, margin) / len(passive[label])
                slope = slope + weight * psi_slope(e, other, y == label, margin) / len(passive[label])
        slopes.append(slope)
    return total, slopes


def example(generator, dimension, close=1.0):
    h = close * generator.normal(size=(6, dimension))
    passive = {label: close * generator.normal(size=(4, dimension)) for label in (NEGATIVE, POSITIVE)}
    return h, np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0]), generator.uniform(0.1, 1.0, size=6), passive


def as_tensors(passive):
    return {"negatives": torch.tensor(passive[NEGATIVE]), "positives": torch.tensor(passive[POSITIVE])}


@pytest.mark.parametrize("dimension", [1, 2, 5])
@pytest.mark.parametrize("margin", [0.5, 2.0])
def test_value_and_gradient(dimension, margin):
    generator = np.random.default_rng(dimension)
    h, ys, weights, passive = example(generator, dimension, close=0.7)
    objective = Contrastive(dimension, margin)

    def loss(h):
        return objective.paired(
            h, torch.tensor(ys), torch.tensor(weights), as_tensors(passive), torch.tensor(weights)
        )[0]

    value, slopes = by_hand(h, ys, weights, passive, margin)
    embeddings = torch.tensor(h)
    np.testing.assert_allclose(loss(embeddings), value, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(torch.func.grad(loss)(embeddings), slopes, rtol=1e-9, atol=1e-9)


def test_beyond_the_margin_nothing_repels():
    objective = Contrastive(2, margin=1.0)
    passive = {"negatives": torch.tensor([[3.0, 0.0]]), "positives": torch.tensor([[0.0, 0.0]])}
    h, one = torch.tensor([[0.0, 0.0]]), torch.ones(1)
    slope = torch.func.grad(lambda h: objective.paired(h, one, one, passive, one)[0])(h)
    assert torch.equal(slope, torch.zeros(1, 2))


def test_at_the_same_place_the_gradient_is_finite():
    """‖·‖ has no gradient at 0; two embeddings of different classes can be there at the start."""
    objective = Contrastive(2)
    same = torch.zeros(1, 2)
    one = torch.ones(1)
    slope = torch.func.grad(
        lambda h: objective.paired(h, one, one, {"negatives": same, "positives": same}, one)[0]
    )(same)
    assert torch.isfinite(slope).all()


def test_classes_are_interchangeable():
    """δ only says whether two examples are similar: renaming the classes changes nothing."""
    h, ys, weights, passive = example(np.random.default_rng(0), 3)
    objective, pools = Contrastive(3), as_tensors(passive)
    swapped = {"negatives": pools["positives"], "positives": pools["negatives"]}
    a, b = (
        objective.paired(torch.tensor(h), torch.tensor(y), torch.tensor(weights), p, torch.tensor(weights))[0]
        for y, p in ((ys, pools), (1 - ys, swapped))
    )
    assert float(a) == pytest.approx(float(b), rel=1e-12)


class Embedding:
    """e = V tanh(Ux + c), three hidden units and two outputs."""

    def start(self):
        generator = np.random.default_rng(5)
        return {
            "U": generator.normal(size=(3, 2)),
            "c": generator.normal(size=3) / 2,
            "V": generator.normal(size=(2, 3)),
        }

    def torch(self, z, x):
        return (x @ z["U"].T + z["c"]).tanh() @ z["V"].T

    def embed(self, w, x):
        return w["V"] @ np.tanh(w["U"] @ x + w["c"])

    def pulled(self, w, x, slope):
        """Σ_d slope_d ∂e_d/∂w."""
        t = np.tanh(w["U"] @ x + w["c"])
        back = (w["V"].T @ slope) * (1 - t**2)
        return {"U": np.outer(back, x), "c": back, "V": np.outer(slope, t)}


@pytest.mark.parametrize("participation", [Cyclic(3), Full()], ids=repr)
@pytest.mark.parametrize("refresh", ["cycle", "round", "rolling"])
def test_embeddings_as_passive_parts(refresh, participation):
    """Active-passive with vectors in the pools against Alg. 3: w and the pools after every round."""
    data, model = naive_more.federated_data(), Embedding()
    fed = Federation(
        ActivePassive(model.torch, Contrastive(2, MARGIN), refresh=refresh, passive=PASSIVE),
        data,
        participation,
        Stagewise(eta=ETA, steps=STEPS, cycles=20),
        batch=BATCH,
        client_weight="sqrt",
        seed=SEED,
    )
    x, counts, start = data.x.numpy(), data.counts.tolist(), model.start()
    omega, local = naive.class_weights(counts, "sqrt", "aggregate")
    share, rounds = naive.class_shares(counts, "sqrt"), 3 * fed.roster.cycle_length + 1

    def gradient(w, rows, ys, weights, passive, client):
        h = [model.embed(w, x[row]) for row in rows]
        _, slopes = by_hand(h, ys, weights, passive, MARGIN)
        total = naive.zeros(w)
        for row, slope in zip(rows, slopes, strict=True):
            total = naive.plus(total, model.pulled(w, x[row], slope))
        return total, h

    expected = naive_more.active_passive(
        fed,
        start,
        lambda w, row, client: model.embed(w, x[row]),
        gradient,
        STEPS,
        PASSIVE,
        ETA,
        rounds,
        omega,
        local,
        share,
    )
    for state, (w, pools) in zip(naive_more.states(fed, start, rounds), expected, strict=True):
        naive_more.assert_close(state.server.z, w, 1e-9)  # ‖·‖ is smoothed by 1e-12 in the library
        for label, name in enumerate(("negatives", "positives")):
            pool, other = state.server.passive[name], pools[label]
            assert pool.h.shape == (len(other), 2)
            np.testing.assert_allclose(
                pool.h, np.array([h for h, _ in other]).reshape(-1, 2), rtol=1e-9, atol=1e-9
            )
            np.testing.assert_allclose(pool.weight, [weight for _, weight in other], rtol=1e-10)
    assert np.abs(w["V"] - start["V"]).max() > 1e-2


def test_it_is_no_sum_over_examples():
    with pytest.raises(InputError, match=r"Contrastive compares examples of different clients"):
        LocalSGDA(Embedding().torch, Contrastive(2))


@pytest.mark.parametrize(
    ("settings", "named"), [({"dimension": 0}, "dimension=0"), ({"margin": 0}, "margin=0")]
)
def test_impossible_settings(settings, named):
    with pytest.raises(InputError, match=named):
        Contrastive(**settings)
