"""Every file format on tiny files of that format, and on the published files where they are."""

import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedauc.data.sources import load_source
from fedauc.data.sources.cifar import CIFAR100
from fedauc.data.sources.medmnist import NAMES
from fedauc.errors import InputError

DATA = Path(os.environ.get("FEDAUC_DATA") or Path(__file__).parents[3] / "shared" / "data")
RNG = np.random.default_rng(0)


def published(*path: str) -> Path:
    """The data folder, where it holds that file."""
    if not DATA.joinpath(*path).exists():
        pytest.skip(f"the published file {'/'.join(path)} is not in {DATA}; set FEDAUC_DATA to its folder")
    return DATA


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def write_idx(
    folder: Path, prefix: tuple[str, str], packed: bool
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    folder.mkdir(parents=True, exist_ok=True)
    parts = {}
    for stem, n in zip(prefix, (20, 10), strict=True):
        images, labels = RNG.integers(0, 256, (n, 5, 4), np.uint8), np.arange(n, dtype=np.uint8) % 10
        for kind, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            raw = idx_bytes(array)
            path = folder / f"{stem}-{kind}{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(raw) if packed else raw)
        parts[stem] = (images, labels)
    return parts


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("name", "sub", "prefix"),
    [
        ("mnist", "mnist", ("train", "t10k")),
        ("mnist", "MNIST/raw", ("train", "t10k")),
        ("fashion-mnist", ".", ("train", "t10k")),
        ("fashion-mnist", "FashionMNIST/raw", ("train", "t10k")),
        ("emnist-digits", "emnist/gzip", ("emnist-digits-train", "emnist-digits-test")),
    ],
)
def test_idx(tmp_path: Path, name: str, sub: str, prefix: tuple[str, str], packed: bool) -> None:
    parts = write_idx(tmp_path / sub, prefix, packed)
    bundle = load_source(name, root=tmp_path, positive="3")
    assert bundle.valid is None
    assert bundle.test is not None
    for rows, (images, labels) in ((bundle.train, parts[prefix[0]]), (bundle.test, parts[prefix[1]])):
        upright = images.transpose(0, 2, 1) if name == "emnist-digits" else images
        assert rows.x.dtype == np.float32
        assert rows.x.flags.c_contiguous
        assert np.array_equal(rows.x, (upright[:, None] / 255).astype(np.float32))
        assert (rows.classes == labels).all()
        assert (rows.y == (labels == 3)).all()


def test_sources_with_the_same_file_names_do_not_mix(tmp_path: Path) -> None:
    write_idx(tmp_path, ("train", "t10k"), True)
    fashion = write_idx(tmp_path / "fashion-mnist", ("train", "t10k"), True)["train"][0]
    x = load_source("fashion-mnist", root=tmp_path).train.x
    assert np.array_equal(x, (fashion[:, None] / 255).astype(np.float32))


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        (
            "train-images-idx3-ubyte",
            idx_bytes(np.zeros((3, 2, 2), np.uint8))[:-1],
            "not as long as its header",
        ),
        ("train-images-idx3-ubyte", bytes((0, 0, 8, 3, 0)), "not as long as its header"),
        ("train-images-idx3-ubyte", b"<html>", "not an IDX file"),
        ("train-images-idx3-ubyte", gzip.compress(b"x" * 999, mtime=0)[:-9], "not a whole gzip file"),
        ("train-labels-idx1-ubyte", idx_bytes(np.zeros(3, np.uint8)), "3 labels for the 20 images"),
        ("train-labels-idx1-ubyte", idx_bytes(np.full(20, 10, np.uint8)), "label outside 0 to 9"),
        ("train-labels-idx1-ubyte", idx_bytes(np.full(20, 1, np.uint8)), "no positive training row"),
    ],
)
def test_broken_idx(tmp_path: Path, file: str, content: bytes, words: str) -> None:
    write_idx(tmp_path, ("train", "t10k"), False)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError, match=words):
        load_source("mnist", root=tmp_path)


