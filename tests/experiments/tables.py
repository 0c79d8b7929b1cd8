"""Small tables with clients, rare positives, text and missing values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


def claims(rows: int = 600, clients: int = 6, seed: int = 0) -> pd.DataFrame:
    """Insurance claims: about 10 % fraud, one linear signal, a text column, missing values."""
    rng = np.random.default_rng(seed)
    state = rng.integers(0, clients, rows)
    amount = rng.lognormal(3, 1, rows)
    age = rng.normal(50, 12, rows) + state
    kind = rng.choice(["car", "home", "travel"], rows)
    logit = 0.9 * (np.log(amount) - 3) + 0.8 * (kind == "travel") - 0.03 * (age - 50) - 2.6
    fraud = rng.random(rows) < 1 / (1 + np.exp(-logit))
    age[rng.random(rows) < 0.1] = np.nan
    frame = pd.DataFrame(
        {"amount": amount, "age": age, "kind": kind, "year": 2017 + np.arange(rows) * 6 // rows}
    )
    return frame.assign(state=[f"S{i}" for i in state], fraud=np.where(fraud, "yes", "no"))


def claims_csv(folder: Path, **options: int) -> Path:
    path = folder / "claims.csv"
    claims(**options).to_csv(path, index=False)
    return path
