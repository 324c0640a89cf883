"""Responses to generated requests conform to the OpenAPI schema."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from cscct.classifier.serve import Limits
from cscct.classifier.serve.exporting import Exporter
from serving import folder_fixture, original_fixture, serving  # noqa: F401

schemathesis = pytest.importorskip("schemathesis", reason="the extra fuzz is not installed")
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

TIMEOUT = 600  # seconds until a response; by default 10, which a busy machine exceeds
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
]


FEW = settings(
    max_examples=8,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def write_file(self: Exporter, to: str, file: Path) -> None:
    """An export in no time; torch needs many seconds on a busy machine."""
    file.write_bytes(b"model")


def test_responses_conform_to_the_schema(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exporter, "_run", write_file)
    with serving(folder, Limits(upload_seconds=5)) as address:
        schema = schemathesis.openapi.from_url(f"{address}/api/openapi.json", timeout=TIMEOUT)
        operations = [result.ok() for result in schema.get_all_operations()]
        assert len(operations) == 28
        with_body = [operation for operation in operations if operation.body]
        assert len(with_body) == 11
        for operation in with_body:  # the guard may end any of them
            assert {"408", "413"} <= set(operation.definition.raw["responses"]), operation.label
        for operation in operations:
            FEW(given(operation.as_strategy())(check))()


def check(case: Any) -> None:
    case.call_and_validate(checks=CHECKS, timeout=TIMEOUT)
