"""FedAUC: federated learning for rare events.

One classifier across organisations that may not share their rows, trained by maximising the area under the
ROC curve directly, with clients that take part in turns.

    from fedauc import FederatedAUCClassifier
    FederatedAUCClassifier(method="cycp-pairwise").fit(X, y, clients=hospital)

The composable layer underneath: objective × rule × participation × schedule × transport
(`fedauc.core.loop.Federation`). Names are imported on first use, so that the compute path (`fedauc.core`,
`objectives`, `methods`, …) needs nothing but torch and NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedauc.version import installed

if TYPE_CHECKING:
    from fedauc.core.loop import Federation
    from fedauc.errors import InputError
    from fedauc.estimator import FederatedAUCClassifier
    from fedauc.experiments.config import Config

__version__ = installed("fedauc")
__all__ = ["Config", "FederatedAUCClassifier", "Federation", "InputError", "__version__"]

_HOME = {
    "Config": "fedauc.experiments.config",
    "FederatedAUCClassifier": "fedauc.estimator",
    "Federation": "fedauc.core.loop",
    "InputError": "fedauc.errors",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fedauc' has no attribute {name!r}")
