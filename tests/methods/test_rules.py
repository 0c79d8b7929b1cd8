"""Combinations the mathematics forbids fail when they are made, with a sentence that says why."""

from __future__ import annotations

import pytest

from fedauc.core.method import Method
from fedauc.errors import InputError
from fedauc.methods import RULES, ActivePassive, LocalSGDA
from fedauc.objectives import CrossEntropy, MinimaxAUC, PairwiseAUC


def apply(z, x):
    return x @ z["w"]


def test_a_sum_over_examples_cannot_be_a_pairwise_loss():
    with pytest.raises(
        InputError, match=r"PairwiseAUC compares examples of different clients.*active-passive"
    ):
        LocalSGDA(apply, PairwiseAUC())


@pytest.mark.parametrize("objective", [CrossEntropy(), MinimaxAUC()])
def test_pairs_cannot_be_made_of_a_sum_over_examples(objective):
    with pytest.raises(InputError, match=f"{type(objective).__name__} is a sum over examples.*local-sgda"):
        ActivePassive(apply, objective)


def test_a_step_needs_passive_scores():
    with pytest.raises(InputError, match="passive=0"):
        ActivePassive(apply, PairwiseAUC(), passive=0)


def test_every_rule_is_a_method():
    objectives = {"local-sgda": CrossEntropy(), "active-passive": PairwiseAUC()}
    for name, rule in RULES.items():
        if name in objectives:
            assert isinstance(rule(apply, objectives[name]), Method)


def test_the_rule_draws_as_its_objective_needs():
    assert LocalSGDA(apply, CrossEntropy()).draw == "natural"
    assert LocalSGDA(apply, CrossEntropy("stratified")).draw == "stratified"
    assert LocalSGDA(apply, MinimaxAUC()).draw == "stratified"
    assert LocalSGDA(apply, MinimaxAUC(scale="printed")).draw == "natural"
    assert ActivePassive(apply, PairwiseAUC()).draw == "stratified"
