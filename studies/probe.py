"""What each loss does to the features:

python studies/probe.py STUDY.yaml [--data-dir DIR] [--seed N] [--tasks N] [--plugin FILE]

For every method of the study it learns the first tasks and prints, as CSV:

- for each term of the loss the mean length of its gradient with respect to the features, for samples of old classes
  (the exemplars) and of new ones, as a share of the sum over all terms. Terms that do not act through the features
  (PODNet's spatial distillation acts on maps) have none;
- for the test images of the old classes, from the network before a task to the one after it: how far class means turn
  (drift, 1 - cosine), how far images lie from the mean of their class (within) and class means from each other
  (between).
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
from cscct.learn.dataset import load_dataset
from cscct.learn.learner import Learner
from cscct.learn.protocol import complete
from cscct.losses import Term, WeightedSum
from cscct.plugins import load_plugins
from cscct.runs.listeners import Listener
from cscct.structs import Step, Task
from cscct.studies.grid import parse_study, plan_study
from cscct.yamltext import read_config

COLUMNS = ("method", "seed", "task", "what", "of", "value")


@dataclass(frozen=True)
class GradientProbe(Term):
    """Adds nothing to the loss; notes the gradients of the others with respect to the features."""

    terms: tuple[Term, ...] = ()
    lengths: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    name = "probe"
    trains_head = False

    def value(self, step: Step) -> Tensor:
        features = step.student.features
        for term, weight in WeightedSum(self.terms, step.task).terms:
            (gradient,) = torch.autograd.grad(weight * term.value(step), features, retain_graph=True, allow_unused=True)
            for of, chosen in (("old", ~step.batch.is_new), ("new", step.batch.is_new)):
                if gradient is not None and chosen.any():
                    self.lengths[of, term.name].append(float(gradient[chosen].norm(dim=1).mean()))
        return features.sum() * 0.0

    def shares(self) -> Iterator[tuple[str, str, float]]:
        """Of which samples, of which term, what share of the sum of the mean lengths."""
        means = {key: sum(values) / len(values) for key, values in self.lengths.items()}
        for (of, name), mean in means.items():
            yield of, name, mean / sum(one for (other, _), one in means.items() if other == of)


def place(learner: Learner, classes: int) -> tuple[Tensor, Tensor]:
    """Unit features of the test images of so many classes, and the classes' mean directions."""
    indices, labels = learner.stream.seen_test(classes)
    features = F.normalize(learner.evaluator.features(learner.stream.test_view, indices), dim=1)
    means = torch.stack([features[labels == label].mean(dim=0) for label in range(classes)])
    return features, F.normalize(means, dim=1)[labels]


def geometry(learner: Learner, task: Task, before: tuple[Tensor, Tensor]) -> dict[str, float]:
    features, own = place(learner, task.n_old)
    means = own.unique(dim=0)
    cosines = means @ means.T
    between = (cosines.sum() - cosines.diagonal().sum()) / (len(means) * (len(means) - 1))
    return {
        "drift": float(1 - (own * before[1]).sum(dim=1).mean()),
        "within": float(1 - (features * own).sum(dim=1).mean()),
        "between": float(1 - between),
    }


def probed(learner: Learner, tasks: Sequence[Task]) -> Iterator[tuple[int, str, str, float]]:
    """Task, what, of what, value."""
    terms = learner.config.terms
    for task in tasks:
        probe = GradientProbe(terms=terms)
        learner.config = replace(learner.config, terms=terms if task.is_first else (*terms, probe))
        before = None if task.is_first else place(learner, task.n_old)
        learner.learn(task, Listener())
        if before is not None:
            for of, name, share in probe.shares():
                yield task.index + 1, f"gradient of {name}", of, share
            for what, value in geometry(learner, task, before).items():
                yield task.index + 1, what, "old", value


def main() -> None:
    parser = argparse.ArgumentParser(description="What each loss does to the features.")
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
        for line in probed(learner, stream.tasks[: args.tasks]):
            writer.writerow([settings.method, settings.seed, *line[:3], f"{line[3]:.4f}"])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
