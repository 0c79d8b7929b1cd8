"""NVIDIA FLARE as the engine: a job on its server runs the coordinator, a component of its client the site.

No code travels, and no job runs at a site: requests go from the job straight to the site's own process, which
keeps torch and its rows loaded, survives jobs, and is there again as soon as it is restarted. (FLARE
schedules no job without a client, so one with nothing to do, the attendant, runs beside the server.)

A request is answered within `SLICE` seconds, if only with "working", and the coordinator asks again for the
outcome: FLARE does not tell who waits for an answer that a site has gone.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.defs import ReturnCode as CellReturnCode
from nvflare.fuel.f3.message import Message
from nvflare.private.defs import CellChannel

from fedauc.core import checkpoint
from fedauc.errors import InputError
from fedauc.experiments import runner
from fedauc.federation import coordinator
from fedauc.federation.attendance import RETRY, Attendance, Clock, Failure
from fedauc.federation.folder import JOURNAL, STOPPED
from fedauc.federation.joining import SAID
from fedauc.federation.kits import ABOUT, ATTENDANT, COORDINATOR, IDLE, about
from fedauc.federation.messages import Refused, about_message
from fedauc.federation.plan import Plan
from fedauc.federation.policy import Policy
from fedauc.federation.site import Site, reading

LOG = logging.getLogger(__name__)
TOPIC = "fedauc"
DATA, LIMITS = "FEDAUC_SITE_DATA", "FEDAUC_SITE_LIMITS"
"""Environment variables that name a site's table and its limits; they never leave the site."""
MOST = 256
"""Sites that are asked at the same time."""
SLICE = 3.0
"""Seconds after which a site says that it is still working."""
MARGIN = 5.0
"""Seconds that a message may take on the way besides."""
ENDING = timedelta(seconds=60)
"""In which an earlier job must have ended."""
TELL = 60.0
"""Seconds between two lines of a site to its people."""
SWEEP = 10.0
"""Seconds between two sweeps."""
RATE = 4e6
"""Bytes a second that a large message is expected to make."""
TIMEOUT, NOT_THERE, NOT_YET = "not reached in time", "not connected", "connected, but still starting"


class FlareLink:
    """Requests from a running job to the processes of sites."""

    def __init__(self, fl_ctx: FLContext, abort: Signal) -> None:
        self.fl_ctx, self.abort = fl_ctx, abort
        self.pool = ThreadPoolExecutor(MOST, "fedauc-link")
        self.sweep = Sweeper()

    def exchange(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Failure]:
        self.sweep()
        waiting = {name: self.pool.submit(self._one, name, r, deadline) for name, r in requests.items()}
        return {name: answer.result() for name, answer in waiting.items()}

    def _one(self, site: str, request: bytes, deadline: float) -> bytes | Failure:
        end = time.monotonic() + deadline
        body: dict[str, Any] = {"number": uuid.uuid4().hex, "request": request}
        while (left := end - time.monotonic()) > 0:
            if self.abort.triggered:
                raise InputError("The job was told to end.")
            large = len(body.get("request", b"")) / RATE
            timeout = min(SLICE + MARGIN + large, left)
            reply = self._sent(site, body | {"wait": min(SLICE, left)}, timeout)
            if not isinstance(reply, Shareable):
                if timeout == left and reply.reason == TIMEOUT:
                    break
                return reply
            if "working" in reply:
                body = {"number": body["number"]}
                continue
            if "refused" in reply:
                return Failure(str(reply["refused"]), unreachable=bool(reply.get("again", False)))
            answer = reply.get("answer")
            return answer if isinstance(answer, bytes) else Failure("an answer that is none")
        return Failure("no answer within the deadline")

    def _sent(self, site: str, body: Mapping[str, Any], timeout: float) -> Shareable | Failure:
        sent = Shareable(dict(body))
        sent.set_peer_props(self.fl_ctx.get_all_public_props())
        cell = self.fl_ctx.get_engine().get_cell()
        reply = (
            cell.send_request(  # (FLARE looks for the channel among the named arguments, to stream or not)
                channel=CellChannel.AUX_COMMUNICATION,
                topic=TOPIC,
                target=site,
                request=Message(payload=sent),
                timeout=timeout,
                optional=True,
            )
        )
        if (code := reply.get_header(MessageHeaderKey.RETURN_CODE)) != CellReturnCode.OK:
            return Failure(TIMEOUT if code == CellReturnCode.TIMEOUT else NOT_THERE, unreachable=True)
        if not isinstance(reply.payload, Shareable):
            return Failure("an answer that is none")
        if (code := reply.payload.get_return_code()) != ReturnCode.OK:
            return Failure(NOT_YET if code == ReturnCode.TOPIC_UNKNOWN else f"not reached ({code})", True)
        return reply.payload


