"""A backbone divided into a trunk that keeps its weights and a top that is trained.

Both keep the names that their layers have in the whole backbone (`stem.0.weight`, `stages.5.0...`), so that the weights
of trunk and top together are those of the backbone.
"""

from __future__ import annotations

from torch import Tensor, nn

from ..errors import UserError
from .staged import StagedBackbone, maps_of


class Trunk(nn.Module):
    """The stem and the first stages: images in, the map that the top reads out."""

    def __init__(self, stem: nn.Module, stages: dict[str, nn.Module]):
        super().__init__()
        self.stem, self.stages = stem, nn.ModuleDict(stages)

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.stem(images)
        return maps_of(self.stages.values(), x)[-1] if self.stages else x


class Top(nn.Module):
    """The later stages as a backbone, whose input is what the trunk gives."""

    def __init__(self, stages: dict[str, nn.Module], features: int):
        super().__init__()
        self.stages, self.features = nn.ModuleDict(stages), features

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return maps_of(self.stages.values(), x)


def split(backbone: nn.Module, stage: int) -> tuple[Trunk, Top]:
    """The stem with the stages before `stage`, and the stages from it on. The modules are those of the backbone."""
    if not isinstance(backbone, StagedBackbone):
        raise UserError(
            f"network.train_from is {stage}, but {_name(backbone)} is not divided into stages: set it to 0, or make "
            "the backbone a subclass of cscct.nets.StagedBackbone."
        )
    count = len(backbone.stages)
    if not 0 <= stage < count:
        raise UserError(
            f"network.train_from is {stage}, but {_name(backbone)} has the stages 0 to {count - 1}: it names the first "
            "one that is trained."
        )
    numbered = {str(number): one for number, one in enumerate(backbone.stages)}
    trunk = Trunk(backbone.stem, {name: one for name, one in numbered.items() if int(name) < stage})
    top = Top({name: one for name, one in numbered.items() if int(name) >= stage}, backbone.features)
    return trunk.eval().requires_grad_(False), top


def join(trunk: Trunk, top: Top) -> StagedBackbone:
    """The whole backbone again, with the names of weights that it had."""
    return StagedBackbone(trunk.stem, [*trunk.stages.values(), *top.stages.values()], top.features)


def _name(backbone: nn.Module) -> str:
    return f"the backbone {type(getattr(backbone, 'module', backbone)).__name__}"
