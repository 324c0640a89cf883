"""Learning without Forgetting (Li and Hoiem, ECCV 2016): distillation on the new images, without a memory."""

from .base import Method, register

LWF = register(
    Method(
        name="lwf",
        summary="logit distillation on the new images, without a memory",
        family="distillation",
        settings={
            "network": {"head": "linear", "relu_head": True, "imprint": "none", "freeze_old": False},
            "loss": {  # the new classes compete among each other only, the old ones keep their probabilities
                "new_cross_entropy": {"classes": "task"},
                "logit_distillation": {"weight": 3.0, "temperature": 2.0},
            },
            "memory": {"per_class": 0},
            "predict": {"predictor": "classifier"},
        },
        preset_from="lucir",
    )
)
