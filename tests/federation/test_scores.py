"""What sites share of their scores, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federation.sites import SETTINGS, SITES, Hours, Loopback

from fedauc import metrics, models
from fedauc.core.tree import Tree
from fedauc.experiments import runner
from fedauc.experiments.assembly import Part, Prepared, Scored
from fedauc.experiments.config import Config
from fedauc.experiments.prepare import prepare
from fedauc.federation import messages
from fedauc.federation.attendance import Attendance, Failure
from fedauc.federation.coordinator import prepared
from fedauc.federation.messages import Rated, Refused
from fedauc.federation.policy import Policy
from fedauc.federation.scores import Given, Share, read
from fedauc.metrics import ScoreHistogram

COARSE = Share("histogram", bins=24, range=3.0)
FINE = Share("histogram")


class Tampered(Loopback):
    """Sites whose answers with scores can be changed on the way."""

    tamper: Mapping[str, Callable[[Rated], Rated]] = {}

    def exchange(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Failure]:
        found = super().exchange(requests, deadline)
        for name, change in self.tamper.items():
            if isinstance(answer := found.get(name), bytes) and messages.kind_of(answer) == "rated":
                found[name] = change(Rated.unpacked(answer)).packed()
        return found


@dataclass
class Ready:
    """A federation whose sites are ready, a model, and the same rows in this process."""

    link: Tampered
    known: Prepared
    model: models.Model
    z: Tree
    here: Part

    def scored(self, share: Share, **policies: Policy) -> Scored:
        self.link.policies = policies
        self.link.restart()
        return replace(self.known.test, share=share).scored(self.model, self.z)

    def exact(self, *without: str) -> float:
        rows = ~np.isin(self.here.client, [SITES.index(name) for name in without])
        return metrics.auc(self.here.scores(self.model, self.z)[rows], self.here.y[rows])

    def rows(self, name: str) -> int:
        return int((self.here.client == SITES.index(name)).sum())


@pytest.fixture(scope="module")
def federation(files, tmp_path_factory) -> Ready:
    folder = tmp_path_factory.mktemp("federation")
    config = Config.resolve("cycp-minimax", SETTINGS)
    link = Tampered(files, folder / "sites")
    known = prepared(config, Attendance(link, clock=Hours()), SITES, folder)
    model, z = models.init(config.component("model"), known.shape, seed=3)
    all_files = config.changed({"data.path": [str(path) for path in files.values()]})
    here = prepare(all_files.data, config.seed, "cpu").test
    return Ready(link, known, model, z, here)


@pytest.fixture
def ready(federation) -> Iterator[Ready]:
    yield federation
    federation.link.tamper, federation.link.policies = {}, {}


def auc(found: Scored) -> float:
    return metrics.auc(found.scores, found.y)


def test_exact_scores_give_exactly_the_auc_of_all_rows(ready):
    found = ready.scored(Share())
    assert auc(found) == ready.exact()
    assert found.bounds is None
    assert found.why == {}
    np.testing.assert_array_equal(found.rows, np.arange(len(ready.here.y)))
    np.testing.assert_array_equal(np.bincount(found.client), np.bincount(ready.here.client))


@pytest.mark.parametrize("bins", [1, 2, 7, 64, 4096])
def test_histograms_give_an_auc_near_the_exact_one_and_its_bounds(bins, ready):
    found = ready.scored(Share("histogram", bins=bins, range=3.0))
    low, high = found.bounds
    assert low <= auc(found) <= high
    assert low <= ready.exact() <= high
    assert abs(auc(found) - ready.exact()) <= (high - low) / 2 + 1e-12
    assert len(found.y) == len(ready.here.y)


def test_scores_beyond_the_range_are_in_the_end_bins(ready):
    low, high = ready.scored(Share("histogram", bins=4, range=1e-4)).bounds
    assert low <= ready.exact() <= high


def test_sites_that_share_differently(ready):
    found = ready.scored(Share(), geneva=Policy(share="nothing"), zurich=Policy(share="histogram"))
    assert found.why == {1: "the site does not share its scores"}
    assert set(found.client) == {0, 2, 3}
    assert len(found.y) == len(ready.here.y) - ready.rows("geneva")
    low, high = found.bounds
    assert low <= auc(found) <= high
    assert low <= ready.exact("geneva") <= high
    assert abs(auc(found) - ready.exact("geneva")) <= high - low
    own = ready.here.scores(ready.model, ready.z)
    for client in (0, 2):  # exact but for the last bit, which depends on the rows that are scored together
        given, expected = found.scores[found.client == client], own[ready.here.client == client]
        np.testing.assert_allclose(np.sort(given), np.sort(expected), atol=1e-6)


def test_one_histogram_is_enough_for_bounds_and_silence_is_not(ready):
    assert ready.scored(Share(), lugano=Policy(share="histogram")).bounds is not None
    assert ready.scored(Share(), lugano=Policy(share="nothing")).bounds is None
    assert ready.scored(COARSE, **{name: Policy(share="nothing") for name in SITES}).bounds is None


def test_sites_never_share_more_than_is_asked_for(ready):
    ready.link.payloads.clear()
    ready.scored(COARSE, basel=Policy(share="scores"))
    sent = [Rated.unpacked(data) for data in ready.link.payloads[1::2]]
    assert [reply.form for reply in sent] == ["histogram"] * 4
    assert all(value.shape == (COARSE.bins,) for reply in sent for value in reply.tensors.values())


def test_nothing_is_nothing(ready):
    ready.link.payloads.clear()
    ready.scored(Share(), basel=Policy(share="nothing"))
    assert Rated.unpacked(ready.link.payloads[1]).tensors == {}


def test_a_site_that_does_not_show_its_own_auc_still_counts(ready):
    found = ready.scored(Share(), basel=Policy(own_auc=False))
    assert found.why == {0: "the site does not share its own AUC"}
    assert auc(found) == ready.exact()


def test_a_run_with_all_kinds_of_sharing(files, tmp_path):
    policies = {
        "basel": Policy(own_auc=False),
        "geneva": Policy(share="histogram"),
        "lugano": Policy(share="nothing"),
    }
    link = Loopback(files, tmp_path / "sites", policies)
    config = Config.resolve("cycp-minimax", SETTINGS | {"schedule.cycles": 2})
    known = prepared(config, Attendance(link, clock=Hours()), SITES, tmp_path / "run", FINE)
    result = runner.run(config, tmp_path / "run", prepared=known)
    basel, geneva, lugano, zurich = result["per_client"]
    assert (basel["auc"], basel["why"]) == (None, "the site does not share its own AUC")
    assert (lugano["auc"], lugano["why"], lugano["rows"]) == (None, "the site does not share its scores", 0)
    assert basel["rows"] > 0
    assert geneva["auc"] is not None
    assert zurich["auc"] is not None
    low, high = result["test"]["auc_bounds"]
    assert low <= result["test_auc"] <= high
    assert result["test"]["rows"] == basel["rows"] + geneva["rows"] + zurich["rows"]


def rated(form: str = "scores", **tensors: Any) -> Rated:
    """Of three negatives and two positives."""
    known = {
        "scores": {"negatives": torch.zeros(3), "positives": torch.ones(2)},
        "histogram": {
            "negatives": torch.tensor([3] + [0] * 23),
            "positives": torch.tensor([0] * 23 + [2]),
        },
    }
    return Rated(known.get(form, {}) | tensors, "run", 0, "test", form, True)


def test_an_answer_as_agreed_is_read():
    scores, exact = read(rated(), [3, 2], COARSE)
    assert (scores.tolist(), exact) == ([0, 0, 0, 1, 1], True)
    scores, exact = read(rated("histogram"), [3, 2], COARSE)
    assert isinstance(read(rated("histogram"), [3, 2], COARSE), Given)
    assert (scores.tolist(), exact) == ([-2.875] * 3 + [2.875] * 2, False)


WRONG = {
    "nothing": (rated("nothing"), "does not share its scores"),
    "another form": (rated("ranks"), "another form"),
    "too many": (rated(more=torch.ones(1)), "another form"),
    "too few": (replace(rated(), tensors={"negatives": torch.zeros(3)}), "another form"),
    "other names": (replace(rated(), tensors={"a": torch.zeros(3), "b": torch.ones(2)}), "another form"),
    "too few rows": (rated(negatives=torch.zeros(2)), "another number of rows"),
    "too many rows": (rated(positives=torch.zeros(3)), "another number of rows"),
    "classes interchanged": (rated(negatives=torch.zeros(2), positives=torch.ones(3)), "number of rows"),
    "double": (rated(negatives=torch.zeros(3, dtype=torch.float64)), "another type"),
    "half": (rated(negatives=torch.zeros(3, dtype=torch.float16)), "another type"),
    "whole numbers": (rated(negatives=torch.zeros(3, dtype=torch.int64)), "another type"),
    "a matrix": (rated(negatives=torch.zeros(3, 1)), "another type"),
    "one number": (rated(negatives=torch.tensor(1.0)), "another type"),
    "counts that are negative": (
        rated("histogram", negatives=torch.tensor([4, -1] + [0] * 22)),
        "histogram of another form",
    ),
    "counts that are floats": (rated("histogram", negatives=torch.zeros(24)), "another type"),
    "counts beyond all numbers": (
        rated("histogram", negatives=torch.tensor([3 - 2**62, 2**62] + [0] * 22)),
        "histogram of another form",
    ),
    "counts beyond all memory": (
        rated("histogram", negatives=torch.tensor([2**50] + [0] * 23)),
        "histogram of another form",
    ),
    "no number": (rated(negatives=torch.tensor([0.0, float("nan"), 1.0])), "not finite"),
    "infinity": (rated(positives=torch.tensor([0.0, float("inf")])), "not finite"),
    "bfloat16": (rated(negatives=torch.zeros(3, dtype=torch.bfloat16)), "another type"),
    "counts in 32 bits": (
        rated("histogram", negatives=torch.zeros(24, dtype=torch.int32)),
        "another type",
    ),
    "other bins": (rated("histogram", negatives=torch.tensor([3] + [0] * 22)), "histogram of another form"),
    "counts of a matrix": (
        rated("histogram", negatives=torch.tensor([[3] + [0] * 23])),
        "another type",
    ),
    "too few counted": (
        rated("histogram", negatives=torch.tensor([2] + [0] * 23)),
        "another number of rows",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_answer_that_is_not_as_agreed_is_refused(what):
    reply, why = WRONG[what]
    with pytest.raises(Refused, match=why):
        read(reply, [3, 2], COARSE)


def tensors(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Rated], Rated]:
    return lambda reply: replace(reply, tensors={n: change(v) for n, v in reply.tensors.items()})


@pytest.mark.parametrize(
    ("share", "change", "why"),
    [
        (Share(), tensors(lambda v: v[1:]), "scores of another number of rows than agreed"),
        (Share(), tensors(lambda v: v.double()), "scores of another type than agreed"),
        (COARSE, tensors(lambda v: v - 1), "a histogram of another form than agreed"),
        (COARSE, tensors(lambda v: v + 1), "scores of another number of rows than agreed"),
        (COARSE, lambda r: replace(r, tensors={}), "scores of another form than agreed"),
        (Share(), lambda r: replace(r, client=2), "an answer for another run or of another site"),
        (Share(), lambda r: replace(r, run="other"), "an answer for another run or of another site"),
    ],
)
def test_a_site_whose_answer_is_refused_is_left_out(share, change, why, ready):
    ready.link.tamper = {"geneva": change}
    found = ready.scored(share)
    assert found.why == {1: why}
    assert set(found.client) == {0, 2, 3}
    assert len(found.scores) == len(found.y) == len(ready.here.y) - ready.rows("geneva")
    if share.form == "scores":
        assert auc(found) == ready.exact("geneva")


number = st.one_of(st.integers(-8, 8).map(lambda k: k / 4), st.floats(-3, 3, width=32))
rows = st.lists(st.tuples(number, st.booleans()), max_size=30)


@settings(deadline=None)
@given(rows, st.integers(1, 4096), st.floats(0.1, 50))
def test_the_scores_of_a_histogram_have_its_auc_and_its_counts(rows, bins, width):
    rows = [*rows, (0.25, True), (-0.25, False)]
    scores = np.array([score for score, _ in rows], dtype=np.float32)
    labels = np.array([positive for _, positive in rows])
    histogram = ScoreHistogram.from_scores(scores, labels, bins, -width, width)
    negatives, positives = histogram.scores()
    assert negatives.dtype == positives.dtype == np.float32
    assert (len(negatives), len(positives)) == ((~labels).sum(), labels.sum())
    expanded = np.concatenate((negatives, positives))
    classes = np.repeat([False, True], [len(negatives), len(positives)])
    assert metrics.auc(expanded, classes) == histogram.auc()
    assert ScoreHistogram.from_scores(expanded, classes, bins, -width, width) == histogram
    low, high = histogram.bounds()
    exact = metrics.auc(scores, labels)
    assert low <= exact <= high
    assert abs(histogram.auc() - exact) <= (high - low) / 2 + 1e-12
