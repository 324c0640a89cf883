"""MEMO (Zhou et al., ICLR 2023): each task adds a copy of the last stage of the backbone; earlier stages are shared."""

from .base import Method, register

MEMO = register(
    Method(
        name="memo",
        summary="each task adds a copy of the last stage; auxiliary classifier on the new features, aligned norms",
        family="architecture",
        settings={
            "network": {
                "head": "linear",
                "relu_head": True,
                "imprint": "none",
                "freeze_old": False,
                "expand": "block",
                "after_task": "align_norms",
            },
            "loss": {"cross_entropy": {}, "auxiliary_cross_entropy": {}},
            "extension": {"auxiliary_classifier": {}},
            "predict": {"predictor": "classifier"},
        },
        preset_from="lucir",
    )
)
