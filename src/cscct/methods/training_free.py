"""Methods without training, for pretrained backbones.

The network does not change, so nothing is forgotten. Classes are predicted from statistics of the features of all their
images, which are kept.
"""

from .base import Method, register


def training_free(name: str, predictor: str, summary: str) -> Method:
    """Register the method that predicts with a predictor on features and trains nothing.

    Args:
        name: Name of the method.
        predictor: Value of `predict.predictor`.
        summary: One line for `cscct list`.
    """
    network = {"head": "cosine", "train_backbone": False}
    settings = {"network": network, "loss": {}, "predict": {"predictor": predictor}}
    return register(Method(name, summary, settings, preset_from="lucir", family="training-free"))


NCM = training_free("ncm", "nme", "no training: nearest class mean of the features, best of a pretrained network")
LDA = training_free("lda", "lda", "no training: linear discriminant analysis of these features")
RIDGE = training_free("ridge", "ridge", "no training: ridge regression on these features")
