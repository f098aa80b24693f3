"""Sealed parts and cards in plans: who leaves what out, what the card costs, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.sealed_parts import SealedCharge
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.card import SEALED, Card
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.searches.interface import search_class_for_plan
from dpsweep.sweeper.coordinator.score_width import score_width_text
from dpsweep.sweeper.planning.sealed_options import NO_PART_LEFT, OTHER_RECORDS
from dpsweep.sweeper.trial.spec import declaration_from_config

Compose = Callable[..., PricedPlan]
GRID = (
    *("dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "trainer=dpsgd", "steps=20"),
    *("trainer.clip_norm=1", "trainer.lr=0.5,2", "privacy.epsilon=3"),
)
SEAL = "budget.sealed={share:0.2,parts:2}"
TWO = ("dataset=adult", "model=linear", SEAL)
"""Two classes and sealed parts."""


def charge_of(priced: PricedPlan, card: int | None) -> SealedCharge:
    sealed = priced.plan.sealed_charge
    assert sealed is not None
    return replace(sealed, card=card)


@pytest.mark.parametrize(
    "rule",
    ["composition", "private_selection", "disjoint", "best_of_grid", "noisy_max", "random_stopping", "subsampled"],
)
def test_a_card_is_one_more_population_that_adds_nothing_to_the_price(compose_priced: Compose, rule: str) -> None:
    priced = compose_priced([*GRID, SEAL, f"tuning={rule}"])
    plan = priced.plan
    assert plan.card is not None
    assert plan.event.sealed is not None
    assert list(priced.quote.parts)[-1] == "sealed"
    assert priced.quote.parts["sealed"] <= priced.quote.epsilon <= 3
    assert priced.quote.parts["sealed"] > 2.95, "the part is used up to the price of the search"
    assert search_class_for_plan(plan)
    assert Plan.from_json(plan.to_json()).id == plan.id
    for trial in plan.all_runs:
        assert trial.config[SEALED] == {"share": 0.2, "parts": 2}
        assert "sealed" not in trial.event.events_by_population


def test_the_runs_leave_the_sealed_units_out_with_a_card_and_without(compose_priced: Compose) -> None:
    whole, with_card, without = (
        compose_priced([*GRID, *words]).plan for words in ((), (SEAL,), (SEAL, "plan.card=false"))
    )
    units = [declaration_from_config(plan.trials[0].config).nominal_training_units for plan in (whole, with_card)]
    assert units[1] == pytest.approx(0.8 * units[0], abs=1)
    assert without.trials[0].config == with_card.trials[0].config
    assert (without.card, without.event.sealed) == (None, None)
    assert len({plan.id for plan in (whole, with_card, without)}) == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("budget.sealed={share:0.2,parts:3}",), r"leave each part 150 units or more.*about 120"),
        (("budget.sealed={share:2,parts:1}",), r"Expected budget\.sealed=.* to be null, auto, or"),
        (("budget.sealed={share:0.2}",), r"Expected budget\.sealed=.* to be null, auto, or"),
        (("budget.sealed=some",), r"Write 'budget\.sealed={share: 0\.1, parts: 2}', or auto\."),
        (("plan.card=true",), r"Expected plan\.card=true to have a sealed part\. The account has set no part aside"),
        (("about='left\u202eright'",), r"Expected about='left.*right' to be null, or one line of visible text"),
        (("plan.card=2",), r"Expected plan\.card=2 to be auto, true, false or \{threshold: \.\.\.\}, a probability"),
        (
            ("plan.card={threshold:0.1,also:2}",),
            r"Expected plan\.card=.*'also': 2\} to be auto",
        ),
        (("plan.card={threshold:0.1}",), r"Expected plan\.card=.* to have a sealed part"),
        (("plan.card={threshold:0.1}", SEAL), r"threshold=0\.1 to be left out: it decides between two classes"),
        (
            ("plan.card={threshold:1.0}",),
            r"threshold=1\.0 to be a probability from 0\.001 to 0\.999",
        ),
        (("plan.card={threshold:accuracy}",), r"threshold='accuracy' to be a probability"),
        ((*TWO, "plan.card={threshold:f1}"), r"threshold=f1 to be a number, or score\.metric=auroc"),
        (
            (*TWO, "score.metric=auroc", "tuning=disjoint", "plan.card={threshold:f1}"),
            r"threshold=f1 to be a number under disjoint parts: no table",
        ),
    ],
)
def test_what_cannot_be_is_refused(compose_priced: Compose, words: Sequence[str], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        compose_priced([*GRID, *words])


def test_a_threshold_is_a_part_of_the_plan_and_costs_nothing(compose_priced: Compose) -> None:
    words = [*GRID, *TWO, "score.metric=auroc"]
    plans = [
        compose_priced([*words, f"plan.card={card}"]).plan for card in ("auto", "{threshold:0.1}", "{threshold:f1}")
    ]
    cards = [plan.card for plan in plans]
    assert [card.threshold for card in cards if card] == [None, 0.1, "f1"]
    assert len({card.noise_std for card in cards if card}) == 1
    assert len({plan.id for plan in plans}) == 3
    assert Plan.from_json(plans[2].to_json()) == plans[2]


def test_an_account_keeps_the_parts_of_its_first_charge(compose_priced: Compose) -> None:
    first = charge_of(compose_priced([*GRID, SEAL]), 1)
    later = compose_priced([*GRID, "trainer.lr=1"], earlier=[first]).plan
    assert later.trials[0].config[SEALED] == {"share": 0.2, "parts": 2}, "null: what the account has"
    assert later.card is not None
    with pytest.raises(BadInput, match=r"digits set 0\.2 in 2 parts aside at its first charge, and that never changes"):
        compose_priced([*GRID, "budget.sealed={share:0.4,parts:2}"], earlier=[first])
    with pytest.raises(BadInput, match="digits set nothing aside at its first charge"):
        compose_priced([*GRID, SEAL], earlier=[None])
    assert compose_priced([*GRID, "budget.sealed=auto"], earlier=[None]).plan.card is None


def test_a_sweep_without_a_fresh_part_says_why_it_has_no_card(compose_priced: Compose) -> None:
    first = charge_of(compose_priced([*GRID, SEAL]), 1)
    taken = [first, replace(first, card=2)]
    plan = compose_priced(GRID, earlier=taken).plan
    assert (plan.card, plan.notes) == (None, (NO_PART_LEFT,))
    with pytest.raises(BadInput, match=NO_PART_LEFT):
        compose_priced([*GRID, "plan.card=true"], earlier=taken)
    other = compose_priced(GRID, earlier=[first, replace(first, records="cut otherwise", card=None)]).plan
    assert (other.card, other.notes) == (None, (OTHER_RECORDS,))


def test_a_public_score_has_sealed_parts_of_the_public_set(compose_priced: Compose) -> None:
    words = [*GRID, "dataset=mnist", "steps=20", "score=public", "budget.sealed=auto"]
    plan = compose_priced(words).plan
    assert plan.card == Card(noise_std=0.0)
    assert plan.event.sealed is None
    assert plan.trials[0].config[SEALED] == {"share": 0.5, "parts": 2, "public": True}
    assert declaration_from_config(plan.trials[0].config).nominal_training_units == 60_000
    assert search_class_for_plan(plan)


def test_a_plan_that_was_edited_to_another_card_is_refused(compose_priced: Compose) -> None:
    plan = compose_priced([*GRID, SEAL]).plan
    assert plan.card is not None
    edits = (
        replace(plan, card=Card(noise_std=plan.card.noise_std / 2)),
        replace(plan, card=Card(noise_std=0.0)),
        replace(plan, card=None),
        replace(plan, event=replace(plan.event, sealed=None)),
    )
    for edited in edits:
        with pytest.raises(BadInput, match="to be the one that its price is for"):
            search_class_for_plan(edited)
    open_again = [
        replace(trial, config={k: v for k, v in trial.config.items() if k != SEALED}) for trial in plan.trials
    ]
    blocks = tuple(replace(block, trials=(open_again[0], *block.trials[1:])) for block in plan.blocks)
    with pytest.raises(BadInput, match="to leave the same sealed parts out"):
        search_class_for_plan(replace(plan, blocks=blocks))


def test_no_card_is_asked_about_the_model_of_a_script(compose_priced: Compose) -> None:
    words = ["dataset=digits", "trainer=script", "trainer.script=own.py", SEAL, "accountant=rdp"]
    with pytest.raises(BadInput) as refused:
        compose_priced([*words, "plan.card=true"])
    assert "script" in str(refused.value)


def test_a_card_takes_the_place_of_the_held_out_part_of_a_final_run(compose_priced: Compose) -> None:
    """Only where a public part keeps the final run's records from the search: else it would train on held-out ones."""
    without, disjoint, rest, alike = (
        compose_priced([*GRID, *words]).plan
        for words in (
            (SEAL, "tuning=disjoint", "plan.card=false"),
            (SEAL, "tuning=disjoint"),
            (SEAL, "tuning=subsampled", "tuning.train_on=rest"),
            (SEAL, "final=true"),
        )
    )
    assert list(disjoint.event.events_by_population) == ["training", "validation", "final training", "sealed"]
    held_out, all_train = (
        declaration_from_config(plan.final_runs[0].config).nominal_training_units for plan in (without, disjoint)
    )
    assert held_out == pytest.approx(0.8 * all_train, abs=2)
    for plan in (rest, alike):
        assert plan.final_runs[0].config["score"]["kind"] == "private_holdout"
    by_f1 = compose_priced([*GRID, SEAL, "tuning=disjoint", "score.metric=f1"]).plan
    assert by_f1.final_runs[0].config["score"] == {"kind": "unscored", "metric": "f1"}


