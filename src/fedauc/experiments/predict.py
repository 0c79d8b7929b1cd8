"""Scores of new rows with the model of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from fedauc import models
from fedauc.core import checkpoint
from fedauc.core.tree import Tree
from fedauc.data.files import open_columns
from fedauc.data.preprocess import Preprocessor
from fedauc.data.table import read_features
from fedauc.errors import InputError
from fedauc.experiments.calibration import Calibration
from fedauc.experiments.config import Config
from fedauc.experiments.records import read_object
from fedauc.experiments.tune import RESULT as TUNED
from fedauc.models import Model

SCORES = ("row", "score", "probability")
"""Columns of what is predicted."""


@dataclass(frozen=True)
class Predictor:
    """A trained model with its preprocessing and calibration."""

    model: Model
    params: Tree
    shape: tuple[int, ...]
    calibration: Calibration
    preprocessor: Preprocessor | None

    @classmethod
    def load(cls, run: Path) -> Predictor:
        """The model in a run's folder."""
        if run.is_file():
            raise InputError(f"{run} is a file; the folder of a run is needed, {run.parent} for example.")
        if not run.is_dir():
            raise InputError(f"The folder {run} does not exist.")
        if not (run / "model.safetensors").exists():
            raise InputError(f"{run} holds no trained model (model.safetensors is missing).{_best_of(run)}")
        params, about = checkpoint.read_tensors(run / "model.safetensors")
        config = Config.from_dict(read_object(run / "config.json", {"method": str}))
        shape = tuple(about["shape"])
        model, expected = models.init(config.component("model"), shape, 0)
        wrong = [
            name for name in expected if name not in params or params[name].shape != expected[name].shape
        ]
        if wrong:
            raise InputError(f"{run}/model.safetensors does not fit its configuration: {', '.join(wrong)}.")
        text = run / "preprocess.json"
        preprocessor = Preprocessor.from_json(text.read_text()) if text.exists() else None
        return cls(model, params, shape, Calibration(**about["calibration"]), preprocessor)

    def scores(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Raw scores (logits) of prepared rows."""
        return self.model.scores(self.params, torch.from_numpy(x)).numpy()

    def predict_file(self, path: Path) -> pd.DataFrame:
        """A frame with the row's number, raw score and calibrated probability."""
        x = self._images(path) if self.preprocessor is None else self._table(path, self.preprocessor)
        scores = self.scores(x)
        columns = (np.arange(1, len(scores) + 1), scores, self.calibration.probability(scores))
        return pd.DataFrame(dict(zip(SCORES, columns, strict=True)))

    def _table(self, path: Path, preprocessor: Preprocessor) -> NDArray[np.float32]:
        frame = read_features(path, preprocessor.columns, categorical=preprocessor.categorical)
        return preprocessor.transform(frame)

    def _images(self, path: Path) -> NDArray[np.float32]:
        """Images as .npy: [n, channels, height, width] or [n, height, width], bytes or values in [0, 1]."""
        if path.suffix != ".npy":
            raise InputError(f"This model was trained on images; {path} must be a .npy file of images.")
        try:
            images = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(f"The file {path} cannot be read: {error}.") from error
        scaled = images.astype(np.float32) / (255.0 if images.dtype == np.uint8 else 1.0)
        if scaled.ndim == len(self.shape):
            scaled = scaled[:, None]
        if scaled.shape[1:] != self.shape:
            raise InputError(
                f"The images in {path} have shape {scaled.shape[1:]}, the model takes {self.shape}."
            )
        return np.ascontiguousarray(scaled)


def are_scores(path: Path) -> bool:
    """Whether a file holds what was predicted before."""
    if not path.is_file():
        return False
    try:
        return tuple(open_columns(path).columns) == SCORES
    except InputError:
        return False


def _best_of(folder: Path) -> str:
    """Where the best trial of a search is."""
    known = read_object(folder / TUNED, {}) if (folder / TUNED).exists() else {}
    runs = (known.get("best") or {}).get("runs", [])
    return f" The best trial of this search is {folder / runs[0]}." if runs else ""
