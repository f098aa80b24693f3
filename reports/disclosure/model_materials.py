"""A CycloneDX 1.6 bill of materials of a released model, with its privacy as properties named `dp:`.

*Source*: ECMA-424, CycloneDX 1.6, schema/bom-1.6.schema.json. The file has no time; its serial number follows from the
package, so the same release has the same bill.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dpsweep.accounting.names.stored_classes import class_name
from dpsweep.accounting.notation import delta_up, epsilon_up
from dpsweep.accounting.records.trial_result import OUTPUTS
from dpsweep.reports.content.base_model import BaseModel
from dpsweep.reports.content.provenance import program_version
from dpsweep.reports.pages.released_package import ReleasedPackage
from dpsweep.reports.statement.released_claim import ReleasedClaim, ReleasedScore

DATA, BASE = "data", "base-model"
"""Names of the components within the bill."""

_NUMBERED = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/docs/1.6/json/")


@dataclass(frozen=True, kw_only=True)
class ModelMaterials:
    """The bill as JSON."""

    file: str = "model.cdx.json"

    def text(self, package: ReleasedPackage) -> str:
        """The bill."""
        return json.dumps(bill_of_materials(package), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def bill_of_materials(package: ReleasedPackage) -> dict[str, Any]:
    """The bill as plain values."""
    version = program_version()
    tool = {"type": "application", "name": "dpsweep", "version": version, "purl": f"pkg:pypi/dpsweep@{version}"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(_NUMBERED, package.digest).urn,
        "version": 1,
        "metadata": {"tools": {"components": [tool]}, "component": _model(package)},
        "components": [_data(package.claim), *_base(package)],
    }


def _model(package: ReleasedPackage) -> dict[str, Any]:
    claim, config = package.claim, package.config
    hashes = [{"alg": "SHA-256", "content": package.files[name]} for name in OUTPUTS if name in package.files]
    architecture = {} if config is None else {"modelArchitecture": class_name(config["model"])}
    measured = {} if claim.score is None else {"quantitativeAnalysis": {"performanceMetrics": [_metric(claim.score)]}}
    return {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": f"{claim.account}-model",
        "description": claim.description,
        **({"hashes": hashes} if hashes else {}),
        "modelCard": {
            "modelParameters": {**architecture, "datasets": [{"ref": DATA}]},
            **measured,
            "considerations": {"technicalLimitations": list(claim.not_covered)},
        },
        "properties": [{"name": f"dp:{name}", "value": value} for name, value in _properties(claim)],
    }


def _properties(claim: ReleasedClaim) -> Iterator[tuple[str, str]]:
    """What the model's privacy is, by name; epsilons and deltas are rounded up."""
    yield "statement", claim.line("Claim")
    if not claim.nobody:
        yield "epsilon", epsilon_up(claim.epsilon)
        yield "delta", delta_up(claim.delta)
        yield "unit", claim.unit
        yield "adjacency", claim.adjacency.value
        yield "scope", "the whole search, with the choice of the best configuration"
        yield "rule", claim.rule
        yield "discloses", claim.discloses
        yield "account_reserved_epsilon", epsilon_up(claim.reserved[0])
        yield "account_reserved_delta", delta_up(claim.reserved[1])
        for name, epsilon in claim.upper_bounds.items():
            yield f"upper_bound:{name}", epsilon_up(epsilon)
    yield "commitment", claim.commitment


def _metric(score: ReleasedScore) -> dict[str, Any]:
    ends = {"lowerBound": score.low, "upperBound": score.high}
    given = {name: str(value) for name, value in ends.items() if value is not None}
    return {
        "type": score.name,
        "value": str(score.value),
        **({"confidenceInterval": given} if given else {}),
    }


def _data(claim: ReleasedClaim) -> dict[str, Any]:
    """The data set by name alone: how many records it has is declared, and what they say is protected."""
    told = claim.nobody or f"Protected for each {claim.unit} by the dp: properties of the model."
    return {
        "type": "data",
        "bom-ref": DATA,
        "name": claim.account,
        "data": [{"type": "dataset", "name": claim.account, "description": told}],
    }


def _base(package: ReleasedPackage) -> Iterator[dict[str, Any]]:
    """The pretrained model that the winner starts from, if it does."""
    base = None if package.config is None else BaseModel.of(package.config)
    if base is not None:
        yield {
            "type": "machine-learning-model",
            "bom-ref": BASE,
            "name": base.name,
            "hashes": [{"alg": "SHA-256", "content": base.sha256}],
            "licenses": [{"license": {"name": base.licence}}],
            "description": "Declared public: the dp: properties do not cover the data that it was trained on.",
        }
