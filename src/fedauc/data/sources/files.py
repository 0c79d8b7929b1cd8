"""Where the files of a source are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fedauc.data.download import PUBLISHED, where_to_get
from fedauc.errors import InputError


class MissingFile(InputError):
    """A file of a source is not in the data folder."""


def default_root() -> Path:
    """The data folder where the user names none: FEDAUC_DATA, or a cache folder of this user."""
    if os.environ.get("FEDAUC_DATA"):
        return Path(os.environ["FEDAUC_DATA"])
    import pooch

    return Path(pooch.os_cache("fedauc"))


def find(source: str, root: Path, folders: Sequence[str], names: Sequence[str]) -> Path:
    """The first of the files `names` in `root/source`, in a usual sub-folder of `root`, or in `root` itself.

    The folders come first because some sources share their file names (MNIST and Fashion-MNIST).
    """
    places = [*dict.fromkeys((source, *folders)), "."]
    for place in places:
        for name in names:
            if (root / place / name).is_file():
                return root / place / name
    raise missing(source, root, places, names[0])


def missing(source: str, root: Path, places: Sequence[str], name: str) -> MissingFile:
    """What to say where a file is in none of the `places`, of which the last is `root` itself."""
    ask = (
        "download it (`fedauc train` with --set download=true) or get it" if source in PUBLISHED else "get it"
    )
    return MissingFile(
        f"{name} of {source!r} is missing: "
        f"it is neither in {root} nor in its folders {', '.join(places[:-1])}; "
        f"{ask} from {where_to_get(source, name)} and put it into {root / source}."
    )
