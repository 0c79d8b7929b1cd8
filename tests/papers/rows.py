"""Settings of a tiny cell, and a row of results.json."""

from __future__ import annotations

TINY = {"data.source": "digits", "data.partition": "iid", "data.clients": 4, "model": "linear", "cycles": 2}

ROW = {"table": "t", "method": "a", "dataset": "d", "setting": "s", "ours_mean": 1.0, "settings": {}}
ROW |= {"seeds": [0], "ours_by_seed": [1.0], "ours_std": None, "devices": ["cpu"], "more": {}}
ROW |= {"rounds": 1, "bytes_up": 1, "bytes_down": 1, "seconds": 1.0}
