"""Methods without training: the network stays as it is, so nothing is forgotten. Meant for pretrained backbones.

The classes are told apart by statistics of the features of all their images, which are kept.
"""

from .base import Method, register

SUMMARIES = {
    "ncm": "no training: nearest class mean on the features of the network as it is, best a pretrained one",
    "lda": "no training: linear discriminant analysis on these features",
    "ridge": "no training: ridge regression on these features",
}
for name, headline in (("ncm", "nme"), ("lda", "lda"), ("ridge", "ridge")):
    register(
        Method(
            name=name,
            summary=SUMMARIES[name],
            settings={
                "network": {"head": "cosine", "trained": False},
                "loss": {},
                "predict": {"headline": headline},
            },
            like="lucir",
        )
    )
