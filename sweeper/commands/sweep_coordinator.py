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
from dpsweep.accounting.chain.read_only import refuse_writing
from dpsweep.accounting.errors import BadInput, ExitCode
from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.private_store import PrivateStore
from dpsweep.accounting.pricing.outlook import outlook, rule_outlooks
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.printing import print_error, print_line, print_lines
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.rehearsal import new_ledger
from dpsweep.accounting.searches.interface import kind_of, search_of
from dpsweep.reports.advice.advice import SOURCE, comparison_for, in_a_table, in_one_sentence
from dpsweep.sweeper.commands import price_table
from dpsweep.sweeper.commands.exit_codes import true_to_its_code
from dpsweep.sweeper.commands.sweep_report import open_runs, report, rest
from dpsweep.sweeper.coordinator import study
from dpsweep.sweeper.coordinator.admission import (
    Retry,
    open_account,
    raised_since,
    require_accepted_delta,
)
from dpsweep.sweeper.coordinator.refused_folders import none_left
from dpsweep.sweeper.coordinator.runner import Runner
from dpsweep.sweeper.coordinator.signals import graceful, same_command
from dpsweep.sweeper.job.handed_over import nothing_left
from dpsweep.sweeper.job.locks import held
from dpsweep.sweeper.loggers.copies import check_loggers
from dpsweep.sweeper.planning.plan_builder import compose_plan
from dpsweep.sweeper.preflight.data_identity import absent, changed_since, fingerprint_of, foresee, news, read_contents
from dpsweep.sweeper.preflight.former_plan import former_plan
from dpsweep.sweeper.preflight.training_check import TrainingCheck, check_training, data_in_words, missing_features
from dpsweep.sweeper.processes.garbage_collection import usually_collected
from dpsweep.sweeper.progress.progress_display import Display
from dpsweep.sweeper.progress.progress_words import budget_in_words, words_of
from dpsweep.sweeper.progress.step_progress import StepProgress
from dpsweep.sweeper.request.stored_search import stored_plan, stored_search
from dpsweep.sweeper.request.sweep_request import SweepRequest, Verb
from dpsweep.sweeper.searches.interface import RunQueue, admitted_search
from dpsweep.sweeper.timing.step_times import Speeds
from dpsweep.sweeper.timing.time_estimate import Cost, configs_of, plan_seconds
from dpsweep.sweeper.trial.blocks import could_share
from dpsweep.sweeper.trial.spec import build
from dpsweep.trainers.training.freed_memory import give_back_freed_memory

COMPOSITION = {"_target_": "dpsweep.accounting.selection.composition.Composition"}
"""The rule of a single run."""


@dataclass(frozen=True)
class SweepCoordinator:
    """Executes one request."""

    request: SweepRequest
    ledger: Ledger | None = None

    def run(self) -> None:
        """Executes the request's verb and exits with its exit code."""
        verbs = {Verb.RESUME: self.resume, Verb.PLAN: self.plan, Verb.ADVISE: self.advise, Verb.AUDIT: self.audit}
        if (code := verbs.get(self.request.verb, self.sweep)()) is not ExitCode.DONE:
            sys.exit(code)

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
            absent(plan, request.data) or foresee(plan, request.data, self._ledger),
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

    def audit(self) -> ExitCode:
        """Attacks what the plan would run, by canaries among generated or public records; charges nothing."""
        from dpsweep.sweeper.audit.audit_command import audit

        return audit(self.request)

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
        with self._alone(folder, priced.plan), true_to_its_code(self._ledger, priced.plan), nothing_left(folder):
            return self._sweep(priced, folder)

    def _sweep(self, priced: PricedPlan, folder: SweepFolder) -> ExitCode:
        request, plan, ledger = self.request, priced.plan, self._ledger
        if request.study is not None:
            study.require_reachable(plan, folder, request.study)
        over = admitted_search(priced, folder, ledger, request.retry).is_over()
        if over and request.retry is not Retry.ALL:
            check = TrainingCheck.of_nothing(read_contents(plan, request.data), self._speeds.known(configs_of(plan)))
        else:
            check = check_training(plan, request, folder.private, self._speeds)
        ledger.verify()
        if message := former_plan(plan, folder, request.jobs.words):
            print_error(message)
        seconds = self._seconds(priced, check.costs)
        self._show(priced, self._statement(plan), folder, self._time_in_words(priced, check.costs))
        data = fingerprint_of(check.contents, ledger)
        news(plan.account, data, ledger)  # before the account is opened: a refusal leaves none behind
        open_account(priced, ledger)
        if message := raised_since(priced, ledger.statement(plan.account, "")):
            print_error(message)
        if message := ledger.recognise(plan.account, data):
            priced = replace(priced, plan=replace(plan, notes=(*plan.notes, message)))
            print_error(message)
        work = admitted_search(priced, folder, ledger, request.retry).queue()
        self._store(priced, folder)
        if work.notice:
            print_line(work.notice)
        stopped = self._run(priced, folder, work, check.threads, seconds)
        if message := changed_since(data, plan, request.data, ledger):
            print_error(message)
        states = work.log.states()
        if stopped and open_runs(states, work):
            going_on = f"What began stays charged; the same command goes on: {same_command()}"
            print_line(f"Stopped with {rest(states, work)}. {going_on}")
            return ExitCode.STOPPED
        return report(
            plan,
            folder,
            ledger,
            work,
            states,
            speeds=self._speeds,
            storage=request.study,
            page=request.page,
            loggers=request.loggers,
        )

    def _run(
        self, priced: PricedPlan, folder: SweepFolder, work: RunQueue, threads: int, seconds: float | None
    ) -> bool:
        """Runs the due trials, if any; returns whether a stop was requested."""
        if not work.due and not work.unproposed:
            work.log.settle()
            if not open_runs(work.log.states(), work):
                print_line(work.idle)
            return False
        request, workers, plan = self.request, self.request.workers_under(priced.rule), priced.plan
        at_once = min(workers.jobs, request.max_batch_size or workers.jobs)
        runner = Runner(
            search=search_of(plan, folder),
            log=work.log,
            jobs=request.jobs.of_plan(plan.id),
            compute=replace(request.compute, threads=threads),
            data=request.data,
            workers=at_once,
            batch=max(1, request.max_batch_size or workers.batch),
        )
        forget_prices()
        complaints: list[str] = []
        budget = budget_in_words(self._ledger.statement(plan.account))
        words = words_of(priced.rule, budget, seconds)
        runs = StepProgress(folder=folder, total=work.total, done=len(work.runs) - len(work.due))
        with (
            usually_collected(),
            graceful(folder.stop),
            Display(runs, words, seconds) as display,
        ):
            due = work.due or work.more(at_once)
            while due:
                display.expect(due)
                complaints += work.run(runner, due)
                due = work.more(at_once)
        give_back_freed_memory()
        for complaint in dict.fromkeys(complaints):
            print_error(f"The launcher lost jobs: {complaint}")
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
    def _alone(self, folder: SweepFolder, plan: Plan) -> Iterator[None]:
        """Locks the folder, and the plan on its ledger in any folder, so that each has a single coordinator."""
        ledger, name, what = self._ledger, f"{plan.account}-{plan.id}", f"Plan {plan.id} on {plan.account}"
        of_plan = (
            ledger.hold(name, what) if ledger.path is None else held(ledger.beside / "locks" / f"{name}.lock", what)
        )
        with of_plan, none_left(folder), held(folder.lock, f"The sweep in {folder.root}"):
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
