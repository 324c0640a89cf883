"""ER-ACE (Caccia et al., ICLR 2022): new samples are told apart among the new classes only, exemplars among all."""

from .base import Method, register

ER_ACE = register(
    Method(
        name="er-ace",
        summary="replay whose new samples see only the logits of their own task",
        settings={
            "network": {"head": "linear", "relu_head": True, "imprint": "none", "freeze_old": False},
            "loss": {"new_cross_entropy": {"classes": "task"}, "memory_cross_entropy": {"holds": "seen"}},
            "predict": {"headline": "classifier"},
        },
        like="der++",
    )
)
