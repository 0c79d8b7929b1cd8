"""How a federation stands, put together from the files of its folder."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fedauc.federation.folder import RUNNING, Folder
from fedauc.progress import human_bytes


def now(folder: Folder) -> dict[str, Any]:
    """What `fedauc federation status` shows."""
    known, rounds = folder.status(), folder.rounds()
    plan = folder.begun()
    lines = [line for line in folder.participation() if "took_part" in line]
    last = rounds[-1] if rounds else {}
    scored = [row for row in rounds if row.get("valid_auc") is not None]
    config, done = plan.config, last.get("round", 0)
    groups = config.roster(len(plan.names)).groups
    turn = groups[done % len(groups)]
    running = known["state"] in RUNNING
    online, gone = set(known.get("online", [])) if running else set(), set(folder.revoked)
    missed = {(line["round"], name) for line in lines for name in line["missed"]}
    return {
        "name": plan.federation.name,
        "state": known["state"],
        "reason": known.get("reason") if known["state"] in ("failed", "recovering") else None,
        "round": done,
        "rounds": config.rounds(len(plan.names)),
        "group": [plan.names[client] for client in turn],
        "valid_auc": scored[-1]["valid_auc"] if scored else None,
        "validated": scored[-1]["round"] if scored else None,
        "highest_auc": max((row["valid_auc"] for row in scored), default=None),
        "waiting": _waiting(folder.participation()) if running else None,
        "up": human_bytes(last.get("bytes_up", 0)),
        "down": human_bytes(last.get("bytes_down", 0)),
        "restarts": known.get("restarts", 0),
        "faults": len(missed),
        "sites": [_site(name, lines, name in online, name in gone) for name in plan.names],
    }


def _waiting(lines: list[dict[str, Any]]) -> str | None:
    """For whom, and until when, where windows are closed."""
    if not lines or lines[-1].get("event") != "waiting":
        return None
    until = datetime.fromisoformat(lines[-1]["until"])
    return (
        f"{', '.join(lines[-1]['sites'])}, until {until:%a %d %B %H:%M} UTC"
        if until > datetime.now(UTC)
        else None
    )


def _site(name: str, lines: list[dict[str, Any]], online: bool, revoked: bool) -> dict[str, Any]:
    missed = {line["round"]: line["missed"][name] for line in lines if name in line["missed"]}
    return {
        "site": name,
        "online": online and not revoked,
        "revoked": revoked,
        "took_part": sum(name in line["took_part"] for line in lines),
        "missed": len(missed),
        "why": list(missed.values())[-1] if missed else None,
    }
