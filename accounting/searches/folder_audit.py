"""Audit of sweep folders: compares them with the ledger, the private store and one another.

Each kind of search verifies its own runs (`PlannedSearch.verify`); here is what all of them have in common.

Every result is compared with the digest that was recorded when its attempt ended: in the ledger, or, for a rule that
hides its losers, in the private store if this machine has it. If the coordinator died before it recorded the end, an
attempt has no digest until the same command is given again.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from dpsweep.accounting.chain.hash_chain import End
from dpsweep.accounting.errors import BadInput, ContractBroken, turn_read_errors_into_refusal
from dpsweep.accounting.ledger.book import Charged, body_of_kind
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.ledger.statement import card_part, charged_event
from dpsweep.accounting.records.card import CardClaim, require_card_of_winner
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.released_files import ReleasedWinner, verify_release_files_and_describe
from dpsweep.accounting.records.sweep_folder import SweepFolder, private_store_of_plan, require_sweep_folder
from dpsweep.accounting.records.trial_result import OUTPUTS, TrialResult
from dpsweep.accounting.searches.interface import search_for_plan


def verify_sweep_folder_and_describe(root: Path, ledger: Ledger) -> str:
    """Checks plan, charge and results of one sweep folder; returns a sentence or raises the first contradiction.

    It checks the plan's hash, that the plan says of its data what their account does (private, or declared public),
    that its event is the rule's event over its trials, that the ledger charged this event, at what it costs, that every
    receipt and result belongs to its trial, that every attempt with a result was started and charged, that no result
    changed after its attempt ended, that each run matches its declaration, that the final run is the one that was
    started, that the release has the winner in the ledger, and that release and export have the files of a manifest
    line. If a secret draw or a sampler determines the runs, there must be no other run.
    """
    from dpsweep.accounting.ledger.charges import require_paid_charges  # scipy: .2 s that `budget` does not need

    with turn_read_errors_into_refusal(f"the sweep in {root}"):
        folder = SweepFolder(root=require_sweep_folder(root))
        plan = Plan.read(folder.plan_path)
        statement = ledger.statement_or_none(plan.account)
        charges = [] if statement is None else [entry for entry in statement.charges if entry.plan == plan.id]
        if statement is None or not charges:
            if any(place.exists() for place in (folder.trials_folder, folder.release_folder, folder.export_folder)):
                raise BadInput(
                    f"Expected plan {plan.id} in {root} to be charged on {plan.account} in {ledger.name}, got a folder "
                    "with runs or a release: they were charged in another ledger (DPSWEEP_LEDGER)."
                )
            return f"{root}: plan {plan.id} was only planned: the ledger has no charge of it, and the folder no runs"
        require_paid_charges(statement, plan.id)
        declared = charged_event(body_of_kind(charges[0], Charged))
        if declared is None or not declared.is_same_as(plan.event):
            raise ContractBroken(f"Plan {plan.id} in {root} is not what was charged for it.")
        if plan.has_public_data != statement.budget.promises_nothing:
            said = "" if plan.has_public_data else "not "
            raise ContractBroken(f"{root} says that its data were {said}declared public, unlike their account.")
        _verify_receipts_match_trial_and_plan(plan, folder)
        summary = search_for_plan(plan, folder).verify_runs_and_describe(statement)
        verify_unchanged_results_and_weights(plan, root, ledger)
        attempts, release = statement.attempts_of_plan(plan.id), folder.release_folder
        winner = ReleasedWinner.read_from_release(release)
        if winner is not None and winner.digest_of_winner_files(release) not in attempts.released.values():
            raise ContractBroken(f"The winner in {release} is not the one that was released by the ledger.")
        published = [verify_release_files_and_describe(one, attempts) for one in (release, folder.export_folder)]
        return f"{root}: plan {plan.id} is what was charged; {summary}{''.join(published)}"


def verify_no_attempt_ran_twice(roots: Sequence[Path]) -> None:
    """Raises `ContractBroken` if two folders have different results, or two uses, of one attempt."""
    known: dict[tuple[str, str], tuple[Path, str]] = {}
    for root in roots:
        plan = Plan.read(SweepFolder(root=root).plan_path).id
        for files in sorted(SweepFolder(root=root).trials_folder.glob("*")):
            uses = {path.name: path.read_text() for path in files.glob("claim-*")}
            if (result := TrialResult.read(files)) is not None:
                uses[f"result of attempt {result.attempt}"] = str(TrialResult.digest_of_result_file(files))
            for name, content in uses.items():
                other, before = known.setdefault((f"{plan}/{files.name}", name), (root, content))
                if before != content:
                    raise ContractBroken(f"Trial {files.name} ran on one charge in {other} and {root}: {name} differs.")


def verify_unchanged_results_and_weights(plan: Plan, root: Path, ledger: Ledger) -> None:
    """Raises `ContractBroken` if a result, its weights or a card changed after they were made."""
    folder = SweepFolder(root=root, store=private_store_of_plan(ledger, plan.account, plan.id))
    search = search_for_plan(plan, folder)
    search.verify_results_match_attempt_ends(ledger)
    _verify_card_is_of_winner(plan, folder, ledger)
    for trial in search.search_and_final_runs():
        files = folder.trial_folder(trial.id)
        result = TrialResult.read(files)
        digests = [sha256(path.read_bytes()).hexdigest() for name in OUTPUTS if (path := files / name).exists()]
        if result is not None and result.model is not None and digests != [result.model]:
            raise ContractBroken(f"The weights of trial {trial.id} in {root} are not those that it was trained to.")


def chain_ends_in_receipts(root: Path) -> frozenset[End]:
    """The ends of the ledger's chain at the starts of the attempts in a sweep folder, from their receipts."""
    places = SweepFolder(root=root).trials_folder.glob("*")
    receipts = [receipt for place in places if (receipt := Receipt.read(place)) is not None]
    return frozenset(End(entries=receipt.entries, head=receipt.head) for receipt in receipts)


def _verify_receipts_match_trial_and_plan(plan: Plan, folder: SweepFolder) -> None:
    for files in sorted(folder.trials_folder.glob("*")):
        for paper in (Receipt.read(files), TrialResult.read(files)):
            if paper is not None and paper.trial != files.name:
                raise ContractBroken(f"The receipt or the result in {files} is one of another trial, {paper.trial}.")
            if isinstance(paper, Receipt) and paper.plan != plan.id:
                raise ContractBroken(f"The receipt in {files} is one of another plan, {paper.plan}.")


def _verify_card_is_of_winner(plan: Plan, folder: SweepFolder, ledger: Ledger) -> None:
    """Raises `ContractBroken` if a sealed part was claimed for another model than the winner's, or a card was changed.

    A folder that has lost its winner has no card to compare.
    """
    statement = ledger.statement(plan.account)
    part = card_part(statement.attempts_of_plan(plan.id))
    if part is None:
        return
    places = [folder] if folder.private_store.root.is_dir() else [SweepFolder(root=folder.root)]
    stored, shown = (place.card_files(part) for place in (*places, SweepFolder(root=folder.root)))
    runs = search_for_plan(plan, folder).read_runs_and_winner(statement)
    won = next((row.result for row in runs.search_and_final_run_records if row.trial.id == runs.winner), None)
    own = None if won is None else CardClaim(plan=plan.id, part=part, trial=won.trial, model=str(won.model))
    require_card_of_winner(stored, shown, own)
