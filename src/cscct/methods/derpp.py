"""DER++ (Buzzega et al., NeurIPS 2020): exemplars keep their labels and the logits they had when they were stored."""

from .base import Method, register

DERPP = register(
    Method(
        name="der++",
        summary="replay whose exemplars carry the logits they had when they were stored",
        settings={
            "network": {"head": "linear", "relu_head": True, "imprint": "none", "freeze_old": False},
            "loss": {  # alpha and beta of Mammoth's configuration for CIFAR-100
                "new_cross_entropy": {"classes": "seen"},
                "logit_replay": {"weight": 0.3},
                "memory_cross_entropy": {"weight": 0.5},
            },
            "memory": {"carry": "logits"},
            "predict": {"headline": "classifier"},
        },
    )
)
