"""Methods that replay exemplars and distil nothing from the previous network."""

from .base import Method, register

LINEAR_NETWORK = {"head": "linear", "relu_head": True, "imprint": "none", "freeze_old": False}

# The baseline: everything is trained.
REPLAY = register(
    Method(
        name="replay",
        summary="cross-entropy on new images and exemplars, nothing else",
        family="replay",
        settings={
            "network": {"head": "cosine", "imprint": "none", "freeze_old": False},
            "loss": {"cross_entropy": {}},
            "predict": {"predictor": "classifier"},
        },
        preset_from="lucir",
    )
)

# Caccia et al., ICLR 2022: the softmax of new samples is over the new classes only, that of exemplars over all.
ER_ACE = register(
    Method(
        name="er-ace",
        summary="replay whose new samples see only the logits of their own task",
        family="replay",
        settings={
            "network": LINEAR_NETWORK,
            "loss": {"new_cross_entropy": {"classes": "task"}, "memory_cross_entropy": {"holds": "seen"}},
            "predict": {"predictor": "classifier"},
        },
        preset_from="der++",
    )
)

# Buzzega et al., NeurIPS 2020: exemplars are stored with their labels and logits.
DERPP = register(
    Method(
        name="der++",
        summary="replay of exemplars with the logits they had when they were stored",
        family="replay",
        settings={
            "network": LINEAR_NETWORK,
            "loss": {  # alpha and beta of Mammoth's configuration for CIFAR-100
                "new_cross_entropy": {"classes": "seen"},
                "logit_replay": {"weight": 0.3},
                "memory_cross_entropy": {"weight": 0.5},
            },
            "memory": {"store": "logits"},
            "predict": {"predictor": "classifier"},
        },
    )
)
