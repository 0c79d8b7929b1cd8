import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fedauc.data import download
from fedauc.data.download import PUBLISHED, Published, fetch, fetch_file, unpack
from fedauc.data.sources import load_source
from fedauc.errors import InputError


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder and the address under which it is served."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def cifar_archive(path: Path) -> None:
    """CIFAR-10's published archive, with two images per batch."""
    with tarfile.open(path, "w:gz") as tar:
        for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
            data = b"".join(bytes([label]) + bytes(range(256)) * 12 for label in (0, 1))
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_right_checksum_and_kept_file(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = served
    (folder / "a.npz").write_bytes(b"content" * 1000)
    item = Published(f"{url}/a.npz", md5(folder / "a.npz"))
    path = fetch_file("demo", item, tmp_path / "data" / "demo", progress=True)
    assert path.read_bytes() == b"content" * 1000
    (folder / "a.npz").unlink()  # a file that is there already is not asked for again
    assert fetch_file("demo", item, tmp_path / "data" / "demo") == path


def test_wrong_checksum_leaves_nothing(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = served
    (folder / "a.npz").write_bytes(b"tampered")
    with pytest.raises(InputError, match=r"a\.npz of 'demo'.* does not have the published checksum"):
        fetch_file("demo", Published(f"{url}/a.npz", "0" * 32), tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_not_there_and_unreachable(served: tuple[Path, str], tmp_path: Path) -> None:
    _, url = served
    for address in (f"{url}/a.npz", "http://127.0.0.1:9/a.npz"):
        with pytest.raises(
            InputError, match=r"a\.npz of 'demo' is missing in .* could not be downloaded"
        ) as error:
            fetch_file("demo", Published(address, "0" * 32), tmp_path)
        assert str(error.value).count("\n") == 0


def test_load_source_downloads_and_unpacks(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = served
    cifar_archive(folder / "cifar-10-binary.tar.gz")
    item = Published(f"{url}/cifar-10-binary.tar.gz", md5(folder / "cifar-10-binary.tar.gz"))
    monkeypatch.setitem(PUBLISHED, "cifar10", (item,))
    root = tmp_path / "data"
    with pytest.raises(InputError, match="--set download=true"):
        load_source("cifar10", root=root)
    bundle = load_source("cifar10", root=root, download=True)
    assert bundle.train.x.shape == (10, 3, 32, 32)
    assert bundle.train.y.sum() == 5
    assert np.isclose(bundle.train.x.max(), 1.0)
    again = load_source("cifar10", root=root)
    assert (again.train.x == bundle.train.x).all()
    assert sorted(p.name for p in (root / "cifar10").iterdir()) == [
        "cifar-10-batches-bin",
        "cifar-10-binary.tar.gz",
    ]


def test_unpack_stays_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("../../outside.txt")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"evil"))
    with pytest.raises(InputError, match=r"evil\.tar\.gz cannot be unpacked"):
        unpack(tmp_path / "evil.tar.gz", tmp_path / "in")
    assert not list(tmp_path.rglob("outside.txt"))
    with tarfile.open(tmp_path / "link.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("inner")
        info.type, info.linkname = tarfile.SYMTYPE, str(tmp_path)
        tar.addfile(info)
    with pytest.raises(InputError, match="inner is no file inside it"):
        unpack(tmp_path / "link.tar.gz", tmp_path / "in")
    (tmp_path / "broken.tar.gz").write_bytes(b"\x1f\x8bnothing")
    with pytest.raises(InputError, match="cannot be unpacked"):
        unpack(tmp_path / "broken.tar.gz", tmp_path / "in")
    assert list((tmp_path / "in").iterdir()) == []


def test_sources_without_a_download(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not fetched from here: get them from https://www\.nist\.gov"):
        fetch("emnist-digits", tmp_path)


def test_published_files_are_well_formed() -> None:
    items = [item for files in PUBLISHED.values() for item in files]
    assert all(len(item.md5) == 32 and item.url.startswith("https://") for item in items)
    assert len({item.md5 for item in items}) == len(items)
    assert download.where_to_get("mnist", "t10k-labels-idx1-ubyte.gz").endswith("/t10k-labels-idx1-ubyte.gz")
