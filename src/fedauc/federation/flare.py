"""NVIDIA FLARE as the engine: its controller runs the coordinator, its executor a site.

A job names the two classes below, which are installed with this package at both ends: no code travels.
Requests go as auxiliary messages, which are pushed to a site at once, where FLARE's own tasks wait until a
site asks for them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from fedauc.errors import InputError
from fedauc.experiments import runner
from fedauc.experiments.config import Config
from fedauc.federation import coordinator
from fedauc.federation.kits import COORDINATOR, MEMBER
from fedauc.federation.messages import Refused
from fedauc.federation.remote import Failure
from fedauc.federation.site import Site, reading

TOPIC = "fedauc"
HELLO = b"hello"
"""Asks whether a site is there."""
DATA = "FEDAUC_SITE_DATA"
"""The environment variable that names a site's table; it never leaves the site."""
RETRY = 0.2
"""Seconds between two attempts to find a site."""


class FlareLink:
    """Requests as auxiliary messages of a running job."""

    def __init__(self, fl_ctx: FLContext, abort: Signal) -> None:
        self.fl_ctx, self.abort = fl_ctx, abort

    def exchange(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Failure]:
        if self.abort.triggered:
            raise InputError("The job was told to end.")
        with ThreadPoolExecutor(max(len(requests), 1)) as pool:  # (its own multicast fails in FLARE 2.9.0)
            waiting = {name: pool.submit(self._one, name, r, deadline) for name, r in requests.items()}
            return {name: answer.result() for name, answer in waiting.items()}

    def _one(self, site: str, request: bytes, deadline: float) -> bytes | Failure:
        sent = Shareable()
        sent["request"] = request
        replies = self.fl_ctx.get_engine().send_aux_request([site], TOPIC, sent, deadline, self.fl_ctx)
        return _reply((replies or {}).get(site))

    def wait(self, sites: list[str], deadline: float) -> None:
        """Until every site answers; a job's first messages get lost."""
        end = time.monotonic() + deadline
        missing = sites
        while missing:
            replies = self.exchange(dict.fromkeys(missing, HELLO), 2.0)
            missing = [name for name in missing if replies[name] != HELLO]
            if missing and time.monotonic() > end:
                raise InputError(f"These sites have not come within {deadline:.0f} s: {', '.join(missing)}.")
            if missing:
                time.sleep(RETRY)


def _reply(reply: Any) -> bytes | Failure:
    if not isinstance(reply, Shareable):
        return Failure("no answer")
    if (code := reply.get_return_code()) != ReturnCode.OK:
        return Failure(f"no answer ({code})")
    if "refused" in reply:
        return Failure(str(reply["refused"]))
    answer = reply.get("answer")
    return answer if isinstance(answer, bytes) else Failure("an answer that is none")


class Coordinator(Controller):
    """Carries an experiment out with the sites of a FLARE federation."""

    def __init__(self, config: dict[str, Any], sites: list[str], out: str, deadline: float = 600.0) -> None:
        super().__init__()
        self.config, self.sites, self.out, self.deadline = config, sites, out, deadline

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to begin with."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to end."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        link = FlareLink(fl_ctx, abort_signal)
        try:
            link.wait(self.sites, self.deadline)
            config = Config.from_dict(self.config)
            prepared = coordinator.prepared(config, link, self.sites, deadline=self.deadline)
            runner.run(config, Path(self.out), resume=True, prepared=prepared)
        except InputError as error:
            self.system_panic(str(error), fl_ctx)


class Member(Executor):
    """A site that stays ready: torch and its rows are loaded once for a job."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            workspace = fl_ctx.get_workspace()
            folder = Path(workspace.get_root_dir()) / "fedauc"
            if not (path := os.environ.get(DATA)):
                return self.system_panic(f"This site does not say where its table is ({DATA}).", fl_ctx)
            self.site = Site(fl_ctx.get_identity_name(), reading(path), folder)
            fl_ctx.get_engine().register_aux_message_handler(TOPIC, self.answer)

    def answer(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """What came of a request, or why it was refused."""
        asked, reply = request.get("request"), make_reply(ReturnCode.OK)
        try:
            if not isinstance(asked, bytes):
                raise Refused("a request that is none")
            reply["answer"] = HELLO if asked == HELLO else self.site.answer(asked)
        except Refused as reason:
            reply["refused"] = str(reason)
        return reply

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort: Signal) -> Shareable:
        """There are no tasks of FLARE's own."""
        return make_reply(ReturnCode.TASK_UNKNOWN)


def write_job(folder: Path, name: str, config: Config, sites: Sequence[str], out: Path) -> Path:
    """A job that any FLARE deployment with these sites can run: three files of settings."""
    server = {
        "format_version": 2,
        "workflows": [
            {
                "id": "fedauc",
                "path": COORDINATOR,
                "args": {"config": config.as_dict(), "sites": list(sites), "out": str(out)},
            }
        ],
        "components": [],
    }
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": {"path": MEMBER, "args": {}}}],
        "components": [],
    }
    meta = {
        "name": name,
        "resource_spec": {},
        "min_clients": 1,
        "deploy_map": {"app": ["@ALL"]},
    }
    inner = folder / name / "app" / "config"
    inner.mkdir(parents=True, exist_ok=True)
    (inner / "config_fed_server.json").write_text(json.dumps(server, indent=2))
    (inner / "config_fed_client.json").write_text(json.dumps(client, indent=2))
    (folder / name / "meta.json").write_text(json.dumps(meta, indent=2))
    return folder / name
