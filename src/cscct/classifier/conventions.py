"""Conventions of scikit-learn's estimators without its base classes, whose import takes about as long as torch's."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class ClassifierConventions:
    """What `BaseEstimator` and `ClassifierMixin` provide: parameters, their display, accuracy, and tags.

    scikit-learn recognises classifiers by their methods and tags, not by their base classes. The parameters are those
    of `__init__`, which stores them as attributes of the same names.
    """

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        parameters = inspect.signature(cls).parameters
        return {name: parameter.default for name, parameter in parameters.items()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Args:
            deep: Accepted for compatibility: no parameter is an estimator.
        """
        return {name: getattr(self, name) for name in sorted(self._defaults())}

    def set_params(self, **params: Any) -> Self:
        """Change parameters. They are checked when the model learns.

        Args:
            params: The new values by name.

        Raises:
            ValueError: If there is no parameter of a name.
        """
        names = sorted(self._defaults())
        for name in params:
            if name not in names:
                raise ValueError(f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {names}.")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy, as a fraction.

        Args:
            X: Images or features, as for `predict`.
            y: Their labels.
            sample_weight: Weights of the images. Default: equal weights.
        """
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        values, changed = self.get_params(), []
        for name, default in self._defaults().items():
            if values[name] is not default and repr(values[name]) != repr(default):
                changed.append(f"{name}={values[name]!r}")
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags("classifier", TargetTags(required=True), None, ClassifierTags(), None, input_tags=InputTags())
