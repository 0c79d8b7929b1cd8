"""Files that several processes want at once are made by one of them."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from fedauc.locks import by_one


def _made(path, name):
    with by_one(path):
        if not path.exists():
            time.sleep(0.2)
            path.write_text(name)
            return True
    return False


def test_one_makes_what_the_others_wait_for(tmp_path):
    path = tmp_path / "new folder" / "made.json"
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        made = list(pool.map(_made, [path] * 3, "abc"))
    assert made.count(True) == 1
    assert path.read_text() == "abc"[made.index(True)]
