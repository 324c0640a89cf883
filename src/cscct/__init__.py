"""Class-incremental learning with cross-space clustering and controlled transfer."""

__version__ = "0.3.0"
