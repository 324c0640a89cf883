"""Inference and evaluation."""

import pytest
import torch

from conftest import Silent, learner_for
from cscct.data.augment import make_view
from cscct.data.base import ArrayImages
from cscct.learn.device import FULL_PRECISION, precision_context
from cscct.learn.evaluation import Evaluator, infer, matrix_row
from cscct.nets import Network, build_network, for_inference
from cscct.specs import TransformSpec
from cscct.structs import Task

CPU = torch.device("cpu")


@pytest.fixture
def network() -> Network:
    generator = torch.Generator().manual_seed(0)
    network = build_network("lucir-resnet", 8, 1, "cosine", 1, generator)
    network.head.grow(torch.randn(3, network.head.features, generator=generator))
    return network.requires_grad_(True)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_infer_returns_detached_float32_outputs(network: Network, precision: str) -> None:
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    output = infer(network.eval(), images, precision_context(precision, CPU))
    assert output.maps == ()
    for tensor, shape in ((output.features, (4, network.head.features)), (output.scores, (4, 3)), (output.scale, ())):
        assert tensor.dtype == torch.float32
        assert tensor.shape == shape
        assert not tensor.requires_grad
    expected = network(images)
    rounding = 0 if precision == "32-true" else 0.05
    torch.testing.assert_close(output.features, expected.features.detach(), rtol=rounding, atol=rounding)
    assert torch.equal(output.features, expected.features) == (precision == "32-true")


@pytest.mark.parametrize("batch_size", [2, 5, 64])
def test_evaluator_reads_with_infer(network: Network, batch_size: int) -> None:
    pixels = torch.randint(0, 256, (5, 1, 8, 8), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    view = make_view(ArrayImages(pixels), TransformSpec())
    evaluator = Evaluator(network, batch_size, CPU, precision=FULL_PRECISION)
    prepared = for_inference(network)
    outputs = list(evaluator.read(view, torch.tensor([4, 0, 1, 3, 2])))
    assert [len(output.features) for output in outputs] == [len(part) for part in torch.arange(5).split(batch_size)]
    expected = infer(prepared, view.plain(torch.tensor([4, 0, 1, 3, 2])))
    torch.testing.assert_close(torch.cat([output.scores for output in outputs]), expected.scores)


def test_evaluation_uses_the_predictors_of_the_learner() -> None:
    learner = learner_for("lda", "data.train_per_class=8", "data.test_per_class=4")
    task = learner.stream.tasks[0]
    learner.learn(task, Silent())
    confusion = learner.evaluate(task).confusion
    assert list(confusion) == ["classifier", "nme", "lda", "ridge"]
    assert {int(counts.sum()) for counts in confusion.values()} == {4 * task.n_seen}


def test_accuracy_within_the_task_agrees_with_a_loop_over_images() -> None:
    """With the task known, the prediction is the best class of the task, for the head and for all predictors."""
    learner = learner_for("lucir", "train.epochs=1", "data.train_per_class=8", "data.test_per_class=5")
    for task in learner.stream.tasks[:3]:
        learner.learn(task, Silent())
    evaluation = learner.evaluate(task)
    indices, labels = learner.stream.seen_images(task.n_seen)
    outputs = list(learner.evaluator.read(learner.stream.test_view, indices))
    scores = {"classifier": torch.cat([output.scores for output in outputs])}
    features = torch.cat([output.features for output in outputs])
    scores |= {name: predictor.scores(features) for name, predictor in learner.linear.items()}
    for name, rows in scores.items():
        expected = torch.zeros_like(evaluation.within_task[name])
        for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
            (own,) = [each.classes for each in learner.stream.tasks if label in each.classes]
            expected[label, max(own, key=lambda index: row[index])] += 1
        assert torch.equal(evaluation.within_task[name], expected), name
    for name, confusion in evaluation.confusion.items():
        correct, known = confusion.diagonal(), evaluation.within_task[name].diagonal()
        assert (known >= correct).all(), name
        assert confusion.sum() == evaluation.within_task[name].sum()


def test_matrix_row_is_the_accuracy_of_each_task() -> None:
    confusion = torch.tensor([[3, 1, 0], [0, 2, 2], [1, 0, 7]])
    assert matrix_row(confusion, (Task(0, 0, 2), Task(1, 2, 1))) == [100 * 5 / 8, 100 * 7 / 8]