class Sweeper:
    """Frees what FLARE leaves behind, now and then.

    Every message leaves a cycle of objects that holds a buffer of 1 MB. Python itself frees cycles that have
    grown old only when there are a quarter more old objects than the last time, which is seldom with the half
    million that PyTorch brings.
    """

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self.last > SWEEP:
            gc.collect()
            self.last = time.monotonic()


class JobClock(Clock):
    """Waits until the job is told to end."""

    def __init__(self, abort: Signal) -> None:
        self.abort = abort

    def sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.abort.triggered:
                raise InputError("The job was told to end.")
            time.sleep(min(left, 0.5))


class Coordinator(Controller):
    """Carries a plan out with the sites of a FLARE federation, into the folder `out`."""

    def __init__(self, plan: dict[str, Any], out: str, gone: list[str]) -> None:
        super().__init__()
        self.plan, self.out, self.gone = plan, Path(out), frozenset(gone)

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to begin with."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to end."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        try:
            plan = Plan.from_dict(self.plan, "the job's plan")
            carry_out(plan, self.out, self.gone, fl_ctx, abort_signal)
        except (InputError, OSError) as error:
            if not abort_signal.triggered:
                _stopped(self.out, error)
            self.system_panic(str(error), fl_ctx)
        except Busy as error:
            self.system_panic(str(error), fl_ctx)


class Busy(Exception):
    """Another job is at work."""


def carry_out(plan: Plan, out: Path, gone: frozenset[str], fl_ctx: FLContext, abort: Signal) -> None:
    """Prepare, train, test and report; goes on where an earlier job has ended."""
    rounds = plan.rounds
    link, clock = FlareLink(fl_ctx, abort), JobClock(abort)
    waits = (rounds.deadline, rounds.grace, rounds.patience)
    journal = Journal(out / JOURNAL)
    attendance = Attendance(link, plan.windows, *waits, gone=gone, clock=clock, tell=journal)
    out.mkdir(parents=True, exist_ok=True)
    with only_one(out, clock):
        (out / STOPPED).unlink(missing_ok=True)
        journal({"event": "resumed" if (out / "config.json").exists() else "started"} | _now())
        settings: dict[str, Any] = {"quorum": rounds.quorum, "absent": rounds.absent, "journal": journal}
        config = plan.config
        prepared = coordinator.prepared(config, attendance, plan.names, out, plan.share, **settings)
        runner.run(config, out, resume=True, prepared=prepared)


