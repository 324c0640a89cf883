"""Classifiers on fixed features that need no training: nearest class mean, linear discriminant analysis, ridge
regression. They depend on the data only through exact sums, so classes may come one by one, in any order, and be
taken away again.

What they have to choose (shrinkage, penalty, temperature of the probabilities) is measured by leaving out one image
at a time, in closed form; see `lda` and `ridge`.
"""

from __future__ import annotations

from .discriminant import lda
from .linear import LinearPredictor
from .nearest_mean import ncm
from .regression import ridge
from .statistics import ClassStatistics

__all__ = ["PREDICTORS", "ClassStatistics", "LinearPredictor", "lda", "ncm", "ridge"]

PREDICTORS = {"ncm": ncm, "lda": lda, "ridge": ridge}
