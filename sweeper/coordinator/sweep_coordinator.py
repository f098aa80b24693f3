"""Execution of one request: plan it, or plan, price, charge, run and report it.

The order is the guarantee: plan before price before charge before run. A typo is refused before the charge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dpsweep.accounting.accountants.pld import clear_cached_prices
from dpsweep.accounting.chain.sqlite_file import refuse_unwritable_file
from dpsweep.accounting.errors import BadInput, ExitCode, LedgerOpenedMeanwhile
from dpsweep.accounting.ledger.book import Fingerprint
from dpsweep.accounting.ledger.data_fingerprint import new_data_message, record_data, same_data_elsewhere
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import server_lock, user_ledger_place, verify_entries
from dpsweep.accounting.pricing.outlook import compare_plan_with_account
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.printing import print_error, print_errors, print_line, print_lines
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import (
    RECORD_HASHES,
    LastFolder,
    SweepFolder,
    private_store_of_plan,
    shared_folder,
)
from dpsweep.accounting.rehearsal import find_or_create_ledger_for_plan
from dpsweep.accounting.searches.interface import declared_search_class, search_class_for_plan, search_for_plan
from dpsweep.sweeper.coordinator import price_table, study
from dpsweep.sweeper.coordinator.alternatives import print_alternatives
from dpsweep.sweeper.coordinator.guards import (
    refusal_after_charge_as_contract_broken,
    refuse_full_disks,
    remove_leftovers_of_killed_jobs,
    remove_new_empty_folder_at_end,
)
from dpsweep.sweeper.coordinator.preflight import (
    TrainingCheck,
    check_training,
    count_records_without_features,
    data_changed_during_sweep_message,
    data_notes_by_topic,
    keyed_fingerprint_of_contents,
    missing_data_files_sentence,
    new_data_message_that_sweep_would_give,
    read_verified_private_contents,
)
from dpsweep.sweeper.coordinator.request import SweepRequest, Verb
from dpsweep.sweeper.coordinator.score_width import priced_with_anyway_note, refuse_useless_scores, score_width_text
from dpsweep.sweeper.coordinator.signals import command_to_repeat, create_stop_file_on_signals
from dpsweep.sweeper.coordinator.stored_plan import (
    PlanElsewhere,
    plan_run_elsewhere,
    price_stored_plan,
    read_stored_plan,
    same_command_other_plan_message,
)
from dpsweep.sweeper.coordinator.sweep_report import (
    number_of_unfinished_runs,
    unfinished_runs_text,
    write_results_and_print_report,
)
from dpsweep.sweeper.job.devices import devices_of_first_job
from dpsweep.sweeper.job.locks import file_lock
from dpsweep.sweeper.loggers.interface import check_loggers_allowed_and_installed
from dpsweep.sweeper.planning.plan_builder import compose_plan_on_account
from dpsweep.sweeper.processes import usual_garbage_collection
from dpsweep.sweeper.progress.display import Display, display_of_sweep
from dpsweep.sweeper.progress.running_sweep import SweepPhase, budget_in_words
from dpsweep.sweeper.searches.admission import (
    Retry,
    budget_raised_since_given_message,
    open_account_or_check_budget,
    require_accepted_delta,
)
from dpsweep.sweeper.searches.card import LOSSES_AFTER_CARD, PlannedCard
from dpsweep.sweeper.searches.interface import RunQueue, admitted_search_for_plan, no_further_runs, no_repetition
from dpsweep.sweeper.searches.runner import Runner
from dpsweep.sweeper.timing.time_estimate import (
    Cost,
    Speeds,
    configs_of_plan_runs,
    estimated_wall_seconds_of_plan,
    mean_seconds_of_run,
    rough_duration_text,
)
from dpsweep.sweeper.trial.blocks import jobs_with_due_points
from dpsweep.sweeper.trial.spec import build_object_of_config_part
from dpsweep.trainers.training.allocator import give_back_freed_memory


@dataclass(frozen=True)
class SweepCoordinator:
    """Executes one request."""

    request: SweepRequest
    ledger: Ledger | None = None

    def plan(self) -> ExitCode:
        """Prints the price of the sweep, under this rule and the others, and its estimated time.

        Nothing is charged. It writes `plan.json` and, beside the ledger, the time that a step took.
        """
        request = self.request
        priced = self.compose_plan()
        self._refuse_large_delta(priced)
        plan = priced.plan
        speeds = self._step_speeds_of_earlier_sweeps
        with speeds.time_unknown_costs_in_background(configs_of_plan_runs(plan)) as costs:
            folder = self._sweep_folder_of_plan(plan)
            statement = self._ledger.statement_or_none(plan.account, plan.id)
            view = compare_plan_with_account(priced, statement)
            data = data_notes_by_topic(plan, folder.private_store)
            width = score_width_text(priced, self._ledger.statement_or_none(plan.account), request.class_shares)
            price_table.print_price_of_plan(
                priced, statement, view, lambda: self._estimated_time_text(priced, costs()), data, width
            )
        if not plan.has_public_data:
            print_alternatives(request, priced, statement, admitted=view.admitted)
        elsewhere = plan_run_elsewhere(priced, folder, statement)
        messages = (
            elsewhere.sentence if elsewhere is not None else "",
            request.launcher_refusal_sentence(priced),
            same_command_other_plan_message(plan, folder, request.jobs.command_overrides),
            missing_data_files_sentence(plan, request.data)
            or new_data_message_that_sweep_would_give(plan, request.data, self._ledger),
            request.jobs.for_plan(plan.id).named_folder_sentence,
        )
        for message in filter(None, messages):
            print_line(message)
        if not folder.plan_path.exists():
            folder.create_folder()
            plan.write(folder.plan_path)
        return ExitCode.DONE

    def print_data_management_plan(self) -> ExitCode:
        """Prints the document that a trusted research environment agrees on before training; writes nothing."""
        from dpsweep.reports.disclosure.management_plan import management_plan_text

        priced = self.compose_plan()
        self._refuse_large_delta(priced)
        print_lines(management_plan_text(priced, str(self._sweep_folder_of_plan(priced.plan).root)))
        return ExitCode.DONE

    def sweep(self) -> ExitCode:
        """Plans, prices, charges, runs the missing trials, and reports; the last printed line is the report's path."""
        return self.charge_and_run(self.compose_plan())

    def compose_plan(self) -> PricedPlan:
        """The priced plan of the request on its account."""
        request = self.request
        if request.verb is not Verb.REHEARSE and request.data is not None and not request.data.is_dir():
            raise BadInput(f"Expected data={request.data} to be an existing folder.")
        ledger = None if request.verb is Verb.REHEARSE else self._ledger  # a rehearsal has an account of its own
        priced = compose_plan_on_account(request.points, request.plan, ledger)
        return priced_with_anyway_note(priced) if request.anyway else priced

    def resume(self) -> ExitCode:
        """Continues the sweep in a folder by its own plan, whatever its command would mean now; then as `sweep`.

        Only a plan that was charged is continued, so that a file that somebody wrote charges nothing.
        """
        settings, plan = self.request.plan, read_stored_plan(self.request.jobs.sweep_folder_path)
        statement = self._coordinator_with_ledger_of_plan(plan)._ledger.statement_or_none(plan.account, plan.id)
        if statement is None or not statement.attempts_of_plan(plan.id).charges:
            raise BadInput(
                f"Expected plan {plan.id} on {plan.account} to be charged in this ledger (DPSWEEP_LEDGER): resume "
                "continues what was charged, and `dpsweep sweep` begins."
            )
        panel = build_object_of_config_part(settings.accountant, "accountant")
        return self.charge_and_run(price_stored_plan(plan, panel, settings.privacy.get("accept_delta")))

    def charge_and_run(self, priced: PricedPlan) -> ExitCode:
        """Charges a plan, runs what is missing of it, and reports; refuses before the charge what cannot run."""
        coordinator, plan = self._coordinator_with_ledger_of_plan(priced.plan), priced.plan
        elsewhere = coordinator._plan_run_elsewhere(priced, coordinator._sweep_folder_of_plan(plan))
        if elsewhere is not None and elsewhere.finished:
            print_line(elsewhere.sentence)
            print_line(self.folder_with_results(plan))
            return ExitCode.DONE
        try:
            return coordinator._charge_and_run_under_locks(priced)
        except LedgerOpenedMeanwhile as opened:
            print_error(opened)
            return self.charge_and_run(priced)

    def folder_with_results(self, plan: Plan) -> Path:
        """The folder with the results of a plan that was swept: this command's, or the one where it was finished."""
        folder = self._coordinator_with_ledger_of_plan(plan)._sweep_folder_of_plan(plan)
        last = LastFolder.read(folder.private_store)
        return folder.root if last is None or folder.trials_folder.exists() else Path(last.folder)

    def _coordinator_with_ledger_of_plan(self, plan: Plan) -> SweepCoordinator:
        """The coordinator on the ledger that this plan is charged to."""
        return replace(
            self, ledger=find_or_create_ledger_for_plan(plan, self.request.jobs.for_plan(plan.id).sweep_folder_path)
        )

    def _charge_and_run_under_locks(self, priced: PricedPlan) -> ExitCode:
        search_class_for_plan(priced.plan)
        self._refuse_large_delta(priced)
        refuse_useless_scores(priced, self._ledger, self.request)
        check_loggers_allowed_and_installed(self.request.loggers, priced.rule)
        if refusal := self.request.launcher_refusal_sentence(priced):
            raise BadInput(refusal)
        folder = self._sweep_folder_of_plan(priced.plan)
        if self._ledger.path is not None:
            refuse_unwritable_file(self._ledger.path)  # before its lock files are created
        with (
            self._lock_folder_and_plan(folder, priced.plan),
            refusal_after_charge_as_contract_broken(self._ledger, priced.plan),
            remove_leftovers_of_killed_jobs(folder),
        ):
            return self._check_charge_run_and_report(priced, folder)

    def _check_charge_run_and_report(self, priced: PricedPlan, folder: SweepFolder) -> ExitCode:
        """The steps of the guarantee in their order: check, price, open, charge, store, run, report."""
        plan, ledger, data = priced.plan, self._ledger, self.request.data
        check = self._check_before_charge(priced, folder)
        print_errors(same_command_other_plan_message(plan, folder, self.request.jobs.command_overrides))
        statement = self._ledger.statement_or_none(plan.account, plan.id)
        view = compare_plan_with_account(priced, statement)
        price_table.print_price_of_plan(
            priced,
            statement,
            view,
            lambda: self._estimated_time_text(priced, check.costs),
            data_notes_by_topic(plan, folder.private_store),
            score_width_text(priced, self._ledger.statement_or_none(plan.account), self.request.class_shares),
        )
        fingerprint = keyed_fingerprint_of_contents(check.contents, ledger)
        priced = self._open_account_and_note_data_in_plan(priced, fingerprint)
        card = PlannedCard(search=search_for_plan(plan, folder), ledger=ledger, retry=self.request.retry)
        queue = admitted_search_for_plan(priced, folder, ledger, card.retry_after_claim).charge_and_queue_due_runs()
        if card.is_begun:
            queue = replace(queue, due=(), more=no_further_runs, all_known=True)
            queue = replace(queue, losses=LOSSES_AFTER_CARD, repetition=no_repetition)
        folder.create_folder()
        priced.plan.write(folder.plan_path)
        LastFolder(folder=str(folder.root), finished=False).write(folder.private_store)
        if self.request.verb is not Verb.RESUME or not folder.multirun_config_path.exists():
            self.request.jobs.for_plan(plan.id).write_config(folder.multirun_config_path)
        with self._display(priced, folder, queue, check) as display:
            stopped = self._run_due_trials_and_tell_if_stopped(priced, folder, queue, check, display)
            if not stopped:
                display.enter_phase(SweepPhase.CHECKING if plan.card is None else SweepPhase.CARD)
                self._read_card_if_due(card, self._runner(priced, folder, queue, check), queue)
            display.enter_phase(SweepPhase.CHECKING)
            cache = shared_folder(folder.private_store, RECORD_HASHES)
            print_errors(data_changed_during_sweep_message(fingerprint, plan, data, ledger, cache))
            return self._report_ended_or_stopped_sweep(priced.plan, folder, queue, display, stopped=stopped)

    def _check_before_charge(self, priced: PricedPlan, folder: SweepFolder) -> TrainingCheck:
        """Tries what the plan needs, before anything is charged, and verifies the ledger's chain.

        Raises `BadInput` if the study, a file, a model or a launcher fails, or if the plan goes on in another folder. A
        plan with nothing left to train needs its data's files alone.
        """
        request, plan = self.request, priced.plan
        if (elsewhere := self._plan_run_elsewhere(priced, folder)) is not None:
            raise BadInput(elsewhere.sentence)
        if request.study is not None:
            study.require_reachable_study(plan, folder, request.study)
        over = admitted_search_for_plan(priced, folder, self._ledger, request.retry).are_all_runs_finished()
        if over and request.retry is not Retry.AGAIN:
            cache, speeds = shared_folder(folder.private_store, RECORD_HASHES), self._step_speeds_of_earlier_sweeps
            check = TrainingCheck(
                contents=read_verified_private_contents(plan, request.data, cache),
                threads=1,
                costs=speeds.costs_if_all_known_else_none(configs_of_plan_runs(plan)),
            )
        else:
            refuse_full_disks(folder)
            check = check_training(plan, request, folder.private_store, self._step_speeds_of_earlier_sweeps)
            request.jobs.for_plan(plan.id).try_launcher(self._most_jobs_handed_over(priced, check.costs))
        verify_entries(self._ledger.chain)
        return check

    def _plan_run_elsewhere(self, priced: PricedPlan, folder: SweepFolder) -> PlanElsewhere | None:
        """Who ran this plan in another folder; None if nobody did, or if the user repeats it in this one."""
        plan = priced.plan
        statement = self._ledger.statement_or_none(plan.account, plan.id)
        return None if self.request.retry is Retry.AGAIN else plan_run_elsewhere(priced, folder, statement)

    def _open_account_and_note_data_in_plan(self, priced: PricedPlan, data: Fingerprint) -> PricedPlan:
        """Opens the account for these data and records them; the plan then notes what the curator is told of them.

        Raises `BadInput` before the account is opened if the data are another account's.
        """
        plan, ledger = priced.plan, self._ledger
        recognised = new_data_message(data, plan.account, ledger)
        print_errors(*same_data_elsewhere(data, ledger))
        open_account_or_check_budget(priced, ledger)
        print_errors(budget_raised_since_given_message(priced, ledger.statement(plan.account, "")))
        record_data(ledger, plan.account, data)
        print_errors(recognised)
        return priced if not recognised else replace(priced, plan=replace(plan, notes=(*plan.notes, recognised)))

    def _report_ended_or_stopped_sweep(
        self, plan: Plan, folder: SweepFolder, queue: RunQueue, display: Display, *, stopped: bool
    ) -> ExitCode:
        """Reports the sweep, or what is left of it if it was stopped."""
        request, states = self.request, queue.log.states_of_runs()
        unfinished = number_of_unfinished_runs(states, queue)
        if stopped and unfinished:
            display.enter_phase(SweepPhase.STOPPED)
            going_on = f"What began stays charged; the same command goes on: {command_to_repeat()}"
            print_line(f"Stopped: {unfinished_runs_text(states, queue)}. {going_on}")
            return ExitCode.STOPPED
        if not unfinished:
            LastFolder(folder=str(folder.root), finished=True).write(folder.private_store)
        display.enter_phase(SweepPhase.DRAWING)
        return write_results_and_print_report(
            plan,
            folder,
            self._ledger,
            queue,
            states,
            speeds=self._step_speeds_of_earlier_sweeps,
            storage=request.study,
            page=request.page,
            loggers=request.loggers,
            before_print=lambda: display.enter_phase(SweepPhase.STOPPED if unfinished else SweepPhase.ENDED),
        )

    def _display(self, priced: PricedPlan, folder: SweepFolder, queue: RunQueue, check: TrainingCheck) -> Display:
        return display_of_sweep(
            priced,
            folder,
            total=queue.total,
            known=queue.known_runs,
            due=queue.due,
            budget=budget_in_words(self._ledger.statement(priced.plan.account)),
            seconds=self._estimated_seconds(priced, check.costs),
            of_runs=self._estimated_seconds(priced, check.costs, missing=0),
            command=command_to_repeat(),
            draws_page=self.request.page,
        )

    def _run_due_trials_and_tell_if_stopped(
        self, priced: PricedPlan, folder: SweepFolder, queue: RunQueue, check: TrainingCheck, display: Display
    ) -> bool:
        """Runs the due trials, if any, and settles them; returns whether a stop was requested."""
        if queue.notice:
            print_line(queue.notice)
        waits_for_earlier_jobs = self.request.resume and queue.log.states_of_runs().working
        if not queue.due and not queue.number_of_unproposed_runs and not waits_for_earlier_jobs:
            queue.log.record_ended_attempts()
            if not number_of_unfinished_runs(queue.log.states_of_runs(), queue):
                print_line(queue.idle)
            return False
        print_line(f"progress: {folder.live_page_path}, or `dpsweep watch`")
        runner, complaints = self._runner(priced, folder, queue, check), list[str]()
        clear_cached_prices()
        with usual_garbage_collection(), create_stop_file_on_signals(folder.stop_file_path):

            def refill_and_watch(waiting: int) -> tuple[Trial, ...]:
                runs = queue.refill(waiting)
                display.add_watched_trials(runs)
                return runs

            if queue.number_of_unproposed_runs and self.request.max_batch_size is None:
                runner = replace(runner, refill=refill_and_watch)
            due = queue.due or runner.runs_to_resume() or queue.more(runner.workers)
            while due:
                display.add_watched_trials(due)
                complaints += queue.run(runner, due)
                due = runner.runs_to_resume() or queue.more(runner.workers)
        give_back_freed_memory()
        print_errors(*(f"The launcher lost jobs: {complaint}" for complaint in dict.fromkeys(complaints)))
        if runner.resumed:
            print_line(f"Interrupted runs were launched again on their charge, {runner.resumed.total()} times in all.")
        return folder.stop_file_path.exists()

    def _runner(self, priced: PricedPlan, folder: SweepFolder, queue: RunQueue, check: TrainingCheck) -> Runner:
        request, workers = self.request, self.request.workers_for_plan(priced.plan)
        return Runner(
            search=search_for_plan(priced.plan, folder),
            log=queue.log,
            jobs=request.jobs.for_plan(priced.plan.id),
            compute=replace(request.compute, threads=check.threads),
            data=request.data,
            workers=min(workers.jobs, request.max_batch_size or workers.jobs),
            batch=max(1, request.max_batch_size or workers.batch),
            least=self._least_runs_per_job(priced, check.costs),
            resume=request.resume,
        )

    def _least_runs_per_job(self, priced: PricedPlan, costs: Mapping[str, Cost] | None) -> int:
        """The number of runs that make a job worth its start, from the steps that the plan declares."""
        seconds = None if costs is None else mean_seconds_of_run(priced.plan, costs)
        return self.request.workers_for_plan(priced.plan).least_runs_per_job(seconds)

    def _most_jobs_handed_over(self, priced: PricedPlan, costs: Mapping[str, Cost] | None) -> int:
        """The most jobs that the launcher is given at once."""
        request, workers, plan = self.request, self.request.workers_for_plan(priced.plan), priced.plan
        if not (known := search_class_for_plan(plan).trials_known_beforehand(plan)):
            return workers.jobs
        least = self._least_runs_per_job(priced, costs)
        together = request.compute.together
        jobs = jobs_with_due_points(plan.blocks, known, workers=workers.jobs, together=together, least=least)
        return min(sum(1 for _ in jobs), request.max_batch_size or workers.batch)

    def _jobs_at_once(self, priced: PricedPlan, costs: Mapping[str, Cost] | None) -> int:
        """The number of jobs that run at once, in the mean."""
        jobs = self.request.workers_for_plan(priced.plan).jobs
        expected = declared_search_class(priced.plan).expected_number_of_runs(priced.plan)
        return min(jobs, math.ceil(expected / self._least_runs_per_job(priced, costs)))

    def _read_card_if_due(self, card: PlannedCard, runner: Runner, queue: RunQueue) -> None:
        """Reads the sealed part of the sweep's card if its search has ended; says why if there is no answer."""
        states = queue.log.states_of_runs()
        if not queue.number_of_unproposed_runs and (files := card.files_to_read_now(states)) is not None:
            complaints = runner.read_card_and_collect_errors(files.part)
            print_errors(*(f"The card was not read: {complaint}" for complaint in complaints))
        if card.files is not None:
            card.files.restore_answer_in_folder()
        print_errors(card.remark_on_missing_answer(states))

    def _estimated_time_text(self, priced: PricedPlan, costs: Mapping[str, Cost] | None) -> str:
        where = self.request.device_and_workers_text(priced.plan, self._jobs_at_once(priced, costs))
        seconds = self._estimated_seconds(priced, costs)
        return "unknown" if seconds is None else f"{rough_duration_text(seconds)} on {where}"

    def _estimated_seconds(
        self, priced: PricedPlan, costs: Mapping[str, Cost] | None, missing: int | None = None
    ) -> float | None:
        if costs is None:
            return None
        missing = self._number_of_records_without_features if missing is None else missing
        return estimated_wall_seconds_of_plan(priced.plan, costs, self._jobs_at_once(priced, costs), missing)

    def _refuse_large_delta(self, priced: PricedPlan) -> None:
        """Raises `BadInput` if delta is 1 / units or more and was not accepted, unless the plan was charged before.

        A plan that was charged goes on without the acceptance typed again: the charge has it, and pages explain it.
        """
        try:
            require_accepted_delta(priced)
        except BadInput:
            statement = self._ledger.statement_or_none(priced.plan.account, priced.plan.id)
            if statement is None or not statement.attempts_of_plan(priced.plan.id).charges:
                raise

    def _sweep_folder_of_plan(self, plan: Plan) -> SweepFolder:
        """The sweep's folder; raises `BadInput` if it holds another plan."""
        store = private_store_of_plan(self._ledger, plan.account, plan.id)
        folder = SweepFolder(root=self.request.jobs.for_plan(plan.id).sweep_folder_path, store=store)
        plan.require_no_other_plan_in_file(folder.plan_path)
        return folder

    @contextmanager
    def _lock_folder_and_plan(self, folder: SweepFolder, plan: Plan) -> Iterator[None]:
        """Locks the folder, and the plan on its ledger in any folder, so that each has a single coordinator."""
        ledger, name, what = self._ledger, f"{plan.account}-{plan.id}", f"Plan {plan.id} on {plan.account}"
        of_plan = (
            server_lock(ledger.chain.chain, name, what)
            if ledger.path is None
            else file_lock(ledger.folder_for_local_files / "locks" / f"{name}.lock", what)
        )
        with (
            of_plan,
            remove_new_empty_folder_at_end(folder),
            file_lock(folder.coordinator_lock_path, f"The sweep in {folder.root}"),
        ):
            yield

    @property
    def _step_speeds_of_earlier_sweeps(self) -> Speeds:
        request = self.request
        return Speeds(
            path=self._ledger.folder_for_local_files / "speeds.json",
            device=request.compute.device,
            threads=request.compute.threads,
            most=request.max_threads_per_job,
            workers=request.workers.jobs,
            together=request.max_points_per_job,
            extracts=self._number_of_records_without_features > 0,
            variables=devices_of_first_job(request.compute),
        )

    @cached_property
    def _number_of_records_without_features(self) -> int:
        store = private_store_of_plan(self._ledger, "", "")
        return sum(count_records_without_features(point.config, store) for point in self.request.points[:1])

    @cached_property
    def _ledger(self) -> Ledger:
        return self.ledger or Ledger(user_ledger_place())
