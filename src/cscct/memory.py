"""Exemplar memory: the stored samples of each class and the targets stored with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from .features import HERDINGS, herd
from .lazy import lazy_module
from .registry import Registry
from .specs import MemorySpec
from .structs import Output

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_module("torch")

__all__ = ["HERDINGS", "STORED_TARGETS", "Memory", "StoredTarget", "herd", "pad_stored"]

# Output of the network for k images -> values stored with each image, shape (k, n)
StoredTarget = Callable[[Output], "Tensor"]
STORED_TARGETS: Registry[StoredTarget] = Registry("stored target")
STORED_TARGETS["logits"] = lambda output: output.logits
STORED_TARGETS["features"] = lambda output: output.features


class Memory:
    """Exemplars of each class.

    Attributes:
        spec: Memory settings.
        exemplars: Dataset indices of the exemplars of each class, in rank order. A smaller quota keeps the first ones.
        stored: Targets stored with the exemplars of each class, shape (exemplars, n). Empty unless `memory.store` is
            set.
    """

    def __init__(self, spec: MemorySpec):
        self.spec = spec
        self.exemplars: dict[int, list[int]] = {}
        self.stored: dict[int, Tensor] = {}

    def quota(self, classes_seen: int) -> int:
        """Return the maximum number of exemplars per class.

        Args:
            classes_seen: Number of classes that share the memory.
        """
        return self.spec.exemplars_of(classes_seen)

    def shrink(self, classes_seen: int) -> None:
        """Reduce each class to the current quota.

        Args:
            classes_seen: Number of classes that share the memory.
        """
        quota = self.quota(classes_seen)
        self.exemplars = {label: ranked[:quota] for label, ranked in self.exemplars.items()}
        self.stored = {label: rows[:quota] for label, rows in self.stored.items()}

    def keep(self, label: int, indices: list[int], features: Tensor, classes_seen: int) -> None:
        """Select the exemplars of a class by herding.

        Args:
            label: Class label.
            indices: Dataset indices of the samples of the class.
            features: Features of these samples, shape (n, d).
            classes_seen: Number of classes that share the memory.
        """
        if self.spec.policy == "all":
            self.exemplars[label] = list(indices)
            return
        ranks = herd(features, self.quota(classes_seen), self.spec.herding)
        self.exemplars[label] = [indices[rank] for rank in ranks]


def pad_stored(stored: Mapping[int, Tensor], exemplars: Sequence[tuple[int, Sequence[int]]]) -> Tensor | None:
    """Concatenate the stored targets of several classes.

    Targets that were stored when fewer classes were known are shorter and are padded with NaN.

    Args:
        stored: Stored targets of each class, shape (exemplars, n).
        exemplars: Label and exemplar indices of each class, in the order of the result.

    Returns:
        Matrix with one row per exemplar and the width of the longest target, or None if nothing is stored.
    """
    if not stored:
        return None
    width = max(rows.shape[1] for rows in stored.values())
    blocks = []
    for label, ranked in exemplars:
        block = torch.full((len(ranked), width), torch.nan)
        if label in stored:
            block[:, : stored[label].shape[1]] = stored[label]
        blocks.append(block)
    return torch.cat(blocks)
