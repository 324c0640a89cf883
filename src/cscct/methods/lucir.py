"""LUCIR (Hou et al., CVPR 2019): cosine head, frozen old rows, features kept in direction, old classes kept clear."""

from .base import Method, register

LUCIR = register(
    Method(
        name="lucir",
        summary="cosine classifier, less-forget constraint, margin ranking",
        settings={
            "network": {"head": "cosine", "imprint": "mean", "freeze_old": True},
            "loss": {
                "cross_entropy": {},
                "less_forget": {"weight": 5.0, "growth": "sqrt_old_over_new"},
                "margin_ranking": {"weight": 1.0, "k": 2, "margin": 0.5},
            },
            "predict": {"headline": "classifier"},
        },
        additions={"balanced_cross_entropy": {"instead": True}},
    )
)
