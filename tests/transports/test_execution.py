"""How local steps are carried out does not change what comes out: recorded, compiled, or as written."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch._inductor.config
from tests.contract.federations import built
from tests.transports.peeking import Peeking
from torch.utils._pytree import tree_flatten, tree_map

from fedauc import models
from fedauc.core.loop import Federation, advance, begin, rounds
from fedauc.core.tree import flatten
from fedauc.data.federated import Draws, FederatedData
from fedauc.experiments.presets import PRESETS
from fedauc.methods import LocalSGDA
from fedauc.objectives import MinimaxAUC
from fedauc.participation import Cyclic
from fedauc.schedules import Stagewise
from fedauc.transports import LocalTransport, merge
from fedauc.transports.execution import CPU, GPU, Effort, Replay, Written, worth
from fedauc.transports.step import Step, compiled, recorded


def after(run, transport, rounds):
    """The server's state after some rounds. Warnings are errors: what cannot be recorded is only slower."""
    fed = replace(run.fed, transport=transport)
    state = begin(fed, run.params)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*lient steps? cannot be")
        for _ in range(rounds):
            state, _ = advance(fed, state)
    return flatten(state.server)


def assert_same(found, expected, rtol, atol):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("preset", PRESETS)
def test_recorded_and_written_runs_are_the_same_within_rounding(preset):
    run = built(preset)
    recorded, written = (after(run, LocalTransport(record=record), run.long) for record in (True, False))
    assert_same(recorded, written, 1e-11, 1e-13)


@pytest.mark.parametrize("preset", PRESETS)
def test_lists_of_operations_change_no_bit(preset, monkeypatch):
    """Recorded as for a GPU, where small operations are put together."""
    run, once, lists = built(preset), merge.once, []

    def both(graph):
        graph = merge.together(once(graph))
        lists.append(sum("_foreach" in str(node.target) for node in graph.graph.nodes))
        return graph

    rounds = run.fed.roster.cycle_length + 1
    plain = after(run, LocalTransport(record=True), rounds)
    monkeypatch.setattr(merge, "once", both)
    merged = after(run, LocalTransport(record=True), rounds)
    assert lists
    assert all(torch.equal(merged[name], value) for name, value in plain.items())


@pytest.mark.parametrize("preset", ["codasca", "local-scgdam", "cycp-pairwise"])
@pytest.mark.slow
def test_compiled_runs_are_the_same_within_rounding(preset):
    run = built(preset)
    rounds = run.fed.roster.cycle_length + 1
    machine, written = (
        after(run, LocalTransport(compile=compile, record=False), rounds) for compile in (True, False)
    )
    assert_same(machine, written, 1e-9, 1e-11)


def federation(model, objective, transport, clients=6, groups=2, steps=3, cycles=6):
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(20 * clients, 1, 8, 8)), dtype=torch.float32)
    y = torch.tensor(rng.integers(0, 2, 20 * clients))
    names = [str(i) for i in range(clients)]
    data = FederatedData.build(x, y, np.arange(20 * clients) % clients, names)
    schedule = Stagewise(steps=steps, cycles=cycles)
    return Federation(LocalSGDA(model, objective), data, Cyclic(groups=groups), schedule, transport, batch=8)


@pytest.mark.parametrize("name", ["linear", "mlp", "cnn"])
def test_single_precision_too(name):
    model, params = models.init(models.MODELS[name](), (1, 8, 8), 0)
    finals = []
    for record in (True, False):
        fed = federation(model, MinimaxAUC(), LocalTransport(record=record))
        *_, (state, _) = rounds(fed, begin(fed, params))
        finals.append(state.server.z)
    assert_same(*finals, 1e-4, 1e-6)


def test_long_runs_are_recorded_from_their_first_step():
    """And short ones never: a run that is resumed must not change its bits in between."""
    model, params = models.init(models.Linear(), (1, 8, 8), 0)
    for cycles, expected in ((8, False), (9, True)):  # 3 steps a round, 2 rounds a cycle
        fed = federation(model, MinimaxAUC(), LocalTransport(), cycles=cycles)
        advance(fed, begin(fed, params))
        (execution,) = fed.transport.executions.values()
        (way,) = execution.ways.values()
        assert (way.in_place is not None) is expected


def test_every_cohort_size_has_its_own_recording():
    model, params = models.init(models.Linear(), (1, 8, 8), 0)
    sizes = (3, 4, 3, 9)
    execution = Replay(LocalSGDA(model, MinimaxAUC()), Effort(False, True, 0))
    fed = federation(model, MinimaxAUC(), LocalTransport(), clients=15, groups=1)
    server = begin(fed, params).server
    for size in sizes:
        cohort = fed.cohort(server, 0).part(slice(size))
        draws = Draws(fed.data, cohort, "stratified", 2, 8, 0, 0)
        local = tree_map(
            lambda v, m=size: v[None].expand(m, *v.shape), fed.method.client_init(server, {}, {})
        )
        after, outs = execution.run(local, draws, torch.tensor(0.1), 2)
        assert outs["loss"].shape == (size, 2)
        expected, _ = Written(fed.method).run(
            tree_map(lambda v: v[:1], local), draws.part(slice(1)), torch.tensor(0.1), 2
        )
        for name, value in expected.z.items():
            torch.testing.assert_close(after.z[name][:1], value)
            assert not after.z[name].equal(local.z[name])
    assert len(execution.ways) == len(set(sizes))


