"""Submit a job to a FLARE server and tell, line by line, how it goes on.

    python -m fedauc.federation.submit KIT JOB

A process of its own: FLARE's session leaves threads behind, and does not survive the server. Every line on
standard output is JSON: {"state": …, "online": [sites]}; the last one has "ended".
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from contextlib import suppress
from typing import Any

EVERY = 1.0
"""Seconds between two lines."""
RECENT = 30.0
"""Seconds since a client's last sign of life within which it is online."""


def main() -> None:
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    from fedauc.federation.kits import ADMIN

    logging.disable(logging.CRITICAL)
    kit, job = sys.argv[1:]
    tell = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stdout = sys.stderr  # (FLARE prints)
    session = new_secure_session(ADMIN, kit, timeout=30)
    number, state = None, "WAITING"
    _end_others(session)
    while not state.startswith("FINISHED"):
        line: dict[str, Any] = {"online": _online(session)}
        if number is None:
            number = session.submit_job(job)
            state = "SUBMITTED"
        else:
            state = str(session.get_job_meta(number).get("status") or state)
        print(json.dumps(line | {"state": state}), file=tell)
        time.sleep(EVERY)
    print(json.dumps({"ended": state.removeprefix("FINISHED:")}), file=tell)
    tell.flush()
    os._exit(0)  # whatever threads the session has left


def _end_others(session: Any) -> None:
    """End jobs of an earlier time, which a server that was restarted would run beside the new one."""
    for job in session.list_jobs():
        if not str(job.get("status")).startswith("FINISHED"):
            with suppress(Exception):  # (it may have ended meanwhile)
                session.abort_job(job["job_id"])


def _online(session: Any) -> list[str]:
    now = time.time()
    return [c.name for c in session.get_system_info().client_info if now - c.last_connect_time < RECENT]


if __name__ == "__main__":
    main()
