"""Running statistics of batch normalisation: averaged, kept by the clients, or computed anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedauc import metrics, models
from fedauc.core.loop import advance, begin
from fedauc.core.tree import STATISTICS
from fedauc.experiments import outputs, runner
from fedauc.experiments.config import Config
from fedauc.experiments.predict import Predictor
from fedauc.experiments.prepare import prepare

SETTINGS = {
    "data.source": "digits",
    "positive": "8",
    "partition": "dirichlet",
    "clients": 6,
    "model": "resnet20",
    "norm": "batch",
    "width": 2,
    "cycles": 2,
    "steps": 2,
    "train.batch": 8,
    "participation.groups": 2,
}


def config_for(method="cycp-minimax", **more):
    return Config.resolve(method, SETTINGS | more)


@pytest.fixture(scope="module")
def prepared():
    return prepare(config_for().data, 0)


def states(config, prepared, rounds=4):
    model, params = models.init(config.component("model"), prepared.shape, 0)
    fed = config.federation(prepared.train, model)
    state = begin(fed, params)
    for _ in range(rounds):
        state, _ = advance(fed, state)
    return fed, model, params, state


def statistics(z):
    return {name: value for name, value in z.items() if name.startswith(STATISTICS)}


@pytest.mark.parametrize(
    "method", ["cycp-minimax", "cycp-pairwise", "cycp-codasca", "cycp-scgdam", "a-scaffold"]
)
def test_averaged_statistics_are_those_of_the_clients(prepared, method):
    """In every round the server's statistics move to the clients' mean, with weights that sum to one."""
    _, model, params, state = states(config_for(method), prepared, rounds=3)
    moved = statistics(state.server.z)
    assert moved.keys() == model.statistics.keys()
    assert any(not torch.equal(value, params[name]) for name, value in moved.items())
    assert all((value > 0).all() for name, value in moved.items() if name.endswith("running_var"))


def test_vectorised_clients_observe_what_single_ones_do(prepared):
    double = prepared.train.x.double()
    rows = replace(prepared.train, x=double, y=prepared.train.y.double())
    found = []
    for mode in ("vmap", "loop"):
        config = config_for(mode=mode)
        model, params = models.init(config.component("model"), prepared.shape, 0)
        fed = config.federation(rows, model)
        state = begin(fed, {name: value.double() for name, value in params.items()})
        for _ in range(2):
            state, _ = advance(fed, state)
        found.append(state.server.z)
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=1e-9, atol=1e-11)


def test_local_statistics_stay_and_score_their_own_rows(prepared):
    config = config_for(statistics="local")
    fed, model, params, state = states(config, prepared)
    for name, value in statistics(state.server.z).items():
        assert torch.equal(value, params[name])  # nothing travelled
    parameters = sum(value.numel() for name, value in params.items() if not name.startswith(STATISTICS)) + 3
    took_part = 2 * fed.data.clients  # two cycles
    assert state.ledger.bytes_up["model"] == took_part * parameters * 4
    z, _ = outputs.output(fed, model, state, "local")
    scores = prepared.valid.scores(model, z)
    own = {i: {n.rpartition("statistics/")[2]: v for n, v in c.items()} for i, c in state.memory.items()}
    assert len(own) == fed.data.clients
    mean = {n: torch.stack([s[n] for s in own.values()]).mean(dim=0) for n in model.statistics}
    who = prepared.valid.client
    for client in range(fed.data.clients):
        rows = torch.from_numpy(np.flatnonzero(who == client))
        if len(rows):
            alone = model.scores(state.averaged.z | own[client], prepared.valid.x[rows])
            np.testing.assert_allclose(scores[rows], alone, rtol=1e-4, atol=1e-5)
    without = type(prepared.valid)(prepared.valid.x, prepared.valid.y, None).scores(model, z)
    np.testing.assert_array_equal(without, model.scores(state.averaged.z | mean, prepared.valid.x))


def test_recalibrated_statistics_are_the_models_own(prepared):
    fed, model, _, state = states(config_for(), prepared)
    z, ledger = outputs.output(fed, model, state, "recalibrated")
    again, _ = outputs.output(fed, model, state, "recalibrated")
    for name in model.statistics:
        assert not torch.equal(z[name], state.averaged.z[name])
        assert torch.equal(z[name], again[name])
    learned = [name for name in z if not name.startswith(STATISTICS)]
    assert all(torch.equal(z[name], state.averaged.z[name]) for name in learned)
    size = sum(z[name].numel() for name in model.statistics) * 4
    assert ledger.bytes_up["recalibration"] == size * fed.data.clients
    assert "recalibration" not in state.ledger.bytes_up  # the state that was given is as it was


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["averaged", "local", "recalibrated"])
def test_a_run_can_be_resumed_and_its_model_used(tmp_path, prepared, mode):
    config = config_for(statistics=mode, cycles=3)
    result = runner.run(config, tmp_path / "whole", prepared=prepared)

    class Stop(runner.Silent):
        def round(self, record, auc, traffic):
            if record.round == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(config, tmp_path / "part", prepared=prepared, watch=Stop())
    resumed = runner.run(config, tmp_path / "part", resume=True, prepared=prepared)
    assert resumed["test_auc"] == result["test_auc"]
    assert resumed["ledger"] == result["ledger"]
    assert any("stayed at the clients" in note for note in result["data"]["notes"]) == (mode == "local")
    saved = load_file(tmp_path / "part/model.safetensors")
    assert (
        statistics(saved).keys()
        == models.init(config.component("model"), prepared.shape, 0)[0].statistics.keys()
    )
    scores = Predictor.load(tmp_path / "part").scores(prepared.test.x.numpy())
    assert np.isfinite(scores).all()
    if mode != "local":  # the published test rows belong to no client
        assert metrics.auc(scores, prepared.test.y) == pytest.approx(result["test_auc"])
