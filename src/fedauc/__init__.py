"""FedAUC: federated learning for rare events.

One classifier across organisations that may not share their rows, trained by maximising the area under the
ROC curve directly, with clients that take part in turns.

    from fedauc import FederatedAUCClassifier
    FederatedAUCClassifier(method="cycp-pairwise").fit(X, y, clients=hospital)

The composable layer underneath: objective × rule × participation × schedule × transport
(`fedauc.core.loop.Federation`).
"""

from fedauc.core.loop import Federation
from fedauc.errors import InputError
from fedauc.estimator import FederatedAUCClassifier
from fedauc.experiments.config import Config
from fedauc.version import installed

__version__ = installed("fedauc")
__all__ = ["Config", "FederatedAUCClassifier", "Federation", "InputError", "__version__"]
