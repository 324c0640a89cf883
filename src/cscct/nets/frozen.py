"""Split of a backbone into frozen stages and trained stages.

Both parts keep the names that their layers have in the backbone (`stem.0.weight`, `stages.5.0...`), so the weights of
both parts together are the weights of the backbone.
"""

from __future__ import annotations

from torch import Tensor, nn

from ..errors import UserError
from .growing import GrowingBackbone
from .staged import StagedBackbone, TrainedStages, stage_maps


class FrozenStages(nn.Module):
    """Stem and first stages of a backbone.

    Args:
        stem: Stem of the backbone.
        stages: Stages by their index in the backbone.
    """

    def __init__(self, stem: nn.Module, stages: dict[str, nn.Module]):
        super().__init__()
        self.stem, self.stages = stem, nn.ModuleDict(stages)

    def forward(self, images: Tensor) -> Tensor:
        """Return the map of the last frozen stage, shape (k, c', h', w').

        Args:
            images: Normalised images, shape (k, c, h, w).
        """
        x: Tensor = self.stem(images)
        return stage_maps(self.stages.values(), x)[-1] if self.stages else x


def split(backbone: nn.Module, stage: int) -> tuple[FrozenStages, nn.Module]:
    """Split a backbone. The parts share the modules of the backbone.

    Args:
        backbone: A `StagedBackbone`, or a `GrowingBackbone` with shared stages.
        stage: Index of the first trained stage.

    Returns:
        The stem with the stages before `stage`, and the remaining stages.

    Raises:
        UserError: If the backbone has no stages or no stage with this index.
    """
    staged = backbone.shared if isinstance(backbone, GrowingBackbone) else backbone
    if not isinstance(staged, StagedBackbone):
        raise UserError(
            f"network.train_from is {stage}, but {_name(backbone)} is not divided into stages: set it to 0, or make "
            "the backbone a subclass of cscct.nets.StagedBackbone."
        )
    count = len(staged.stages) + (staged is not backbone)  # of a growing backbone, the branches count as a stage
    if not 0 <= stage < count:
        raise UserError(
            f"network.train_from is {stage}, but {_name(backbone)} has the stages 0 to {count - 1}: set it to the "
            "index of the first stage to train."
        )
    stages = {str(index): module for index, module in enumerate(staged.stages)}
    frozen_stages = FrozenStages(staged.stem, {name: stages[name] for name in stages if int(name) < stage})
    remaining = {name: stages[name] for name in stages if int(name) >= stage}
    trained: nn.Module = TrainedStages(remaining, staged.features)
    if isinstance(backbone, GrowingBackbone):
        trained = backbone.with_shared(trained if remaining else None)
    return frozen_stages.eval().requires_grad_(False), trained


def join(frozen_stages: FrozenStages, trained: nn.Module) -> nn.Module:
    """Return the backbone that `split` divided, with the original names of its weights.

    Args:
        frozen_stages: Stem and first stages.
        trained: The remaining part of the backbone.
    """
    remaining = trained.shared if isinstance(trained, GrowingBackbone) else trained
    stages = list(frozen_stages.stages.values())
    if isinstance(remaining, TrainedStages):
        stages += remaining.stages.values()
    staged = StagedBackbone(frozen_stages.stem, stages, getattr(remaining, "features", 0))
    return trained.with_shared(staged) if isinstance(trained, GrowingBackbone) else staged


def _name(backbone: nn.Module) -> str:
    return f"the backbone {type(getattr(backbone, 'module', backbone)).__name__}"
