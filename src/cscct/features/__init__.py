"""Everything that reads features: herding, class statistics and predictors.

`PREDICTORS` maps names to predictors that need no training: nearest class mean (`ncm`), linear discriminant analysis
(`lda`), ridge regression (`ridge`), and those that methods and plugins register. They depend on the data only through
statistics of each class, so classes can be added in any order and removed again. Hyperparameters (shrinkage, penalty,
temperature of the probabilities) are selected by leave-one-out cross-validation in closed form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_exports
from .herding import HERDINGS, herd
from .linear import FittedPredictor, LinearPredictor
from .predictors import (
    DEFAULT_PREDICTORS,
    NETWORK_PREDICTORS,
    PREDICTORS,
    Predictor,
    fit_predictors,
    samples_of,
)

if TYPE_CHECKING:
    from .class_means import class_mean, ncm, nearest_mean
    from .discriminant import lda
    from .left_out import Fit, Groups, LeftOutPredictions, left_out_predictions, near_duplicates
    from .regression import ridge
    from .statistics import ClassStatistics

__all__ = [
    "DEFAULT_PREDICTORS",
    "HERDINGS",
    "NETWORK_PREDICTORS",
    "PREDICTORS",
    "ClassStatistics",
    "Fit",
    "FittedPredictor",
    "Groups",
    "LeftOutPredictions",
    "LinearPredictor",
    "Predictor",
    "class_mean",
    "fit_predictors",
    "herd",
    "lda",
    "left_out_predictions",
    "ncm",
    "near_duplicates",
    "nearest_mean",
    "ridge",
    "samples_of",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ClassStatistics": "statistics",
        "Fit": "left_out",
        "Groups": "left_out",
        "LeftOutPredictions": "left_out",
        "class_mean": "class_means",
        "lda": "discriminant",
        "left_out_predictions": "left_out",
        "near_duplicates": "left_out",
        "ncm": "class_means",
        "nearest_mean": "class_means",
        "ridge": "regression",
    },
)
