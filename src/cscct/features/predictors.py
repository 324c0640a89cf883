"""Predictors on features as named parts with typed settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, PositiveFloat

from ..errors import UserError
from ..registry import Registry
from .linear import FittedPredictor, LinearPredictor

if TYPE_CHECKING:
    from torch import Tensor

    from .left_out import Fit, Groups
    from .statistics import ClassStatistics

# Predictors that every run is evaluated with: the head of the network, exemplar means, and two of `PREDICTORS`
DEFAULT_PREDICTORS = ("classifier", "nme", "lda", "ridge")
NETWORK_PREDICTORS = DEFAULT_PREDICTORS[:2]  # not fitted to statistics


@dataclass(frozen=True)
class Predictor:
    """A predictor that is fitted to statistics of the features of each class.

    Its fields are the settings under `predict.options.NAME`. To add one, derive a frozen dataclass, implement `fit` and
    apply `cscct.register_predictor`. Fitting must not depend on the order of the classes.

    Attributes:
        title: Name in tables and figures. Default: the registered name.
        fitted: Class that `fit` returns.
        reads_samples: Whether `fit` reads the features of all samples (`samples_of`), for example because it applies a
            nonlinear function to them. They are then kept, and sums are not sufficient.

    Examples:
        >>> from dataclasses import dataclass
        >>> import torch
        >>> from cscct.features import ClassStatistics, LinearPredictor, Predictor
        >>> @dataclass(frozen=True)
        ... class DotProduct(Predictor):
        ...     "Largest inner product with a class mean."
        ...     temperature: float = 1.0
        ...     def fit(self, classes, seed=0):
        ...         means = torch.stack([stats.mean for stats in classes]).float()
        ...         return LinearPredictor(means, torch.zeros(len(means)), self.temperature)
        >>> classes = [ClassStatistics.of(torch.eye(2)[[label]]) for label in (0, 1)]
        >>> DotProduct().fit(classes).predict(torch.tensor([[1.0, 3.0]]))
        tensor([1])
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
    title: ClassVar[str] = ""
    fitted: ClassVar[type[FittedPredictor]] = LinearPredictor
    reads_samples: ClassVar[bool] = False

    def fit(self, classes: Sequence[ClassStatistics], seed: int = 0) -> FittedPredictor:
        """Fit the predictor.

        Args:
            classes: Statistics of each class, in the order of the labels.
            seed: Seed of random numbers; see `cscct.seeding.generator`.

        Returns:
            Predictor whose scores are in the order of the classes.
        """
        raise NotImplementedError

    def leave_out(self, classes: Sequence[ClassStatistics], groups: Groups | None, seed: int = 0) -> Fit:
        """Fit the predictor such that it can predict each sample without the sample and its near-duplicates.

        The default fits five times; predictors with a closed form override it.

        Args:
            classes: Statistics of each class, in the order of the labels.
            groups: Groups of near-duplicates, see `near_duplicates`; None if there are none.
            seed: Seed of random numbers.
        """
        from .left_out import FoldFit

        return FoldFit(self, classes, groups, seed)


PREDICTORS: Registry[type[Predictor]] = Registry("predictor")


@PREDICTORS.register("ncm")
@dataclass(frozen=True)
class NearestMean(Predictor):
    """Nearest class mean of unit features."""

    title = "nearest mean of all images"

    def fit(self, classes: Sequence[ClassStatistics], seed: int = 0) -> LinearPredictor:
        """Fit the predictor, see `Predictor.fit`."""
        from .class_means import ncm

        return ncm(classes)

    def leave_out(self, classes: Sequence[ClassStatistics], groups: Groups | None, seed: int = 0) -> Fit:
        """Fit the predictor, see `Predictor.leave_out`."""
        from .class_means import fit_ncm

        return fit_ncm(classes, groups)


@PREDICTORS.register("lda")
@dataclass(frozen=True)
class LDA(Predictor):
    """Linear discriminant analysis."""

    shrinkage: Annotated[float, Field(ge=0, le=1)] | None = None
    """Shrinkage of the covariance towards a multiple of the identity; null: selected by leave-one-out likelihood."""
    title = "LDA"

    def fit(self, classes: Sequence[ClassStatistics], seed: int = 0) -> LinearPredictor:
        """Fit the predictor, see `Predictor.fit`."""
        from .discriminant import lda

        return lda(classes, self.shrinkage)

    def leave_out(self, classes: Sequence[ClassStatistics], groups: Groups | None, seed: int = 0) -> Fit:
        """Fit the predictor, see `Predictor.leave_out`."""
        from .discriminant import fit_lda

        return fit_lda(classes, groups, self.shrinkage)


@PREDICTORS.register("ridge")
@dataclass(frozen=True)
class Ridge(Predictor):
    """Ridge regression onto class indicators."""

    penalty: PositiveFloat | None = None
    """Penalty on the squared weights; null: selected by the leave-one-out squared error."""
    title = "ridge regression"

    def fit(self, classes: Sequence[ClassStatistics], seed: int = 0) -> LinearPredictor:
        """Fit the predictor, see `Predictor.fit`."""
        from .regression import ridge

        return ridge(classes, self.penalty)

    def leave_out(self, classes: Sequence[ClassStatistics], groups: Groups | None, seed: int = 0) -> Fit:
        """Fit the predictor, see `Predictor.leave_out`."""
        from .regression import fit_ridge

        return fit_ridge(classes, groups, self.penalty)


def fit_predictors(
    predictors: Mapping[str, Predictor], classes: Sequence[ClassStatistics], seed: int
) -> dict[str, FittedPredictor]:
    """Fit several predictors.

    Predictors that do not read samples get compact statistics, so that their result does not depend on the others.

    Args:
        predictors: Predictors by name.
        classes: Statistics of each class, in the order of the labels.
        seed: Seed of random numbers.
    """
    compact = [stats.compact() for stats in classes]
    return {name: part.fit(classes if part.reads_samples else compact, seed) for name, part in predictors.items()}


def samples_of(classes: Sequence[ClassStatistics]) -> list[Tensor]:
    """Return the features of all samples of each class, shape (n_i, d), float64.

    Args:
        classes: Statistics of each class.

    Raises:
        UserError: If they are not stored for a class.
    """
    samples = [stats.samples for stats in classes]
    missing = sum(rows is None for rows in samples)
    if missing:
        raise UserError(
            f"This predictor needs the features of all images, but of {missing} of {len(classes)} classes only sums "
            "are stored: learn these classes again in a new model with this method, or use lda, ncm or ridge."
        )
    return [rows.double() for rows in samples if rows is not None]
