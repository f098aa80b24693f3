"""Documents of a release in standard forms, each a class that pyproject.toml registers by its name.

* `registry`: an entry of the Differential Privacy Deployments Registry, as a draft that its authors complete. *Source*:
  github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml. What only people know, such as the
  intended use, is marked as theirs to fill in; the entry says nothing that the release does not say.
* `tre`: the disclosure record of a release for a trusted research environment: its criteria, and the package they apply
  to. *Source*: SATRE specification 2.0.1, requirements 3.3.07 (outputs that cannot be checked by hand, such as the
  weights of trained models) and 3.3.09 (a machine-readable record of the criteria applied to each released package).
  The record names the package by the SHA-256 of its files, so it is tied to one package; it is no part of that package.
* `hf`: the model card of a release for the Hugging Face hub: the release's own card, without the code of an export.
* `cyclonedx`: a CycloneDX 1.6 bill of materials of a released model, with its privacy as properties named `dp:`.
  *Source*: ECMA-424, CycloneDX 1.6, schema/bom-1.6.schema.json. The file has no time; its serial number follows from
  the package, so the same release has the same bill.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from dpsweep.accounting.codec import plain
from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_up
from dpsweep.accounting.records.trial_result import OUTPUTS
from dpsweep.accounting.stored_names.stored_classes import class_name_without_module
from dpsweep.reports.content.sections import program_version
from dpsweep.reports.content.trial_config import BaseModel
from dpsweep.reports.disclosure.management_plan import SATRE
from dpsweep.reports.pages.model_export import render_card
from dpsweep.reports.pages.released_package import ReleasedPackage
from dpsweep.reports.statement.released_claim import ReleasedClaim, ReleasedScore

TO_FILL_IN = "To be filled in by the authors of this entry."
SHORT = 8
"""Digits of the hash of report.json in an entry's address."""

_TUNED = (
    "Hyperparameters were tuned on the protected records themselves, and the privacy loss of tuning is accounted for. "
    "{covered} The rule of the search is {rule}: {discloses}."
)
_ONE_POINT = "This sweep tuned no hyperparameter: it ran one configuration, which was fixed beforehand. {covered}"
_CHARGED = (
    "The whole search, with runs that failed and with the choice of the best configuration, was priced and charged to "
    "a ledger before its first gradient was computed; epsilon and delta above are those of the whole search. {scores} "
    "Privacy parameters were fixed before the search read any record."
)
_CHARGED_RUN = (
    "The run was priced and charged to a ledger before its first gradient was computed; epsilon and delta above are "
    "its own. {scores}"
)
_NOT_ACCOUNTED = "Not accounted for: {limits}"
_POST_PROCESSING = (
    "The choice of the best configuration is a part of the priced search. The released page, its pictures and this "
    "entry are computed from its noisy outputs, from declared constants and from the ledger alone."
)


class _EntryDumper(yaml.SafeDumper):
    """Texts of several lines keep them, as the registry asks."""


_EntryDumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


@dataclass(frozen=True, kw_only=True)
class RegistryEntry:
    """The entry as YAML; data declared public have an entry without privacy parameters, which says so."""

    file: str = "deployments_registry.yaml"

    def text(self, package: ReleasedPackage) -> str:
        """The entry, with a line on what is left to do."""
        claim = package.claim
        slug = re.sub(r"[^a-z0-9]+", "-", claim.account.lower()).strip("-")
        protected = {} if claim.nobody else _registry_privacy_fields(claim)
        entry = {
            "url_slug": f"{slug or 'model'}-dpsweep-{claim.report[:SHORT]}",
            "status": "Draft",
            "tier": 3 if protected else 1,
            "deployment": {
                "basic": {
                    "name": f"Model trained on {claim.account}",
                    "data_curators": [TO_FILL_IN],
                    "intended_use": TO_FILL_IN,
                    "data_product_type": "Machine learning model",
                    "data_product_region": TO_FILL_IN,
                    "description": claim.search_claim_and_outcome_text,
                    "publication_date": claim.day.isoformat(),
                },
                **protected,
                "administrative": {
                    "notes": f"Written by dpsweep {program_version()}. SHA-256 of report.json: {claim.report}",
                    "registry_authors": [TO_FILL_IN],
                },
            },
        }
        return f"# A draft: fields that say '{TO_FILL_IN}' are for people.\n" + yaml.dump(
            entry, Dumper=_EntryDumper, sort_keys=False, allow_unicode=True, width=sys.maxsize
        )