@contextmanager
def only_one(out: Path, clock: Clock) -> Iterator[None]:
    """Hold a run's folder, which one job at a time may write; wait for another one that is about to end."""
    import fcntl  # (not where sites run on Windows)

    end = clock.now() + ENDING
    with open(out.with_name(f"{out.name}.lock"), "w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock.now() > end:
                    raise Busy(f"another job writes to {out}") from None
                clock.sleep(RETRY)
        yield


def _now() -> dict[str, str]:
    return {"began": datetime.now(UTC).isoformat(timespec="seconds")}


def _stopped(out: Path, error: Exception) -> None:
    """Say to the supervisor why there is no use in trying again."""
    try:
        checkpoint.write_atomic(out / STOPPED, json.dumps({"reason": str(error)} | _now()).encode())
    except OSError:
        LOG.exception("%s cannot be written", out / STOPPED)


class Journal:
    """participation.jsonl: a line for every exchange."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, line: Mapping[str, Any]) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")


class Idle(Executor):
    """What the attendant does in a job."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort: Signal) -> Shareable:
        return make_reply(ReturnCode.TASK_UNKNOWN)


def _agreed(kit: Path) -> dict[str, Any]:
    """The data settings in a kit of ours; a client that was provisioned otherwise has none."""
    if not (kit / ABOUT).exists():
        return {}
    experiment = about(kit)[1].experiment
    return {name: getattr(experiment, name) for name in ("label", "positive", "drop")}


class Member(FLComponent):
    """A site, for as long as its client runs."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = ThreadPoolExecutor(1, "fedauc-site")
        self.sweep = Sweeper()
        self.said = ("", 0.0)
        self.work: dict[str, Future[bytes]] = {}
        """By number of request, what is being answered or has been."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_START:
            engine = fl_ctx.get_engine()
            folder = Path(engine.args.workspace) / "fedauc"
            limits = os.environ.get(LIMITS)
            policy = Policy.read(Path(limits)) if limits else Policy()
            agreed = _agreed(Path(engine.args.workspace))
            self.site = Site(fl_ctx.get_identity_name(), reading(os.environ[DATA]), folder, policy, agreed)
            engine.register_aux_message_handler(TOPIC, self.answer)

    def answer(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """What came of a request, why it was refused, or that it is being worked on."""
        reply = make_reply(ReturnCode.OK)
        number, asked, wait = (request.get(name) for name in ("number", "request", "wait"))
        if not isinstance(number, str) or not isinstance(wait, int | float):
            reply["refused"] = "a request that is none"
            return reply
        if isinstance(asked, bytes):
            self.work = {n: work for n, work in self.work.items() if not work.done()}
            self.work[number] = self.pool.submit(self.answered, asked)
            self.pool.submit(self.sweep)
        work = self.work.get(number)
        if work is None:  # restarted since
            reply["refused"], reply["again"] = "a request that is not known any more", True
            return reply
        try:
            reply["answer"] = work.result(min(max(wait, 0.0), SLICE))
        except NotYet:
            reply["working"] = True
        except Refused as reason:
            reply["refused"] = str(reason)
        return reply

    def answered(self, request: bytes) -> bytes:
        """What the site answers; its people are told of what is new."""
        try:
            known = about_message(request)
            answer = self.site.answer(request)
        except Refused as reason:
            self.tell("refused", f"refused: {reason}")
            raise
        if known["kind"] == "start":
            self.tell("start", "a training is being prepared")
        elif known["kind"] == "task":
            self.tell("task", f"training: round {known['round'] + 1}")
        return answer

    def tell(self, what: str, text: str) -> None:
        """One line a minute of the same kind, and whatever is of another one."""
        now = time.monotonic()
        if what != self.said[0] or now - self.said[1] > TELL:
            self.said = (what, now)
            LOG.warning("%s%s", SAID, text)


def write_job(
    folder: Path, name: str, plan: Plan, out: Path, gone: Sequence[str] = (), attendant: str = ATTENDANT
) -> Path:
    """A job that any FLARE deployment with these sites can run: three files of settings."""
    args = {"plan": plan.as_dict(), "out": str(out.absolute()), "gone": list(gone)}
    server = {"format_version": 2, "workflows": [{"id": "fedauc", "path": COORDINATOR, "args": args}]}
    client = {"format_version": 2, "executors": [{"tasks": ["*"], "executor": {"path": IDLE, "args": {}}}]}
    meta = {"name": name, "resource_spec": {}, "deploy_map": {"app": ["server", attendant]}}
    inner = folder / name / "app" / "config"
    inner.mkdir(parents=True, exist_ok=True)
    (inner / "config_fed_server.json").write_text(json.dumps(server | {"components": []}, indent=2))
    (inner / "config_fed_client.json").write_text(json.dumps(client | {"components": []}, indent=2))
    (folder / name / "meta.json").write_text(json.dumps(meta, indent=2))
    return folder / name
