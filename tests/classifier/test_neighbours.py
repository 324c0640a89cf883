"""Stored images that resemble an image."""

import torch

from cscct.classifier.neighbours import explain
from small_models import colours_model, pictures


def test_the_most_similar_stored_images_are_listed() -> None:
    """Those of the answered class, then those of others, in the order of the cosine of the features."""
    model = colours_model(memory_per_class=4)
    query = pictures((60, 60, 200), 1, 1)[0]  # the first blue image
    answer = explain(model, query, count=3)
    assert answer.label == "blue"
    assert [neighbour.label for neighbour in answer.same + answer.others] == ["blue"] * 3 + ["red"] * 3
    members = model.state_.photos["blue"]
    positions = [[photo.id for photo in members.photos].index(id) for id in members.exemplars]
    cosines = torch.cosine_similarity(
        model.statistics_["blue"].rows[positions], torch.from_numpy(model.features([query]))
    )
    ranked = cosines.argsort(descending=True)[:3]
    assert [neighbour.number for neighbour in answer.same] == ranked.tolist()
    torch.testing.assert_close(
        torch.tensor([neighbour.similarity for neighbour in answer.same]), cosines[ranked].double().float()
    )
    assert {neighbour.class_index for neighbour in answer.same} == {1}


def test_images_are_read_if_the_features_of_photos_are_not_stored() -> None:
    model = colours_model(memory_per_class=4).learn(pictures((60, 60, 200), 60, 7), "blue")
    assert model.statistics_["blue"].samples is None
    answer = explain(model, pictures((60, 60, 200), 1, 1)[0])
    assert sorted(neighbour.number for neighbour in answer.same) == [0, 1, 2, 3]
