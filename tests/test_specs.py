import math

import pytest
import torch

from cscct.specs import MemorySpec, Schedule
from oracles import vector

MULTISTEP = {"kind": "multistep", "milestones": (80, 120), "factor": 0.1}


@pytest.mark.parametrize(
    ("path", "schedule"),
    [
        ("schedules/multistep_classic", Schedule(**MULTISTEP)),
        ("schedules/multistep_cscct_torch12", Schedule(**MULTISTEP, epoch_offset=1)),
        ("schedules/podnet_cosine_used_at_epoch", Schedule(kind="cosine", epoch_offset=-1)),
    ],
)
def test_vectors_of_schedules(path: str, schedule: Schedule) -> None:
    expected = {int(epoch): rate for epoch, rate in vector(path).items()}
    assert len(expected) >= 6
    rates = {epoch: schedule.rate(0.1, epoch, 160) for epoch in expected}
    assert rates == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("kind", ["multistep", "cosine"])
def test_schedules_match_torch(kind: str) -> None:
    """Epoch by epoch, with the scheduler stepped after each."""
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
    if kind == "cosine":
        schedule, theirs = Schedule(kind="cosine"), torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 30)
    else:
        schedule = Schedule(kind="multistep", milestones=(10, 20, 25), factor=0.2)
        theirs = torch.optim.lr_scheduler.MultiStepLR(optimiser, [10, 20, 25], gamma=0.2)
    for epoch in range(30):
        assert schedule.rate(0.4, epoch, 30) == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-12)
        optimiser.step()
        theirs.step()


@pytest.mark.parametrize("kind", ["constant", "multistep", "cosine"])
@pytest.mark.parametrize("offset", [-3, 0, 2])
def test_offset_shifts_the_clock_and_never_before_the_start(kind: str, offset: int) -> None:
    options = {"kind": kind, "milestones": (5, 8)}
    shifted, plain = Schedule(**options, epoch_offset=offset), Schedule(**options)  # type: ignore[arg-type]
    for epoch in range(10):
        assert shifted.rate(1.0, epoch, 20) == plain.rate(1.0, max(0, epoch + offset), 20)
    assert all(0 < shifted.rate(1.0, epoch, 20) <= 1 for epoch in range(17))


@pytest.mark.parametrize("seen", [1, 10, 55, 100])
def test_quota_per_class(seen: int) -> None:
    assert MemorySpec().quota(seen) == 20
    assert MemorySpec(per_class=3).quota(seen) == 3


@pytest.mark.parametrize(
    ("total", "seen", "floor", "ceil"),
    [(2000, 100, 20, 20), (2000, 55, 36, 37), (2000, 50, 40, 40), (10, 3, 3, 4), (10, 11, 1, 1), (1, 100, 1, 1)],
)
def test_quota_of_a_total(total: int, seen: int, floor: int, ceil: int) -> None:
    assert MemorySpec(policy="total", total=total).quota(seen) == floor
    assert MemorySpec(policy="total", total=total, rounding="floor").quota(seen) == floor
    assert MemorySpec(policy="total", total=total, rounding="ceil").quota(seen) == ceil


def test_quota_fills_the_total() -> None:
    for seen in range(1, 101):
        below = MemorySpec(policy="total").quota(seen) * seen
        above = MemorySpec(policy="total", rounding="ceil").quota(seen) * seen
        assert 2000 - seen < below <= 2000 <= above < 2000 + seen
        assert math.isclose(above - below, 0 if 2000 % seen == 0 else seen)
