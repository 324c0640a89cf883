"""End-to-end incremental learning (Castro et al., ECCV 2018).

The loss is L_C + Σ_f L_D,f: cross-entropy, and for each earlier task f the distillation of its classes at temperature
T = 2, −mean Σ_j p_j log q_j with p = softmax(teacher's logits of f / T), q = softmax(logits of f / T). A second stage
trains on a balanced set with the network at its start as teacher, so that f includes the new task.
"""

from .base import Method, register
from .replay import LINEAR_NETWORK

EEIL = register(
    Method(
        name="eeil",
        summary="distillation of each earlier task; then a balanced stage, distilled from the network before it",
        family="replay",
        settings={
            "network": LINEAR_NETWORK,
            "loss": {"cross_entropy": {}, "task_distillation": {"temperature": 2.0}},
            "stages": {"balanced": {"epochs": 30, "lr": 0.01, "part": "all", "teacher": "current"}},
            "predict": {"predictor": "classifier"},
        },
        preset_from="lucir",
    )
)
