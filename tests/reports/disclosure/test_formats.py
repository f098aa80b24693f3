"""A release in standard forms: valid by their owners' schemas, and made of what the rule discloses."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.ledger.book import Charged, body_of_kind
from dpsweep.accounting.ledger.statement import charged_event, reserved_amounts
from dpsweep.accounting.ledger.upkeep import charge_outside
from dpsweep.accounting.pricing.price import proven_gaussian_mu
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.disclosure.formats import (
    format_option_completions,
    formats_with_names,
    formats_written_in_release,
    split_arguments_from_format_options,
)
from dpsweep.reports.pages.release import write_release
from dpsweep.sweeper.commands.python_api import SweepResults
from tests.reports.disclosure.forms import FORMATS, NAMES
from tests.reports.leaks import contents, secrets_of

AXES = {
    "dpsgd": {"trainer.lr": (0.1, 0.2, 0.4), "trainer.clip_norm": (0.5, 1)},
    "dpnsgd": {"trainer.lr": (0.1, 0.2, 0.4), "trainer.regularizer": (0.1, 1)},
}
FATES = {1: "failed", 3: "diverged", 4: "killed", 6: "not run"}
ADD = Adjacency.ADD_OR_REMOVE_ONE
DAY = date(2031, 1, 2)
ALL = tuple(FORMATS.values())
SweepOf = Callable[..., Any]


def document(folder: Path, name: str) -> Any:
    """A written document as plain values; of a card what stands in its YAML."""
    text = (folder / "release" / FORMATS[name].file).read_text()
    if name == "hf":
        text = text.split("---\n")[1]
    return json.loads(text) if FORMATS[name].file.endswith(".json") else yaml.safe_load(text)


def of_the_registry(complaints: Any, folder: Path) -> None:
    entry = document(folder, "registry")
    assert complaints("deployments-schema.yaml", entry) == []
    path = folder / "release" / FORMATS["registry"].file
    assert re.fullmatch(r"[a-z0-9_]+\.yaml", path.name), "the registry asks for such names"
    styles = {token.style for token in yaml.scan(path.read_text()) if isinstance(token, yaml.ScalarToken)}
    assert styles <= {None, "", "|", "'", '"'}, "and for no text whose line breaks are lost"


def of_an_environment(complaints: Any, folder: Path) -> None:
    record = document(folder, "tre")
    assert {one["requirement"] for one in record["addresses"]} == {"3.3.07", "3.3.09"}
    package = record["package"]
    for name, digest in package["files"].items():
        assert sha256((folder / "release" / name).read_bytes()).hexdigest() == digest
    canonical = json.dumps(package["files"], sort_keys=True, separators=(",", ":"))
    assert sha256(canonical.encode()).hexdigest() == package["sha256"]
    others = {one.file for one in ALL}
    assert {path.name for path in (folder / "release").iterdir()} - others == set(package["files"])


def of_the_hub(complaints: Any, folder: Path) -> None:
    repocard = pytest.importorskip("huggingface_hub.repocard", reason="needs pip install 'dpsweep[hf]'")
    card = repocard.ModelCard.load(folder / "release" / FORMATS["hf"].file)
    assert card.data.library_name == "pytorch"
    form = document(folder, "hf")
    assert yaml.safe_load(card.data.to_yaml()) == form, "nothing is lost or renamed when the hub's library writes it"
    assert ("model-index" in form) == (card.data.eval_results is not None)


def of_a_bill(complaints: Any, folder: Path) -> None:
    bill = document(folder, "cyclonedx")
    assert complaints("bom-1.6.schema.json", bill) == []
    (hashed,) = bill["metadata"]["component"]["hashes"]
    model = (folder / "release" / "model.safetensors").read_bytes()
    assert hashed == {"alg": "SHA-256", "content": sha256(model).hexdigest()}


CHECKS: Mapping[str, Callable[[Any, Path], None]] = {
    "registry": of_the_registry,
    "tre": of_an_environment,
    "hf": of_the_hub,
    "cyclonedx": of_a_bill,
}


def test_every_name_has_its_form() -> None:
    assert set(FORMATS) == set(NAMES) == set(CHECKS)
    assert len({one.file for one in ALL}) == len(ALL)


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("rule", ["composition", "only_winner"])
def test_documents_are_as_their_standards_say(
    sweep_of: SweepOf, only_winner: dict[str, str], complaints: Any, rule: str
) -> None:
    made = sweep_of(AXES, fates=FATES, **({"rule": only_winner} if rule == "only_winner" else {}))
    write_release(made.folder, made.ledger, ALL, DAY)
    for check in CHECKS.values():
        check(complaints, made.folder)


def test_the_schemas_refuse_what_they_should(complaints: Any) -> None:
    """A check that accepts everything would be none."""
    assert complaints("deployments-schema.yaml", {"url_slug": "x", "status": "New", "tier": 9})
    assert complaints("bom-1.6.schema.json", {"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{}]})


def test_nothing_leaks_that_the_price_does_not_cover(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates=FATES, repeats=(1,))
    write_release(made.folder, made.ledger, ALL, DAY)
    text = contents(made.folder).decode("utf-8", errors="replace")
    assert sorted(secret for secret in secrets_of(made) if secret in text) == []
    assert not re.search(r"\d{4}-\d\d-\d\dT\d\d", text)
    assert set(re.findall(r"20\d\d-\d\d-\d\d", text)) <= {DAY.isoformat()}, "no day but that of the release"


def accuracy(place: int) -> float:
    return 0.912345 if place == 9 else 0.312345 + place / 1000


def test_a_rule_that_hides_losers_shows_the_winner_alone(sweep_of: SweepOf, only_winner: dict[str, str]) -> None:
    made = sweep_of(AXES, rule=only_winner, accuracy=accuracy, fates={2: "failed", 3: "killed"})
    write_release(made.folder, made.ledger, ALL, DAY)
    secrets = secrets_of(made)
    for one in ALL:
        text = (made.folder / "release" / one.file).read_text()
        for place in range(12):
            if place != 9:
                assert f"{accuracy(place):.6f}"[:5] not in text, one.file
                assert f"{100 * accuracy(place):.1f} %" not in text, one.file
        assert sorted(secret for secret in secrets if secret in text) == [], one.file
    assert document(made.folder, "hf")["model-index"][0]["results"][0]["metrics"][0]["value"] == accuracy(9)


def test_under_such_a_rule_no_document_depends_on_losers(sweep_of: SweepOf, only_winner: dict[str, str]) -> None:
    made = sweep_of(AXES, rule=only_winner, accuracy=lambda place: 0.9 if place == 9 else 0.3)
    write_release(made.folder, made.ledger, ALL, DAY)
    before = contents(made.folder)
    for place, trial in enumerate(made.plan.trials):
        folder = made.folder / "trials" / trial.id
        if place != 9 and TrialResult.read(folder) is not None:
            form = json.loads((folder / "result.json").read_text())
            change: dict[str, Any] = {"score": {"value": 0.5, "low": 0.1, "high": 0.6}, "seconds": 777.0}
            if place % 2:
                change = {"status": "failed", "score": None, "event": None, "error": "OSError: gone", "versions": {}}
            (folder / "result.json").write_text(json.dumps(form | change))
    write_release(made.folder, made.ledger, ALL, DAY)
    assert contents(made.folder) == before


@pytest.mark.usefixtures("blank_pictures")
def test_the_numbers_are_the_ledgers(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, repeats=(1,))
    charge_outside(made.ledger, "digits", made.plan.budget.__class__(epsilon=3.0, delta=1e-6), "a pilot study")
    write_release(made.folder, made.ledger, ALL, DAY)
    charges = made.ledger.statement("digits").charges
    own = [charge.body for charge in charges if charge.plan == made.plan.id]
    epsilon = float(sum(Decimal(repr(body["epsilon"])) for body in own))
    delta = float(sum(Decimal(repr(body["delta"])) for body in own))
    privacy = document(made.folder, "registry")["deployment"]["privacy_loss"]["privacy_parameters"]
    criteria = document(made.folder, "tre")["criteria"]
    card = document(made.folder, "hf")["differential_privacy"]
    for told in (privacy, criteria, card):
        assert (told["epsilon"], told["delta"]) == (epsilon, delta)
    mu = proven_gaussian_mu(
        [charged_event(body_of_kind(one, Charged)) for one in charges if one.plan == made.plan.id], ADD
    )
    assert mu is not None
    report = json.loads((made.folder / "release" / "report.json").read_text())
    assert mu == criteria["gaussian_mu"] == card["gaussian_mu"] == report["facts"]["gaussian_mu"]["value"]
    reserved = reserved_amounts(made.ledger.statement("digits"))
    assert reserved[0] > epsilon
    assert (criteria["budget"]["reserved_epsilon"], criteria["budget"]["reserved_delta"]) == reserved
    properties = {
        one["name"]: one["value"] for one in document(made.folder, "cyclonedx")["metadata"]["component"]["properties"]
    }
    assert epsilon <= float(properties["dp:epsilon"]) <= epsilon + 0.001
    assert mu <= float(properties["dp:gaussian_mu"]) <= mu + 0.001
    assert delta <= float(properties["dp:delta"]) <= 1.01 * delta
    digest = sha256((made.folder / "release" / "report.json").read_bytes()).hexdigest()
    assert digest == properties["dp:report_sha256"] == card["report_sha256"]
    assert all(digest in (made.folder / "release" / one.file).read_text() for one in ALL)


@pytest.mark.usefixtures("blank_pictures")
def test_the_registry_is_told_how_hyperparameters_were_tuned(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    write_release(made.folder, made.ledger, ALL, DAY)
    told = document(made.folder, "registry")["deployment"]["implementation"]
    tuning = told["preprocessing_and_hyperparameter_tuning"]
    assert "the privacy loss of tuning is accounted for" in tuning
    assert "The choice among 12 points of DP-SGD and DP-NSGD" in tuning
    assert "Not accounted for:" in tuning


@pytest.mark.usefixtures("blank_pictures")
def test_a_sweep_of_one_point_does_not_say_that_it_tuned(sweep_of: SweepOf) -> None:
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1,), "trainer.clip_norm": (1,)}})
    write_release(made.folder, made.ledger, ALL, DAY)
    told = document(made.folder, "registry")["deployment"]["implementation"]
    assert told["preprocessing_and_hyperparameter_tuning"].startswith("This sweep tuned no hyperparameter")


@pytest.mark.usefixtures("blank_pictures")
def test_the_same_release_has_the_same_documents(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    seen = []
    for _ in range(2):
        write_release(made.folder, made.ledger, ALL, DAY)
        seen.append(contents(made.folder))
    assert seen[0] == seen[1]


def test_what_the_records_speak_against_has_no_document(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, randomness="reproducible")
    with pytest.raises(BadInput, match="NOT a private release"):
        write_release(made.folder, made.ledger, ALL, DAY)
    assert not (made.folder / "release").exists()


@pytest.mark.usefixtures("blank_pictures")
def test_a_release_has_the_documents_that_were_asked_for(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    write_release(made.folder, made.ledger, formats_with_names(["tre", "hf"]))
    assert formats_written_in_release(made.folder / "release") == formats_with_names(["hf", "tre"])
    write_release(made.folder, made.ledger)
    assert formats_written_in_release(made.folder / "release") == ()


@pytest.mark.parametrize(
    "words", [["--for", "sbom"], ["--for=hf,sbom"], ["--for"], ["--for", ""], ["--for", "hf,"], ["--for=HF"]]
)
def test_an_unknown_form_is_one_sentence(words: list[str]) -> None:
    with pytest.raises(
        BadInput, match=r"^Expected --for\S*( \S+)? to be one of cyclonedx, hf, registry, tre\.$"
    ) as refusal:
        formats_with_names(split_arguments_from_format_options(["folder", *words])[1])
    assert refusal.value.exit_code == 2


def test_forms_are_read_wherever_they_stand_and_each_once() -> None:
    forms = ("hf", "tre")
    for words in (["a", "--for", "hf", "b", "--for=tre"], ["--for=hf,tre,hf", "a", "b"]):
        assert split_arguments_from_format_options(words) == (["a", "b"], forms)
    assert split_arguments_from_format_options(["a"]) == (["a"], ())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sweeps/x", "--for", ""], ("cyclonedx", "hf", "registry", "tre")),
        (["--for", "c"], ("cyclonedx",)),
        (["--for", "hf,t"], ("hf,tre",)),
        (["sweeps/x", "--"], ("--for",)),
        (["sweeps/x", ""], ()),
        (["sw"], ()),
    ],
)
def test_completion_knows_the_forms(words: list[str], offered: tuple[str, ...]) -> None:
    assert format_option_completions(words) == offered


@pytest.mark.usefixtures("blank_pictures")
def test_an_error_that_noise_drove_below_zero_is_no_number_in_any_form(sweep_of: SweepOf, complaints: Any) -> None:
    numbers = {"loss": {"kind": "absolute_error"}}
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2)}}, config=numbers, accuracy=lambda place: (0.7, 1.0)[place])
    release = write_release(made.folder, made.ledger, ALL).parent
    measured, below = csv.DictReader((release / "trials.csv").read_text().splitlines())
    assert float(measured["mean_absolute_error"]) == pytest.approx(0.3)
    assert (measured["below_noise"], below["mean_absolute_error"], below["below_noise"]) == ("False", "", "True")
    assert (float(below["mean_absolute_error_low"]), float(below["mean_absolute_error_high"])) == pytest.approx(
        (0, 0.02)
    )
    rows = json.loads((release / "report.json").read_text())["trials"]["rows"]
    assert [(row["mean_absolute_error"] is None, row["below_noise"]) for row in rows] == [(False, False), (True, True)]
    (metric,) = document(made.folder, "hf")["model-index"][0]["results"][0]["metrics"]
    assert metric["value"] == "< noise"
    assert complaints("bom-1.6.schema.json", document(made.folder, "cyclonedx")) == []
    swept = SweepResults(read_sweep(made.folder, made.ledger))
    assert swept.trials["mean_absolute_error"].isna().tolist() == swept.trials["below_noise"].tolist() == [False, True]
    assert swept.best is not None
    assert swept.best["mean_absolute_error"] is None
