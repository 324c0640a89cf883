"""LUCIR+CSCCT in the style of typical research code, for the ratio `loop / textbook`.

Images are transformed one at a time by the image library in the processes of a DataLoader; tensors have the default
layout of torch; the teacher records gradients and, as in the released CSCCT code, CSC and CT do not detach it, so that
the backward pass includes it; similarities are computed by broadcasting; all test images are evaluated after every
epoch.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader

from cscct.data import ArrayImages, Dataset, Split
from cscct.nets import Network
from cscct.specs import Stage, TransformSpec
from cscct.structs import Output, Task


class PILImages(torch.utils.data.Dataset[tuple[Tensor, int]]):
    def __init__(self, split: Split, spec: TransformSpec, train: bool):
        assert isinstance(split.images, ArrayImages)
        self.pixels = split.images.pixels.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels, self.train = split.labels, train
        self.mean, self.std = (torch.tensor(values).view(-1, 1, 1) for values in (spec.mean, spec.std))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.pixels[index])
        if self.train:
            left, top = (int(torch.randint(0, 9, (1,))) for _ in range(2))
            image = ImageOps.expand(image, 4, 0).crop((left, top, left + 32, top + 32))
            if torch.rand(1) < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        values = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)
        return (values - self.mean) / self.std, int(self.labels[index])


def trained(network: Network) -> list[torch.nn.Parameter]:
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def cosines(a: Tensor, b: Tensor) -> Tensor:
    return F.cosine_similarity(a.unsqueeze(1), b.unsqueeze(0), dim=2)


def total_loss(student: Output, teacher: Output, labels: Tensor, task: Task) -> Tensor:
    """Return the loss of a batch with old and new classes. A test compares it with that of the package."""
    old = labels < task.n_old
    loss = F.cross_entropy(student.logits, labels)
    distance = F.cosine_embedding_loss(student.features, teacher.features.detach(), torch.ones(len(labels)))
    own = student.scores[old].gather(1, labels[old].view(-1, 1)).repeat(1, 2)
    hardest = student.scores[old][:, task.n_old :].topk(2, dim=1)[0]
    ranking = F.margin_ranking_loss(own, hardest, torch.ones_like(own), margin=0.5)
    signs = 2 * (labels.unsqueeze(1) == labels.unsqueeze(0)).float() - 1
    csc = (signs * (1 - cosines(student.features, teacher.features))).mean()
    now, then = (cosines(output.features[~old], output.features[old]) for output in (student, teacher))
    divergence = F.kl_div(F.log_softmax(now / 2, dim=1), F.softmax(then / 2, dim=1), reduction="none").mean()
    return loss + 5 * math.sqrt(task.n_old / task.n_new) * distance + ranking + 3 * csc + 1.5 * 4 * divergence


def textbook_rounds(
    networks: tuple[Network, Network], dataset: Dataset, spec: TransformSpec, stage: Stage, task: Task
) -> Iterator[tuple[float, float]]:
    """Train and test epoch by epoch on copies of student and teacher. Yields seconds of training and of testing."""
    layout: Any = {"memory_format": torch.contiguous_format}
    student, teacher = (copy.deepcopy(network).to(**layout) for network in networks)
    teacher.eval().requires_grad_(True)
    train, test = (PILImages(split, spec, split is dataset.train) for split in (dataset.train, dataset.test))
    train_loader = DataLoader(train, stage.batch_size, shuffle=True, num_workers=2)
    test_loader = DataLoader(test, batch_size=100, num_workers=2)
    optimiser = torch.optim.SGD(trained(student), stage.lr, momentum=stage.momentum, weight_decay=stage.weight_decay)
    while True:
        started, running, right = time.perf_counter(), 0.0, 0
        student.train()
        for images, labels in train_loader:
            optimiser.zero_grad()
            loss = total_loss(student(images), teacher(images), labels, task)
            loss.backward()
            optimiser.step()
            running += loss.item()
        between = time.perf_counter()
        student.eval()
        with torch.no_grad():
            for images, labels in test_loader:
                right += int((student(images).logits.argmax(dim=1) == labels).sum())
        yield between - started, time.perf_counter() - between
