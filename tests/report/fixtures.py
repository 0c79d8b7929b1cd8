"""Realistic run folders from a seeded generator."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

VERSIONS = {"fedauc": "0.1.0", "torch": "2.11.0", "python": "3.11.7"}
NOTES = [
    "Rows without a label (212) were left out.",
    "Client 'hospital-7' has 2 positives in the train rows.",
]
LEVELS = {
    "cycp-pairwise": 0.915,
    "cycp-minimax": 0.909,
    "cycp-fedavg": 0.876,
    "fedavg": 0.868,
    "central": 0.931,
}


def client_names(n: int) -> list[str]:
    return [f"hospital-{i}" for i in range(1, n + 1)]


def data_of(names: Sequence[str]) -> dict[str, Any]:
    return {
        "name": "Sepsis within 24 hours",
        "rows": 380 * len(names),
        "positives": 17 * len(names),
        "features": 41,
        "clients_without_positives": 2,
        "clients": len(names),
        "notes": NOTES,
    }


def _roc(auc: float, positives: int, negatives: int, rng: np.random.Generator) -> dict[str, list[float]]:
    gap = 2**0.5 * _quantile(auc)
    scores = np.concatenate([rng.normal(gap, 1, positives), rng.normal(0, 1, negatives)])
    hits = np.concatenate([np.ones(positives), np.zeros(negatives)])[np.argsort(-scores)]
    tpr, fpr = np.cumsum(hits) / positives, np.cumsum(1 - hits) / negatives
    keep = np.unique(np.concatenate([[0], np.flatnonzero(np.diff(hits)), [len(hits) - 1]]))
    return {"fpr": [0.0, *fpr[keep].round(6).tolist()], "tpr": [0.0, *tpr[keep].round(6).tolist()]}


def _quantile(p: float) -> float:
    return NormalDist().inv_cdf(p)


def train_run(
    folder: Path,
    method: str = "cycp-pairwise",
    seed: int = 0,
    *,
    names: Sequence[str] = tuple(client_names(12)),
    rounds: int = 400,
    groups: int = 4,
    turn: int = 1,
    every: int = 10,
    uplink: float | None = None,
    participation: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """Writes a train run; ``changes`` replace keys of ``result.json`` (``...`` removes one). ``uplink`` is
    how many seconds a round's uploads take; without it the run is of a version that did not know."""
    rng = np.random.default_rng([seed, zlib.crc32(method.encode())])
    goal = LEVELS.get(method, 0.88) + rng.normal(0, 0.006)
    members = [list(names[g::groups]) for g in range(groups)]
    per_round_up, per_round_down = (48_640, 31_200) if "pairwise" in method else (31_040, 30_880)
    config = {
        "method": method,
        "seed": seed,
        "rounds": rounds,
        "model": {"kind": "mlp", "hidden": [64, 32]},
        "eta": 0.1,
    }
    if participation is not None:
        config["participation"] = participation
    metrics: list[dict[str, Any]] = []
    for n in range(1, rounds + 1):
        reached = 0.5 + (goal - 0.5) * (1 - np.exp(-n / (0.09 * rounds))) + rng.normal(0, 0.004)
        metrics.append(
            {
                "round": n,
                "cycle": (n - 1) // (turn * groups),
                "stage": int(n > rounds * 0.6),
                "group": (n - 1) // turn % groups,
                "clients": len(members[(n - 1) // turn % groups]),
                "valid_auc": round(float(reached), 5) if n % every == 0 else None,
                "loss": round(float(0.7 * np.exp(-n / 90) + 0.1), 5),
                "bytes_up": 9_000 + per_round_up * n,
                "bytes_down": 21_000 + per_round_down * n,
                "seconds": round(0.031 * n, 3),
                "eta": 0.1 if n <= rounds * 0.6 else 0.03,
            }
        )
        if uplink is not None:
            worst = round(float(0.4 + (reached - 0.4) * 0.8), 5) if n % every == 0 else None
            metrics[-1] |= {"seconds_up": uplink * n, "worst_accuracy": worst}
    evaluated = [m for m in metrics if m["valid_auc"] is not None]
    best = max(evaluated, key=lambda m: m["valid_auc"]) if evaluated else None
    per_client = []
    sizes = np.random.default_rng(len(names))  # the clients are the same in all runs
    for name in names:
        rows = int(sizes.lognormal(4.8, 0.8)) + 12
        positives = int(sizes.binomial(rows, 0.05))
        value = (
            float(np.clip(rng.normal(goal, 0.12 / max(positives, 1) ** 0.5), 0.4, 1)) if positives else None
        )
        per_client.append(
            {
                "client": name,
                "rows": rows,
                "positives": positives,
                "auc": value,
                "why": None if positives else "no positives in the test rows",
                "train_rows": rows * 3,
                "train_positives": int(sizes.binomial(rows * 3, 0.05)),
            }
        )
    rows, positives = sum(c["rows"] for c in per_client), max(sum(c["positives"] for c in per_client), 1)
    up, down = (metrics[-1][k] if metrics else 0 for k in ("bytes_up", "bytes_down"))
    model = 30_880 * rounds
    sent = {"setup: class counts": 192, "setup: statistics": 8_808, "model": model}
    got = {"setup: preprocessing": 21_000, "z": model}
    if "pairwise" in method:
        sent["positives"], got["negatives"] = up - 9_000 - model, down - 21_000 - model
    ledger = {"up": sent, "down": got, "messages_up": 3 * rounds, "messages_down": 3 * rounds}
    result: dict[str, Any] = {
        "schema": 1,
        "kind": "train",
        "method": method,
        "seed": seed,
        "test_auc": round(float(goal), 5),
        "test_auc_ci": [round(float(goal) - 0.019, 5), round(float(goal) + 0.017, 5)],
        "valid_auc": best["valid_auc"] if best else None,
        "best_round": best["round"] if best else None,
        "rounds": rounds,
        "bytes_up": up,
        "bytes_down": down,
        "seconds": 0.031 * rounds,
        "per_client": per_client,
        "groups": members,
        "ledger": ledger,
        "test": {
            "rows": rows,
            "positives": positives,
            "average_precision": round(float(goal) - 0.42, 4),
            "roc": _roc(float(goal), positives, max(rows - positives, 1), rng),
        },
        "data": data_of(names),
        "config": config,
        "versions": VERSIONS,
    }
    if uplink is not None:
        result["seconds_up"] = uplink * rounds
    result = {k: v for k, v in (result | changes).items() if v is not ...}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in metrics))
    return folder


