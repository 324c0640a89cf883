"""What the tests of serving share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from cscct.classifier.serve import create_app
from serving import HOME, make_model


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("serving") / "colours")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A model of its own for each test."""
    return Path(shutil.copytree(original, tmp_path / "colours"))


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    with TestClient(create_app(folder), base_url=HOME) as client:
        yield client
