"""The losses, each a pure function of tensors, usable in anybody's training loop.

`TERMS` holds the same losses by name, as weighted terms of a sum (`WeightedSum`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import exports
from .terms import TERMS, Term, register

if TYPE_CHECKING:
    from .classification import cross_entropy
    from .csc import cross_space_clustering
    from .ct import controlled_transfer
    from .distillation import bce_distillation, logit_distillation
    from .lucir import less_forget, margin_ranking
    from .pod import pod_flat, pod_spatial
    from .proxy_nca import nca
    from .total import WeightedSum

__all__ = [
    "TERMS",
    "Term",
    "WeightedSum",
    "bce_distillation",
    "controlled_transfer",
    "cross_entropy",
    "cross_space_clustering",
    "less_forget",
    "logit_distillation",
    "margin_ranking",
    "nca",
    "pod_flat",
    "pod_spatial",
    "register",
]

__getattr__ = exports(
    __name__,
    {
        "cross_entropy": "classification",
        "cross_space_clustering": "csc",
        "controlled_transfer": "ct",
        "bce_distillation": "distillation",
        "logit_distillation": "distillation",
        "less_forget": "lucir",
        "margin_ranking": "lucir",
        "nca": "proxy_nca",
        "pod_flat": "pod",
        "pod_spatial": "pod",
        "WeightedSum": "total",
    },
)
