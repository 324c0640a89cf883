"""Validation images: which ones are held out, and settings that would leave a class empty."""

from __future__ import annotations

import pytest

from cscct.data.holdout import hold_out
from cscct.errors import UserError

NAMES = ("cat", "dog", "owl")
MEMBERS = (tuple(range(0, 40)), tuple(range(40, 75)), tuple(range(100, 200, 2)))


def test_parts_are_disjoint_complete_and_of_the_requested_size() -> None:
    train, validation = hold_out(MEMBERS, NAMES, 0.1)
    assert [len(images) for images in validation] == [4, 4, 5]  # 35 images: 3.5 is rounded up
    for members, kept, held_out in zip(MEMBERS, train, validation, strict=True):
        assert sorted((*kept, *held_out)) == list(members)
        assert list(kept) == sorted(kept)
        assert list(held_out) == sorted(held_out)
        assert held_out != members[: len(held_out)]


def test_images_depend_on_the_class_only() -> None:
    """Not on the order of the classes or the other classes; a smaller fraction holds out a subset."""
    validation = dict(zip(NAMES, hold_out(MEMBERS, NAMES, 0.2)[1], strict=True))
    _, reordered = hold_out(MEMBERS[:0:-1], NAMES[:0:-1], 0.2)
    assert reordered == (validation["owl"], validation["dog"])
    smaller = hold_out(MEMBERS, NAMES, 0.1)[1]
    assert all(set(part) < set(validation[name]) for name, part in zip(NAMES, smaller, strict=True))
    assert [index - 40 for index in validation["dog"]] != list(hold_out((MEMBERS[0][:35],), ("cat",), 0.2)[1][0])


@pytest.mark.parametrize(
    ("fraction", "images", "words"),
    [
        (0.1, 4, ("class cat", "validation images", "at least 0.25")),
        (0.9, 4, ("class cat", "training images", "at most 0.75")),
        (0.5, 1, ("class cat", "two training images")),
    ],
)
def test_a_class_that_would_be_empty_is_an_error(fraction: float, images: int, words: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as error:
        hold_out((tuple(range(images)),), ("cat",), fraction)
    assert all(word in str(error.value) for word in words)
