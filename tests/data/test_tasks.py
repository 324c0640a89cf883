import numpy as np
import pytest

from cscct.data import class_order, split_tasks
from cscct.errors import UserError
from cscct.structs import Task
from oracles import vector


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("seed-1993", "class_orders/cifar_seed1993_lucir_cscct"),
        (1993, "class_orders/cifar_seed1993_lucir_cscct"),
        ("seed-1993", "class_orders/imagenet_subset"),
        ("podnet-1", "class_orders/podnet_cifar_1_icarl"),
        ("podnet-2", "class_orders/podnet_cifar_2"),
        ("podnet-3", "class_orders/podnet_cifar_3"),
    ],
)
def test_vectors_of_orders(name: str | int, path: str) -> None:
    order = class_order(name, 100)
    assert order == vector(path)
    assert sorted(order) == list(range(100))
    assert all(type(label) is int for label in order)


@pytest.mark.parametrize("classes", [1, 2, 10, 37])
def test_orders_of_other_sizes(classes: int) -> None:
    assert class_order("natural", classes) == list(range(classes))
    shuffled = np.arange(classes)
    np.random.RandomState(1993).shuffle(shuffled)
    assert class_order("seed-1993", classes) == shuffled.tolist()
    assert sorted(class_order(5, classes)) == list(range(classes))


def test_seeds_give_different_orders() -> None:
    drawn = [tuple(class_order(seed, 100)) for seed in (0, 1, 2, 2**32 - 1)]
    assert len(set(drawn)) == 4
    np.random.seed(3)  # noqa: NPY002 - the global state has no say, and keeps its own
    assert tuple(class_order(1, 100)) == drawn[1]
    after = np.random.rand()  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    assert np.random.rand() == after  # noqa: NPY002


@pytest.mark.parametrize("order", [[2, 0, 1], (3, 1), [4]])
def test_explicit_order(order: list[int]) -> None:
    assert class_order(order, 5) == list(order)


@pytest.mark.parametrize(
    ("order", "classes", "message"),
    [
        ("seed-1994", 100, "Unknown class order 'seed-1994': use seed-1993, podnet-1"),
        ("", 100, "Unknown class order ''"),
        ("podnet-2", 10, "The class order podnet-2 needs 100 classes; this dataset has 10"),
        ([0, 0], 5, "must be a list of different classes from 0 to 4"),
        ([0, 5], 5, "must be a list of different classes from 0 to 4"),
        ([-1, 0], 5, "must be a list of different classes from 0 to 4"),
        ([], 5, "must be a list of different classes"),
    ],
)
def test_wrong_orders(order: str | list[int], classes: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        class_order(order, classes)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_out_of_range(seed: int) -> None:
    with pytest.raises(UserError, match=str(seed)):
        class_order(seed, 10)


def sizes(tasks: list[Task]) -> list[int]:
    return [task.n_new for task in tasks]


@pytest.mark.parametrize(
    ("classes", "base", "step", "expected"),
    [
        (100, 50, 1, [50] + [1] * 50),
        (100, 50, 2, [50] + [2] * 25),
        (100, 50, 5, [50] + [5] * 10),
        (100, 50, 10, [50] + [10] * 5),
        (100, 1, 1, [1] * 100),
        (100, 5, 5, [5] * 20),
        (10, 4, 2, [4, 2, 2, 2]),
        (10, 4, 4, [4, 4, 2]),  # the last task takes what is left
        (10, 1, 10, [1, 9]),
        (10, 10, 1, [10]),
        (10, 10, 10, [10]),
        (1, 1, 1, [1]),
    ],
)
def test_split(classes: int, base: int, step: int, expected: list[int]) -> None:
    tasks = split_tasks(classes, base, step)
    assert sizes(tasks) == expected
    assert [task.index for task in tasks] == list(range(len(tasks)))
    assert [label for task in tasks for label in task.classes] == list(range(classes))
    for task in tasks:
        assert task.n_seen == task.n_old + task.n_new == task.classes.stop
        assert task.is_first == (task.index == 0) == (task.n_old == 0)


@pytest.mark.parametrize(
    ("base", "step", "messages"),
    [
        (0, 2, ["B (protocol.base) is 0, but must be between 1 and 10, the number of classes"]),
        (11, 2, ["B (protocol.base) is 11"]),
        (5, 0, ["C (protocol.step) is 0, but must be between 1 and 10, the number of classes"]),
        (5, 11, ["C (protocol.step) is 11"]),
        (-1, 12, ["B (protocol.base) is -1", "C (protocol.step) is 12"]),
    ],
)
def test_wrong_splits(base: int, step: int, messages: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        split_tasks(10, base, step)
    assert all(message in str(caught.value) for message in messages)
