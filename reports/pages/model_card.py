"""The model card of a release or of an export: Markdown below the YAML that model hubs read.

Its only sources are a released page and its claim, so a card never says more than the rule discloses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from markupsafe import Markup

from dpsweep.reports.content.base_model import BaseModel
from dpsweep.reports.content.frozen_features import FrozenFeatures
from dpsweep.reports.pages.curator_page import Page
from dpsweep.reports.pages.templates import fill
from dpsweep.reports.statement.released_claim import ReleasedClaim, ReleasedScore

TAG = "differential-privacy"
LIBRARY = "pytorch"


def render_card(
    page: Page,
    code: str,
    *,
    own: bool,
    form: Mapping[str, Any] | None,
    features: FrozenFeatures | None = None,
    base: BaseModel | None = None,
    claim: ReleasedClaim | None = None,
) -> str:
    """The card in Markdown, for a released page and the code from a raw row to a label.

    `own` says that the model is one of dpsweep's; `form` is the declared preprocessing, None if it is not declared;
    `features` are the frozen features that the model reads, `base` the pretrained model that it starts from, if any.
    The claim's numbers stand in the YAML, if it is given.
    """
    texts = {"code": Markup(code), "own": own, "form": form, "features": features, "base": base}
    return _filled(page, claim, **texts)


def card_of_release(page: Page, claim: ReleasedClaim) -> str:
    """The card of a release, which has no code to run its model: `dpsweep export` writes that."""
    return _filled(page, claim, code="")


def front_matter(page: Page, claim: ReleasedClaim | None) -> dict[str, Any]:
    """What stands in the YAML above a card, under the names of the Hugging Face hub and `differential_privacy`.

    *Source*: the model card metadata of the hub, as `huggingface_hub.ModelCardData` reads it. Data declared public have
    no privacy to state.
    """
    form: dict[str, Any] = {"library_name": LIBRARY}
    if not page.nobody:
        form["tags"] = [TAG]
    if claim is not None and claim.score is not None:
        form["metrics"] = [claim.score.metric]
        form["model-index"] = [_scored(claim.account, claim.score)]
    if claim is not None and not claim.nobody:
        form["differential_privacy"] = _privacy(claim)
    return form


def _privacy(claim: ReleasedClaim) -> dict[str, Any]:
    return {
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "unit": claim.unit,
        "adjacency": claim.adjacency.value,
        "scope": "the whole search, with the choice of the best configuration",
        "rule": claim.rule,
        "commitment": claim.commitment,
    }


def _scored(account: str, score: ReleasedScore) -> dict[str, Any]:
    """The winner's score in the form of the hub's model index."""
    metric = {"type": score.metric, "name": score.name, "value": score.value}
    result = {"task": {"type": score.task}, "dataset": {"name": account, "type": account}, "metrics": [metric]}
    return {"name": f"{account}-model", "results": [result]}


def _filled(page: Page, claim: ReleasedClaim | None, **texts: object) -> str:
    above = yaml.safe_dump(front_matter(page, claim), sort_keys=False, allow_unicode=True)
    winner = page.best[0] if page.best else None
    return fill("card.md.j2", page=page, winner=winner, front=Markup(above), **texts)
