"""`python -m benchmarks.evaluation`: what an exact AUC costs beside a bare sort of its scores, and what a
run costs whose validation takes turns with training or runs beside it. Writes evaluation.json."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.__main__ import show
from fedauc import metrics
from fedauc.experiments import evaluation, runner
from fedauc.experiments.config import Config
from fedauc.experiments.prepare import prepare

ROWS = 10_000_000
SHARES = (0.5, 0.01, 0.0001)
TURNS = 5
LARGE = {"data.source": "medicare-like", "data.rows": 400_000, "train.eval_every": 1, "schedule.cycles": 3}
MODELS: dict[str, dict[str, Any]] = {
    "linear": {"model": "linear"},
    "mlp (64)": {"model": "mlp", "model.hidden": [64]},
    "mlp (256)": {"model": "mlp", "model.hidden": [256]},
}


def kinds() -> Iterator[tuple[str, np.ndarray]]:
    """Logits and probabilities, once as they come and once with many ties."""
    logits = np.random.default_rng(0).standard_normal(ROWS, dtype=np.float32)
    for name, scores, decimals in (("logits", logits, 2), ("probabilities", 1 / (1 + np.exp(-logits)), 3)):
        yield name, scores
        yield f"{name}, {decimals} decimals", scores.round(decimals)


def sorts() -> Iterator[dict[str, Any]]:
    """A row per kind of scores and share of positives. The sort and the AUC take turns."""
    for name, scores in kinds():
        for share in SHARES:
            labels = (np.random.default_rng(1).random(ROWS) < share).astype(np.int8)
            times = [
                (_seconds(lambda: np.sort(scores)), _seconds(lambda: metrics.auc(scores, labels)))  # noqa: B023
                for _ in range(TURNS)
            ]
            yield {
                "scores": name,
                "positives": f"{share:.2%}",
                "sort_ms": 1e3 * statistics.median(sort for sort, _ in times),
                "auc_ms": 1e3 * statistics.median(auc for _, auc in times),
                "ratio": statistics.median(auc / sort for sort, auc in times),
            }


def runs() -> Iterator[dict[str, Any]]:
    """A row per model: every round is validated, in turn (as on one core) and beside training."""
    for name, more in MODELS.items():
        config = Config.resolve("cycp-pairwise", LARGE | more)
        prepared = prepare(config.data, config.seed)

        def run(cores: int, config: Config = config, prepared: Any = prepared) -> float:
            with (
                mock.patch.object(evaluation, "cores", return_value=cores),
                tempfile.TemporaryDirectory() as out,
            ):
                return _seconds(lambda: runner.train(config, prepared, out=Path(out)))

        run(1)
        times = [(run(1), run(2)) for _ in range(TURNS)]
        yield {
            "model": name,
            "validation_rows": len(prepared.valid.y),
            "in_turn_s": statistics.median(turn for turn, _ in times),
            "beside_s": statistics.median(beside for _, beside in times),
            "ratio": statistics.median(beside / turn for turn, beside in times),
        }


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    content = {"auc": list(sorts()), "beside": list(runs())}
    Path(__file__).with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n")
    show("exact AUC of 10 million float32 scores", content["auc"])
    show("a run that validates every round", content["beside"])
