import numpy as np
import pytest

import oracles
from cscct.metrics import Summary, cumulative, summarize
from oracles import vector


def random(tasks: int) -> tuple[list[list[float]], list[int]]:
    rng = np.random.default_rng(tasks)
    return [rng.uniform(0, 100, t + 1).tolist() for t in range(tasks)], rng.integers(1, 50, tasks).tolist()


def test_vectors() -> None:
    matrix, sizes = vector("metrics/acc_matrix"), vector("metrics/task_sizes")
    seen = vector("metrics/cumulative_accuracy")
    assert cumulative(matrix, sizes) == pytest.approx(seen, abs=1e-6)
    assert summarize(matrix, sizes) == pytest.approx(
        {
            "average_incremental_accuracy": vector("metrics/avg_incremental_accuracy"),
            "apt": vector("metrics/APT"),
            "act": vector("metrics/ACT"),
            "forgetting": vector("metrics/mean_forgetting"),
            "last_accuracy": seen[-1],
        },
        abs=1e-6,
    )
    per_task = oracles.forgetting_per_task(matrix)
    assert per_task == pytest.approx(vector("metrics/forgetting_per_task"), abs=1e-6)
    assert summarize(matrix, sizes)["forgetting"] == pytest.approx(sum(per_task) / len(per_task), abs=1e-6)


@pytest.mark.parametrize("tasks", [1, 2, 3, 6, 11])
def test_slow_version(tasks: int) -> None:
    matrix, sizes = random(tasks)
    given, expected = summarize(matrix, sizes), oracles.summarize(matrix, sizes)
    assert given.keys() == expected.keys() == Summary.__annotations__.keys()
    for name, value in expected.items():
        assert given[name] == (None if value is None else pytest.approx(value)), name  # type: ignore[literal-required]


def test_one_task_has_no_past() -> None:
    assert summarize([[80.0]], [10]) == {
        "average_incremental_accuracy": 80.0,
        "apt": None,
        "act": 80.0,
        "forgetting": None,
        "last_accuracy": 80.0,
    }


def test_sizes_weigh_images_but_not_tasks() -> None:
    matrix, sizes = random(5)
    once, hundredfold = summarize(matrix, sizes), summarize(matrix, [100 * size for size in sizes])
    assert hundredfold == pytest.approx(once)
    other = summarize(matrix, sizes[::-1])
    assert [other[name] for name in ("apt", "act", "forgetting")] == [
        once[name] for name in ("apt", "act", "forgetting")
    ]  # type: ignore[literal-required]
    assert other["last_accuracy"] != pytest.approx(once["last_accuracy"])


def test_forgetting_may_be_negative() -> None:
    """A task that got better later counts as such."""
    assert summarize([[50.0], [60.0, 70.0]], [1, 1])["forgetting"] == -10


def test_a_run_under_way_has_fewer_rows_than_tasks() -> None:
    matrix, sizes = random(3)
    assert summarize(matrix, [*sizes, 7, 7]) == summarize(matrix, sizes)


@pytest.mark.parametrize(
    ("matrix", "sizes", "message"),
    [
        ([], [], "no row: no task has been learned"),
        ([[1.0], [1.0]], [1, 1], "row 1 of the accuracy matrix must hold 2 accuracies, not 1"),
        ([[1.0, 2.0]], [1, 1], "row 0 of the accuracy matrix must hold 1 accuracies, not 2"),
        ([[1.0], [1.0, 2.0]], [1], "at least 1, for each of the 2 tasks"),
        ([[1.0]], [0], "task_sizes must give test images, at least 1"),
    ],
)
def test_wrong_arguments(matrix: list[list[float]], sizes: list[int], message: str) -> None:
    for function in (summarize, cumulative):
        with pytest.raises(ValueError, match=message):
            function(matrix, sizes)
