"""The second task of CIFAR-100 with B=50, C=5, part by part, relative to the same passes in plain torch.

The floor runs after each step and each batch of the package, so that changes of the machine's speed affect both. For
each step it runs forward and backward passes of a student, a forward pass of a teacher and an SGD step, on a prepared
batch; for each batch without training, one forward pass. Networks are neither folded nor compiled, channels last.

Half of the images and one epoch are measured, and the seconds are scaled to all 3,500 images and two epochs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from cscct.learn import loop
from cscct.learn.learner import Learner
from cscct.learn.state import state_tensors
from cscct.losses import WeightedSum
from cscct.nets import Network
from cscct.runs.checkpoints import Checkpoints
from cscct.structs import Batch, Output
from parts import Clock, Listener, Size, after_first_task, random_batch, second_task_dataset

BASES = ("icarl", "lucir", "podnet")
FULL_EXEMPLARS, FULL_EPOCHS = 20, 2  # of the task that the seconds are scaled to
TRAINING = ("data", "student", "teacher", "losses", "optimiser", "other", "training")  # parts of each epoch
PARTS = (  # in the order of the table
    "data",
    "student",
    "teacher",
    "losses",
    "optimiser",
    "fine-tuning",
    "imprinting",
    "herding",
    "class means",
    "evaluation",
    "checkpoint",
    "other",
)


class Floor:
    """The passes in plain torch, on copies of the networks of the learner."""

    def __init__(self, network: Network):
        self.student, self.reader = copy.deepcopy(network).train(), network.frozen_copy()
        self.optimisers = {
            "train": self._sgd(list(self.student.parameters())),
            "finetune": self._sgd(list(self.student.head.parameters())),
        }
        self.batch = cache(random_batch)

    def _sgd(self, parameters: list[torch.nn.Parameter]) -> torch.optim.SGD:
        return torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=5e-4)

    def step(self, stage: str, batch: Batch) -> None:
        self.student.backbone.requires_grad_(stage == "train")
        if stage == "train":
            self.read(batch.images)
        self.student.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.student(batch.images).logits, batch.labels)
        torch.autograd.backward(loss)  # not loss.backward(), which is timed
        self.optimisers[stage].step()

    @torch.no_grad()
    def read(self, images: Tensor) -> None:
        self.reader(images)


@contextmanager
def watched(learner: Learner, clock: Clock) -> Iterator[Listener]:
    """Let each part of the learner report to the clock, and run the corresponding passes of the floor after it."""
    floors: list[Floor] = []  # created at the first step or batch, when the head has all weights

    def floor() -> Floor:
        if not floors or floors[0].student.head.classes != learner.network.head.classes:
            floors[:] = [Floor(learner.network)]
        return floors[0]

    def after_step(stage: str, images: int) -> None:
        with clock.during("not counted"):
            bare = floor()
            batch = bare.batch(images)
        with clock.during(f"floor: {'training' if stage == 'train' else 'fine-tuning'}"):
            bare.step(stage, batch)

    def reading(network: Network) -> Callable[[Tensor], Output]:
        prepared = prepare(network)

        def read(images: Tensor) -> Output:
            output = prepared(images)
            part = clock.current
            with clock.during("not counted"):
                bare = floor()
            with clock.during(f"floor: {part}"):
                bare.read(images)
            return output

        return read

    def student(network: Network, images: Tensor) -> Output:
        """Time the forward pass, and the backward pass from the gradient of the last map on."""
        if network is not learner.network:
            return forward(network, images)
        with clock.during("student"):
            output = forward(network, images)
        if output.maps[-1].requires_grad:
            output.maps[-1].register_hook(begin_student)
        return output

    def begin_student(gradient: Tensor) -> None:
        clock.switch("student")

    def backward(loss: Tensor, *more: Any, **named: Any) -> None:
        with clock.during("losses"):
            real_backward(loss, *more, **named)

    def timed_optimizer(*arguments: Any) -> torch.optim.Optimizer:
        """Return the optimiser of the learner with timed steps. Steps of the floor are not counted."""
        optimizer = build_optimizer(*arguments)
        optimizer.step = clock.timed("optimiser", optimizer.step)  # type: ignore[method-assign]
        return optimizer

    build_optimizer = loop.build_optimizer
    forward, prepare, real_backward = Network.forward, learner.prepare, torch.Tensor.backward
    class_features, run_stage = learner._class_features, learner._run_stage
    total = WeightedSum.__call__

    def features(*arguments: Any) -> Any:
        with clock.during("imprinting" if clock.current == "other" else clock.current):
            return class_features(*arguments)

    def stage(name: str, *arguments: Any) -> None:
        """Count the steps of later stages as fine-tuning."""
        if name == "train":
            run_stage(name, *arguments)
            return
        with clock.during("fine-tuning"):
            before = dict(clock.parts)
            run_stage(name, *arguments)
        for part in ("data", "student", "teacher", "losses", "optimiser"):
            spent = clock.parts[part] - before.get(part, 0.0)
            clock.parts[part] -= spent
            clock.parts["fine-tuning"] += spent

    replaced = [
        (learner, "prepare", lambda network: clock.timed("teacher", prepare(network))),
        (learner.evaluator, "prepare", reading),
        (learner.evaluator, "class_means", clock.timed("class means", learner.evaluator.class_means)),
        (Network, "forward", student),
        (learner, "_batches", clock.each("data", learner._batches)),
        (learner, "_class_features", features),
        (learner, "_compare_classes", clock.timed("imprinting", learner._compare_classes)),
        (learner, "_initial_weights", clock.timed("imprinting", learner._initial_weights)),
        (learner, "_herd", clock.timed("herding", learner._herd)),
        (learner, "_run_stage", stage),
        (learner, "evaluate", clock.timed("evaluation", learner.evaluate)),
        (torch.Tensor, "backward", backward),
        (WeightedSum, "__call__", lambda *arguments: clock.timed("losses", total)(*arguments)),
        (loop, "build_optimizer", timed_optimizer),
    ]
    with ExitStack() as stack:
        for owner, name, new in replaced:
            stack.enter_context(patch.object(owner, name, new))
        yield Listener(after_step)


def second_task(method: str, size: Size) -> dict[str, dict[str, float]]:
    """Return the seconds of each part, of the package and of the floor."""
    learner, _ = after_first_task(method, size, second_task_dataset(size))
    task, clock = learner.stream.tasks[1], Clock()
    with watched(learner, clock) as listener, TemporaryDirectory(dir=".") as folder:  # on a disk
        checkpoints = Checkpoints(Path(folder) / "checkpoints")
        clock.switch("other")
        learner.learn(task, listener)
        learner.evaluate(task)
        with clock.during("checkpoint"):
            checkpoints.save(state_tensors(learner), {"exemplars": learner.memory.exemplars})
        clock.switch("other")
    floor = {part.removeprefix("floor: "): s for part, s in clock.parts.items() if part.startswith("floor: ")}
    return {"package": {part: clock.parts[part] for part in PARTS}, "floor": floor}


def in_full(seconds: dict[str, float], size: Size) -> dict[str, float]:
    """Return the seconds of the task with all images and epochs."""
    images, epochs = FULL_EXEMPLARS / size.exemplars, FULL_EPOCHS / size.epochs
    factors = {part: images * epochs if part in TRAINING else 1 if part == "checkpoint" else images for part in seconds}
    return {part: value * factors[part] for part, value in seconds.items()}


def measure(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    second_task("podnet", Size(size.threads, exemplars=1, depth=8, batch=16, epochs=1))  # warm-up
    results = {}
    for method in (name for base in BASES for name in (base, f"{base}+cscct")):
        measured = second_task(method, size)
        results[method] = {side: in_full(seconds, size) for side, seconds in measured.items()}
        total, floor = (sum(results[method][side].values()) for side in ("package", "floor"))
        say(f"{method}: {total:.1f} s, floor {floor:.1f} s, {total / floor:.3f} of it")
    return results


def ratios(results: dict[str, Any]) -> dict[str, float]:
    figures = {}
    against = {
        method: sum(entry["package"].values()) / sum(entry["floor"].values()) for method, entry in results.items()
    }
    for method, ratio in against.items():
        figures[f"{method} / floor"] = ratio
    for base in BASES:
        figures[f"{base}+cscct / {base} - 1"] = against[f"{base}+cscct"] / against[base] - 1
    for part in ("herding", "class means"):
        sums = [sum(entry[side][part] for entry in results.values()) for side in ("package", "floor")]
        figures[f"{part} / forward pass"] = sums[0] / sums[1]
    return figures
