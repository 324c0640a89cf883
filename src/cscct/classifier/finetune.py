"""Fine-tuning the last stages of the network with a method of class-incremental learning, and judging the result on
images that were held back from it."""

from __future__ import annotations

import copy
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..config import Settings, resolve
from ..config.layers import load_preset
from ..data import Stream
from ..data.registry import Progress
from ..errors import UserError
from ..learn.build import learner_with
from ..learn.learner import Learner
from ..memory import class_mean
from ..nets import HEADS, IMPRINTS, Network, StagedBackbone
from ..predictors import PREDICTORS, ClassStatistics
from ..runs.listeners import Listener
from ..seeding import derive, generator
from ..structs import Task
from ..yamltext import Raw
from .exemplars import HELD_BACK_EVERY, held_back
from .features import FeatureExtractor
from .images import Item, ItemView
from .labels import Label
from .report import Confusion, Predictor, Statistics, without_fold

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier

SCALE = 10.0  # of cosines, at the start: a head of cosines that has learned has about this
HELD_BACK_FOLD = HELD_BACK_EVERY - 1


@dataclass(frozen=True)
class Request:
    """What is to be tried. Of each class every fifth image is held back."""

    statistics: Statistics  # of all classes, with the present network
    old: Mapping[Label, Sequence[Item]]  # exemplars
    new: Mapping[Label, Sequence[Item]]  # all images
    predictor: Predictor
    backbone: str | None  # its name, if it has one
    method: str
    device: str
    seed: int
    always: bool

    @property
    def classes(self) -> dict[Label, Sequence[Item]]:
        return {**self.old, **self.new}


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    figures: dict[str, Any]
    backbone: nn.Module
    statistics: dict[Label, ClassStatistics]  # of all classes, with the new network
    confusion: Confusion  # of images held back

    @property
    def kept(self) -> bool:
        return bool(self.figures["kept"])


