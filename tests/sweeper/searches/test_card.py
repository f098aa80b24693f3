"""The card of a sweep: read once, on units that no run read, for the winner, whatever happens to folder and store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from dpsweep.accounting.errors import BadInput, ContractBroken, ExitCode
from dpsweep.accounting.events.build import gaussian
from dpsweep.accounting.ledger.book import sealed_charges
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.sealed_parts import SealedParts
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.card import CardClaim, CardFiles
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder, private_store_of_plan
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.content.told_score import told_score_of_run
from dpsweep.reports.disclosure.formats import formats_with_names
from dpsweep.reports.pages.release import write_release
from dpsweep.sweeper.trial.spec import declaration_from_config, records_from_config
from dpsweep.trainers.declarations.cards import Reading, details_of_card, numbers_of_card
from dpsweep.trainers.training.run_records import RecordStore
from tests.places import READER
from tests.randomized import SEARCHES, TRAINS
from tests.sweeper.search_programs import GRID, Program

NO_FILES = RecordStore(folder=None)
SEAL = "budget.sealed={share:0.2,parts:2}"
BUDGET = ("budget.epsilon=1000", "budget.delta=0.01")
WORDS = (*GRID, SEAL, *BUDGET)
SELECTION = (*WORDS, "tuning=private_selection", "tuning.mean=3")


def swept(tmp_path: Path, environment: dict[str, str]) -> tuple[SweepFolder, Ledger]:
    """The one sweep's folder with its store, and the ledger."""
    (plan,) = tmp_path.glob("sweeps/*/*/plan.json")
    ledger = Ledger(environment["DPSWEEP_LEDGER"])
    store = private_store_of_plan(ledger, "digits", Plan.read(plan).id)
    return SweepFolder(root=plan.parent, store=store), ledger


def records(files: CardFiles) -> list[Path]:
    return sorted(path for place in (files.folder, files.store) if place for path in place.glob("card-*"))


@TRAINS
@pytest.mark.parametrize(
    "words", [WORDS, (*WORDS, "final=true"), (*WORDS, "tuning=disjoint")], ids=["grid", "final", "b"]
)
def test_the_winner_is_asked_about_once(
    program: Program, tmp_path: Path, environment: dict[str, str], words: tuple[str, ...]
) -> None:
    done = program(*words)
    assert done.returncode == 0, done.stderr
    folder, ledger = swept(tmp_path, environment)
    files = folder.card_files(1)
    answer, sweep = files.answer, read_sweep(folder.root, ledger)
    assert answer is not None
    assert sweep.winner_id is not None
    assert answer == sweep.card
    winner = sweep.results_by_trial[sweep.winner_id]
    assert answer.claim == CardClaim(plan=sweep.plan_id, part=1, trial=sweep.winner_id, model=str(winner.model))
    assert len(records(files)) == 6
    before = {path: path.read_bytes() for path in records(files)}
    again = program(*words)
    assert again.returncode == 0, again.stderr
    assert {path: path.read_bytes() for path in records(files)} == before, "nothing is read again"
    assert len(ledger.statement("digits").charges) == 1
    assert "is what was charged" in verify_sweep_folder_and_describe(folder.root, ledger)


