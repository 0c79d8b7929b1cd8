"""`python -m benchmarks.workers pfl | flower TASK SETTING`: a peer that waits for rounds to be asked for.

TASK is a file with clients' rows `x` and labels `y`, the `network`, `eta`, `batch` and `per_round`.
"""

import sys
from importlib import import_module

if __name__ == "__main__":
    name, task, setting = sys.argv[1:]
    import_module(f"benchmarks.workers.{name}").main(task, setting)
