"""Suggestions for misspelt names."""

from cscct.text import closest, suggest


def test_the_most_similar_name_is_suggested() -> None:
    known = {"lucir": 1, "icarl": 2, "podnet": 3}
    assert closest("lucri", known) == "lucir"
    assert suggest("podent", known) == " (did you mean 'podnet'?)"


def test_names_that_are_not_similar_are_not_suggested() -> None:
    assert closest("xyz", ["lucir"]) is None
    assert suggest("xyz", ["lucir"]) == suggest("x", []) == ""