@TRAINS
def test_the_numbers_follow_from_the_released_counts(
    program: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    assert program(*WORDS).returncode == 0
    folder, ledger = swept(tmp_path, environment)
    sweep = read_sweep(folder.root, ledger)
    assert sweep.card is not None
    assert sweep.plan.card is not None
    declared = declaration_from_config(sweep.trial_with_id(str(sweep.winner_id)).config)
    details = details_of_card(declared.loss, declared.score, 10)
    std = np.sqrt(2) * sweep.plan.card.noise_std
    reading = Reading(std=float(std), level=0.05, whole_units=True)
    assert numbers_of_card(sweep.card.counts, declared.loss, declared.score, details, reading) == sweep.card.numbers
    told = told_score_of_run(sweep, str(sweep.winner_id))
    assert told is not None
    assert (told.value, told.low, told.high) == tuple(
        getattr(sweep.card.numbers[0], name) for name in ("value", "low", "high")
    )
    assert told.point is not None
    assert told.point.value == sweep.results_by_trial[str(sweep.winner_id)].score_value
    units = sum(sweep.card.counts[:2])
    assert abs(units - 0.1 * 1797) < 6 * (0.09 * 1797 + 2 * std**2) ** 0.5


@pytest.mark.parametrize("words", [(), ("tuning=disjoint",), ("tuning=disjoint", "plan.card=false")])
def test_no_run_reads_a_sealed_unit(compose_priced: Callable[..., PricedPlan], words: tuple[str, ...]) -> None:
    plan = compose_priced([*WORDS, *words]).plan
    seen, sealed = set[bytes](), set[bytes]()
    for number in (1, 2):
        part = records_from_config(plan.trials[0].config).open_sealed_part(READER, number, NO_FILES)
        assert not sealed & set(part.bytes_of_each_record())
        sealed |= set(part.bytes_of_each_record())
    for trial in plan.all_runs:
        split = records_from_config(trial.config).open_split(READER, NO_FILES)
        for part in (split.train, split.holdout):
            seen |= set() if part is None else set(part.bytes_of_each_record())
    assert not seen & sealed
    assert len(seen | sealed) > 1790, "equal records count once"


@SEARCHES
def test_a_hidden_search_asks_about_its_winner_and_the_ledger_does_not_say_when(
    program: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    done = program(*SELECTION)
    assert done.returncode == 0, done.stderr
    folder, ledger = swept(tmp_path, environment)
    sweep = read_sweep(folder.root, ledger)
    if sweep.winner_id is None:
        return
    assert sweep.card is not None
    assert sweep.card.claim.trial == sweep.winner_id
    kinds = [entry.kind for entry in sweep.account.entries]
    assert kinds == ["open", "data", "charge", "start", "settle", "launch"]
    assert not any("card" in entry.kind for entry in sweep.account.entries)


@TRAINS
@pytest.mark.parametrize("lost", ["folder", "store", "answer in folder", "marks in store"])
def test_a_part_is_not_read_again_after_a_loss(
    program: Program, tmp_path: Path, environment: dict[str, str], lost: str
) -> None:
    assert program(*WORDS).returncode == 0
    folder, ledger = swept(tmp_path, environment)
    files, answer = folder.card_files(1), folder.card_files(1).answer
    assert files.store is not None
    if lost == "folder":
        shutil.rmtree(folder.root)
    elif lost == "answer in folder":
        (folder.root / "card-1.json").unlink()
    else:
        place = files.store
        for path in place.glob("card-*"):
            if lost == "store" or not path.name.endswith("json") or "claim" in path.name:
                path.unlink()
    done = program(*WORDS)
    charges = len(ledger.statement("digits").charges)
    assert charges == 1, "nothing is charged again"
    if lost == "answer in folder":
        assert done.returncode == 0, done.stderr
        assert read_sweep(folder.root, ledger).card == answer
    if lost == "folder":
        assert done.returncode == ExitCode.DONE_WITH_FAILURES
        assert not list(folder.trials_folder.glob("*/model.safetensors")), "nothing trains after the claim"
        assert files.answer == answer
        assert "so nothing of this plan trains any more; another plan is another search" in done.stderr
    if lost in ("store", "marks in store"):
        assert len(list(folder.root.glob("card-1-read"))) == 1
        assert not (files.store / "card-1-read").exists(), "the mark in the folder forbids another reading"


@TRAINS
@pytest.mark.parametrize("retry", ["again", "failed"])
def test_nothing_trains_after_the_card(
    program: Program, tmp_path: Path, environment: dict[str, str], retry: str
) -> None:
    assert program(*WORDS).returncode == 0
    _, ledger = swept(tmp_path, environment)
    done = program(*WORDS, f"hydra.sweeper.retry={retry}")
    assert done.returncode == ExitCode.BAD_INPUT
    assert f"Expected hydra.sweeper.retry={retry} to be left out: the card of plan" in done.stderr
    assert len(ledger.statement("digits").charges) == 1


@TRAINS
def test_each_sweep_has_a_part_of_its_own_as_long_as_there_is_one(
    program: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    for rates, number in (("2,8", 1), ("1,4", 2), ("3,6", None), ("2,8", 1)):
        done = program(*WORDS, f"trainer.lr={rates}")
        assert done.returncode == 0, done.stderr
        assert ("No sealed part is left, so this sweep has no card." in done.stdout + done.stderr) is (number is None)
    ledger = Ledger(environment["DPSWEEP_LEDGER"])
    assert [None if one is None else one.card for one in sealed_charges(ledger.statement("digits").entries)] == [
        1,
        2,
        None,
    ]
    assert len(list(tmp_path.glob("sweeps/*/*/card-[12].json"))) == 2


@TRAINS
def test_a_card_that_was_changed_is_found(program: Program, tmp_path: Path, environment: dict[str, str]) -> None:
    assert program(*WORDS).returncode == 0
    folder, ledger = swept(tmp_path, environment)
    path = folder.root / "card-1.json"
    whole = json.loads(path.read_text())
    for edit, sentence in (
        ({"counts": [1.0, *whole["counts"][1:]]}, "is not the one that the sealed part answered with"),
        ({"claim": {**whole["claim"], "model": "0" * 64}}, "was claimed for another model than the winner's"),
    ):
        path.write_text(json.dumps(whole | edit))
        with pytest.raises(ContractBroken, match=sentence):
            verify_sweep_folder_and_describe(folder.root, ledger)


@TRAINS
def test_another_winner_than_the_claimed_one_is_not_released(
    program: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    """An older copy of the folder, which lacks the winner's result."""
    assert program(*WORDS).returncode == 0
    folder, ledger = swept(tmp_path, environment)
    winner = str(read_sweep(folder.root, ledger).winner_id)
    shutil.rmtree(folder.trial_folder(winner))
    for path in folder.root.glob("card-*"):
        path.unlink()
    assert read_sweep(folder.root, ledger).winner_id not in (None, winner)
    with pytest.raises(ContractBroken, match="was claimed for another model"):
        write_release(folder.root, ledger)


QUERY = gaussian(noise_multiplier=2.0)
CLAIM = CardClaim(plan="p", part=1, trial="t", model="m")


@pytest.fixture
def files(tmp_path: Path) -> CardFiles:
    for name in ("folder", "store"):
        (tmp_path / name).mkdir()
    return CardFiles(folder=tmp_path / "folder", store=tmp_path / "store", part=1)


def test_a_part_is_claimed_for_one_model_and_read_once(files: CardFiles) -> None:
    with pytest.raises(ContractBroken, match="to be claimed"):
        files.mark_as_read_or_refuse(QUERY)
    files.claim_for_model(CLAIM)
    files.claim_for_model(CLAIM)
    with pytest.raises(BadInput, match="a part answers for one model"):
        files.claim_for_model(CardClaim(plan="p", part=1, trial="other", model="m"))
    assert files.mark_as_read_or_refuse(QUERY).event.sealed == QUERY
    for _ in range(2):
        with pytest.raises(ContractBroken, match="a part answers once"):
            files.mark_as_read_or_refuse(QUERY)


@pytest.mark.parametrize("place", ["folder", "store"])
@pytest.mark.parametrize("name", ["card-1-claim.json", "card-1-read"])
def test_an_older_copy_of_folder_or_store_reads_nothing(files: CardFiles, place: str, name: str) -> None:
    files.claim_for_model(CLAIM)
    files.mark_as_read_or_refuse(QUERY)
    (files.folder.parent / place / name).unlink()
    with pytest.raises(ContractBroken):
        files.mark_as_read_or_refuse(QUERY)
    assert files.is_read
    assert files.is_begun


def test_a_claim_that_a_kill_left_in_the_folder_alone_is_completed(files: CardFiles) -> None:
    files.claim_for_model(CLAIM)
    assert files.store is not None
    (files.store / "card-1-claim.json").unlink()
    files.claim_for_model(CLAIM)
    assert files.mark_as_read_or_refuse(QUERY).event.sealed == QUERY


def test_a_store_with_a_claim_that_the_folder_lacks_refuses(files: CardFiles) -> None:
    files.claim_for_model(CLAIM)
    (files.folder / "card-1-claim.json").unlink()
    with pytest.raises(BadInput, match="this folder was changed or copied"):
        files.claim_for_model(CLAIM)


def test_parts_beyond_those_of_the_account_do_not_exist(compose_priced: Callable[..., PricedPlan]) -> None:
    config = compose_priced(WORDS).plan.trials[0].config
    for number in (0, 3):
        with pytest.raises(BadInput, match="to be one of those of digits"):
            records_from_config(config).open_sealed_part(READER, number, NO_FILES)
    assert SealedParts.from_json(config["sealed"]).parts == 2


@TRAINS
def test_noisy_max_tells_the_card_and_no_score_of_the_search(
    program: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    """The rule pays for no score; the card pays for one of its own."""
    done = program(*WORDS, "tuning=noisy_max")
    assert done.returncode == 0, done.stderr
    folder, ledger = swept(tmp_path, environment)
    sweep = read_sweep(folder.root, ledger)
    told = told_score_of_run(sweep, str(sweep.winner_id))
    assert told is not None
    assert told.point is None
    assert told.score_sentence == ""
    assert "sealed part 1 of 2, about 10 % of the records" in told.interval_sentence("accuracy")
    page = write_release(folder.root, ledger)
    text = page.read_text()
    assert told.interval_text.removesuffix(" %") in text
    assert "is the score chosen among" not in text


@TRAINS
def test_a_public_test_set_has_sealed_parts_that_are_read_exactly(
    program: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Digits have no public test set, so this is data declared public, of which a part is sealed all the same."""
    words = ("dataset=digits", "trainer=sgd", "trainer.lr=2,8", "steps=3", "score=training", "dataset.public=true")
    done = program(*words, SEAL)
    assert done.returncode == 0, done.stderr
    folder, ledger = swept(tmp_path, environment)
    sweep = read_sweep(folder.root, ledger)
    assert sweep.card is not None
    assert sweep.plan.event.sealed is None
    assert all(count == int(count) for count in sweep.card.counts)
    part = records_from_config(sweep.plan.trials[0].config).open_sealed_part(READER, 1, NO_FILES)
    assert sum(sweep.card.counts[:2]) == sum(sweep.card.counts[2:]) == len(part)


@TRAINS
def test_a_rare_class_has_a_threshold_from_the_table_of_the_score(
    program: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(3000) < 0.08).astype(np.int64)
    features = (rng.normal(size=(3000, 6)) + labels[:, None]).clip(-4, 4).astype(np.float32)
    np.savez(tmp_path / "rare.npz", features=features, labels=labels)
    done = program(
        *("dataset=npz", "dataset.name=rare", f"dataset.path={tmp_path / 'rare.npz'}", "dataset.records=3000"),
        *("dataset.shape=[6]", "dataset.classes=2", "dataset.bounds=[-4,4]", "trainer=dpsgd", "trainer.lr=8,16"),
        *("trainer.clip_norm=1", "steps=200", "privacy.epsilon=80", "privacy.delta=1e-5", "budget.epsilon=90"),
        *("budget.delta=1e-4", "accountant=rdp", "accountant.witnesses=[]", "budget.sealed={share:0.3,parts:1}"),
        *("score.metric=auroc", "plan.card={threshold:balanced_accuracy}"),
    )
    assert done.returncode == 0, done.stderr
    (plan,) = tmp_path.glob("sweeps/*/*/plan.json")
    ledger = Ledger(environment["DPSWEEP_LEDGER"])
    sweep = read_sweep(plan.parent, ledger)
    assert sweep.card is not None
    assert sweep.card.threshold is not None
    assert sweep.card.threshold < 0.4, "a model of a rare class says no to nearly everybody"
    sensitivity = sweep.card.number_with_label("sensitivity")
    assert sensitivity is not None
    assert sensitivity.value > 0.5  # 0.88 to 0.97 in sixteen trainings
    page = " ".join(unescape(write_release(plan.parent, ledger, ()).read_text()).split())
    assert (
        f"the model predicts the positive class at a probability of {100 * sweep.card.threshold:.3g} % or more" in page
    )


@TRAINS
def test_the_statement_and_the_card_of_the_model_say_where_the_number_is_from(
    program: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    assert program(*WORDS).returncode == 0
    folder, ledger = swept(tmp_path, environment)
    path = write_release(folder.root, ledger, formats_with_names(("registry", "hf")))
    page = " ".join(unescape(path.read_text()).split())
    sweep = read_sweep(folder.root, ledger)
    told = told_score_of_run(sweep, str(sweep.winner_id))
    assert told is not None
    for sentence in (
        "The released model was scored once on sealed part 1 of 2, about 10 % of the records",
        "The card's numbers come from counts of these records. The counts have Gaussian noise of standard deviation",
        f"The accuracy of the winner is {told.interval_text} (95 %, on sealed part 1 of 2",
        "A model that always gives the same answer reaches",
        "recall of class 9",
    ):
        assert sentence in page, sentence
    model_card = (folder.release_folder / "README.md").read_text()
    assert told.interval_text in model_card
    assert "on sealed part 1 of 2" in model_card
