"""An entry of the Differential Privacy Deployments Registry, as a draft that its authors complete.

*Source*: github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml. What only people know, such as
the intended use, is marked as theirs to fill in; the entry says nothing that the release does not say.
"""

from __future__ import annotations

import io
import re
import sys
from dataclasses import dataclass
from typing import Any

import yaml

from dpsweep.accounting.notation import delta_up, epsilon_up
from dpsweep.reports.content.provenance import program_version
from dpsweep.reports.pages.released_package import ReleasedPackage
from dpsweep.reports.statement.released_claim import ReleasedClaim

TO_FILL_IN = "To be filled in by the authors of this entry."
SHORT = 8
"""Digits of the commitment in an entry's address."""

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


@dataclass(frozen=True, kw_only=True)
class RegistryEntry:
    """The entry as YAML; data declared public have an entry without privacy parameters, which says so."""

    file: str = "deployments_registry.yaml"

    def text(self, package: ReleasedPackage) -> str:
        """The entry, with a line on what is left to do."""
        entry = entry_of(package.claim)
        first = f"# A draft: fields that say '{TO_FILL_IN}' are for people.\n"
        return first + _dumped(entry)


def entry_of(claim: ReleasedClaim) -> dict[str, Any]:
    """The entry as plain values."""
    slug = re.sub(r"[^a-z0-9]+", "-", claim.account.lower()).strip("-")
    protected = {} if claim.nobody else _protected(claim)
    return {
        "url_slug": f"{slug or 'model'}-dpsweep-{claim.commitment[:SHORT]}",
        "status": "Draft",
        "tier": 3 if protected else 1,
        "deployment": {
            "basic": {
                "name": f"Model trained on {claim.account}",
                "data_curators": [TO_FILL_IN],
                "intended_use": TO_FILL_IN,
                "data_product_type": "Machine learning model",
                "data_product_region": TO_FILL_IN,
                "description": claim.description,
                "publication_date": claim.day.isoformat(),
            },
            **protected,
            "administrative": {
                "notes": f"Written by dpsweep {program_version()}. Salted commitment to what was charged (SHA-256): "
                f"{claim.commitment}",
                "registry_authors": [TO_FILL_IN],
            },
        },
    }


def _dumped(entry: dict[str, Any]) -> str:
    """The entry in YAML; texts of several lines keep them, as the registry asks."""
    stream = io.StringIO()
    dumper = yaml.SafeDumper(stream, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    vars(dumper)["yaml_representers"] = {**dumper.yaml_representers, str: _represented}  # of this dumper alone
    dumper.open()
    dumper.represent(entry)
    dumper.close()
    return stream.getvalue()


def _represented(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def _protected(claim: ReleasedClaim) -> dict[str, Any]:
    """What the registry asks on tiers 2 and 3."""
    return {
        "dp_variant": {
            "variant_name": "Approximate DP" if claim.delta > 0 else "Pure DP",
            "data_domain": f"All data sets of {claim.unit}s in the declared form of the data set {claim.account}.",
            "unprotected_quantities": _unprotected(claim),
        },
        "privacy_loss": {
            "privacy_unit": claim.unit,
            "privacy_unit_details": claim.line("Unit and neighbours"),
            "privacy_parameters": {"epsilon": claim.epsilon, "delta": claim.delta},
            "privacy_parameters_details": " ".join((claim.line("Claim"), *claim.cautions)),
        },
        "deployment_model": {
            "model_name": "Central",
            "actors": claim.line("Trust"),
            "release_type": "One release",
            "release_type_details": claim.reserved_in_words,
            "access_type": "Non-interactive",
        },
        "accounting": {
            "post_processing": _POST_PROCESSING,
            "composition": f"{claim.line('Accountants')} {' '.join(claim.evidence('Claim'))} Sweeps on the account add "
            f"up by {claim.policy}.",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": _tuning(claim),
            "mechanisms": _mechanisms(claim),
            "justification": TO_FILL_IN,
        },
    }


def _tuning(claim: ReleasedClaim) -> str:
    """How hyperparameters were tuned, and whether that is accounted for."""
    elsewhere, texts = claim.line("Search"), {"covered": claim.line("Covered"), "scores": claim.line("Scores")}
    tuned = _TUNED.format(rule=claim.rule.replace("_", " "), discloses=claim.discloses, **texts)
    first = elsewhere or (tuned if claim.points > 1 else _ONE_POINT.format(**texts))
    charged = _CHARGED_RUN if elsewhere else _CHARGED
    return "\n\n".join((first, charged.format(**texts), _NOT_ACCOUNTED.format(limits=" ".join(claim.not_covered))))


def _mechanisms(claim: ReleasedClaim) -> str:
    topics = ("Script", "Sampling and noise", "Final run", "Randomness", "Floating point")
    texts = [f"- {claim.line(topic)}" for topic in topics if claim.line(topic)]
    bounds = ", ".join(f"{name} {epsilon_up(epsilon)}" for name, epsilon in claim.upper_bounds.items())
    told = f"- Upper bounds on epsilon at delta {delta_up(claim.delta)}: {bounds}." if bounds else ""
    return "\n".join(filter(None, (*texts, told, f"- Priced, run and checked by dpsweep {program_version()}.")))


def _unprotected(claim: ReleasedClaim) -> str:
    """What is released exactly: declared constants, and scores on records declared public."""
    constants = "The declared number of records."
    return f"{constants} {claim.line('Scores')}" if claim.exact_scores else constants
