"""A delta of 1 / units or more is charged only where somebody typed it twice, and then every page says so."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from dpsweep.accounting.cautions import is_large_delta
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.notation import epsilon_text_rounded_up, exponential_text_rounded_up
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.commands.hydra_app import CONF, merge_scale_into_experiment_argument
from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE
from dpsweep.sweeper.searches.admission import charge_account, require_accepted_delta
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of

pytestmark = TRAINS

Compose = Callable[[Sequence[str]], PricedPlan]
Program = Callable[..., subprocess.CompletedProcess[str]]

LINE = (
    "dataset=digits",
    "trainer=dpnsgd",
    "trainer.lr=2",
    "trainer.regularizer=0.1,1",
    "steps=3",
    "accountant=rdp",
    "accountant.witnesses=[]",
    "budget.delta=0.5",
    "budget.epsilon=50",
    "privacy.delta=0.05",
    "privacy.epsilon=12",
)
ACCEPTED = "privacy.accept_delta=0.05"


@pytest.mark.parametrize("verb", ["sweep", "plan"])
def test_it_is_refused_in_a_sentence_before_anything_is_charged(program: Program, ledger: Ledger, verb: str) -> None:
    done = program(verb, *LINE, module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 2
    assert "Expected privacy.delta=0.05 to be below 1 / 1797, one over the declared number of records" in done.stderr
    assert "Traceback" not in done.stderr
    assert ledger.account_names() == ()


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_once_accepted_it_stands_in_the_ledger_and_on_everything_that_leaves(
    program: Program, ledger: Ledger, tmp_path: Path
) -> None:
    done = program(*LINE, ACCEPTED)
    assert done.returncode == 0, done.stderr
    folder = folder_of(done)
    (entry,) = ledger.statement("digits").charges
    assert (entry.body["accepted_delta"], entry.body["units"]) == (0.05, 1797)
    for verb in ("release", "export"):
        assert program(verb, str(folder), module="dpsweep.sweeper.commands.cli").returncode == 0
    factor = exponential_text_rounded_up(Decimal(epsilon_text_rounded_up(entry.body["epsilon"])))
    acceptance = "Whoever ran the search accepted this delta by typing privacy.accept_delta=0.05."
    for path in ("curator/report.html", "release/report.html", "export/README.md"):
        text = (folder / path).read_text()
        assert acceptance in text, path
        assert text.count(factor) > 1 or path.startswith("export"), path
        assert f"e^epsilon + 1, about {factor}, of the records that took part" in text, path
    for path in ("curator/report.json", "release/report.json"):
        form = json.loads((folder / path).read_text())
        assert acceptance in form["cautions"][1]
        assert any(acceptance in line["text"] for line in form["statement"])
    assert acceptance in " ".join(done.stdout.split())
    again = program(*LINE)
    assert again.returncode == 0, "what was charged goes on without being asked again"
    assert len(ledger.statement("digits").charges) == 1
    repeated = program(*LINE, "--again")
    assert repeated.returncode == 2, "another charge is asked for again"
    assert len(ledger.statement("digits").charges) == 1


def test_acceptance_is_no_part_of_what_a_plan_is(compose_priced: Compose) -> None:
    bare, accepted = compose_priced(LINE), compose_priced([*LINE, ACCEPTED])
    assert bare.plan.id == accepted.plan.id
    assert [trial.id for trial in bare.plan.trials] == [trial.id for trial in accepted.plan.trials]
    assert "accept_delta" not in json.dumps(accepted.plan.to_json())
    assert (bare.large_accepted_delta_or_none, accepted.large_accepted_delta_or_none) == (None, 0.05)


def test_every_charge_asks(compose_priced: Compose, ledger: Ledger) -> None:
    priced = compose_priced(LINE)
    ledger.open_account("digits", priced.plan.budget)
    with pytest.raises(BadInput, match="accept_delta"):
        charge_account(ledger, priced, str, "plan", ["t"])
    charge_account(ledger, replace(priced, accept_delta=0.05), str, "plan", ["t"])
    assert len(ledger.statement("digits").charges) == 1


def test_units_count_and_not_their_records(compose_priced: Compose) -> None:
    table = (
        *("dataset=table", "dataset.name=visits", "dataset.file=visits.csv", "dataset.records=5000"),
        *("dataset.shape=[2]", "dataset.classes=2", "dataset.label=ill", "dataset.labels=[no,yes]"),
        *("dataset.bounds={weight:[40,150],age:[18,90]}", "sampler.batch_size=20", "steps=5", "trainer=dpsgd"),
        *("trainer.lr=1", "privacy.delta=1e-3", "budget.epsilon=6", "budget.delta=0.1", "accountant=rdp"),
    )
    units = ("dataset.unit=patient", "dataset.unit_column=who", "dataset.units=900", "dataset.contribution_cap=9")
    with pytest.raises(BadInput, match="1 / 5000, one over the declared number of records"):
        require_accepted_delta(compose_priced(table))
    patients = compose_priced([*table, *units])
    assert patients.units == 900
    require_accepted_delta(patients)


def test_data_declared_public_are_promised_nothing_and_asked_nothing(compose_priced: Compose) -> None:
    line = [one for one in LINE if not one.startswith(("budget.epsilon", "privacy.epsilon"))]
    public = ("dataset.public=true", "privacy.noise_multiplier=1", "score=training")
    priced = compose_priced([*line, *public])
    require_accepted_delta(priced)
    assert priced.large_accepted_delta_or_none is None


OPEN = ("arrays", "hugging_face", "image_folder", "npz", "table", "text_sequences", "text_table", "torch_dataset")
CHOICES = [
    f"{group}={size}{path.stem}"
    for group, sizes in (("dataset", ("",)), ("experiment", ("full/", "small/", "smoke/")))
    for path in sorted((CONF / group).glob("*.yaml"))
    for size in sizes
]


@pytest.mark.parametrize("choice", CHOICES)
def test_no_data_set_and_no_papers_sweep_has_a_delta_to_accept(choice: str) -> None:
    with initialize_config_dir(config_dir=str(CONF), **VERSION_BASE):
        config = compose("config", overrides=merge_scale_into_experiment_argument([choice]))
    if OmegaConf.is_missing(config.privacy, "delta"):
        assert choice.removeprefix("dataset=") in OPEN, "the user says it"
        return
    units = config.dataset.get("units") or config.dataset.records
    assert not is_large_delta(config.privacy.delta, units)
    assert not is_large_delta(config.budget.delta, units)
