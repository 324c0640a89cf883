"""A training step with random values, for tests of all loss terms."""

import torch
from torch import Tensor

from cscct.losses import TERMS
from cscct.structs import Batch, Output, SeenClasses, Step, Task

# Terms that are functions of a step alone; those that read the state of an extension are tested with their methods
STATELESS = sorted(name for name, term in TERMS.items() if not term.reads_extension)
TASK = Task(index=1, n_old=3, n_new=2)
COUNTS = torch.tensor([4, 2, 3, 30, 50])


def make_output(k: int, classes: int, dtype: torch.dtype, gen: torch.Generator) -> Output:
    def leaf(*shape: int) -> Tensor:
        return torch.randn(shape, generator=gen, dtype=torch.float64).to(dtype).requires_grad_()

    scale = torch.tensor(1.5, dtype=dtype, requires_grad=True)
    return Output((leaf(k, 2, 4, 4), leaf(k, 3, 2, 2)), leaf(k, 6), leaf(k, classes), scale)


def make_step(
    k: int = 9,
    dtype: torch.dtype = torch.float64,
    labels: Tensor | None = None,
    teacher_dtype: torch.dtype | None = None,
) -> Step:
    """Return a step of the second task. All outputs require gradients, also those of the teacher."""
    gen = torch.Generator().manual_seed(7)
    student = make_output(k, TASK.n_seen, dtype, gen)
    teacher = make_output(k, TASK.n_old, teacher_dtype or dtype, gen)
    if labels is None:
        labels = torch.arange(k) % TASK.n_seen
    is_new = labels >= TASK.n_old
    carried = torch.randn(k, TASK.n_old, generator=gen, dtype=torch.float64)
    carried[is_new] = torch.nan
    carried[labels == 1, 2:] = torch.nan  # stored when two classes were known
    means = torch.randn(TASK.n_seen, 6, generator=gen, dtype=torch.float64)
    classes = SeenClasses(torch.nn.functional.normalize(means, dim=1), COUNTS)
    return Step(Batch(torch.zeros(k, 1, 2, 2), labels, is_new, carried), student, teacher, TASK, classes)


def tensors_of(output: Output) -> dict[str, Tensor]:
    """The tensors of an output by name."""
    maps = {f"map {i}": tensor for i, tensor in enumerate(output.maps)}
    return {**maps, "features": output.features, "scores": output.scores, "scale": output.scale}


def gradients_of(value: Tensor, output: Output) -> dict[str, Tensor]:
    """The gradient of a value with respect to each tensor of an output, zero where it does not depend on it."""
    tensors = tensors_of(output)
    gradients = torch.autograd.grad(value, list(tensors.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(tensors, gradients, strict=True))


def select(step: Step, rows: Tensor) -> Step:
    """The step with some of its samples."""

    def rows_of(output: Output) -> Output:
        maps = tuple(tensor[rows] for tensor in output.maps)
        return Output(maps, output.features[rows], output.scores[rows], output.scale)

    assert step.teacher is not None
    batch = Batch(*(tensor[rows] for tensor in step.batch if tensor is not None))
    return Step(batch, rows_of(step.student), rows_of(step.teacher), step.task, step.classes)
