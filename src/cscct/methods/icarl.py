"""iCaRL (Rebuffi et al., CVPR 2017) twice.

`icarl` is the variant in the released CSCCT code, from which the paper's numbers presumably come (an inference: the
paper does not say): LUCIR's network and head, with distillation of the old logits. `icarl-bce` is the original loss, as
PODNet's code has it.
"""

from .base import Method, register

ICARL = register(
    Method(
        name="icarl",
        summary="cosine classifier trained with logit distillation, nearest mean of exemplars",
        settings={
            "network": {"head": "cosine", "imprint": "mean", "freeze_old": True},
            "loss": {"cross_entropy": {}, "logit_distillation": {"weight": 1.0, "temperature": 2.0}},
            "predict": {"headline": "nme"},
        },
        # Little holds its features, and the sum of both would move them more than the plain one does.
        additions={"balanced_cross_entropy": {"instead": True}},
        # Nearest means make up for a classifier that favours new classes, which this one then does not.
        headlines={"balanced_cross_entropy": "classifier"},
    )
)

ICARL_BCE = register(
    Method(
        name="icarl-bce",
        summary="the original iCaRL: linear classifier, binary cross-entropy with the teacher's sigmoids",
        settings={
            "network": {"head": "linear", "relu_head": True, "imprint": "none", "freeze_old": False},
            "loss": {"bce_distillation": {}},
            "predict": {"headline": "nme"},
        },
    )
)
