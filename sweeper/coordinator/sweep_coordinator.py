"""Execution of one request: plan it, or plan, price, charge, run and report it.

The order is the guarantee: plan before price before charge before run. Every error that a typo can cause is raised
before the charge.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from dpsweep.accounting.accountants.pld import forget_prices
from dpsweep.accounting.chain.sqlite_file import refuse_writing
from dpsweep.accounting.errors import BadInput, ExitCode
from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.ledger.data_fingerprint import Fingerprint
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.private_store import PrivateStore
from dpsweep.accounting.pricing.outlook import outlook, rule_outlooks
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.printing import print_errors, print_line, print_lines
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.rehearsal import new_ledger
from dpsweep.accounting.searches.interface import kind_of, search_of
from dpsweep.reports.advice.advice import SOURCE, comparison_for, in_a_table, in_one_sentence
from dpsweep.sweeper.coordinator import price_table, study
from dpsweep.sweeper.coordinator.guards import (
    refusals_only_before_charge,
    remove_folder_if_empty,
    remove_handed_over_records,
)
from dpsweep.sweeper.coordinator.preflight import (
    TrainingCheck,
    changed_since,
    check_training,
    data_in_words,
    fingerprint_of,
    missing_features,
    missing_files,
    predict_recognition,
    read_contents,
    warn_data_changed,
)
from dpsweep.sweeper.coordinator.request import SweepRequest, Verb
from dpsweep.sweeper.coordinator.signals import command_to_repeat, stop_on_signals
from dpsweep.sweeper.coordinator.stored_plan import former_plan, stored_plan, stored_search
from dpsweep.sweeper.coordinator.sweep_report import report, unfinished_runs, unfinished_text
from dpsweep.sweeper.job.locks import file_lock
from dpsweep.sweeper.loggers.interface import check_loggers
from dpsweep.sweeper.planning.plan_builder import compose_plan
from dpsweep.sweeper.processes import usually_collected
from dpsweep.sweeper.progress.display import Display, StepProgress, budget_in_words, words_of
from dpsweep.sweeper.searches.admission import Retry, open_account, raised_since, require_accepted_delta
from dpsweep.sweeper.searches.interface import RunQueue, admitted_search
from dpsweep.sweeper.searches.runner import Runner
from dpsweep.sweeper.timing.time_estimate import Cost, Speeds, configs_of, plan_seconds
from dpsweep.sweeper.trial.blocks import could_share
from dpsweep.sweeper.trial.spec import build
from dpsweep.trainers.training.allocator import give_back_freed_memory

COMPOSITION = {"_target_": "dpsweep.accounting.selection.composition.Composition"}
"""The rule of a single run."""


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
        with self._speeds.asked(point.config for point in request.points) as costs:
            priced = compose_plan(request.points, request.plan)
            self._refuse_large_delta(priced)
            plan, folder, statement = priced.plan, self._folder(priced.plan), self._statement(priced.plan)
            if not plan.public:
                rules = rule_outlooks(priced, statement, show=request.show, fits=request.fit)
                price_table.show_offers(priced, rules, request.show)
                for sentence in in_one_sentence(comparison_for(plan, plan.target_epsilon or priced.quote.epsilon)):
                    print_line(sentence)
            known = self._speeds.known(configs_of(plan))
            time = self._time_in_words(priced, known)
            self._show(priced, statement, folder, None if known is None else time)
            if known is None:
                sys.stdout.flush()
                print_line(f"time: {self._time_in_words(priced, costs())}")
        for message in (
            request.launcher_refusal(priced.rule),
            former_plan(plan, folder, request.jobs.words),
            missing_files(plan, request.data) or predict_recognition(plan, request.data, self._ledger),
        ):
            if message:
                print_line(message)
        try:
            if not folder.plan.exists():
                folder.make()
                plan.write(folder.plan)
        except OSError as cause:
            raise BadInput(f"Expected {folder.root} to be a place for plan.json: {cause.strerror}.") from cause
        return ExitCode.DONE

    def advise(self) -> ExitCode:
        """Prints what the epsilon bought under each way of searching where it was measured; writes nothing."""
        alone = replace(self.request.plan, tuning=COMPOSITION, search={}, final=False, offered={})
        priced = compose_plan(self.request.points[:1], alone)
        if priced.plan.target_epsilon is None:
            raise BadInput("Expected privacy.epsilon, what a whole search may cost, in place of the noise.")
        if (found := comparison_for(priced.plan, priced.plan.target_epsilon)) is None:
            raise BadInput(
                f"Expected classes, and sizes near those that were measured ({SOURCE}): nothing near "
                f"{priced.plan.account} was measured."
            )
        print_lines("\n".join(in_a_table(found, priced.plan.trials[0].config["privacy"]["noise_multiplier"])))
        return ExitCode.DONE

    def sweep(self) -> ExitCode:
        """Plans, prices, charges, runs the missing trials, and reports; the last printed line is the report's path."""
        return self.charge_and_run(compose_plan(self.request.points, self.request.plan))

    def resume(self) -> ExitCode:
        """Continues the sweep in a folder by its own plan, whatever its command would mean now; then as `sweep`.

        Only a plan that was charged is continued, so that a file that somebody wrote charges nothing.
        """
        settings, plan = self.request.plan, stored_plan(self.request.jobs.folder)
        statement = self._at(plan)._statement(plan)
        if statement is None or not statement.attempts(plan.id).charges:
            raise BadInput(
                f"Expected plan {plan.id} on {plan.account} to be charged in this ledger (DPSWEEP_LEDGER): resume "
                "continues what was charged, and `dpsweep sweep` begins."
            )
        panel, accepted = build(settings.accountant, "accountant"), settings.privacy.get("accept_delta")
        return self.charge_and_run(stored_search(plan, panel, accepted))

    def charge_and_run(self, priced: PricedPlan) -> ExitCode:
        """Charges a plan, runs what is missing of it, and reports; refuses before the charge what cannot run."""
        return self._at(priced.plan)._charge_and_run(priced)

    def _at(self, plan: Plan) -> SweepCoordinator:
        """The coordinator on the ledger that this plan is charged to."""
        return replace(self, ledger=new_ledger(plan, self.request.jobs.of_plan(plan.id).folder))

    def _charge_and_run(self, priced: PricedPlan) -> ExitCode:
        kind_of(priced.plan)
        self._refuse_large_delta(priced)
        check_loggers(self.request.loggers, priced.rule)
        self.request.check_launcher(priced.rule)
        folder = self._folder(priced.plan)
        if self._ledger.path is not None:
            refuse_writing(self._ledger.path)  # before its lock files are created
        with (
            self._single_coordinator(folder, priced.plan),
            refusals_only_before_charge(self._ledger, priced.plan),
            remove_handed_over_records(folder),
        ):
            return self._sweep(priced, folder)

    def _sweep(self, priced: PricedPlan, folder: SweepFolder) -> ExitCode:
        """The steps of the guarantee in their order: check, price, open, charge, store, run, report."""
        plan, ledger, data = priced.plan, self._ledger, self.request.data
        check = self._check(priced, folder)
        print_errors(former_plan(plan, folder, self.request.jobs.words))
        self._show(priced, self._statement(plan), folder, self._time_in_words(priced, check.costs))
        fingerprint = fingerprint_of(check.contents, ledger)
        priced = self._open_account(priced, fingerprint)
        queue = admitted_search(priced, folder, ledger, self.request.retry).queue()
        self._store(priced, folder)
        stopped = self._run(priced, folder, queue, check)
        print_errors(changed_since(fingerprint, plan, data, ledger))
        return self._report(priced.plan, folder, queue, stopped=stopped)

    def _check(self, priced: PricedPlan, folder: SweepFolder) -> TrainingCheck:
        """Tries what the plan needs, before anything is charged, and verifies the ledger's chain.

        Raises `BadInput` if the study, a file, a model or a launcher fails. A plan with nothing left to train needs its
        data's files alone.
        """
        request, plan = self.request, priced.plan
        if request.study is not None:
            study.require_reachable(plan, folder, request.study)
        over = admitted_search(priced, folder, self._ledger, request.retry).is_over()
        if over and request.retry is not Retry.ALL:
            check = TrainingCheck.of_nothing(read_contents(plan, request.data), self._speeds.known(configs_of(plan)))
        else:
            check = check_training(plan, request, folder.private, self._speeds)
        self._ledger.verify()
        return check

    def _open_account(self, priced: PricedPlan, data: Fingerprint) -> PricedPlan:
        """Opens the account for these data and records them; the plan then notes what the curator is told of them.

        Raises `BadInput` before the account is opened if the data are another account's.
        """
        plan, ledger = priced.plan, self._ledger
        warn_data_changed(plan.account, data, ledger)
        open_account(priced, ledger)
        print_errors(raised_since(priced, ledger.statement(plan.account, "")))
        recognised = ledger.recognise(plan.account, data)
        print_errors(recognised)
        return priced if not recognised else replace(priced, plan=replace(plan, notes=(*plan.notes, recognised)))

    def _report(self, plan: Plan, folder: SweepFolder, queue: RunQueue, *, stopped: bool) -> ExitCode:
        """Reports the sweep, or what is left of it if it was stopped."""
        request, states = self.request, queue.log.states()
        if stopped and unfinished_runs(states, queue):
            going_on = f"What began stays charged; the same command goes on: {command_to_repeat()}"
            print_line(f"Stopped with {unfinished_text(states, queue)}. {going_on}")
            return ExitCode.STOPPED
        return report(
            plan,
            folder,
            self._ledger,
            queue,
            states,
            speeds=self._speeds,
            storage=request.study,
            page=request.page,
            loggers=request.loggers,
        )

    def _run(self, priced: PricedPlan, folder: SweepFolder, queue: RunQueue, check: TrainingCheck) -> bool:
        """Runs the due trials, if any, and settles them; returns whether a stop was requested."""
        if queue.notice:
            print_line(queue.notice)
        if not queue.due and not queue.unproposed_runs:
            queue.log.settle()
            if not unfinished_runs(queue.log.states(), queue):
                print_line(queue.idle)
            return False
        request, workers, plan = self.request, self.request.workers_under(priced.rule), priced.plan
        at_once = min(workers.jobs, request.max_batch_size or workers.jobs)
        runner = Runner(
            search=search_of(plan, folder),
            log=queue.log,
            jobs=request.jobs.of_plan(plan.id),
            compute=replace(request.compute, threads=check.threads),
            data=request.data,
            workers=at_once,
            batch=max(1, request.max_batch_size or workers.batch),
        )
        seconds = self._seconds(priced, check.costs)
        forget_prices()
        complaints: list[str] = []
        budget = budget_in_words(self._ledger.statement(plan.account))
        words = words_of(priced.rule, budget, seconds)
        runs = StepProgress(folder=folder, total=queue.total, done=len(queue.runs) - len(queue.due))
        with (
            usually_collected(),
            stop_on_signals(folder.stop),
            Display(runs, words, seconds) as display,
        ):
            due = queue.due or queue.more(at_once)
            while due:
                display.watch_trials(due)
                complaints += queue.run(runner, due)
                due = queue.more(at_once)
        give_back_freed_memory()
        print_errors(*(f"The launcher lost jobs: {complaint}" for complaint in dict.fromkeys(complaints)))
        return folder.stop.exists()

    def _show(self, priced: PricedPlan, statement: Statement | None, folder: SweepFolder, time: str | None) -> None:
        """Prints the plan's own price."""
        view = outlook(priced, statement, could_share=could_share(priced.plan, priced.rule.discloses))
        price_table.show(priced, statement, view, time, data_in_words(priced.plan, folder.private))

    def _time_in_words(self, priced: PricedPlan, costs: Mapping[str, Cost] | None) -> str:
        return price_table.time_in_words(self._seconds(priced, costs), self.request.place_under(priced.rule))

    def _seconds(self, priced: PricedPlan, costs: Mapping[str, Cost] | None) -> float | None:
        return (
            None
            if costs is None
            else plan_seconds(priced, costs, self.request.workers_under(priced.rule).jobs, self._missing)
        )

    def _refuse_large_delta(self, priced: PricedPlan) -> None:
        """Raises `BadInput` if delta is 1 / units or more and was not accepted, unless the plan was charged before.

        A plan that was charged before this check existed continues, and its pages explain its delta.
        """
        try:
            require_accepted_delta(priced)
        except BadInput:
            statement = self._statement(priced.plan)
            if statement is None or not statement.attempts(priced.plan.id).charges:
                raise

    def _store(self, priced: PricedPlan, folder: SweepFolder) -> None:
        """Writes the plan and the configuration before the runs."""
        folder.make()
        priced.plan.write(folder.plan)
        if self.request.verb is not Verb.RESUME or not folder.command.exists():
            self.request.jobs.of_plan(priced.plan.id).store(folder.command)

    def _folder(self, plan: Plan) -> SweepFolder:
        """The sweep's folder; raises `BadInput` if it holds another plan."""
        store = PrivateStore.of(self._ledger, plan.account, plan.id)
        folder = SweepFolder(root=self.request.jobs.of_plan(plan.id).folder, store=store)
        if not folder.plan.exists() or plan.is_stored(folder.plan):
            return folder
        if (earlier := Plan.read(folder.plan).id) != plan.id:
            raise BadInput(f"Expected {folder.root} to be empty or hold plan {plan.id}; it holds plan {earlier}.")
        return folder

    @contextmanager
    def _single_coordinator(self, folder: SweepFolder, plan: Plan) -> Iterator[None]:
        """Locks the folder, and the plan on its ledger in any folder, so that each has a single coordinator."""
        ledger, name, what = self._ledger, f"{plan.account}-{plan.id}", f"Plan {plan.id} on {plan.account}"
        of_plan = (
            ledger.hold(name, what)
            if ledger.path is None
            else file_lock(ledger.beside / "locks" / f"{name}.lock", what)
        )
        with of_plan, remove_folder_if_empty(folder), file_lock(folder.lock, f"The sweep in {folder.root}"):
            yield

    def _statement(self, plan: Plan) -> Statement | None:
        """The current statement of the account, None if it is not open yet; creates nothing."""
        ledger = self._ledger
        return ledger.statement(plan.account, plan.id) if plan.account in ledger.accounts() else None

    @property
    def _speeds(self) -> Speeds:
        request = self.request
        return Speeds(
            path=self._ledger.beside / "speeds.json",
            device=request.compute.device,
            threads=request.compute.threads,
            most=request.most_threads,
            workers=request.workers.jobs,
            together=request.together,
            processes=request.compute.processes,
            extracts=self._missing > 0,
        )

    @cached_property
    def _missing(self) -> int:
        store = PrivateStore.of(self._ledger, "", "")
        return max((missing_features(point.config, store) for point in self.request.points[:1]), default=0)

    @cached_property
    def _ledger(self) -> Ledger:
        return self.ledger or Ledger(Ledger.locate())
