"""Validation beside training changes nothing but the time it takes."""

from __future__ import annotations

import json
import threading
import time

import pytest
import torch

from fedauc.errors import InputError
from fedauc.experiments import evaluation, runner
from fedauc.experiments.config import Config
from fedauc.experiments.evaluation import IN_FLIGHT, Beside
from fedauc.experiments.prepare import prepare
from tests.experiments.tables import claims_csv


@pytest.fixture(autouse=True)
def many_cores(monkeypatch):
    monkeypatch.setattr(evaluation, "cores", lambda: 64)


@pytest.fixture
def in_turn(monkeypatch):
    """Call it to have every validation over before the next round begins."""
    return lambda: monkeypatch.setattr(runner, "Beside", InTurn)


class InTurn(Beside):
    def __init__(self, device, threads, alone):
        super().__init__("cpu", threads, alone=False)
        assert self.pool is None


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not [t.name for t in threading.enumerate() if t.name.startswith("fedauc")]


def config_for(tmp_path, method="cycp-pairwise", **more):
    path = claims_csv(tmp_path)
    given = {"data.path": [str(path)], "data.label": "fraud", "data.client": "state", "cycles": 5}
    return Config.resolve(method, given | more)


def content(folder):
    """Everything a run has written, without the seconds."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = {"metrics": [{k: v for k, v in row.items() if k != "seconds"} for row in rows]}
    if (folder / "result.json").exists():
        result = json.loads((folder / "result.json").read_text())
        found["result"] = {k: v for k, v in result.items() if k != "seconds"}
        found["model"] = (folder / "model.safetensors").read_bytes()
    return found


# ------------------------------------------------------------------------------------------------ the thread


def test_tasks_run_in_order_on_one_thread_with_their_own_cpu_threads():
    seen, before = [], torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with Beside("cpu", 1) as beside:
            for i in range(20):
                beside.do(
                    lambda i=i: seen.append((i, threading.get_ident(), torch.get_num_threads())), large=True
                )
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert [i for i, _, _ in seen] == list(range(20))
    (thread,) = {thread for _, thread, _ in seen}
    assert thread != threading.get_ident()
    assert {threads for _, _, threads in seen} == {1}


@pytest.mark.parametrize(
    ("cores", "threads", "beside"), [(1, 1, False), (2, 1, True), (2, 2, False), (8, 4, True)]
)
def test_only_where_cores_are_free(monkeypatch, cores, threads, beside):
    monkeypatch.setattr(evaluation, "cores", lambda: cores)
    seen = []
    with Beside("cpu", threads) as tasks:
        tasks.do(lambda: seen.append(threading.get_ident()), large=True)
    assert (seen != [threading.get_ident()]) == beside


def test_few_large_tasks_are_in_flight():
    done, most = [], []
    with Beside("cpu", 1) as beside:
        for i in range(6):
            beside.do(lambda i=i: (time.sleep(0.02), done.append(i)), large=True)
            most.append(i + 1 - len(done))
    assert max(most) == IN_FLIGHT


def test_small_tasks_are_done_at_once_where_none_is_before_them():
    seen = []
    with Beside("cpu", 1) as beside:
        beside.do(lambda: seen.append(threading.get_ident()), large=False)
        assert seen == [threading.get_ident()]


def test_small_tasks_wait_for_nothing():
    gate = threading.Event()
    with Beside("cpu", 1) as beside:
        beside.do(lambda: gate.wait(20), large=True)
        for _ in range(100):
            beside.do(lambda: None, large=False)
        gate.set()


def carried_out(tasks, then=None):
    """Hand tasks over and then run into an error, if one is given."""
    with Beside("cpu", 1) as beside:
        for task in tasks:
            beside.do(task, large=True)
        if then is not None:
            raise then


def fail():
    raise InputError("the third")


def test_a_failure_ends_the_tasks_and_arrives():
    seen = []
    with pytest.raises(InputError, match="the third"):
        carried_out([lambda: seen.append(1), lambda: seen.append(2), fail, lambda: seen.append(4)])
    assert seen == [1, 2]


@pytest.mark.parametrize(
    ("raised", "arrives"), [(ValueError, InputError), (KeyboardInterrupt, KeyboardInterrupt)]
)
def test_a_failure_comes_before_a_later_error_but_not_before_an_interruption(raised, arrives):
    with pytest.raises(arrives):
        carried_out([lambda: time.sleep(0.05), fail], then=raised)


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
def test_what_was_handed_over_is_done_before_an_error_leaves(raised):
    seen = []
    tasks = [lambda i=i: (time.sleep(0.02), seen.append(i)) for i in range(IN_FLIGHT)]
    with pytest.raises(raised):
        carried_out(tasks, then=raised)
    assert seen == list(range(IN_FLIGHT))


# --------------------------------------------------------------------------------------------------- the run


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("cycp-pairwise", {"eval_every": 1}),
        ("cycp-minimax", {}),
        ("cycp-fedavg", {"model": "mlp", "eval_every": 2, "output": "last"}),
        ("a-scaffold", {"eval_every": 1}),
        ("two-stage-codasca", {"warmup_cycles": 2}),
    ],
)
def test_a_run_writes_what_it_writes_in_turn(tmp_path, in_turn, method, more):
    config = config_for(tmp_path, method, **more)
    runner.run(config, tmp_path / "beside")
    in_turn()
    runner.run(config, tmp_path / "in-turn")
    assert content(tmp_path / "beside") == content(tmp_path / "in-turn")


def test_rounds_are_shown_in_order_each_with_its_auc(tmp_path):
    shown = []

    class Screen(runner.Silent):
        def round(self, record, auc, traffic):
            shown.append((record.round, auc, traffic))

    config = config_for(tmp_path)
    runner.run(config, tmp_path / "run", watch=Screen())
    rows = content(tmp_path / "run")["metrics"]
    assert shown == [(r["round"], r["valid_auc"], r["bytes_up"] + r["bytes_down"]) for r in rows]


@pytest.mark.parametrize("stop", [1, 4, 9])
def test_interrupted_in_a_round_nothing_is_lost_and_resumed_is_never_stopped(tmp_path, monkeypatch, stop):
    """Ctrl-C while round `stop` + 1 trains: the rounds before it are validated and written."""
    config = config_for(tmp_path, "a-scaffold", eval_every=1)
    runner.run(config, tmp_path / "whole")
    whole = content(tmp_path / "whole")
    advance, slow = runner.advance, evaluation.validated

    def interrupted(fed, state):
        if state.round == stop:
            raise KeyboardInterrupt
        return advance(fed, state)

    def slowly(*args):
        time.sleep(0.05)
        return slow(*args)

    monkeypatch.setattr(runner, "validated", slowly)
    monkeypatch.setattr(runner, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.run(config, tmp_path / "run")
    assert content(tmp_path / "run") == {"metrics": whole["metrics"][:stop]}
    monkeypatch.setattr(runner, "advance", advance)
    first = []

    class Screen(runner.Silent):
        def begin(self, title, rounds, done):
            first.append(done)

    runner.run(config, tmp_path / "run", resume=True, watch=Screen())
    assert first == [stop]
    assert content(tmp_path / "run") == whole


def test_an_interruption_on_the_screen_ends_the_run(tmp_path):
    class Stop(runner.Silent):
        def round(self, record, auc, traffic):
            if record.round == 3:
                raise KeyboardInterrupt

    config = config_for(tmp_path, eval_every=1)
    with pytest.raises(KeyboardInterrupt):
        runner.run(config, tmp_path / "run", watch=Stop())
    runner.run(config, tmp_path / "run", resume=True)
    runner.run(config, tmp_path / "whole")
    assert content(tmp_path / "run") == content(tmp_path / "whole")


def test_a_model_that_explodes_is_named_as_in_turn_whatever_training_does_meanwhile(
    tmp_path, monkeypatch, in_turn
):
    config = config_for(tmp_path, "cycp-minimax", eta=1e4, link="identity", eval_every=1)
    prepared = prepare(config.data, config.seed)
    advance = runner.advance
    in_turn()
    with pytest.raises(InputError) as expected:
        runner.run(config, tmp_path / "in-turn", prepared=prepared)
    last = len(content(tmp_path / "in-turn")["metrics"])

    def broken(fed, state):
        if state.round > last + 1:
            raise ValueError("training cannot go on with this")
        return advance(fed, state)

    monkeypatch.setattr(runner, "Beside", Beside)
    monkeypatch.setattr(runner, "advance", broken)
    with pytest.raises(InputError) as found:
        runner.run(config, tmp_path / "beside", prepared=prepared)
    assert str(found.value) == str(expected.value)
    assert content(tmp_path / "beside") == content(tmp_path / "in-turn")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("method", ["cycp-pairwise", "a-scaffold"])
def test_a_run_on_a_gpu_writes_what_it_writes_in_turn(tmp_path, in_turn, method):
    config = config_for(tmp_path, method, device="cuda", eval_every=1, cycles=20)
    runner.run(config, tmp_path / "beside")
    in_turn()
    runner.run(config, tmp_path / "in-turn")
    assert content(tmp_path / "beside") == content(tmp_path / "in-turn")
