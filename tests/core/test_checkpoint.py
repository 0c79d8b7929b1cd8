"""A checkpoint is complete or it is not there, and a damaged one says so."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from fedauc.core import averaging, checkpoint
from fedauc.core.ledger import Ledger
from fedauc.core.loop import RunState
from fedauc.core.store import Store
from fedauc.core.tree import flatten
from fedauc.errors import InputError
from fedauc.methods.local_sgda import Server


def state(anchor=True) -> RunState:
    z = {"0.weight": torch.arange(6, dtype=torch.float64).reshape(2, 3) / 7, "auc.a": torch.tensor(0.1)}
    memory = {3: {"c": torch.ones(2)}, 11: {"c": torch.zeros(2), "counts/seen": torch.tensor(4)}}
    ledger = Ledger({"z": 12}, {"model": 5}, 2, 1)
    server = Server(z, {"0.weight": z["0.weight"].clone()} if anchor else {})
    return RunState(7, server, Store().updated(memory.items()), averaging.start(z), ledger)


def test_everything_comes_back(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save_state(path, state(), {"w": torch.tensor([1.0])}, {"seconds": 1.5})
    loaded, best, extra = checkpoint.load_state(path, state(), "cpu")
    expected = state()
    assert (loaded.round, loaded.ledger, extra["seconds"]) == (7, expected.ledger, 1.5)
    assert torch.equal(loaded.server.z["0.weight"], expected.server.z["0.weight"])
    assert torch.equal(loaded.server.anchor["0.weight"], expected.server.anchor["0.weight"])
    assert loaded.server.z["auc.a"].dtype == torch.float32
    assert loaded.memory.keys() == {3, 11}
    assert loaded.memory[11]["counts/seen"].item() == 4
    assert torch.equal(best["w"], torch.tensor([1.0]))


def test_a_checkpoint_with_a_tensor_per_client_can_still_be_read(tmp_path):
    path, old = tmp_path / "checkpoint.safetensors", state()
    tensors = flatten(old.server, "server") | flatten(old.averaged, "averaged")
    tensors |= {f"memory/{i}/{name}": t for i, c in old.memory.items() for name, t in c.items()}
    checkpoint.write_tensors(path, tensors, {"round": 7, "ledger": old.ledger.as_dict()})
    loaded, _, _ = checkpoint.load_state(path, state(), "cpu")
    assert loaded.memory.keys() == {3, 11}
    assert loaded.memory[11]["counts/seen"].item() == 4
    assert torch.equal(loaded.memory[3]["c"], torch.ones(2))


def test_the_library_reads_what_is_written(tmp_path):
    """Of every type, without elements, without axes, transposed, and two names for one tensor."""
    kinds = {str(kind): torch.arange(5).to(kind) for kind in checkpoint.DTYPES}
    square = torch.arange(9.0).reshape(3, 3)
    more = {"none": torch.zeros(0, 4), "single": torch.tensor(2.5), "turned": square.T, "again": square}
    tensors = kinds | more | {"ü": torch.ones(1)}
    checkpoint.write_tensors(tmp_path / "file", tensors, {"about": "ß"})
    read = load_file(tmp_path / "file")
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)
    assert checkpoint.read_tensors(tmp_path / "file")[1] == {"about": "ß"}


def test_checkpoints_that_take_long_are_seldom(monkeypatch):
    clock = iter([0.0, 0.5, 0.6, 10.0, 14.0, 49.9, 50.0]).__next__
    monkeypatch.setattr(checkpoint.time, "monotonic", clock)
    pace = checkpoint.Pace()
    with pace.writing():  # from 0.0 to 0.5
        pass
    assert pace.due()
    with pace.writing():  # from 10 to 14
        pass
    assert not pace.due()
    assert pace.due()


def test_what_many_clients_keep_is_a_few_tensors(tmp_path):
    """The format's header may have 100 MB, and a tensor for each of a million clients needs more."""
    path, many = tmp_path / "checkpoint.safetensors", 5000
    memory = Store().updated((7 * i, {"c": torch.full((3,), i), "n": torch.tensor(i)}) for i in range(many))
    checkpoint.save_state(path, state()._replace(memory=memory), {}, {})
    assert len([name for name in checkpoint.read_tensors(path)[0] if name.startswith("kept/")]) == 3
    loaded, _, _ = checkpoint.load_state(path, state(), "cpu")
    assert list(loaded.memory) == list(memory)
    assert all(loaded.memory[7 * i]["n"].item() == i for i in range(0, many, 97))


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    checkpoint.write_atomic(path, b"old")
    with pytest.raises(TypeError):
        checkpoint.write_atomic(path, "not bytes")
    assert path.read_bytes() == b"old"
    checkpoint.write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]  # nothing is left beside it


