"""Methods as data. Importing this package registers the built-in ones."""

from . import bic, derpp, er_ace, icarl, lucir, podnet, replay, training_free, wa  # noqa: F401
from .base import (
    AFTER_TASK,
    EXTRAS,
    METHODS,
    Method,
    TaskEnd,
    canonical_name,
    foreign_terms,
    parse_method,
    register,
    split_method,
    suggest,
)

__all__ = [
    "AFTER_TASK",
    "EXTRAS",
    "METHODS",
    "Method",
    "TaskEnd",
    "canonical_name",
    "foreign_terms",
    "parse_method",
    "register",
    "split_method",
    "suggest",
]
