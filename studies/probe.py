"""Measures the effect of each loss on the features:

python studies/probe.py STUDY.yaml [--data-dir DIR] [--seed N] [--tasks N] [--plugin FILE]

For every method of the study, it learns the first tasks and prints as CSV:

- for each loss term, the mean norm of its gradient with respect to the features, for samples of old classes (the
  exemplars) and of new classes, as a share of the sum over all terms. Terms that do not act through the features, such
  as PODNet's spatial distillation of maps, are missing.
- for the test images of old classes, from before a task to after it: the drift of class means (1 - cosine), the
  distance of images from the mean of their class (within) and between class means (between).
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from cscct.learn.build import build_learner, build_stream
from cscct.learn.learner import Learner
from cscct.learn.protocol import complete
from cscct.losses import Term, WeightedSum
from cscct.plugins import load_plugins
from cscct.runs.listeners import Listener
from cscct.structs import Step, Task
from cscct.studies.datasets import load_dataset
from cscct.studies.grid import parse_study, plan_study
from cscct.yamltext import read_config

COLUMNS = ("method", "seed", "task", "what", "of", "value")


@dataclass(frozen=True)
class GradientProbe(Term):
    """A zero loss that records the gradients of the other terms with respect to the features."""

    terms: tuple[Term, ...] = ()
    norms: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    name = "probe"
    trains_head = False

    def value(self, step: Step) -> Tensor:
        features = step.student.features
        for term, weight in WeightedSum(self.terms, step.task).terms:
            (gradient,) = torch.autograd.grad(weight * term.value(step), features, retain_graph=True, allow_unused=True)
            for samples, mask in (("old", ~step.batch.is_new), ("new", step.batch.is_new)):
                if gradient is not None and mask.any():
                    self.norms[samples, term.name].append(float(gradient[mask].norm(dim=1).mean()))
        return features.sum() * 0.0

    def shares(self) -> Iterator[tuple[str, str, float]]:
        """Yield samples (`old` or `new`), the name of a term and its share of the sum of mean norms."""
        means = {key: sum(values) / len(values) for key, values in self.norms.items()}
        for (samples, name), mean in means.items():
            yield samples, name, mean / sum(norm for (group, _), norm in means.items() if group == samples)


def features_and_means(learner: Learner, classes: int) -> tuple[Tensor, Tensor]:
    """Return unit features of the test images of the first `classes` classes, and the mean direction of their class."""
    indices, labels = learner.stream.seen_images(classes)
    features = F.normalize(learner.evaluator.features(learner.stream.test_view, indices), dim=1)
    means = torch.stack([features[labels == label].mean(dim=0) for label in range(classes)])
    return features, F.normalize(means, dim=1)[labels]


def geometry(learner: Learner, task: Task, before: tuple[Tensor, Tensor]) -> dict[str, float]:
    """Return drift, within and between after a task. `before` is the result of `features_and_means` before it."""
    features, class_means = features_and_means(learner, task.n_old)
    means = class_means.unique(dim=0)
    cosines = means @ means.T
    between = (cosines.sum() - cosines.diagonal().sum()) / (len(means) * (len(means) - 1))
    return {
        "drift": float(1 - (class_means * before[1]).sum(dim=1).mean()),
        "within": float(1 - (features * class_means).sum(dim=1).mean()),
        "between": float(1 - between),
    }


def measure(learner: Learner, tasks: Sequence[Task]) -> Iterator[tuple[int, str, str, float]]:
    """Learn tasks and yield task number, quantity, samples and value."""
    terms = learner.config.terms
    for task in tasks:
        probe = GradientProbe(terms=terms)
        learner.config = replace(learner.config, terms=terms if task.is_first else (*terms, probe))
        before = None if task.is_first else features_and_means(learner, task.n_old)
        learner.learn(task, Listener())
        if before is not None:
            for samples, name, share in probe.shares():
                yield task.index + 1, f"gradient of {name}", samples, share
            for quantity, value in geometry(learner, task, before).items():
                yield task.index + 1, quantity, "old", value


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the effect of each loss on the features.")
    parser.add_argument("study", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--plugin", type=Path, action="append", default=[])
    args = parser.parse_args()
    load_plugins(args.plugin)
    study = parse_study(read_config(args.study), str(args.study)).model_copy(update={"seeds": [args.seed]})
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for planned in plan_study(study, Path()):
        dataset = load_dataset(planned.settings, args.data_dir, lambda line: print(line, file=sys.stderr))
        settings = complete(planned.settings, dataset)
        stream = build_stream(settings, dataset, lambda _: None)
        learner = build_learner(settings, dataset, stream)
        for line in measure(learner, stream.tasks[: args.tasks]):
            writer.writerow([settings.method, settings.seed, *line[:3], f"{line[3]:.4f}"])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
