"""The scikit-learn face: `FederatedAUCClassifier().fit(X, y, clients=groups)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fedauc.core import rng
from fedauc.data.columns import clean_column
from fedauc.data.federated import FederatedData
from fedauc.data.partition import by_column
from fedauc.data.preprocess import Preprocessor, fit_federated
from fedauc.data.split import stratified_split
from fedauc.errors import InputError
from fedauc.experiments import runner
from fedauc.experiments.assembly import Part, Prepared
from fedauc.experiments.config import Config


class FederatedAUCClassifier(ClassifierMixin, BaseEstimator):
    """A binary classifier trained across clients by maximising AUC.

    Parameters
    ----------
    method : name of a preset (``fedauc methods``).
    model : ``"linear"`` or ``"mlp"``.
    cycles : how often every group of clients takes part; the preset's where None.
    steps : I, local steps per round; the preset's where None.
    eta : step size; the preset's where None.
    groups : K, groups of clients that take turns; √N and at most 10 where None.
    client_weight : what a client counts for, ``"uniform"``, ``"sqrt"`` or ``"examples"``; None: the preset's.
    validation_fraction : share of the rows (by client and class) on which the best model is chosen.
    standardize : whether features are standardised with the clients' sums (data frames always are prepared).
    settings : any other setting, ``{"objective.surrogate": "sigmoid"}``.
    device : ``"cpu"`` or ``"cuda"``.
    random_state : seed.

    Attributes
    ----------
    classes_ : the two labels; the second is positive.
    valid_auc_, rounds_, bytes_up_, bytes_down_ : how training went.
    history_ : the complete `Trained` run, for whoever wants to look deeper.
    """

    def __init__(
        self,
        method: str = "cycp-pairwise",
        *,
        model: Literal["linear", "mlp"] = "linear",
        cycles: int | None = None,
        steps: int | None = None,
        eta: float | None = None,
        groups: int | None = None,
        client_weight: str | None = None,
        validation_fraction: float = 0.15,
        standardize: bool = True,
        settings: Mapping[str, Any] | None = None,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.method = method
        self.model = model
        self.cycles = cycles
        self.steps = steps
        self.eta = eta
        self.groups = groups
        self.client_weight = client_weight
        self.validation_fraction = validation_fraction
        self.standardize = standardize
        self.settings = settings
        self.device = device
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(
        self, X: ArrayLike | pd.DataFrame, y: ArrayLike, clients: ArrayLike | None = None
    ) -> FederatedAUCClassifier:
        """Train; `clients` says for every row which client it belongs to (one client where None)."""
        frame, values = self._checked(X, y)
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        if type_of_target(labels) not in ("binary",):
            kind = type_of_target(labels)
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("Classifier can't train when only one class is present.")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        who, names = self._clients(clients, len(codes))
        config = Config.resolve(self.method, self._overrides(seed))
        rest, held = self._split(codes, who, seed)
        self.preprocessor_: Preprocessor | None = None
        up = down = 0
        if frame is not None:
            self.preprocessor_, up, down = fit_federated(frame.iloc[rest], who[rest])
            x = self.preprocessor_.transform(frame)
        else:
            x = values
        y01 = codes.astype(np.int8)
        members, code = np.unique(who[rest], return_inverse=True)
        tensor = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)).to(self.device)
        train = FederatedData.build(
            tensor[rest], torch.from_numpy(y01[rest]), code, [names[i] for i in members], self.device
        )
        valid = Part(tensor[held], y01[held], None)
        prepared = Prepared("fit", train, valid, valid, tuple(names), self.preprocessor_, (), up, down)
        trained = runner.train(config, prepared)
        self.history_ = trained
        self.valid_auc_ = trained.best.auc
        self.rounds_ = self.n_iter_ = trained.state.round
        self.bytes_up_, self.bytes_down_ = trained.state.ledger.total_up, trained.state.ledger.total_down
        return self

    def decision_function(self, X: ArrayLike | pd.DataFrame) -> NDArray[np.float64]:
        """The calibrated log-odds: higher is more likely positive, 0 is even odds."""
        check_is_fitted(self)
        frame, values = self._checked(X)
        x = values if self.preprocessor_ is None or frame is None else self.preprocessor_.transform(frame)
        tensor = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)).to(self.device)
        trained = self.history_
        scores = trained.model.scores(trained.best.z, tensor).numpy(force=True)
        return trained.calibration.log_odds(scores)

    def predict_proba(self, X: ArrayLike | pd.DataFrame) -> NDArray[np.float64]:
        """Probabilities of the two classes, calibrated on the validation rows."""
        positive = expit(self.decision_function(X))
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, X: ArrayLike | pd.DataFrame) -> NDArray[Any]:
        """The more probable class."""
        above = self.decision_function(X) > 0
        return self.classes_[above.astype(int)]

    def _overrides(self, seed: int) -> dict[str, Any]:
        named = {
            "cycles": self.cycles,
            "steps": self.steps,
            "eta": self.eta,
            "client_weight": self.client_weight,
        }
        found: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
        if self.groups is not None:
            found["participation.groups"] = self.groups
        return found | {"model": self.model, "seed": seed, "device": self.device} | dict(self.settings or {})

    def _checked(self, X: Any, y: Any = None) -> tuple[pd.DataFrame | None, Any]:
        """The features as a frame to be prepared, or as numbers to be used as they are."""
        reset = y is not None
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if reset and len(X) != len(np.asarray(y)):
                raise ValueError(f"X has {len(X)} rows and y has {len(np.asarray(y))}.")
            columns = {
                str(name): clean_column(X[name].reset_index(drop=True), lambda row: f"row {row + 1}", None)
                for name in X
            }
            return pd.DataFrame(columns), None
        if reset:
            X, _ = validate_data(self, X, y, dtype=np.float32, y_numeric=False, ensure_min_samples=4)
        else:
            X = validate_data(self, X, reset=False, dtype=np.float32)
        if not self.standardize:
            return None, X
        return pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])], copy=False), None

    def _clients(self, clients: ArrayLike | None, rows: int) -> tuple[NDArray[np.int64], list[str]]:
        if clients is None:
            return np.zeros(rows, dtype=np.int64), ["all"]
        values = column_or_1d(clients)
        if len(values) != rows:
            raise ValueError(f"clients has {len(values)} entries for {rows} rows.")
        codes, names = by_column(values)
        return codes, list(names)

    def _split(self, y: NDArray[Any], who: NDArray[np.int64], seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows to train on and to choose on; tiny data are used for both."""
        everything = np.arange(len(y))
        if min(np.bincount(y)) < 4 or self.validation_fraction == 0:
            return everything, everything
        share = self.validation_fraction
        if not 0 < share < 1:
            raise InputError(f"validation_fraction={share} must be at least 0 and below 1.")
        rest, held = stratified_split(y, who, (1 - share, share), rng.generator(seed, rng.SPLIT))
        return rest, held
