"""The configuration: defaults, presets, overrides, and mistakes that get one clear sentence."""

from __future__ import annotations

import json

import pytest

from fedauc.errors import InputError
from fedauc.experiments.config import CHOSEN, FIXED, Config, describe, parse_settings
from fedauc.experiments.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_a_configuration_survives_json(name):
    config = Config.resolve(name, {"eta": 0.05, "seed": 3, "model": "mlp", "model.hidden": [8, 4]})
    assert Config.from_dict(json.loads(json.dumps(config.as_dict()))) == config


def test_bare_and_dotted_keys_mean_the_same():
    bare = Config.resolve("cycp-pairwise", {"eta": "0.07", "groups": "4", "surrogate": "sigmoid"})
    dotted = Config.resolve(
        "cycp-pairwise",
        {"schedule.eta": 0.07, "participation.groups": 4, "objective.surrogate": "sigmoid"},
    )
    assert bare == dotted
    assert bare.sections["schedule"]["eta"] == 0.07


def test_texts_become_the_fields_types():
    config = Config.resolve(
        "cycp-pairwise",
        parse_settings(
            ["model=mlp", "hidden=16,8", "eta=1e-3", "stage_cycles=none", "drop=a,b", "download=true"]
        ),
    )
    assert config.sections["model"]["hidden"] == (16, 8)
    assert config.sections["schedule"]["eta"] == 0.001
    assert config.sections["schedule"]["stage_cycles"] is None
    assert config.data.drop == ("a", "b")
    assert config.data.download is True


def test_another_component_brings_its_own_settings_and_drops_the_presets():
    config = Config.resolve("cycp-minimax", {"participation": "full"})
    assert config.sections["participation"] == {"name": "full"}
    swapped = Config.resolve("cycp-pairwise", {"rule": "local-sgda", "objective": "minimax-auc"})
    assert "surrogate" not in swapped.sections["objective"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"etta": 1}, ["'etta'", "Did you mean 'eta'?"]),
        ({"schedule.etta": 1}, ["'schedule.etta'", "Did you mean 'schedule.eta'?"]),
        ({"shedule.eta": 1}, ["'shedule.eta'", "Did you mean 'schedule'?"]),
        ({"eta": "fast"}, ["eta='fast'", "number"]),
        ({"eta": -1}, ["eta=-1.0", "positive"]),
        ({"surrogate": "hinge"}, ["surrogate='hinge'", "squared-hinge"]),
        ({"model": "cnnn"}, ["'cnnn'", "Did you mean 'cnn'?"]),
        ({"objective": "cross-entropy"}, ["active-passive", "pairwise"]),
        ({"rule": "local-sgda"}, ["PairwiseAUC", "active-passive"]),
        ({"objective.surrogate": "q-norm-hinge", "q": 1.0}, ["q=1.0", "above 1"]),
        ({"batch": 1}, ["batch=1", "at least 2"]),
        ({"data.valid_fraction": 0.5, "data.test_fraction": 0.5}, ["no training rows"]),
    ],
)
def test_mistakes_are_named_in_one_sentence(overrides, words):
    with pytest.raises(InputError) as caught:
        Config.resolve("cycp-pairwise", overrides)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_unknown_method_offers_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'cycp-pairwise'"):
        Config.resolve("cycp-pairwize")


def test_every_setting_is_explained():
    for section in FIXED:
        assert all(text for _, _, text in describe(section))
    for section, registry in CHOSEN.items():
        for name in registry:
            assert all(text for _, _, text in describe(section, name)), (section, name)


def test_settings_need_key_and_value():
    with pytest.raises(InputError, match="key=value"):
        parse_settings(["eta"])
