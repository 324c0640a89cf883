"""The losses, each a pure function of tensors, usable in anybody's training loop.

`TERMS` holds the same losses by name, as weighted terms of a sum (`WeightedSum`), and `GROWTHS` the ways in which a
weight may follow the numbers of classes. A loss is one file here, with its function and its term, and one line below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_exports
from .classification import balanced_cross_entropy as balanced_cross_entropy
from .classification import cross_entropy as cross_entropy
from .csc import cross_space_clustering as cross_space_clustering
from .ct import controlled_transfer as controlled_transfer
from .distillation import bce_distillation as bce_distillation
from .distillation import logit_distillation as logit_distillation
from .lucir import less_forget as less_forget
from .lucir import margin_ranking as margin_ranking
from .pod import pod_flat as pod_flat
from .pod import pod_spatial as pod_spatial
from .proxy_nca import nca as nca
from .replay import logit_replay as logit_replay
from .replay import memory_cross_entropy as memory_cross_entropy
from .replay import new_cross_entropy as new_cross_entropy
from .terms import GROWTHS as GROWTHS
from .terms import TERMS as TERMS
from .terms import Term as Term
from .terms import register as register
from .total import WeightedSum as WeightedSum

if TYPE_CHECKING:
    from .modules import ControlledTransfer as ControlledTransfer
    from .modules import CrossSpaceClustering as CrossSpaceClustering

# Modules of torch.nn, which need torch to be defined; the functions need it only when they are called.
__getattr__ = lazy_exports(__name__, {"ControlledTransfer": "modules", "CrossSpaceClustering": "modules"})