def records(n: int, label_bytes: int, classes: int) -> tuple[np.ndarray, np.ndarray, bytes]:
    pixels = RNG.integers(0, 256, (n, 3072), np.uint8)
    labels = np.arange(n, dtype=np.uint8) % classes
    coarse = np.full((n, label_bytes - 1), 19, np.uint8)
    return pixels, labels, np.hstack([coarse, labels[:, None], pixels]).tobytes()


@pytest.mark.parametrize("place", ["cifar10/cifar-10-batches-{}", "cifar-10-batches-{}", "."])
@pytest.mark.parametrize("layout", ["bin", "py"])
def test_cifar10(tmp_path: Path, layout: str, place: str) -> None:
    folder = tmp_path / place.format(layout)
    folder.mkdir(parents=True, exist_ok=True)
    expected = []
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        pixels, labels, raw = records(4, 1, 10)
        expected.append((pixels, labels))
        if layout == "bin":
            (folder / f"{name}.bin").write_bytes(raw)
        else:
            batch = {b"data": pixels, b"labels": labels.tolist(), b"filenames": [b"a.png"] * 4}
            (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    bundle = load_source("cifar10", root=tmp_path, positive="cat")
    assert bundle.test is not None
    x = np.concatenate([p for p, _ in expected[:5]]).reshape(-1, 3, 32, 32) / 255
    assert np.array_equal(bundle.train.x, x.astype(np.float32))
    assert bundle.train.y.sum() == 5
    assert (bundle.test.classes == expected[5][1]).all()


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_cifar100(tmp_path: Path, protocol: int) -> None:
    assert len(set(CIFAR100)) == 100
    assert list(CIFAR100) == sorted(CIFAR100)
    for folder in ("binary", "python"):
        (tmp_path / folder).mkdir()
    for part, n in (("train", 100), ("test", 7)):
        pixels, labels, raw = records(n, 2, 100)
        (tmp_path / "binary" / f"{part}.bin").write_bytes(raw)
        batch = {"data": pixels, "fine_labels": labels.tolist(), "coarse_labels": [19] * n}
        (tmp_path / "python" / part).write_bytes(pickle.dumps(batch, protocol=protocol))
    binary, python = (
        load_source("cifar100", root=tmp_path / f, positive="0-49") for f in ("binary", "python")
    )
    assert (binary.train.x == python.train.x).all()
    assert (binary.train.classes == python.train.classes).all()
    assert (binary.train.classes == np.arange(100)).all()
    assert binary.train.y.sum() == 50


class Evil:
    def __reduce__(self) -> tuple:
        return os.mkdir, ("should-not-exist",)


def test_cifar_pickles_cannot_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").write_bytes(pickle.dumps({"data": Evil()}))
    with pytest.raises(InputError, match=r"train is refused because it would run posix\.mkdir|nt\.mkdir"):
        load_source("cifar100", root=tmp_path)
    assert not (tmp_path / "should-not-exist").exists()


@pytest.mark.parametrize("content", [b"", b"not a pickle", pickle.dumps([1]), pickle.dumps({"data": 3})])
def test_broken_cifar_pickle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "train").write_bytes(content)
    with pytest.raises(InputError, match="train is not a CIFAR batch"):
        load_source("cifar100", root=tmp_path)


def test_broken_cifar_binary(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(b"x" * 3075)
    with pytest.raises(InputError, match=r"train\.bin is not a whole number of CIFAR records"):
        load_source("cifar100", root=tmp_path)
    (tmp_path / "train.bin").write_bytes(records(100, 2, 100)[2])
    with pytest.raises(InputError, match=r"test\.bin of 'cifar100' is missing"):
        load_source("cifar100", root=tmp_path)


def write_npz(path: Path, columns: int, **changes: np.ndarray) -> dict[str, np.ndarray]:
    arrays = {}
    for part, n in (("train", 30), ("val", 8), ("test", 6)):
        arrays[f"{part}_images"] = RNG.integers(0, 256, (n, 28, 28), np.uint8)
        arrays[f"{part}_labels"] = (np.arange(n * columns).reshape(n, columns) % 3 == 0).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v.ndim})
    return arrays


