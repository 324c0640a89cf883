"""Logit matching on the memory, after Dark Experience Replay (Buzzega et al., NeurIPS 2020).

Cross-entropy on everything, and on samples from the memory the old classes' logits stay where the previous network
had them. DER itself learns online and stores the logits with each exemplar; here the previous network recomputes them.
"""

from dataclasses import dataclass

from torch import Tensor

from cscct.losses import Term
from cscct.losses import register as register_loss
from cscct.methods import Method
from cscct.methods import register as register_method
from cscct.structs import Step


def logit_matching(logits: Tensor, teacher_logits: Tensor, is_new: Tensor) -> Tensor:
    """Mean squared difference of the old classes' logits, over samples from the memory.

    logits: (k, seen); teacher_logits: (k, old); is_new: (k,) bool. Zero, connected to the graph, without such samples.
    """
    if is_new.all():
        return logits.sum() * 0.0
    old = logits[~is_new, : teacher_logits.shape[1]]
    return (old - teacher_logits[~is_new].detach()).square().mean()


@register_loss
@dataclass(frozen=True)
class LogitMatching(Term):
    weight: float = 0.5

    name = "logit_matching"
    function = staticmethod(logit_matching)
    trains_head = True  # depends on the classifier's weights, so a stage that trains only those keeps it

    def value(self, step: Step) -> Tensor:
        assert step.teacher is not None  # not active in the first task, and reads_teacher is True by default
        return logit_matching(step.student.logits, step.teacher.logits, step.batch.is_new)


register_method(
    Method(
        name="der",
        summary="cosine classifier, cross-entropy, old logits matched on the memory",
        settings={
            "network": {"head": "cosine", "imprint": "none", "freeze_old": False},
            "loss": {"cross_entropy": {}, "logit_matching": {"weight": 0.5}},
            "predict": {"headline": "classifier"},
        },
        like="lucir",
    )
)
