"""Responses to generated requests conform to the OpenAPI schema."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from cscct.classifier.serve import Limits
from serving import folder_fixture, original_fixture, serving  # noqa: F401

schemathesis = pytest.importorskip("schemathesis", reason="the extra fuzz is not installed")
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

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


def test_responses_conform_to_the_schema(folder: Path) -> None:
    with serving(folder, Limits(upload_seconds=5)) as address:
        schema = schemathesis.openapi.from_url(f"{address}/api/openapi.json")
        operations = [result.ok() for result in schema.get_all_operations()]
        assert len(operations) == 28
        for operation in operations:
            examples = settings(FEW, max_examples=1) if operation.path == "/api/export" else FEW  # slow
            examples(given(operation.as_strategy())(check))()


def check(case: Any) -> None:
    case.call_and_validate(checks=CHECKS, timeout=600)