@pytest.mark.parametrize("name", list(NAMES))
@pytest.mark.parametrize("place", ["{0}/{0}.npz", "medmnist/{0}.npz", "{0}.npz", "{0}/{0}_64.npz"])
def test_medmnist(tmp_path: Path, name: str, place: str) -> None:
    columns = 14 if name == "chestmnist" else 1
    arrays = write_npz(tmp_path / place.format(name), columns)
    bundle = load_source(name, root=tmp_path)
    column = {"chestmnist": 4}.get(name, 0)
    for rows, part in ((bundle.train, "train"), (bundle.valid, "val"), (bundle.test, "test")):
        assert rows is not None
        assert rows.x.shape[1:] == (1, 28, 28)
        assert np.array_equal(rows.x[:, 0], (arrays[f"{part}_images"] / 255).astype(np.float32))
        expected = arrays[f"{part}_labels"][:, column]
        assert (rows.y == (1 - expected if name == "breastmnist" else expected)).all()
        assert (rows.classes == rows.y).all()


def test_chestmnist_several_findings(tmp_path: Path) -> None:
    arrays = write_npz(tmp_path / "chestmnist.npz", 14)
    rows = load_source("chestmnist", root=tmp_path, positive="mass,nodule").train
    assert (rows.y == arrays["train_labels"][:, 4:6].any(axis=1)).all()


def test_broken_npz(tmp_path: Path) -> None:
    path = tmp_path / "breastmnist.npz"
    for changes, words in (
        ({"val_labels": np.array(0)}, "no array 'val_labels'"),
        ({"train_labels": np.zeros((30, 2), np.uint8)}, r"train_labels .* not \[rows, 1\]"),
        ({"test_images": np.zeros((5, 28, 28), np.uint8)}, "test_images"),
        ({"test_labels": np.full((6, 1), 7, np.uint8)}, "label outside 0 to 1"),
    ):
        write_npz(path, 1, **changes)
        with pytest.raises(InputError, match=words):
            load_source("breastmnist", root=tmp_path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputError, match="not a whole npz file"):
        load_source("breastmnist", root=tmp_path)
    path.unlink()
    for size in (64, 128):
        write_npz(tmp_path / f"breastmnist_{size}.npz", 1)
    with pytest.raises(InputError, match=r"breastmnist_128\.npz, breastmnist_64\.npz: rename"):
        load_source("breastmnist", root=tmp_path)


@pytest.mark.data
def test_published_fashion_mnist() -> None:
    bundle = load_source("fashion-mnist", root=published("fashion-mnist", "train-images-idx3-ubyte.gz"))
    assert bundle.test is not None
    assert bundle.train.x.shape == (60_000, 1, 28, 28)
    assert bundle.test.x.shape == (10_000, 1, 28, 28)
    assert (np.bincount(bundle.train.classes) == 6000).all()
    assert list(bundle.train.classes[:5]) == [9, 0, 0, 3, 0]
    assert (bundle.train.y == (bundle.train.classes == 6)).all()
    assert abs(bundle.train.x.mean() - 0.2860) < 1e-4  # the published mean


@pytest.mark.data
def test_published_pneumoniamnist() -> None:
    bundle = load_source("pneumoniamnist", root=published("pneumoniamnist"))
    assert bundle.valid is not None
    assert bundle.test is not None
    assert [len(p) for p in (bundle.train, bundle.valid, bundle.test)] == [4708, 524, 624]
    assert bundle.test.y.sum() == 390


@pytest.mark.data
@pytest.mark.slow
def test_published_cifar10(tmp_path: Path) -> None:
    folder = DATA
    if (DATA / "unpack_cifar10.py").exists():  # the folder keeps it compressed
        subprocess.run(
            [sys.executable, DATA / "unpack_cifar10.py", tmp_path], check=True, capture_output=True
        )
        folder = tmp_path
    else:
        published("cifar10", "cifar-10-batches-bin", "data_batch_1.bin")
    bundle = load_source("cifar10", root=folder)
    assert (np.bincount(bundle.train.classes) == 5000).all()
    assert np.allclose(bundle.train.x.mean(axis=(0, 2, 3)), [0.4914, 0.4822, 0.4465], atol=1e-3)
