"""scikit-learn's conventions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedauc import FederatedAUCClassifier
from fedauc.experiments.presets import PRESETS
from tests.experiments.tables import claims


@parametrize_with_checks([FederatedAUCClassifier(cycles=15, random_state=0)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rare():
    x, y = make_classification(3000, 12, n_informative=4, weights=[0.95], class_sep=1.2, random_state=0)
    clients = np.random.default_rng(0).integers(0, 12, len(y))
    return x, y, clients


def test_it_learns_across_clients_without_being_told_anything(rare):
    x, y, clients = rare
    model = FederatedAUCClassifier(random_state=0).fit(x[:2000], y[:2000], clients=clients[:2000])
    scores = model.decision_function(x[2000:])
    pooled = LogisticRegression().fit(x[:2000], y[:2000]).decision_function(x[2000:])
    assert roc_auc_score(y[2000:], scores) > roc_auc_score(y[2000:], pooled) - 0.01
    assert model.bytes_up_ > 0
    assert np.allclose(model.predict_proba(x[2000:]).sum(axis=1), 1)
    assert (model.predict(x[2000:]) == (scores > 0)).all()
    # calibrated: the mean probability is near the rate of positives
    assert model.predict_proba(x[2000:])[:, 1].mean() == pytest.approx(y[2000:].mean(), abs=0.03)


def test_the_same_random_state_gives_the_same_model_and_clone_forgets(rare):
    x, y, clients = rare
    model = FederatedAUCClassifier(cycles=3, random_state=7)
    one = model.fit(x, y, clients=clients).decision_function(x)
    two = clone(model).fit(x, y, clients=clients).decision_function(x)
    assert np.array_equal(one, two)
    assert not hasattr(clone(model), "history_")


def test_pipelines_and_grid_search(rare):
    x, y, clients = rare
    pipeline = make_pipeline(StandardScaler(), FederatedAUCClassifier(cycles=3, random_state=0))
    pipeline.fit(x, y, federatedaucclassifier__clients=clients)
    assert pipeline.score(x, y) > 0.5
    search = GridSearchCV(
        FederatedAUCClassifier(cycles=2, random_state=0), {"eta": [0.03, 0.1]}, scoring="roc_auc", cv=2
    )
    assert search.fit(x[:600], y[:600]).best_params_["eta"] in (0.03, 0.1)


def test_data_frames_with_text_and_missing_values_and_text_labels():
    frame = claims()
    x, y = frame.drop(columns=["fraud", "state"]), frame.fraud
    model = FederatedAUCClassifier(cycles=10, random_state=0).fit(x, y, clients=frame.state)
    assert list(model.classes_) == ["no", "yes"]
    assert set(model.predict(x)) <= {"no", "yes"}
    by_amount_alone = roc_auc_score(y == "yes", x.amount)
    assert roc_auc_score(y == "yes", model.decision_function(x)) > by_amount_alone


def test_clients_must_match_the_rows(rare):
    x, y, clients = rare
    with pytest.raises(ValueError, match="clients has 10 entries"):
        FederatedAUCClassifier().fit(x, y, clients=clients[:10])


def test_any_setting_reaches_the_configuration(rare):
    x, y, clients = rare
    model = FederatedAUCClassifier(
        "cycp-minimax", model="mlp", cycles=1, groups=3, settings={"model.hidden": (4,)}, random_state=0
    ).fit(pd.DataFrame(x), y, clients=clients)
    assert model.history_.config.sections["model"]["hidden"] == (4,)
    assert model.history_.federation.roster.cycle_length == 3


@pytest.mark.slow
@pytest.mark.parametrize("method", PRESETS)
def test_every_method_fits_and_predicts(method):
    x, y = make_classification(200, 5, weights=[0.8], random_state=0)
    clients = np.arange(200) % 6
    model = FederatedAUCClassifier(method=method, cycles=2, random_state=0).fit(x, y, clients=clients)
    chance = model.predict_proba(x)
    assert np.isfinite(chance).all()
    assert chance.shape == (200, 2)
