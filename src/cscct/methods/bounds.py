"""Bounds that every method is compared with: no protection against forgetting, all images, and the memory alone.

Network and loss are those of `replay`, so that they differ from it by the images alone.
"""

from .base import Method, register
from .replay import REPLAY

FINETUNE = register(
    Method(
        name="finetune",
        summary="lower bound: cross-entropy on the new images only, without a memory",
        family="bounds",
        settings={**REPLAY.settings, "memory": {"per_class": 0}},
        preset_from="lucir",
    )
)

JOINT = register(
    Method(
        name="joint",
        summary="upper bound: after each task, a new network is trained on all images of all classes seen",
        family="bounds",
        settings={**REPLAY.settings, "train": {"reset": "network"}, "memory": {"policy": "all"}},
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
            **REPLAY.settings,
            "train": {"pool": "balanced", "reset": "network"},
            "memory": {"herding": "random"},
        },
        preset_from="lucir",
    )
)
