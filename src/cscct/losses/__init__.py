"""Losses of class-incremental learning, as pure functions of tensors for any training loop.

Conventions of the functions:

- They return a scalar, a mean or a sum as stated. It is not multiplied by the weight of a method.
- `labels`, `is_new` and `counts` are tensors, NumPy arrays or sequences. They are moved to the device of the features.
- Half precision is computed in float32. If student and teacher have different dtypes, both are promoted to the larger
  one, as in PyTorch: float32 with float64 gives float64.
- The teacher receives no gradient. A loss without any sample to compare is a 0 with a zero gradient.
- They compile with `torch.compile(fullgraph=True)`. Label ranges are checked in eager mode on the CPU only, because
  reading values breaks graphs and synchronises accelerators.

`TERMS` maps the name of each loss to its `Term`, a weighted summand of `WeightedSum`. `WEIGHT_SCALINGS` maps names to
functions of a `Task` that scale a weight. To add a loss to the package, write a module with its function and its term,
and import the function below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_exports
from . import boosting as _boosting  # noqa: F401
from .classification import balanced_cross_entropy as balanced_cross_entropy
from .classification import cross_entropy as cross_entropy
from .contrast import asymmetric_contrast as asymmetric_contrast
from .contrast import relation_distillation as relation_distillation
from .csc import cross_space_clustering as cross_space_clustering
from .ct import controlled_transfer as controlled_transfer
from .decorrelation import class_decorrelation as class_decorrelation
from .distillation import bce_distillation as bce_distillation
from .distillation import logit_distillation as logit_distillation
from .distillation import task_distillation as task_distillation
from .lucir import less_forget as less_forget
from .lucir import margin_ranking as margin_ranking
from .pod import pod_flat as pod_flat
from .pod import pod_spatial as pod_spatial
from .proxy_nca import nca as nca
from .replay import logit_replay as logit_replay
from .replay import memory_cross_entropy as memory_cross_entropy
from .replay import new_cross_entropy as new_cross_entropy
from .terms import TERMS as TERMS
from .terms import WEIGHT_SCALINGS as WEIGHT_SCALINGS
from .terms import Term as Term
from .terms import register as register
from .total import WeightedSum as WeightedSum

if TYPE_CHECKING:
    from .modules import ControlledTransfer as ControlledTransfer
    from .modules import CrossSpaceClustering as CrossSpaceClustering

# Modules of torch.nn, which need torch to be defined; the functions need it only when they are called.
__getattr__ = lazy_exports(__name__, {"ControlledTransfer": "modules", "CrossSpaceClustering": "modules"})
