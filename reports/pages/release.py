"""The only writer of `release/`: a page and the winner's model, limited to what the selection rule discloses.

Invariants: a number is released only if the sweep's price covers it. So a release has no times, no numbers of steps
run, no drawn batch sizes, no error messages, no ledger rows, no paths, and no digest except of the winner's files; if
the rule hides losers, it has nothing that depends on them or on their number. Salted digests of the winner and of all
files are in the ledger before the release is published, and a charge has one winner. Points are named by their position
in the plan.
Rules for changing this file: add to the lists below by name, never by removing from the curator's page; an exhibit
declares what it needs in `reports/exhibits/catalogue.py`; a new disclosure gets a test that tries to leak the rest.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path

import pandas as pd
import yaml
from filelock import FileLock, Timeout

from dpsweep.accounting.durable_files import mode_with_group, write_json
from dpsweep.accounting.errors import BadInput, turn_read_errors_into_refusal
from dpsweep.accounting.files import refuse_link, remove_stale_temporary_files, require_inside_folder
from dpsweep.accounting.ledger.book import Released, ReleaseManifest
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.released_files import CONFIG_FILE, ReleasedWinner, record_release
from dpsweep.accounting.records.trial_result import OUTPUTS
from dpsweep.accounting.searches.folder_audit import verify_unchanged_results_and_weights
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.reports.content import facts as numbers
from dpsweep.reports.content import sections
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.content import tables as sheets
from dpsweep.reports.content.audience import Audience, Needs, Reader
from dpsweep.reports.content.facts import Bill, read_bill
from dpsweep.reports.content.repeat_command import repeat_command
from dpsweep.reports.content.sections import Best
from dpsweep.reports.content.sweep_table import State, Sweep
from dpsweep.reports.content.told_score import same_answer_sentence
from dpsweep.reports.content.trial_config import BaseModel, FrozenFeatures, trainer_settings_for_release
from dpsweep.reports.pages import curator_page as pages
from dpsweep.reports.pages.curator_page import Page
from dpsweep.reports.pages.page_memory import FILE
from dpsweep.reports.pages.prediction_code import PREPROCESSING, declared_preprocessing
from dpsweep.reports.pages.released_package import (
    ReleasedPackage,
    ReleaseFormat,
    write_documents_in_formats,
    write_price_and_program,
    write_statement,
)
from dpsweep.reports.statement.methods_text import MethodsText, methods_text_for_paper
from dpsweep.reports.statement.released_claim import ReleasedClaim, ReleasedModel, released_claim_of_sweep
from dpsweep.reports.statement.statement import (
    privacy_statement_lines,
)
from dpsweep.reports.statement.statement_line import Context, Line, contradicted_lines

FOLDER = "release"
LOCK, PATIENCE_SECONDS = ".lock-release", 600
"""The lock of a folder's release and export, and how long a second command waits for the first."""

DECLARED = (
    *("honest_epsilon", "honest_delta", "gaussian_mu", "alone_epsilon", "search_epsilon", "final_epsilon", "points"),
    *("total_variation", "sample_rate"),
    *("batches", "epochs", "allocations", "noise_multiplier", "steps", "lost_steps", "counts_std", "minimised_noise"),
)
COLUMNS = ("state", "accuracy", "interval", "gap")
RECORDS = ("method", "noise_multiplier", "state", "accuracy", "accuracy_low", "accuracy_high", "gap")


def write_release(folder: Path, ledger: Ledger, formats: Sequence[ReleaseFormat] = (), day: date | None = None) -> Path:
    """Writes `release/` of a sweep folder again, with the documents in `formats`, and returns its page.

    `day` is the day of the release, today if it is None.

    Raises `BadInput` and changes nothing if the records contradict the claim (reproducible noise, a run that differs
    from its declaration or was never charged); if no run finished, unless the price covers that outcome too; and if a
    secret draw is not finished, since fewer tries are a different search. A second command on the same folder waits.
    """
    with hold_release_lock(folder):
        return write_release_while_locked(folder, ledger, formats, day)