@pytest.mark.parametrize("left", [0, 1, 8, 50, 300, -1])
def test_a_file_cut_short_is_named(tmp_path, left):
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save_state(path, state(), {}, {})
    whole = path.read_bytes()
    path.write_bytes(whole[:left])
    with pytest.raises(InputError, match=r"checkpoint\.safetensors"):
        checkpoint.load_state(path, state(), "cpu")


@pytest.mark.parametrize("content", [b"", b"{}", b"not a checkpoint at all", bytes(range(256)) * 4])
def test_a_file_of_something_else_is_named(tmp_path, content):
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"checkpoint\.safetensors is damaged"):
        checkpoint.load_state(path, state(), "cpu")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.safetensors"):
        checkpoint.load_state(tmp_path / "nowhere.safetensors", state(), "cpu")


def test_a_damaged_header_is_named_wherever_the_damage_is(tmp_path):
    """Bytes all over the header changed in turn: the file is refused or, where that is possible, read."""
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save_state(path, state()._replace(memory=Store()), {}, {})
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    errors = []
    places = range(0, header, 3)
    for i in places:
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0x10]) + whole[i + 1 :])
        try:
            checkpoint.load_state(path, state()._replace(memory=Store()), "cpu")
        except InputError as error:
            errors.append(str(error))
    assert len(errors) > len(places) / 2
    assert all(path.name in error for error in errors)


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save_state(path, state(anchor=False), {}, {})
    with pytest.raises(InputError, match=r"does not belong to this configuration.*anchor"):
        checkpoint.load_state(path, state(anchor=True), "cpu")
    checkpoint.write_tensors(path, {"w": torch.ones(1)}, {})
    with pytest.raises(InputError, match=r"checkpoint\.safetensors does not belong"):
        checkpoint.load_state(path, state(), "cpu")


def test_metadata_is_json_beside_the_tensors(tmp_path):
    path = tmp_path / "model.safetensors"
    checkpoint.write_tensors(path, {"w": torch.ones(2).requires_grad_()}, {"shape": [3], "é": None})
    tensors, metadata = checkpoint.read_tensors(path)
    assert metadata == {"shape": [3], "é": None}
    assert json.dumps(metadata)
    assert torch.equal(tensors["w"], torch.ones(2))


def numbered(round: int):
    return state()._replace(round=round)


def test_the_last_two_are_kept_and_a_damaged_one_is_put_aside(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    assert checkpoint.read_latest(path) is None
    for round in (1, 2, 3):
        checkpoint.save_state(path, numbered(round), {}, {})
    assert checkpoint.read_latest(path)[1]["round"] == 3
    whole = path.read_bytes()
    path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])  # one bit of a tensor
    with pytest.raises(InputError, match="checksum"):
        checkpoint.read_tensors(path)
    with pytest.warns(UserWarning, match=r"is damaged .* The checkpoint before it is used"):
        assert checkpoint.read_latest(path)[1]["round"] == 2
    checkpoint.save_state(path, numbered(3), {}, {})  # the good one of round 2 is still there
    assert checkpoint.read_tensors(checkpoint.previous(path))[1]["round"] == 2
    checkpoint.remove(path)
    assert list(tmp_path.iterdir()) == []


def test_a_crash_between_the_two_names_leaves_the_older_one(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save_state(path, numbered(1), {}, {})
    path.rename(checkpoint.previous(path))
    assert checkpoint.read_latest(path)[1]["round"] == 1


def test_a_full_disk_leaves_both(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    for round in (1, 2):
        checkpoint.save_state(path, numbered(round), {}, {})
    (tmp_path / "checkpoint.safetensors.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save_state(path, numbered(3), {}, {})
    assert checkpoint.read_tensors(path)[1]["round"] == 2
    assert checkpoint.read_tensors(checkpoint.previous(path))[1]["round"] == 1
    assert len(list(tmp_path.iterdir())) == 2
    checkpoint.save_state(path, numbered(3), {}, {})
    assert checkpoint.read_latest(path)[1]["round"] == 3
