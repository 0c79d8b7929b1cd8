"""A run whose rows are at the sites is the run on all their files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
import torch
from tests.federation.sites import SETTINGS, SITES, Hours, Loopback

from fedauc.core.checkpoint import read_tensors
from fedauc.errors import InputError
from fedauc.experiments import runner
from fedauc.experiments.config import Config
from fedauc.federation.attendance import Attendance
from fedauc.federation.coordinator import prepared
from fedauc.federation.messages import Refused, Task


def together(method: str, files: Mapping[str, Path], out: Path, **more) -> dict:
    """The run on all files in this process."""
    config = Config.resolve(method, SETTINGS | more | {"data.path": [str(path) for path in files.values()]})
    return runner.run(config, out)


def apart(method: str, link: Loopback, out: Path, *, resume: bool = False, watch=None, **more) -> dict:
    """The same run with every file at its site."""
    config = Config.resolve(method, SETTINGS | more)
    return runner.run(config, out, prepared=ready(config, link, out), resume=resume, watch=watch)


def ready(config: Config, link: Loopback, out: Path, **settings):
    attendance = Attendance(link, settings.pop("windows", {}), clock=settings.pop("clock", Hours()))
    return prepared(config, attendance, SITES, out, **settings)


METHODS = ["cycp-fedavg", "cycp-minimax", "cycp-pairwise", "codasca", "two-stage-codasca"]


@pytest.mark.parametrize("method", METHODS)
def test_the_model_is_bit_for_bit_the_one_of_all_rows_in_one_place(method, files, tmp_path):
    more = {"train.warmup_cycles": 2}
    one = together(method, files, tmp_path / "together", **more)
    many = apart(method, Loopback(files, tmp_path / "sites"), tmp_path / "apart", **more)
    assert many["test_auc"] == one["test_auc"]
    assert many["best_round"] == one["best_round"]
    assert many["valid_auc"] == one["valid_auc"]
    models = [read_tensors(tmp_path / name / "model.safetensors")[0] for name in ("together", "apart")]
    assert models[0].keys() == models[1].keys()
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())
    fitted = [(tmp_path / name / "preprocess.json").read_text() for name in ("together", "apart")]
    assert fitted[0] == fitted[1]
    shares = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("together", "apart")]
    assert shares[0]["per_client"] == shares[1]["per_client"]


def test_the_same_model_is_chosen_in_a_long_run(files, tmp_path):
    """Two rounds are compared row by row, so scores must come in the order of the rows."""
    more = {"schedule.cycles": 60, "schedule.eta": 0.5, "schedule.steps": 5}
    one = together("codasca", files, tmp_path / "together", **more)
    many = apart("codasca", Loopback(files, tmp_path / "sites"), tmp_path / "apart", **more)
    assert many["best_round"] == one["best_round"]
    assert many["test_auc"] == one["test_auc"]


class Interrupts:
    """Ends a run after some rounds, as a crash would."""

    def __init__(self, after: int) -> None:
        self.after = after

    def begin(self, *_) -> None: ...
    def end(self) -> None: ...

    def round(self, record, auc, traffic) -> None:
        if record.round == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["codasca", "cycp-pairwise"])
def test_coordinator_and_sites_that_were_restarted_end_with_the_same_model(method, files, tmp_path):
    undisturbed = Loopback(files, tmp_path / "a")
    apart(method, undisturbed, tmp_path / "undisturbed")
    link = Loopback(files, tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        apart(method, link, tmp_path / "disturbed", watch=Interrupts(5))
    link.restart()
    apart(method, link, tmp_path / "disturbed", resume=True)
    models = [read_tensors(tmp_path / n / "model.safetensors")[0] for n in ("undisturbed", "disturbed")]
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())


class Breaks(Loopback):
    """The coordinator's process dies when sites have trained in a round, before it is committed."""

    def __init__(self, round: int, *rest) -> None:
        super().__init__(*rest)
        self.round = round

    def exchange(self, requests, deadline):
        found = super().exchange(requests, deadline)
        with suppress(Refused):
            if Task.unpacked(next(iter(requests.values()))).round == self.round:
                self.round = -1
                raise KeyboardInterrupt
        return found


def test_sites_still_know_what_an_older_checkpoint_needs(files, tmp_path):
    """The newest checkpoint is damaged, and the one before it names an older round of what sites keep."""
    more = {"participation.groups": 1, "schedule.cycles": 6}
    apart("codasca", Loopback(files, tmp_path / "a"), tmp_path / "undisturbed", **more)
    link = Breaks(4, files, tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        apart("codasca", link, tmp_path / "disturbed", **more)
    newest = tmp_path / "disturbed" / "checkpoint.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    link.restart()
    with pytest.warns(UserWarning, match=r"damaged .* The checkpoint before it is used"):
        apart("codasca", link, tmp_path / "disturbed", resume=True, **more)
    models = [read_tensors(tmp_path / n / "model.safetensors")[0] for n in ("undisturbed", "disturbed")]
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())


def test_a_site_without_the_label_is_named_and_says_nothing_of_its_table(files, tmp_path, caplog):
    path = tmp_path / "geneva.csv"
    pd.read_csv(files["geneva"]).rename(columns={"ill": "sick"}).to_csv(path, index=False)
    link = Loopback(files | {"geneva": path}, tmp_path / "sites")
    with pytest.raises(InputError, match="geneva: the request 'start' cannot be carried out") as error:
        apart("cycp-minimax", link, tmp_path / "run")
    assert str(path) not in str(error.value)
    assert "sick" not in str(error.value)
    assert f"{path} has no column 'ill'" in caplog.text  # the site's own log


@pytest.mark.parametrize(
    ("setting", "value"), [("data.partition", "iid"), ("data.client", "ward"), ("data.remove_positives", 0.5)]
)
def test_settings_for_rows_in_one_place_are_refused(setting, value, files, tmp_path):
    with pytest.raises(InputError, match="cannot be set in a federation"):
        apart("cycp-minimax", Loopback(files, tmp_path), tmp_path / "run", **{setting: value})


def test_a_restarted_site_that_knows_nothing_says_so(files, tmp_path):
    link = Loopback(files, tmp_path / "sites")
    config = Config.resolve("cycp-minimax", SETTINGS)
    known = ready(config, link, tmp_path)
    link.folder = tmp_path / "other"
    link.restart()
    found = known.valid.scored(None, {"w": torch.zeros(1)})
    assert len(found.y) == 0
    assert all("has not been started here" in why for why in found.why.values())


def test_requests_of_an_unknown_kind_are_refused(files, tmp_path):
    from fedauc.federation.messages import Ready

    with pytest.raises(Refused, match="unknown kind"):
        Loopback(files, tmp_path).sites["basel"].answer(Ready({}, "run", 0).packed())