def _registry_privacy_fields(claim: ReleasedClaim) -> dict[str, Any]:
    """What the registry asks on tiers 2 and 3."""
    return {
        "dp_variant": {
            "variant_name": "Approximate DP" if claim.delta > 0 else "Pure DP",
            "data_domain": f"All data sets of {claim.unit}s in the declared form of the data set {claim.account}.",
            "unprotected_quantities": _unprotected_quantities_text(claim),
        },
        "privacy_loss": {
            "privacy_unit": claim.unit,
            "privacy_unit_details": claim.line_text_on_topic("Unit and neighbours"),
            "privacy_parameters": {"epsilon": claim.epsilon, "delta": claim.delta},
            "privacy_parameters_details": " ".join(
                (
                    claim.line_text_on_topic("Claim"),
                    f"Gaussian mu at every delta: {claim.gaussian_mu_text}.",
                    claim.line_text_on_topic("Meaning"),
                )
            ),
        },
        "deployment_model": {
            "model_name": "Central",
            "actors": claim.line_text_on_topic("Trust"),
            "release_type": "One release",
            "release_type_details": claim.account_reserved_and_budget_sentence,
            "access_type": "Non-interactive",
        },
        "accounting": {
            "post_processing": _POST_PROCESSING,
            "composition": f"{claim.line_text_on_topic('Accountants')} "
            f"{' '.join(claim.evidence_texts_on_topic('Claim'))} Sweeps on the account add up by {claim.policy}.",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": _tuning_text(claim),
            "mechanisms": _mechanisms_text(claim),
            "justification": TO_FILL_IN,
        },
    }


def _tuning_text(claim: ReleasedClaim) -> str:
    """How hyperparameters were tuned, and whether that is accounted for."""
    elsewhere, texts = (
        claim.line_text_on_topic("Search"),
        {"covered": claim.line_text_on_topic("Covered"), "scores": claim.line_text_on_topic("Scores")},
    )
    tuned = _TUNED.format(rule=claim.rule.replace("_", " "), discloses=claim.discloses, **texts)
    first = elsewhere or (tuned if claim.points > 1 else _ONE_POINT.format(**texts))
    charged = _CHARGED_RUN if elsewhere else _CHARGED
    return "\n\n".join(
        (first, charged.format(**texts), _NOT_ACCOUNTED.format(limits=" ".join(claim.not_covered_sentences)))
    )


def _mechanisms_text(claim: ReleasedClaim) -> str:
    topics = ("Script", "Sampling and noise", "Final run", "Randomness", "Floating point")
    texts = [f"- {claim.line_text_on_topic(topic)}" for topic in topics if claim.line_text_on_topic(topic)]
    bounds = ", ".join(f"{name} {epsilon_text_rounded_up(epsilon)}" for name, epsilon in claim.upper_bounds.items())
    told = f"- Upper bounds on epsilon at delta {delta_text_rounded_up(claim.delta)}: {bounds}." if bounds else ""
    return "\n".join(filter(None, (*texts, told, f"- Priced, run and checked by dpsweep {program_version()}.")))


def _unprotected_quantities_text(claim: ReleasedClaim) -> str:
    """What is released exactly: declared constants, and scores on records declared public."""
    constants = "The declared number of records."
    return f"{constants} {claim.line_text_on_topic('Scores')}" if claim.exact_scores else constants


SCHEMA = 1
ADDRESSES = (
    (
        "3.3.07",
        "The released models cannot be checked by hand. The control is differential privacy of the whole search that "
        "made them, with the criteria below, charged to a budget before it ran.",
    ),
    (
        "3.3.09",
        "This is the machine-readable record of the criteria that were applied to the package named below.",
    ),
)
_FILES = "SHA-256 of the canonical JSON (sorted keys, no spaces) of `files`, which has the SHA-256 of each file"


