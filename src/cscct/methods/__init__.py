"""Methods as data. Importing this package registers the built-in ones."""

from . import (  # noqa: F401
    a_gem,
    afc,
    bic,
    bounds,
    co2l,
    der,
    distillation,
    eeil,
    ewc,
    fecam,
    foster,
    il2m,
    lwf,
    mas,
    memo,
    ranpac,
    replay,
    si,
    ss_il,
    training_free,
    wa,
)
from .base import (
    ADDONS,
    AFTER_TASK,
    METHODS,
    Method,
    canonical_name,
    foreign_terms,
    parse_method,
    register,
    split_method,
)
from .extension import EXTENSIONS, Extension, TaskContext, register_extension

__all__ = [
    "ADDONS",
    "AFTER_TASK",
    "EXTENSIONS",
    "METHODS",
    "Extension",
    "Method",
    "TaskContext",
    "canonical_name",
    "foreign_terms",
    "parse_method",
    "register",
    "register_extension",
    "split_method",
]
