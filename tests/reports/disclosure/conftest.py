"""Schemas of the standards, as their owners publish them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

SCHEMAS = Path(__file__).parent / "schemas"


def read(name: str) -> Any:
    """A schema in JSON or YAML."""
    text = (SCHEMAS / name).read_text()
    return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)


@pytest.fixture(scope="session")
def complaints() -> Any:
    """What the schema with this file name has against a document."""
    jsonschema = pytest.importorskip("jsonschema", reason="needs pip install 'dpsweep[dev]'")
    referencing = pytest.importorskip("referencing")
    known = [read(name) for name in ("bom-1.6.schema.json", "spdx.schema.json", "jsf-0.82.schema.json")]
    contents = [(one["$id"], referencing.Resource.from_contents(one)) for one in known]
    registry = referencing.Registry().with_resources(contents)
    validator = jsonschema.Draft7Validator

    def against(schema: str, document: Any) -> list[str]:
        made = validator(read(schema), registry=registry, format_checker=validator.FORMAT_CHECKER)
        return [f"{error.json_path}: {error.message}" for error in made.iter_errors(document)]

    return against