def exchange(number: int, took: Sequence[str], **changes: Any) -> dict[str, Any]:
    """A line of ``participation.jsonl``, of a run with a round an hour; ``...`` removes a key."""
    line = {
        "round": number,
        "cycle": (number - 1) // 2,
        "group": (number - 1) % 2,
        "began": (datetime(2026, 11, 15, 22, tzinfo=UTC) + timedelta(hours=number)).isoformat(),
        "waited": 30.0,
        "seconds": 0.5,
        "took_part": list(took),
        "missed": {},
        "outcome": "done",
    }
    return {k: v for k, v in (line | changes).items() if v is not ...}


def federated_run(folder: Path, names: Sequence[str], groups: int, rounds: int, **options: Any) -> Path:
    """A run of a real federation, where a site is missed now and then, and all in the last round."""
    run = train_run(folder, names=names, groups=groups, rounds=rounds, turn=1, **options)
    rng = np.random.default_rng(rounds)
    lines: list[dict[str, Any]] = []
    for n in range(1, rounds + 1):
        if n == rounds // 2 + 1 and lines:
            lines.append({"event": "resumed", "began": lines[-1]["began"], "round": n - 1})
        group = names[(n - 1) % groups :: groups]
        missed = {name: "no answer (timeout)" for name in group if rng.random() < 0.1 or n == rounds}
        took = [name for name in group if name not in missed]
        outcome = "done" if took else "skipped"
        lines.append(exchange(n, took, cycle=(n - 1) // groups, missed=missed, outcome=outcome))
    (run / "participation.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def compare_folder(
    folder: Path,
    methods: Sequence[str] = ("cycp-fedavg", "cycp-pairwise", "cycp-minimax", "fedavg"),
    seeds: Sequence[int] = (0, 1, 2),
    of_method: dict[str, dict[str, Any]] | None = None,
    **options: Any,
) -> Path:
    """Writes a compare folder with its train runs and the two yardsticks (without runs); ``of_method`` holds
    options of single methods."""
    runs: dict[str, list[str]] = {}
    rows: list[dict[str, Any]] = []
    for method in methods:
        results = []
        for seed in seeds:
            own = options | (of_method or {}).get(method, {})
            train_run(folder / method / f"seed-{seed}", method, seed, **own)
            results.append(json.loads((folder / method / f"seed-{seed}" / "result.json").read_text()))
        runs[method] = [f"{method}/seed-{seed}" for seed in seeds]
        rows.append(_row(method, "federated", [r["test_auc"] for r in results], seeds, results[0]))
    rng = np.random.default_rng(7)
    for name, level in (("clients-alone", 0.812), ("central", 0.928)):
        rows.append(
            _row(name, "yardstick", rng.normal(level, 0.003, len(seeds)).round(5).tolist(), seeds, {})
        )
    rows[-1]["note"] = "all rows in one place"
    by_method = {row["method"]: row["test_auc_by_seed"] for row in rows}
    pairwise = []
    for n, a in enumerate(methods):
        for b in methods[n + 1 :]:
            gaps = np.subtract(by_method[a], by_method[b])
            pairwise.append(
                {
                    "a": a,
                    "b": b,
                    "wins": int((gaps > 0).sum()),
                    "of": len(seeds),
                    "mean_difference": float(gaps.mean()),
                }
            )
    names = options.get("names", client_names(12))
    found = {
        "schema": 1,
        "kind": "compare",
        "rows": rows,
        "runs": runs,
        "config": {"methods": list(methods), "seeds": list(seeds), "data": {"source": "sepsis.csv"}},
        "data": data_of(names),
        "pairwise": pairwise,
        "versions": VERSIONS,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compare.json").write_text(json.dumps(found))
    return folder


def _row(
    method: str, kind: str, aucs: Sequence[float], seeds: Sequence[int], result: dict[str, Any]
) -> dict[str, Any]:
    return {
        "method": method,
        "kind": kind,
        "test_auc": float(np.mean(aucs)),
        "test_auc_std": float(np.std(aucs, ddof=1)) if len(aucs) > 1 else None,
        "valid_auc": float(np.mean(aucs)) + 0.004,
        "seeds": list(seeds),
        "test_auc_by_seed": list(aucs),
        **{key: result.get(key) for key in ("rounds", "bytes_up", "bytes_down", "seconds")},
        "note": "",
    }
