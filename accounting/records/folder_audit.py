"""Audit of sweep folders: compares them with the ledger, the private store and one another.

Every result is compared with the digest that was recorded when its attempt ended: in the ledger, or, for a rule that
hides its losers, in the private store if this machine has it. If the coordinator died before it recorded the end, an
attempt has no digest until the same command is given again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from dpsweep.accounting.chain.hash_chain import End
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.events import build as events
from dpsweep.accounting.ledger.account import Attempts, Statement
from dpsweep.accounting.ledger.bodies import charged
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.private_store import PrivateStore
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.commitment import Opening, read_commitment
from dpsweep.accounting.records.final_run import read_final
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.plan_execution import execution_of
from dpsweep.accounting.records.proposal_file import choices_of
from dpsweep.accounting.records.released_files import ReleasedWinner, verify_files
from dpsweep.accounting.records.search_record import SearchRecord
from dpsweep.accounting.records.step_log import is_charged
from dpsweep.accounting.records.stored_draw import SearchOutcome, read_draw
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import OUTPUTS, Status, TrialResult
from dpsweep.accounting.selection.interface import Execution, rule_from_config
from dpsweep.accounting.validation import as_written


def verify_folder(root: Path, ledger: Ledger) -> str:
    """Checks plan, charge and results of one sweep folder; returns a sentence or raises the first contradiction.

    It checks the plan's hash, that the plan says of its data what their account does (private, or declared public),
    that its event is the rule's event over its trials, that the ledger charged this event, that every receipt and
    result belongs to its trial, that every attempt with a result was started and charged, that no result changed after
    its attempt ended, that each run matches its declaration, that the final run is the one that was started, that the
    release has the winner in the ledger, that the curator's opening opens its commitment, and that release and export
    have the files of a manifest line. If a secret draw or a sampler determines the runs, there must be no other run.
    """
    with as_written(f"the sweep in {root}"):
        return _verify_folder(root, ledger)


def _verify_folder(root: Path, ledger: Ledger) -> str:
    folder = SweepFolder(root=root)
    if not folder.plan.is_file():
        raise BadInput(f"Expected {root} to be a sweep folder with a plan.json.")
    plan = Plan.read(folder.plan)
    statement = ledger.statement(plan.account)
    charges = [entry for entry in statement.charges if entry.plan == plan.id]
    if not charges:
        raise BadInput(f"Expected plan {plan.id} in {root} to be charged on {plan.account} in {ledger.name}.")
    declared = charged(charges[0]).plan_event
    paid = rule_from_config(plan.rule).pays(plan.event, plan.paid)
    if declared is None or not declared.same_as(plan.event) or not paid:
        raise ContractBroken(f"Plan {plan.id} in {root} is not what was charged for it.")
    if plan.public != statement.budget.vacuous:
        said, promised = ("", " not") if plan.public else (" not", "")
        raise ContractBroken(
            f"Plan {plan.id} in {root} says that its data were{said} declared public; by the account of {plan.account} "
            f"they were{promised}."
        )
    _verify_receipts(plan, folder)
    summary = _VERIFY[execution_of(plan)](plan, folder, statement)
    verify_results(plan, root, ledger)
    _verify_release(plan, folder, statement)
    _verify_commitment(folder, ledger)
    attempts = statement.attempts(plan.id)
    published = [verify_files(place, folder.curator, attempts) for place in (folder.release, folder.export)]
    return f"{root}: plan {plan.id} is what was charged; {summary}{''.join(published)}"


def verify_copies(roots: Sequence[Path]) -> None:
    """Raises `ContractBroken` if two folders have different results, or two uses, of one attempt."""
    known: dict[tuple[str, str], tuple[Path, str]] = {}
    for root in roots:
        plan = Plan.read(SweepFolder(root=root).plan).id
        for files in sorted(SweepFolder(root=root).trials.glob("*")):
            uses = {path.name: path.read_text() for path in files.glob("claim-*")}
            if (result := TrialResult.read(files)) is not None:
                uses[f"result of attempt {result.attempt}"] = str(TrialResult.digest(files))
            for name, content in uses.items():
                other, before = known.setdefault((f"{plan}/{files.name}", name), (root, content))
                if before != content:
                    raise ContractBroken(
                        f"Trial {files.name} of plan {plan} ran in {other} and again in {root}, on one charge: {name} "
                        "is there twice, and different."
                    )


def verify_results(plan: Plan, root: Path, ledger: Ledger) -> None:
    """Raises `ContractBroken` if a result or its weights changed after the attempt ended."""
    store = PrivateStore.of(ledger, plan.account, plan.id)
    folder = SweepFolder(root=root, store=store)
    if execution_of(plan) is Execution.DRAWN_TRIES:
        _verify_search_record(plan, folder)
    else:
        _verify_settled(plan, folder, ledger.statement(plan.account, plan.id).attempts(plan.id))
    for trial in folder.runs(plan):
        files = folder.trial(trial.id)
        result = TrialResult.read(files)
        if result is None or result.model is None:
            continue
        if [result.model] != [sha256(path.read_bytes()).hexdigest() for path in _outputs(files)]:
            raise ContractBroken(f"The weights of trial {trial.id} in {root} are not those that it was trained to.")


def _outputs(files: Path) -> list[Path]:
    """What a run has left as its model: one file, or none."""
    return [files / name for name in OUTPUTS if (files / name).exists()]


def charge_and_secret(plan: Plan, root: Path, statement: Statement, winner: str | None) -> tuple[str, str]:
    """The digest of the charge that a release belongs to, and random bits that every copy of the folder has."""
    attempts, folder = statement.attempts(plan.id), SweepFolder(root=root)
    if execution_of(plan) is Execution.DRAWN_TRIES:
        stored = read_draw(plan, folder.draw)
        attempt = 1 if stored is None else stored.attempt
        return attempts.charge_of(plan.id, attempt).digest, "" if stored is None else stored.salt
    result = None if winner is None else TrialResult.read(folder.trial(winner))
    return attempts.charges[-1].digest, "" if result is None else result.salt


def remembered_ends(root: Path) -> frozenset[End]:
    """The ends of the ledger's chain at the starts of the attempts in a sweep folder, from their receipts."""
    places = SweepFolder(root=root).trials.glob("*")
    receipts = [receipt for place in places if (receipt := Receipt.read(place)) is not None]
    return frozenset(End(entries=receipt.entries, head=receipt.head) for receipt in receipts)