def test_a_step_that_depends_on_values_is_said():
    model, params = models.init(models.Linear(), (1, 8, 8), 0)
    fed = federation(model, MinimaxAUC(), LocalTransport())
    step = Step(
        Peeking(model, MinimaxAUC()).client_step,
        tree_flatten(fed.method.client_init(begin(fed, params).server, {}, {}))[1],
    )
    state = tree_flatten(fed.method.client_init(begin(fed, params).server, {}, {}))[0]
    draws = Draws(fed.data, fed.cohort(None, 0), "stratified", 2, 8, 0, 0)
    batch = [part[0] for part in draws.step(0)]
    with pytest.warns(UserWarning, match="cannot be recorded"):
        assert recorded(step, state, *batch, torch.tensor(0.1)) is None


def test_in_place_an_old_value_can_move_to_another_part_of_the_state():
    """(z, before) ← (z - η·x, z): the second must get z as it was."""
    structure = tree_flatten([torch.ones(3), torch.ones(3)])[1]
    step = Step(lambda state, batch, eta: ([state[0] - eta * batch.x, state[0]], {}), structure)
    rest = [torch.ones(3), torch.ones(1), torch.ones(1), torch.ones(1), torch.tensor(0.5)]
    for run in (step.in_place, recorded(step.in_place, [torch.zeros(3), torch.ones(3)], *rest)):
        state = [torch.full((3,), 2.0), torch.full((3,), 7.0)]
        run(*state, *rest)
        assert state[0].tolist() == [1.5] * 3
        assert state[1].tolist() == [2.0] * 3


@pytest.mark.parametrize(
    ("compile", "steps", "expected"),
    [(True, 1, True), (False, 10**9, False), (None, 10, False), (None, 10**6, True)],
)
def test_long_runs_are_compiled_where_nothing_is_said(compile, steps, expected):
    flat = [torch.ones(3), torch.ones(2, 3), torch.ones(2), torch.ones(2), torch.ones(2), torch.tensor(0.1)]
    structure = tree_flatten([torch.ones(3)])[1]
    step = Step(lambda state, batch, eta: ([state[0] - eta * (batch.x.T @ batch.y)], {}), structure)
    assert Effort(compile, None, steps).compiles(step, flat) is expected


def test_no_compiler_is_said_and_the_run_goes_on(monkeypatch, tmp_path):
    """A machine without a compiler computes the same, more slowly."""
    monkeypatch.setenv("FEDAUC_CACHE", str(tmp_path))
    model, params = models.init(models.Linear(), (1, 8, 8), 0)
    finals = []
    for transport in (LocalTransport(compile=True), LocalTransport(compile=False)):
        fed = federation(model, MinimaxAUC(), transport)
        without = torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)})
        with without, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            *_, (state, _) = rounds(fed, begin(fed, params))
        finals.append(
            (state.server.z, [str(w.message) for w in said if "cannot be compiled" in str(w.message)])
        )
    (machine, lines), (plain, none) = finals
    assert len(lines) == 1
    assert none == []
    assert all(torch.equal(machine[name], plain[name]) for name in plain)


def test_compiled_code_is_in_the_cache_folder_whoever_compiled_before(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDAUC_CACHE", str(tmp_path))
    step = Step(lambda state, batch, eta: ([state[0] - eta * batch.x], {}), tree_flatten([torch.ones(3)])[1])
    state, rest = [torch.ones(3)], [torch.ones(3), *(torch.ones(1) for _ in range(3)), torch.tensor(0.5)]
    fn = compiled(step.in_place, state, *rest)
    fn(*state, *rest)
    assert state[0].tolist() == [0.5] * 3
    assert list((tmp_path / "compiled").rglob("*.so"))


def test_as_written_many_clients_are_one_after_another():
    model, params = models.init(models.Linear(), (1, 8, 8), 0)
    fed = federation(model, MinimaxAUC(), LocalTransport())
    draws = Draws(fed.data, fed.cohort(None, 0), fed.method.draw, 3, 8, 0, 0)
    start = fed.method.client_init(begin(fed, params).server, {}, {})
    local = tree_map(lambda value: value[None].expand(draws.clients, *value.shape), start)
    eta = torch.tensor(0.1)
    found = Written(fed.method).run(local, draws, eta, 3)
    expected = Replay(fed.method, Effort(False, False, 1)).run(local, draws, eta, 3)
    for a, b in zip(tree_flatten(found)[0], tree_flatten(expected)[0], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("steps", "operations", "expected"),
    [
        (12_000, 1.07e12, True),  # ten ResNet18s and 32 images each: two minutes on a GPU
        (1_000, 1.07e12, False),
        (12_000, 1e9, False),
        (1_200_000, 0.0, True),  # so many that even nothing takes two minutes
    ],
)
def test_large_networks_are_worth_compiling_on_a_gpu(steps, operations, expected):
    assert worth(steps, GPU, lambda: operations) is expected


def test_operations_of_few_steps_are_not_counted():
    def never() -> float:
        raise AssertionError

    assert not worth(100, GPU, never)
    assert not worth(10, CPU, never)
