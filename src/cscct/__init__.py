"""Class-incremental learning with cross-space clustering and controlled transfer.

    import cscct

    run = cscct.run("lucir+cscct", "digits", seed=1, settings={"train.epochs": 5})
    model = cscct.load(run.path)

What is named here is imported when it is first used, so that `import cscct` takes no time. The import sets how threads
of OpenMP wait, unless the user has set it, and lets forked processes renew the threads of torch (see `cscct.threads`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazy_exports
from .threads import limit_spinning, renew_after_fork

if TYPE_CHECKING:
    from .analysis.tables import ResultsTable as ResultsTable
    from .api import Run as Run
    from .api import load as load
    from .api import resume as resume
    from .api import run as run
    from .api_studies import compare as compare
    from .api_studies import report as report
    from .api_studies import reproduce as reproduce
    from .api_studies import sweep as sweep
    from .api_studies import tune as tune
    from .classifier.estimator import IncrementalClassifier as IncrementalClassifier
    from .data.base import Dataset as Dataset
    from .data.datasets.arrays import save_arrays as save_arrays
    from .errors import RunFailed as RunFailed
    from .errors import UserError as UserError
    from .registration import register_after_task as register_after_task
    from .registration import register_augmentation as register_augmentation
    from .registration import register_backbone as register_backbone
    from .registration import register_dataset as register_dataset
    from .registration import register_extension as register_extension
    from .registration import register_head as register_head
    from .registration import register_herding as register_herding
    from .registration import register_imprint as register_imprint
    from .registration import register_loss as register_loss
    from .registration import register_method as register_method
    from .registration import register_optimizer as register_optimizer
    from .registration import register_predictor as register_predictor
    from .registration import register_sampler as register_sampler
    from .registration import register_stored_target as register_stored_target
    from .registration import register_weight_scaling as register_weight_scaling
    from .runs.listeners import Listener as Listener

__version__ = "0.4.0"

_PARTS = (
    "after_task augmentation backbone dataset extension head herding imprint loss method optimizer predictor "
    "sampler stored_target weight_scaling"
)
_NAMES = {
    "analysis.tables": ("ResultsTable",),
    "api": ("Run", "load", "resume", "run"),
    "api_studies": ("compare", "report", "reproduce", "sweep", "tune"),
    "classifier.estimator": ("IncrementalClassifier",),
    "data.base": ("Dataset",),
    "data.datasets.arrays": ("save_arrays",),
    "errors": ("RunFailed", "UserError"),
    "registration": tuple(f"register_{part}" for part in _PARTS.split()),
    "runs.listeners": ("Listener",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)
__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


limit_spinning()
renew_after_fork()