@dataclass(frozen=True, kw_only=True)
class DisclosureRecord:
    """The record as JSON; data declared public have no criteria, and the record says so."""

    file: str = "disclosure_record.json"

    def text(self, package: ReleasedPackage) -> str:
        """The record."""
        claim = package.claim
        record = {
            "record": "dpsweep disclosure record",
            "schema": SCHEMA,
            "addresses": [{"standard": SATRE, "requirement": number, "how": how} for number, how in ADDRESSES],
            "released_on": claim.day.isoformat(),
            "package": {"sha256": package.digest, "made_of": _FILES, "files": dict(package.files)},
            "output": {"data_set": claim.account, "search": claim.search_claim_and_outcome_text},
            "criteria": {"none": claim.nobody} if claim.nobody else _privacy_criteria_fields(claim),
            "report": {"sha256": claim.report, "covers": "report.json, which has what is claimed"},
            "statement": [{"topic": one.topic, "text": one.text, "level": one.level.value} for one in claim.lines],
            "not_covered": list(claim.not_covered_sentences),
            "versions": {"dpsweep": program_version(), "python": platform.python_version()},
        }
        return json.dumps(plain(record), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _privacy_criteria_fields(claim: ReleasedClaim) -> dict[str, Any]:
    """The definition that was applied, its parameters, and the account that it was charged to."""
    return {
        "definition": "(epsilon, delta)-differential privacy of the whole search",
        **claim.guarantee_fields,
        "rule": {"name": claim.rule, "discloses": claim.discloses},
        "budget": {
            "account": claim.account,
            "epsilon": claim.budget[0],
            "delta": claim.budget[1],
            "reserved_epsilon": claim.reserved[0],
            "reserved_delta": claim.reserved[1],
            "adds_up_by": claim.policy,
        },
        "accountants": {"claimed_by": list(claim.claimed_by), "upper_bounds": dict(claim.upper_bounds)},
        "meaning": claim.line_text_on_topic("Meaning"),
        "cautions": list(claim.cautions),
    }


@dataclass(frozen=True, kw_only=True)
class HuggingFaceCard:
    """The card in Markdown, below its YAML."""

    file: str = "README.md"

    def text(self, package: ReleasedPackage) -> str:
        """The card."""
        return render_card(package.page, package.claim)


DATA, BASE = "data", "base-model"
"""Names of the components within the bill."""

_NUMBERED = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/docs/1.6/json/")


@dataclass(frozen=True, kw_only=True)
class ModelMaterials:
    """The bill as JSON."""

    file: str = "model.cdx.json"

    def text(self, package: ReleasedPackage) -> str:
        """The bill."""
        version = program_version()
        tool = {"type": "application", "name": "dpsweep", "version": version, "purl": f"pkg:pypi/dpsweep@{version}"}
        bill = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": uuid.uuid5(_NUMBERED, package.digest).urn,
            "version": 1,
            "metadata": {"tools": {"components": [tool]}, "component": _model_component(package)},
            "components": [_data_component(package.claim), *_base_model_components(package)],
        }
        return json.dumps(bill, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _model_component(package: ReleasedPackage) -> dict[str, Any]:
    claim, config = package.claim, package.config
    hashes = [{"alg": "SHA-256", "content": package.files[name]} for name in OUTPUTS if name in package.files]
    architecture = {} if config is None else {"modelArchitecture": class_name_without_module(config["model"])}
    measured = (
        {}
        if claim.score is None
        else {"quantitativeAnalysis": {"performanceMetrics": [_performance_metric_fields(claim.score)]}}
    )
    return {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": f"{claim.account}-model",
        "description": claim.search_claim_and_outcome_text,
        **({"hashes": hashes} if hashes else {}),
        "modelCard": {
            "modelParameters": {**architecture, "datasets": [{"ref": DATA}]},
            **measured,
            "considerations": {"technicalLimitations": list(claim.not_covered_sentences)},
        },
        "properties": [{"name": f"dp:{name}", "value": value} for name, value in _privacy_properties(claim)],
    }


def _privacy_properties(claim: ReleasedClaim) -> Iterator[tuple[str, str]]:
    """What the model's privacy is, by name; epsilons and deltas are rounded up."""
    yield "statement", claim.line_text_on_topic("Claim")
    if not claim.nobody:
        yield "epsilon", epsilon_text_rounded_up(claim.epsilon)
        yield "delta", delta_text_rounded_up(claim.delta)
        yield "gaussian_mu", claim.gaussian_mu_text
        yield "unit", claim.unit
        yield "adjacency", claim.adjacency.value
        yield "scope", claim.scope
        yield "rule", claim.rule
        yield "discloses", claim.discloses
        yield "account_reserved_epsilon", epsilon_text_rounded_up(claim.reserved[0])
        yield "account_reserved_delta", delta_text_rounded_up(claim.reserved[1])
        for name, epsilon in claim.upper_bounds.items():
            yield f"upper_bound:{name}", epsilon_text_rounded_up(epsilon)
    yield "report_sha256", claim.report


def _performance_metric_fields(score: ReleasedScore) -> dict[str, Any]:
    ends = {"lowerBound": score.low, "upperBound": score.high}
    given = {name: str(value) for name, value in ends.items() if value is not None}
    return {
        "type": score.name_with_basis,
        "value": str(score.value),
        **({"confidenceInterval": given} if given else {}),
    }


def _data_component(claim: ReleasedClaim) -> dict[str, Any]:
    """The data set by name alone: how many records it has is declared, and what they say is protected."""
    told = claim.nobody or f"Protected for each {claim.unit} by the dp: properties of the model."
    return {
        "type": "data",
        "bom-ref": DATA,
        "name": claim.account,
        "data": [{"type": "dataset", "name": claim.account, "description": told}],
    }


def _base_model_components(package: ReleasedPackage) -> Iterator[dict[str, Any]]:
    """The pretrained model that the winner starts from, if it does."""
    base = None if package.config is None else BaseModel.from_trial_config(package.config)
    if base is not None:
        yield {
            "type": "machine-learning-model",
            "bom-ref": BASE,
            "name": base.name,
            "hashes": [{"alg": "SHA-256", "content": base.sha256}],
            "licenses": [{"license": {"name": base.licence}}],
            "description": "Declared public: the dp: properties do not cover the data that it was trained on.",
        }