@contextmanager
def hold_release_lock(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder's release and export; raises `BadInput` if another command holds it for too long."""
    path = refuse_link(folder / LOCK)
    lock = FileLock(path, timeout=PATIENCE_SECONDS, mode=mode_with_group(path))
    try:
        lock.acquire()
    except Timeout:
        raise BadInput(
            f"Expected no other command to write the release of {folder}: another one has been writing it for minutes."
        ) from None
    try:
        yield
    finally:
        lock.release()


def write_release_while_locked(
    folder: Path, ledger: Ledger, formats: Sequence[ReleaseFormat], day: date | None = None
) -> Path:
    """Does what `write_release` does, for a caller who holds the lock."""
    remove_stale_temporary_files(folder)
    target, partial = refuse_link(folder / FOLDER), refuse_link(folder / f".{FOLDER}.partial")
    with turn_read_errors_into_refusal(f"the sweep in {folder}"):
        sweep = table.read_sweep(folder, ledger)
        page = compose_release_page(sweep)
        verify_unchanged_results_and_weights(sweep.plan, folder, ledger)
        shutil.rmtree(partial, ignore_errors=True)
        pages.write_page(page, partial)
        charge, secret = sweep.planned_search.charge_digest_and_folder_secret(sweep.account, sweep.winner_id)
        ReleasedWinner.from_secret_and_charge(secret, charge).write_salt_and_covered_names(partial)
        _write_winner_config_and_model(sweep, partial)
        claim = claim_of_release_page(sweep, page, partial, day)
        write_statement(claim, partial)
        if not page.nobody:
            write_price_and_program(sweep.account.budget, read_bill(sweep), partial)
    write_documents_in_formats(ReleasedPackage.from_release_folder(page, claim, partial), formats, partial)
    record_release_and_rename_folder(sweep, partial, target, ledger)
    return target / FILE


def _write_winner_config_and_model(sweep: Sweep, target: Path) -> None:
    """Writes the winner's configuration as in the plan, its declared preprocessing and its model.

    The number of the winning run is left out.
    """
    if not public_reader(sweep).may_see(Needs.WINNER) or sweep.winner_id is None:
        return
    winner = sweep.trial_with_id(sweep.winner_id)
    point = sweep.plan.trials[0].config.keys() & winner.config.keys()
    config = {key: value for key, value in winner.config.items() if key in point}
    config["dataset"] = {"name": sweep.plan.account}  # without the paths of its files
    if (base := BaseModel.from_trial_config(winner.config)) is not None:
        config["model"] = base.settings_for_release
    config["trainer"] = trainer_settings_for_release(winner.config["trainer"])
    features = FrozenFeatures.from_trial_config(winner.config)
    if features is not None:
        config["features"] = features.settings_for_release
    (target / CONFIG_FILE).write_text(yaml.safe_dump(config, sort_keys=True))
    if (form := declared_preprocessing(winner.config["dataset"], features)) is not None:
        write_json(target / PREPROCESSING, form)
    for name in OUTPUTS:
        model = sweep.folder / "trials" / winner.id / name
        if model.exists() or model.is_symlink():
            shutil.copyfile(require_inside_folder(model, sweep.folder), target / name)


def record_release_and_rename_folder(sweep: Sweep, partial: Path, target: Path, ledger: Ledger) -> None:
    """Writes the winner and the files of a finished folder into the ledger, and then renames it to its place.

    Raises `BadInput` if another winner of this charge was released before: then the folder stays where it is.
    """
    charge, _ = sweep.planned_search.charge_digest_and_folder_secret(sweep.account, sweep.winner_id)
    released = ReleasedWinner.of_release(partial)
    record_release(
        ledger,
        sweep.plan.account,
        plan=sweep.plan_id,
        winner=Released(charge=charge, winner=released.digest_of_winner_files(partial)),
        manifest=ReleaseManifest(charge=charge, folder=target.name, manifest=released.digest_of_all_files(partial)),
    )
    with suppress(FileNotFoundError):
        shutil.rmtree(target)
    partial.rename(target)


def compose_release_page(sweep: Sweep) -> Page:
    """The page of a release; raises `BadInput` with the reason if nothing may be released."""
    bill, reader = read_bill(sweep), public_reader(sweep)
    context = _public_statement_context(sweep, bill)
    statement = privacy_statement_lines(context)
    for line in contradicted_lines(statement):
        raise BadInput(f"Expected a private sweep to release, got: {line.text}")
    if not sweep.runs.over:
        raise BadInput(
            f"Expected the search in {sweep.folder} to be finished: an interrupted search is not the one that was "
            "priced. Give its command again to continue it."
        )
    if sweep.winner_id is None and not sweep.shown.outcome:
        raise BadInput("Expected a finished run to release, got none.")
    disclosed = sweep_with_disclosed_runs_only(sweep)
    page = replace(
        pages.page_of_reader(reader, context, statement, disclosed),
        facts={name: context.facts[name] for name in DECLARED if name in context.facts},
        best=released_best_points(sweep),
        same_answer=same_answer_sentence(sweep) if Disclosure.WINNER_SCORE in sweep.disclosures else "",
        repeat=repeat_command(sweep.plan),
    )
    return _page_with_maps_and_table_of_all_runs(page, disclosed) if reader.may_see(Needs.ALL_SCORES) else page


def claim_of_release_page(sweep: Sweep, page: Page, release: Path, day: date | None = None) -> ReleasedClaim:
    """What the documents in the folder of a release may say: the claim of its page, on that day or today."""
    bill = read_bill(sweep)
    return released_claim_of_sweep(
        sweep,
        bill,
        headline=page.headline,
        lines=page.statement,
        report=sha256((release / "report.json").read_bytes()).hexdigest(),
        model=ReleasedModel.from_release_folder(release),
        day=day or datetime.now(UTC).date(),
    )


def contradicted_public_lines(sweep: Sweep, bill: Bill) -> tuple[Line, ...]:
    """The lines of the public statement that the records contradict, such as noise that a seed makes reproducible."""
    return contradicted_lines(privacy_statement_lines(_public_statement_context(sweep, bill)))


def methods_text_if_releasable(sweep: Sweep, bill: Bill) -> MethodsText | None:
    """The paragraph for a paper; None where nothing is claimed, and where nothing may be released yet."""
    claimed = sweep.runs.over and not contradicted_public_lines(sweep, bill)
    return methods_text_for_paper(_public_statement_context(sweep, bill)) if claimed else None


def _public_statement_context(sweep: Sweep, bill: Bill) -> Context:
    facts = numbers.page_facts_by_name(sweep, bill)
    return Context(sweep=sweep, bill=bill, facts=facts, audience=Audience.PUBLIC)


def public_reader(sweep: Sweep) -> Reader:
    """Everybody, with what the rule discloses."""
    return Reader(audience=Audience.PUBLIC, disclosed=sweep.rule.discloses)


def released_best_points(sweep: Sweep) -> tuple[Best, ...]:
    """The winner if the rule discloses it; each method's best only if the rule discloses all scores."""
    reader = public_reader(sweep)
    if not reader.may_see(Needs.WINNER) or sweep.winner_id is None:
        return ()
    others = tuple(sweep.winner_id_by_method.values()) if reader.may_see(Needs.ALL_SCORES) else ()
    trials = tuple(dict.fromkeys((sweep.winner_id, *others)))
    return sections.best_configurations(sweep, trials=trials, with_score=Disclosure.WINNER_SCORE in sweep.disclosures)


def _page_with_maps_and_table_of_all_runs(page: Page, sweep: Sweep) -> Page:
    records = _table_of_released_columns(sweep)
    records.insert(0, sweep.runs.noun, sweep.run_labels)
    pictures, conclusion = pages.maps_and_conclusion_of_sweep(sweep, page.findings)
    return replace(
        page,
        pictures=pictures,
        conclusion=conclusion,
        trials=sheets.runs_sheet(sweep, COLUMNS),
        records=sweep.rows_for_export(records),
        runs=sweep.runs.nouns,
    )


def table_of_disclosed_runs(sweep: Sweep) -> pd.DataFrame:
    """A row for each run that the rule discloses, with the columns that its price covers."""
    return sweep.rows_for_export(_table_of_released_columns(sweep_with_disclosed_runs_only(sweep)))


def _table_of_released_columns(sweep: Sweep) -> pd.DataFrame:
    return sweep.all_run_rows[[*RECORDS[:1], *sweep.keys_that_tell_runs_apart, *RECORDS[1:]]]


def sweep_with_disclosed_runs_only(sweep: Sweep) -> Sweep:
    """The sweep with the runs that everybody may see: what is made of it cannot show others, whatever it declares."""
    reader = public_reader(sweep)
    if reader.may_see(Needs.ALL_SCORES):
        return _sweep_without_failure_reasons(sweep)
    trial = sweep.winner_id if reader.may_see(Needs.WINNER_SCORE) else None
    rows = tuple(run for run in sweep.runs.rows if run.trial.id == trial)
    table = sweep.table[sweep.table["trial"] == trial].reset_index(drop=True)
    return _sweep_without_failure_reasons(replace(sweep, runs=replace(sweep.runs, rows=rows), table=table))


def _sweep_without_failure_reasons(sweep: Sweep) -> Sweep:
    """The sweep without the reasons why runs have no result: the price does not cover these reasons."""
    shown = (State.FINISHED, State.DIVERGED)

    def table_without_failure_reasons(table: pd.DataFrame) -> pd.DataFrame:
        states = [state if state in shown else State.NO_RESULT for state in table["state"]]
        return table.assign(state=pd.Series(states, dtype=object))

    return replace(
        sweep, table=table_without_failure_reasons(sweep.table), final=table_without_failure_reasons(sweep.final)
    )