def test_only_a_final_run_goes_without_a_score(compose_priced: Compose) -> None:
    plan = compose_priced([*GRID, SEAL, "tuning=disjoint"]).plan
    assert not declaration_from_config(plan.final_runs[0].config).score.is_measured
    with pytest.raises(BadInput, match="Expected a score that is measured: only a final run"):
        declaration_from_config({**plan.trials[0].config, "score": {"kind": "unscored"}})


def test_auto_says_when_it_sets_nothing_aside_and_is_not_recommended_there(compose_priced: Compose) -> None:
    """Digits has 1797 records: a tenth in two parts would be 90 each."""
    words = (*GRID, "score.fraction=0.03")
    silent, asked = (compose_priced([*words, *more]) for more in ((), ("budget.sealed=auto",)))
    (note,) = [note for note in asked.plan.notes if "sealed" in note]
    assert "sets nothing aside" in note
    assert "need 3000 declared records" in note
    assert "there are 1797" in note
    assert asked.plan.id == silent.plan.id
    for priced in (silent, asked):
        assert "sealed" not in (score_width_text(priced, None) or "")
    large = compose_priced([*words, "dataset=mnist", "model=linear", "score.fraction=0.0003"])
    assert "or budget.sealed=auto would tell more" in (score_width_text(large, None) or "")