class _Steps(Listener):
    """Passes the number of images on to `progress`."""

    def __init__(self, progress: Progress, total: int):
        self.progress, self.total, self.done = progress, total, 0

    def step(self, task: Task, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None:
        self.done = min(self.total, self.done + images)
        self.progress("fine-tuning", self.done, self.total)


def attempt(extractor: FeatureExtractor, request: Request, progress: Progress) -> Outcome | None:
    """Fine-tunes a copy of the network; the figures say whether it is worth keeping. None if nothing can be gained: the
    training-free predictor makes no mistake."""
    started = time.perf_counter()
    learner = _learner(extractor, request)
    before = _features(learner, request)
    rest = {label: without_fold(request.statistics[label], HELD_BACK_FOLD)[0] for label in before}
    plain = _judged(rest, before, request)
    if _percent(plain) == 100 and not request.always:
        return None
    _start_head(learner, before, request)
    task = learner.stream.tasks[-1]
    learner.learn(task, _Steps(progress, learner.planned_images(task)))
    after = _features(learner, request)
    own = {label: ClassStatistics.of(rows[~held_back(len(rows))]) for label, rows in after.items()}
    tuned = _judged(own, after, request)
    figures = {
        "training_free": _percent(plain),
        "fine_tuned": _percent(tuned),
        "kept": request.always or _percent(tuned) > _percent(plain),
        "method": request.method,
        "seconds": round(time.perf_counter() - started, 1),
    }
    statistics = {label: ClassStatistics.of(rows) for label, rows in after.items()}
    return Outcome(figures, learner.whole_network().backbone, statistics, tuned)


def try_finetuning(
    model: IncrementalClassifier,
    statistics: Statistics,
    exemplars: Mapping[Label, Sequence[bytes]],
    new: Mapping[Label, Sequence[Item]],
    progress: Progress,
) -> tuple[Outcome | None, list[str]]:
    """What fine-tuning gives, if it is wanted, or why it was not tried. statistics: of all classes, training-free."""
    if model.finetune == "never":
        return None, []
    old = {label: exemplars.get(label, []) for label in statistics if label not in new}
    always = model.finetune == "always"
    reason = refusal(old, {label: len(items) for label, items in new.items()})
    if reason is not None and always:
        raise UserError(reason)
    if reason is not None:
        return None, [reason]
    name = model.backbone if isinstance(model.backbone, str) else None
    predictor, seed = PREDICTORS[model.predictor], model.random_state
    request = Request(statistics, old, new, predictor, name, model.method, model.device, seed, always)
    outcome = attempt(model._extractor, request, progress)
    return outcome, [] if outcome else ["Fine-tuning was not tried: no image held back from it is mistaken without it."]


def what_stays(gone: Sequence[Label], tuned: Sequence[Label]) -> list[str]:
    """A sentence, if the network was fine-tuned with images of classes that are forgotten; it is also a warning."""
    trained = [str(label) for label in gone if label in tuned]
    if not trained:
        return []
    text = (
        f"The network was fine-tuned with images of {', '.join(trained)}: what its weights took from them stays. "
        "Only a model that learns the other classes anew is free of it."
    )
    warnings.warn(text, stacklevel=3)
    return [text]


def _learner(extractor: FeatureExtractor, request: Request) -> Learner:
    """With the present network, a stream of the images and the exemplars in the memory."""
    backbone = copy.deepcopy(extractor.backbone)
    settings = _settings(extractor, request)
    spec = settings.network
    head = HEADS[spec.head](extractor.width, spec.rows_per_class)
    network = Network(backbone, head, relu_head=spec.relu_head, frozen_norms=spec.batch_norm == "frozen")
    learner = learner_with(network, settings, _stream(extractor, request))
    learner.memory.exemplars = {label: list(learner.stream.train[label]) for label in range(len(request.old))}
    return learner


def _settings(extractor: FeatureExtractor, request: Request) -> Settings:
    """Those of the preset for the backbone. One that is not divided into stages is trained as a whole."""
    wanted: Raw = {
        "seed": request.seed,
        "predict": {"nme_aug": "none"},
        "runtime": {"device": request.device, "eval_batch_size": extractor.batch_size},
    }
    layers: list[Raw] = [wanted]
    if request.backbone is None:
        layers.insert(0, load_preset("pretrained")["common"])
    else:
        wanted["network"] = {"backbone": request.backbone}
    if not isinstance(extractor.backbone, StagedBackbone):
        wanted["network"] = {**wanted.get("network", {}), "train_from": 0}
    return resolve(request.method, "folder", overrides=layers)


def _stream(extractor: FeatureExtractor, request: Request) -> Stream:
    classes = request.classes
    old, new = len(request.old), len(request.new)
    view = ItemView([item for items in classes.values() for item in items], replace(extractor.transform, flip=True))
    train, test, start = [], [], 0
    for items in classes.values():
        indices = torch.arange(start, start + len(items))
        held = held_back(len(items))
        train.append(tuple(indices[~held].tolist()))
        test.append(tuple(indices[held].tolist()))
        start += len(items)
    tasks = (Task(0, 0, old), Task(1, old, new)) if old else (Task(0, 0, new),)
    return Stream(tasks, tuple(map(str, classes)), view, view, tuple(train), tuple(test))


def _features(learner: Learner, request: Request) -> dict[Label, Tensor]:
    """Of all images, class by class in their order."""
    stream, read = learner.stream, learner.evaluator.features
    trained = torch.tensor([index for one in stream.train for index in one])
    held = torch.tensor([index for one in stream.test for index in one], dtype=torch.int64)
    rows = torch.empty(len(trained) + len(held), learner.network.head.features)
    rows[trained] = read(stream.train_view, trained)
    if len(held):
        rows[held] = read(stream.test_view, held)
    sizes = [len(items) for items in request.classes.values()]
    return dict(zip(request.classes, rows.split(sizes), strict=True))


def _start_head(learner: Learner, features: Mapping[Label, Tensor], request: Request) -> None:
    """Rows for the old classes, from the features of their exemplars; the learner adds those of the new ones."""
    head, spec = learner.network.head, learner.config.network
    if isinstance(head.scale, nn.Parameter):
        nn.init.constant_(head.scale, SCALE)
    if not request.old:
        return
    own = [features[label][~held_back(len(features[label]))] for label in request.old]
    lengths = head.fresh_rows(len(own), generator(request.seed, "head"))
    name = "mean" if spec.imprint == "none" else spec.imprint
    head.grow(IMPRINTS[name](own, lengths, spec.rows_per_class, derive(request.seed, name) % 2**32))
    learner.means = torch.stack([class_mean(one) for one in own])


def _judged(statistics: Statistics, features: Mapping[Label, Tensor], request: Request) -> Confusion:
    """What a predictor made from images that are not held back says of those that are."""
    labels = list(statistics)
    head = request.predictor(list(statistics.values()))
    found: Confusion = {}
    for label, rows in features.items():
        held = rows[held_back(len(rows))]
        found[label] = Counter(labels[i] for i in head.scores(held).argmax(dim=1).tolist())
    return found


def _percent(confusion: Confusion) -> float:
    """The mean over classes, so that those with many images do not decide."""
    shares = [counts[label] / counts.total() for label, counts in confusion.items() if counts]
    return round(100 * sum(shares) / len(shares), 2) if shares else 0.0


def refusal(old: Mapping[Label, Sequence[bytes]], new: Mapping[Label, int]) -> str | None:
    """Why fine-tuning cannot be tried, in a sentence. old: exemplars; new: images of each new class."""
    if not new:
        return "Fine-tuning was not tried: there are no new classes."
    if len(old) + len(new) < 2:
        return "Fine-tuning was not tried: it needs two classes."
    missing = [str(label) for label, images in old.items() if len(images) < 2]
    if missing:
        return (
            f"Fine-tuning was not tried: it needs kept images of the classes learned before, and there are none of "
            f"{', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''} (memory_mb, memory_per_class)."
        )
    if min(new.values()) < HELD_BACK_EVERY:
        least = min(new, key=lambda label: new[label])
        return (
            f"Fine-tuning was not tried: {least} has {new[least]} images, and it needs {HELD_BACK_EVERY}, one of which "
            "is held back."
        )
    return None
