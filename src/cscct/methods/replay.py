"""Plain replay, the baseline: new images and exemplars, cross-entropy, everything trains, nothing is distilled."""

from .base import Method, register

REPLAY = register(
    Method(
        name="replay",
        summary="cross-entropy on new images and exemplars, nothing else",
        settings={
            "network": {"head": "cosine", "imprint": "none", "freeze_old": False},
            "loss": {"cross_entropy": {}},
            "predict": {"headline": "classifier"},
        },
        like="lucir",
    )
)
