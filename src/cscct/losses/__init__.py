"""The losses, each a pure function of tensors, usable in anybody's training loop.

`TERMS` holds the same losses by name, as weighted terms of a sum (`WeightedSum`).
"""

from .csc import cross_space_clustering
from .ct import controlled_transfer
from .distillation import bce_distillation, logit_distillation
from .lucir import less_forget, margin_ranking
from .nca import nca
from .pod import pod_flat, pod_spatial
from .terms import TERMS, Term, register
from .total import WeightedSum

__all__ = [
    "TERMS",
    "Term",
    "WeightedSum",
    "bce_distillation",
    "controlled_transfer",
    "cross_space_clustering",
    "less_forget",
    "logit_distillation",
    "margin_ranking",
    "nca",
    "pod_flat",
    "pod_spatial",
    "register",
]
