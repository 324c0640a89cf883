"""Backbones that grow with the tasks."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Generator, Tensor, nn

from ..errors import UserError
from .staged import StagedBackbone, TrainedStages


class GrowingBackbone(nn.Module):
    """Branches whose feature maps are concatenated. Each task adds a branch; earlier branches are frozen.

    A subclass may override `new_branch`.

    Args:
        branch: First branch: a module that returns a tuple of maps.
        width: Channels of the last map of a branch.
        shared: Module that returns a tuple of maps, of which the last one is the input of the branches; None: the
            branches read the images.

    Attributes:
        branches: All branches, oldest first.
    """

    def __init__(self, branch: nn.Module, width: int, shared: nn.Module | None = None):
        super().__init__()
        self.shared, self.width = shared, width
        self.branches = nn.ModuleList([branch])

    @property
    def features(self) -> int:
        """Dimension of the features."""
        return self.width * len(self.branches)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the maps of the shared stages, then those of the branches, concatenated along the channels.

        Args:
            images: Normalised images, shape (k, c, h, w).
        """
        shared: tuple[Tensor, ...] = () if self.shared is None else self.shared(images)
        outputs = [branch(shared[-1] if shared else images) for branch in self.branches]
        return (*shared, *(torch.cat(maps, dim=1) for maps in zip(*outputs, strict=True)))

    def train(self, mode: bool = True) -> GrowingBackbone:
        """Set the training mode. Earlier branches stay in evaluation mode.

        Args:
            mode: Whether to set training mode (True) or evaluation mode (False).
        """
        super().train(mode)
        self.branches[:-1].eval()
        return self

    def new_branch(self, generator: Generator) -> nn.Module:
        """Return the branch of a new task: a copy of the newest one.

        Args:
            generator: Source of random numbers.
        """
        return copy.deepcopy(self.branches[-1])

    def grow(self, generator: Generator) -> None:
        """Add a branch.

        Args:
            generator: Source of random numbers.
        """
        branch = self.new_branch(generator)
        self.branches.requires_grad_(False)
        self.branches.append(branch.requires_grad_(True))

    def compress(self) -> None:
        """Remove all branches but the first."""
        del self.branches[1:]
        self.branches.requires_grad_(True)

    def trained(self, *, newest: bool) -> list[nn.Parameter]:
        """Return the parameters to train. Those of earlier branches are frozen.

        Args:
            newest: Whether the shared stages are frozen, too.
        """
        self.requires_grad_(not newest)
        self.branches.requires_grad_(False)
        self.branches[-1].requires_grad_(True)
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def with_shared(self, shared: nn.Module | None) -> GrowingBackbone:
        """Return a backbone with the same branches and other shared stages.

        Args:
            shared: Shared stages, or None.
        """
        other = copy.copy(self)
        other._modules = {**self._modules}
        other.shared = shared
        return other

    def resize(self, names: Iterable[str]) -> None:
        """Change the number of branches so that a state dict can be loaded.

        Args:
            names: Names of its tensors.
        """
        count = 1 + max(int(name.split(".")[1]) for name in names if name.startswith("branches."))
        del self.branches[count:]
        while len(self.branches) < count:
            self.branches.append(copy.deepcopy(self.branches[-1]))


def growing_backbone(backbone: nn.Module, expand: str, train_from: int = 0) -> GrowingBackbone:
    """Return a backbone that grows.

    Args:
        backbone: Backbone of the first task.
        expand: `extractor`: each task adds a copy of the backbone, without its first `train_from` stages, which all
            tasks share; `block`: each task adds a copy of its last stage.
        train_from: Index of the first stage that is not shared by all tasks, for `extractor`.

    Raises:
        UserError: If the backbone has no stages to share.
    """
    width: int = backbone.features  # type: ignore[assignment]
    if expand == "extractor" and not train_from:
        return GrowingBackbone(backbone, width)
    if not isinstance(backbone, StagedBackbone):
        raise UserError(
            f"network.expand is {expand}, but the backbone {type(backbone).__name__} is not divided into stages: set "
            "network.expand to extractor and network.train_from to 0."
        )
    first = len(backbone.stages) - 1 if expand == "block" else train_from
    stages = {str(index): stage for index, stage in enumerate(backbone.stages)}
    shared = StagedBackbone(backbone.stem, list(backbone.stages)[:first], 0)
    branch = TrainedStages({str(index): stages[str(index)] for index in range(first, len(stages))}, width)
    return GrowingBackbone(branch, width, shared)
