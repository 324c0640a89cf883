"""FOSTER (Wang et al., ECCV 2022): feature boosting and compression.

Boosting adds a feature extractor next to the frozen previous network. Compression then distils both into the first
extractor, so that the network does not grow. Rare classes have the larger weight w_c ∝ 1 / (1 − β^n_c) with n_c images:
logits are divided by it in the boosting, and the teacher's probabilities are multiplied by it in the compression: see
`losses/boosting.py`.
"""

from .base import Method, register
from .replay import LINEAR_NETWORK

_COMPRESSION = {"epochs": 130, "pool": "all", "part": "all", "teacher": "current", "reset": "compress"}
FOSTER = register(
    Method(
        name="foster",
        summary="a second feature extractor is trained on what the frozen network lacks, then both are compressed",
        family="architecture",
        settings={
            "network": {**LINEAR_NETWORK, "expand": "extractor"},
            "loss": {"boosting_cross_entropy": {}, "auxiliary_cross_entropy": {}, "logit_distillation": {}},
            "extension": {"auxiliary_classifier": {"merge_old": False}},
            "stages": {"compression": {**_COMPRESSION, "loss": {"balanced_distillation": {}}}},
            "predict": {"predictor": "classifier"},
        },
        preset_from="lucir",
    )
)
