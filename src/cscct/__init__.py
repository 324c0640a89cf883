"""Class-incremental learning with cross-space clustering and controlled transfer."""

__version__ = "0.2.0"
