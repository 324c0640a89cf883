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
            "harmonic_mean": oracles.harmonic_mean(matrix, sizes),
        },
        abs=1e-6,
    )
    per_task = oracles.forgetting_per_task(matrix)
    assert per_task == pytest.approx(vector("metrics/forgetting_per_task"), abs=1e-6)
    assert summarize(matrix, sizes)["forgetting"] == pytest.approx(sum(per_task) / len(per_task), abs=1e-6)


@pytest.mark.parametrize("tasks", [1, 2, 3, 6, 11])
def test_reference_implementation(tasks: int) -> None:
    matrix, sizes = random(tasks)
    summary, expected = summarize(matrix, sizes), oracles.summarize(matrix, sizes)
    assert summary.keys() == expected.keys() == Summary.__annotations__.keys()
    for name, value in expected.items():
        assert summary[name] == (None if value is None else pytest.approx(value)), name  # type: ignore[literal-required]


def test_single_task() -> None:
    assert summarize([[80.0]], [10]) == {
        "average_incremental_accuracy": 80.0,
        "apt": None,
        "act": 80.0,
        "forgetting": None,
        "last_accuracy": 80.0,
        "harmonic_mean": None,
    }


def test_harmonic_mean_shows_who_pays() -> None:
    """Two runs with the same average incremental accuracy; one of them has lost its old classes."""
    balanced, forgetful = (summarize([[100.0], row], [10, 10]) for row in ([50.0, 50.0], [0.0, 100.0]))
    assert balanced["average_incremental_accuracy"] == forgetful["average_incremental_accuracy"]
    assert (balanced["harmonic_mean"], forgetful["harmonic_mean"]) == (50.0, 0.0)
    assert summarize([[100.0], [0.0, 0.0]], [10, 10])["harmonic_mean"] == 0.0
    # All old images have the same weight, whatever their task.
    assert summarize([[9.0], [9.0, 9.0], [90.0, 30.0, 60.0]], [30, 10, 5])["harmonic_mean"] == pytest.approx(
        (9 + 2 * 75 * 60 / 135) / 2
    )


def test_task_sizes_weight_images() -> None:
    matrix, sizes = random(5)
    once, hundredfold = summarize(matrix, sizes), summarize(matrix, [100 * size for size in sizes])
    assert hundredfold == pytest.approx(once)
    other = summarize(matrix, sizes[::-1])
    assert [other[name] for name in ("apt", "act", "forgetting")] == [
        once[name] for name in ("apt", "act", "forgetting")
    ]  # type: ignore[literal-required]
    assert other["last_accuracy"] != pytest.approx(once["last_accuracy"])


def test_unfinished_run() -> None:
    matrix, sizes = random(3)
    assert summarize(matrix, [*sizes, 7, 7]) == summarize(matrix, sizes)


@pytest.mark.parametrize(
    ("matrix", "sizes", "message"),
    [
        ([], [], "is empty: no task has been learned"),
        ([[1.0], [1.0]], [1, 1], "row 1 of the accuracy matrix must have 2 accuracies, not 1"),
        ([[1.0, 2.0]], [1, 1], "row 0 of the accuracy matrix must have 1 accuracies, not 2"),
        ([[1.0], [1.0, 2.0]], [1], "test images for each of the 2 tasks"),
        ([[1.0]], [0], "task_sizes must have a positive number"),
    ],
)
def test_wrong_arguments(matrix: list[list[float]], sizes: list[int], message: str) -> None:
    for function in (summarize, cumulative):
        with pytest.raises(ValueError, match=message):
            function(matrix, sizes)
