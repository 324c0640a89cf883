"""Bounds that every method is compared with: no protection against forgetting, all images, and the memory alone."""

from .base import Method, register

_SETTINGS = {"loss": {"cross_entropy": {}}, "predict": {"predictor": "classifier"}}
_NETWORK = {"head": "linear", "relu_head": True, "imprint": "none", "freeze_old": False}

FINETUNE = register(
    Method(
        name="finetune",
        summary="lower bound: cross-entropy on the new images only, without a memory",
        family="bounds",
        settings={"network": _NETWORK, "memory": {"per_class": 0}, **_SETTINGS},
        preset_from="lucir",
    )
)

JOINT = register(
    Method(
        name="joint",
        summary="upper bound: after each task, a new network is trained on all images of all classes seen",
        family="bounds",
        settings={"network": _NETWORK, "train": {"reset": "network"}, "memory": {"policy": "all"}, **_SETTINGS},
        preset_from="lucir",
    )
)

# Prabhu et al., ECCV 2020
GDUMB = register(
    Method(
        name="gdumb",
        summary="after each task, a new network is trained on a random balanced memory only",
        family="bounds",
        settings={
            "network": _NETWORK,
            "train": {"pool": "balanced", "reset": "network"},
            "memory": {"herding": "random"},
            **_SETTINGS,
        },
        preset_from="lucir",
    )
)