def _verify_receipts(plan: Plan, folder: SweepFolder) -> None:
    for files in sorted(folder.trials.glob("*")):
        receipt, result = Receipt.read(files), TrialResult.read(files)
        owners = {receipt.trial} if receipt is not None else set()
        owners |= {result.trial} if result is not None else set()
        if owners - {files.name}:
            raise ContractBroken(f"The receipt or the result in {files} is one of another trial, {min(owners)}.")
        if receipt is not None and receipt.plan != plan.id:
            raise ContractBroken(f"The receipt in {files} is one of another plan, {receipt.plan}.")


def _verify_settled(plan: Plan, folder: SweepFolder, attempts: Attempts) -> None:
    """Compares each result with the digest in its attempt's last settle line."""
    for trial in folder.runs(plan):
        result = TrialResult.read(folder.trial(trial.id))
        if result is None:
            continue
        key = trial.id, result.attempt
        end = attempts.settled.get((*key, attempts.resumed[key]))
        if end is not None and end.get("result") not in (None, TrialResult.digest(folder.trial(trial.id))):
            raise ContractBroken(
                f"The result of trial {trial.id} in {folder.root} is not the one that its attempt ended with: it was "
                "changed since, or comes from another copy of this folder."
            )


def _verify_search_record(plan: Plan, folder: SweepFolder) -> None:
    """Compares a search's folder with the private store, if this machine has it."""
    stored = read_draw(plan, folder.draw)
    if stored is None:
        return
    record = SearchRecord(store=folder.private, attempt=stored.attempt)
    if not record.exists:
        return
    tries = folder.drawn_trials(plan, stored, record.outcome)
    places = {one.trial.id: folder.trial(one.trial.id) for one in tries}
    if difference := record.contradiction(folder.draw, folder.outcome, places, tries):
        raise ContractBroken(f"The search in {folder.root} is not the one that was made: its folder {difference}.")


def _verify_release(plan: Plan, folder: SweepFolder, statement: Statement) -> None:
    """Compares a release, if there is one, with its line in the ledger."""
    winner = ReleasedWinner.read(folder.release)
    if winner is None:
        return
    if winner.digest(folder.release) not in statement.attempts(plan.id).released.values():
        raise ContractBroken(f"The winner in {folder.release} is not the one that was released by the ledger.")


