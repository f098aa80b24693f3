"""The data management plan before training: what it says of a priced plan, and the forms that a plan has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.notation import epsilon_text_rounded_up
from dpsweep.accounting.pricing.price import proven_gaussian_mu
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.reports.disclosure.management_plan import management_plan_text
from dpsweep.sweeper.commands import cli

WORDS = ["dataset=digits", "trainer=dpsgd,dpnsgd", "trainer.lr=1,2", "steps=5", "privacy.epsilon=3", "accountant=rdp"]
Compose = Callable[[list[str]], PricedPlan]


def test_it_has_what_the_requirement_asks_for(compose_priced: Compose) -> None:
    priced = compose_priced(WORDS)
    text, mu = (
        management_plan_text(priced, "sweeps/digits/x"),
        proven_gaussian_mu([priced.plan.event], priced.plan.adjacency),
    )
    assert mu is not None
    for words in (
        "SATRE 2.0.1, requirement 3.1.16",
        "1797 records as declared",
        "trained by DP-SGD and DP-NSGD",
        "the scores of all runs may be shown (rule composition)",
        f"epsilon {epsilon_text_rounded_up(priced.quote.epsilon)} at delta 1e-5",
        f"at every delta: {epsilon_text_rounded_up(mu)}.",
        "dpsweep release sweeps/digits/x --for tre",
        "## Register of use",
        "## Decommissioning",
        "| data owner |",
    ):
        assert words in text


def test_a_hidden_search_shows_its_winner_and_proves_no_mu(compose_priced: Compose) -> None:
    text = management_plan_text(compose_priced([*WORDS, "tuning=private_selection"]), "x")
    assert "only the winner and its score may be shown (rule private_selection)" in text
    assert "at every delta: not proven." in text


def test_public_data_have_no_condition(compose_priced: Compose) -> None:
    public = ["dataset=digits", "dataset.public=true", "score=training", "steps=5", "trainer=clipped_sgd"]
    text = management_plan_text(compose_priced(public), "x")
    assert "Without a condition of privacy" in text
    assert "epsilon" not in text.partition("## Further")[0]


def test_a_plan_has_no_other_form() -> None:
    with pytest.raises(BadInput, match="Expected --for hf to be tre"):
        cli.plan(["dataset=digits", "--for", "hf"])
