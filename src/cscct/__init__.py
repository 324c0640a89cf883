"""Class-incremental learning with cross-space clustering and controlled transfer.

    import cscct

    run = cscct.run("lucir+cscct", "digits", seed=1, settings={"train.epochs": 5})
    model = cscct.load(run.path)

What is named here is imported when it is first used, so that `import cscct` takes no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazy_exports

if TYPE_CHECKING:
    from .analysis.tables import ResultsTable as ResultsTable
    from .api import Run as Run
    from .api import compare as compare
    from .api import load as load
    from .api import register_backbone as register_backbone
    from .api import register_dataset as register_dataset
    from .api import register_loss as register_loss
    from .api import register_method as register_method
    from .api import resume as resume
    from .api import run as run
    from .classifier.estimator import IncrementalClassifier as IncrementalClassifier
    from .data.base import Dataset as Dataset
    from .data.datasets.arrays import save_arrays as save_arrays
    from .errors import RunFailed as RunFailed
    from .errors import UserError as UserError
    from .runs.listeners import Listener as Listener
    from .runs.model import TrainedModel as TrainedModel

__version__ = "0.3.0"

_HOMES = {
    "Dataset": "data.base",
    "IncrementalClassifier": "classifier.estimator",
    "Listener": "runs.listeners",
    "ResultsTable": "analysis.tables",
    "Run": "api",
    "RunFailed": "errors",
    "TrainedModel": "runs.model",
    "UserError": "errors",
    "compare": "api",
    "load": "api",
    "register_backbone": "api",
    "register_dataset": "api",
    "register_loss": "api",
    "register_method": "api",
    "resume": "api",
    "run": "api",
    "save_arrays": "data.datasets.arrays",
}
__all__ = list(_HOMES)
__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
