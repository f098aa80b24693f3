"""Data sets that leave records of their files out: said under add or remove, refused where one record is replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dpsweep.accounting.cautions import left_out_records_sentence
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.reports.statement.statement import _unit_line
from dpsweep.sweeper.coordinator.price_table import _caution_sentences

Compose = Callable[[Sequence[str]], PricedPlan]
REPLACED = ("privacy.adjacency=replace_one", "sampler=fixed_size")
ALL_OF_ADULT = ("dataset.left_out=null", "dataset.records=32561", "dataset.test_records=16281")


@pytest.mark.parametrize(
    ("name", "rule"), [("adult", "rows with a missing value"), ("mnist_4_9", "images of other labels")]
)
def test_a_rule_is_said_in_the_plan_and_on_the_page_and_refused_where_one_record_replaces_another(
    name: str, rule: str, compose_priced: Compose
) -> None:
    priced = compose_priced((f"dataset={name}", "grid=few", "steps=2"))
    dataset = priced.plan.trials[0].config["dataset"]
    sentence = f"Of the files, {rule} are left out; the rule looks at each record alone"
    assert (left_out_records_sentence(dataset) or "").startswith(sentence)
    assert sentence in " ".join(_caution_sentences(priced))
    line = _unit_line(cast(Any, SimpleNamespace(sweep=SimpleNamespace(plan=priced.plan))))
    assert sentence in line.text
    with pytest.raises(
        BadInput, match=r"Expected privacy\.adjacency=replace_one to be add_or_remove_one with dataset\.left"
    ):
        compose_priced((f"dataset={name}", "steps=2", *REPLACED))


def test_all_rows_may_be_kept_where_one_record_replaces_another(compose_priced: Compose) -> None:
    priced = compose_priced(("dataset=adult", "steps=2", *ALL_OF_ADULT, *REPLACED))
    assert left_out_records_sentence(priced.plan.trials[0].config["dataset"]) is None


def test_a_data_set_without_a_rule_has_none(compose_priced: Compose) -> None:
    with pytest.raises(BadInput, match=r"Expected dataset\.left_out='images of other labels' to be null"):
        compose_priced(("dataset=mnist", "steps=2", "+dataset.left_out=images of other labels"))
