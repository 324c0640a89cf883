"""Methods as data. Importing this package registers the built-in ones."""

from . import icarl, lucir, podnet, replay  # noqa: F401
from .base import EXTRAS, METHODS, Method, canonical_name, parse_method, register, suggest

__all__ = ["EXTRAS", "METHODS", "Method", "canonical_name", "parse_method", "register", "suggest"]