def _verify_commitment(folder: SweepFolder, ledger: Ledger) -> None:
    """Opens the commitment of a release, if there is one and the curator's folder has its opening."""
    commitment, opening = read_commitment(folder.release), Opening.read(folder.curator)
    if commitment is not None and opening is not None:
        opening.verify(commitment, ledger)


def _verify_final(plan: Plan, folder: SweepFolder, statement: Statement) -> None:
    """Compares the point that was chosen for the final run with the one whose final run was started."""
    chosen = read_final(plan, folder.final)
    began = {final.id for final in plan.finals if statement.started(plan.id, final.id)}
    if chosen is not None and began and chosen.id not in began:
        raise ContractBroken(f"The final run that {folder.final} names is not the one that was started.")


def _verify_runs(plan: Plan, folder: SweepFolder, statement: Statement) -> str:
    _verify_final(plan, folder, statement)
    runs = folder.runs(plan)
    checked = 0
    for trial in runs:
        result = TrialResult.read(folder.trial(trial.id))
        if result is None:
            continue
        if not result.attempt <= statement.started(plan.id, trial.id):
            raise ContractBroken(f"Attempt {result.attempt} at trial {trial.id} was not started on a charge.")
        _verify_result(trial, result)
        checked += 1
    return f"{checked} of {len(runs)} results are there, all paid."


def _verify_proposed(plan: Plan, folder: SweepFolder, statement: Statement) -> str:
    """Checks that every run was proposed, and that no more attempts were started than charged."""
    known = {run.id for run in folder.runs(plan)}
    for place in folder.trials.iterdir() if folder.trials.exists() else ():
        if Receipt.claimed(place, 1) and place.name not in known:
            raise ContractBroken(f"Trial {place.name} ran without having been proposed.")
    if statement.attempts(plan.id).spares < 0:
        raise ContractBroken(f"More runs of plan {plan.id} were started than were charged.")
    return f"{len(known)} of {len(choices_of(plan))} runs were proposed; {_verify_runs(plan, folder, statement)}"


def _verify_tries(plan: Plan, folder: SweepFolder, statement: Statement) -> str:
    """Checks that every run is a try of the stored draw of a charged search; their number stays secret."""
    stored = read_draw(plan, folder.draw)
    if stored is None:
        return "its draw is lost, and the search with it."
    if not stored.attempt <= statement.started(plan.id, plan.id) <= statement.covered(plan.id, plan.id):
        raise ContractBroken(f"Attempt {stored.attempt} at the search {plan.id} was not started on a charge.")
    tries = {one.trial.id: one for one in folder.drawn_trials(plan, stored)}
    for place in folder.trials.iterdir() if folder.trials.exists() else ():
        if Receipt.claimed(place, stored.attempt) and place.name not in tries:
            raise ContractBroken(f"Trial {place.name} ran without a place in the draw.")
    for one in tries.values():
        if one.result is not None:
            _verify_result(one.trial, one.result)
    outcome = SearchOutcome.read(folder.outcome)
    if outcome is not None and outcome.attempt > stored.attempt:
        raise ContractBroken(f"The outcome in {folder.root} is one of attempt {outcome.attempt}, which was never made.")
    if outcome is None or outcome.attempt != stored.attempt:
        return "its search is not over."
    won = None if outcome.winner is None else tuple(tries.values())[outcome.winner].score
    if (outcome.winner is None) != (won is None):
        raise ContractBroken(f"The winner of the search {plan.id} has no score.")
    return "its search is over, paid, and ran nothing but its draw."


def _verify_result(trial: Trial, result: TrialResult) -> None:
    if result.status is not Status.FINISHED:
        return
    if result.event is None:
        raise BadInput(f"Expected the result of trial {trial.id} to say what ran.")
    realised = events.from_json(dict(result.event))
    if not is_charged(realised, trial.event.training, least=trial.config["steps"]):
        raise ContractBroken(f"Trial {trial.id} ran something else than was charged.")


_VERIFY: Mapping[Execution, Callable[[Plan, SweepFolder, Statement], str]] = {
    Execution.EVERY_POINT: _verify_runs,
    Execution.PROPOSED: _verify_proposed,
    Execution.DRAWN_TRIES: _verify_tries,
}
