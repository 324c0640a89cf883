"""Methods that distil the previous network and keep the head as it was trained: iCaRL, LUCIR and PODNet.

`icarl` is the variant in the released CSCCT code: LUCIR's network and head, with distillation of the old logits. The
paper's numbers presumably come from it; the paper does not say so. `icarl-bce` has the original loss, as in PODNet's
code.
"""

from .base import Method, register

_COSINE_NETWORK = {"head": "cosine", "imprint": "mean", "freeze_old": True}

# Rebuffi et al., CVPR 2017
ICARL = register(
    Method(
        name="icarl",
        summary="cosine classifier trained with logit distillation, nearest mean of exemplars",
        family="distillation",
        settings={
            "network": _COSINE_NETWORK,
            "loss": {"cross_entropy": {}, "logit_distillation": {"weight": 1.0, "temperature": 2.0}},
            "predict": {"predictor": "nme"},
        },
        # Its features are constrained little: the sum of both losses would move them more than the base loss does.
        addon_settings={"balanced_cross_entropy": {"replaces_base_loss": True}},
        # Nearest means compensate for a classifier that favours new classes; the balanced one does not.
        addon_predictors={"balanced_cross_entropy": "classifier"},
    )
)

ICARL_BCE = register(
    Method(
        name="icarl-bce",
        summary="the original iCaRL: linear classifier, binary cross-entropy with the teacher's sigmoids",
        family="distillation",
        settings={
            "network": {"head": "linear", "relu_head": True, "imprint": "none", "freeze_old": False},
            "loss": {"bce_distillation": {}},
            "predict": {"predictor": "nme"},
        },
    )
)

# Hou et al., CVPR 2019
LUCIR = register(
    Method(
        name="lucir",
        summary="cosine classifier, less-forget constraint, margin ranking",
        family="distillation",
        settings={
            "network": _COSINE_NETWORK,
            "loss": {
                "cross_entropy": {},
                "less_forget": {"weight": 5.0, "weight_scaling": "sqrt_old_over_new"},
                "margin_ranking": {"weight": 1.0, "k": 2, "margin": 0.5},
            },
            "predict": {"predictor": "classifier"},
        },
    )
)

# Douillard et al., ECCV 2020, with the classifier as predictor (PODNet-CNN)
PODNET = register(
    Method(
        name="podnet",
        summary="pooled-outputs distillation, multi-proxy classifier, balanced fine-tuning",
        family="distillation",
        settings={
            "network": {"head": "proxies", "proxies_per_class": 10, "imprint": "kmeans", "freeze_old": True},
            "loss": {
                "nca": {"margin": 0.6, "form": "official"},
                "pod_spatial": {"weight": 3.0, "weight_scaling": "sqrt_seen_over_new"},
                "pod_flat": {"weight": 1.0, "weight_scaling": "sqrt_seen_over_new"},
            },
            "train": {"clip_grad_value": 5.0},
            "finetune": {"epochs": 20, "lr": 0.05, "batch_norm": "update", "clip_grad_value": 5.0},
            "predict": {"predictor": "classifier"},
        },
        addon_settings={"balanced_cross_entropy": {"replaces_base_loss": True}},
    )
)
