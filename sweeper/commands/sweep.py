"""What the sweeper does with a command: plan it, or plan, price, charge, run and report it.

The order is the product: plan before price before charge before run. Everything that can go wrong by a typo goes wrong
before the charge.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf

from dpsweep.accounting.chain.read_only import refuse_writing
from dpsweep.accounting.errors import BadInput, ExitCode
from dpsweep.accounting.json_files import write_json
from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.private_store import HOME_VARIABLE, PrivateStore
from dpsweep.accounting.records.execution import execution_of
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.selection.interface import Execution
from dpsweep.sweeper.commands import price_table as pricelist
from dpsweep.sweeper.commands.exit_codes import true_to_its_code
from dpsweep.sweeper.commands.progress_display import Display
from dpsweep.sweeper.coordinator import study
from dpsweep.sweeper.coordinator.adaptive_search import proposed_runs
from dpsweep.sweeper.coordinator.admission import Retry, open_account, raised_since
from dpsweep.sweeper.coordinator.attempt_state import AttemptStates
from dpsweep.sweeper.coordinator.empty_parts import warnings_of
from dpsweep.sweeper.coordinator.hidden_search import drawn_tries
from dpsweep.sweeper.coordinator.runner import Runner, results
from dpsweep.sweeper.coordinator.signals import graceful, same_command
from dpsweep.sweeper.coordinator.work import RunQueue, every_point
from dpsweep.sweeper.coordinator.workers import Workers, cores, is_forked
from dpsweep.sweeper.job.locks import held
from dpsweep.sweeper.launchers import fork_launcher as forked_jobs
from dpsweep.sweeper.planning import time_estimate as estimate
from dpsweep.sweeper.planning.alternatives import fit, offers_of
from dpsweep.sweeper.planning.grid import offered_rules, points, read_request
from dpsweep.sweeper.planning.plan_builder import PricedPlan, compose_plan
from dpsweep.sweeper.planning.remaining_budget import RemainingBudget
from dpsweep.sweeper.planning.step_times import Speeds
from dpsweep.sweeper.preflight.data_identity import changed_since, fingerprint_of, foresee, news, read_contents

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction


@dataclass(frozen=True, kw_only=True)
class Command:
    """What Hydra hands over: the sweeper's settings, the composed configuration, the task, and its own context."""

    verb: str
    max_batch_size: int | None
    retry: str
    study: str | None
    context: HydraContext
    task: TaskFunction
    config: DictConfig


def run(command: Command, arguments: list[str]) -> None:
    """Carries out the command's verb and leaves with its exit code."""
    verbs: dict[str, Callable[[Command, list[str]], ExitCode]] = {"sweep": sweep, "plan": plan}
    if command.verb not in verbs:
        raise BadInput(f"Expected hydra.sweeper.verb={command.verb} to be one of {', '.join(verbs)}.")
    if (code := verbs[command.verb](command, arguments)) is not ExitCode.DONE:
        sys.exit(code)


def plan(command: Command, arguments: list[str]) -> ExitCode:
    """Prints what the sweep would cost, under this rule and the others, and about how long it would take.

    Nothing is charged; `plan.json` is all that is written.
    """
    priced = _price(command, arguments)
    _refuse_large_delta(priced)
    folder = _folder(command, priced.plan)
    with _per_step(command, priced.plan) as per_step:
        statement = _statement(priced.plan)
        if not priced.plan.public:
            _show_offers(priced, statement, command.config)
        pricelist.show(priced, statement, _seconds(priced.plan, per_step(), command), _where(command))
    if said := foresee(priced.plan, _data(command), Ledger(Ledger.locate())):
        print(said)
    try:
        if not folder.plan.exists():
            folder.make()
            priced.plan.write(folder.plan)
    except OSError as cause:
        raise BadInput(f"Expected {folder.root} to be a place for plan.json: {cause.strerror}.") from cause
    return ExitCode.DONE


def _show_offers(priced: PricedPlan, statement: Statement | None, config: DictConfig) -> None:
    """Prints what the other rules would cost, and what would fit where the plan does not."""
    offers = offers_of(priced)
    room = RemainingBudget.of(priced, statement)
    wanted = offers if config.fit else ()
    fits = {offer.label: fit(priced, offer.rule, priced.plan.trials, room) for offer in wanted}
    pricelist.show_offers(priced, offers, room, fits, config.show)
    pricelist.show_what_fits(priced, offers, room, fits)


@contextmanager
def _per_step(command: Command, plan: Plan) -> Iterator[Callable[[], dict[str, float] | None]]:
    """Seconds per step of each kind: from past sweeps, or else timed in a process of its own while others go on."""
    known = _speeds(command).known(plan)
    if known is not None:
        yield lambda: known
        return
    shapes = estimate.shapes_of(plan)
    with estimate.asked(list(shapes.values()), command.config.compute.device, _threads(command)) as answer:
        yield lambda: None if (taken := answer()) is None else dict(zip(shapes, taken, strict=True))


def _speeds(command: Command) -> Speeds:
    return Speeds(
        path=Ledger(Ledger.locate()).beside / "speeds.json",
        device=command.config.compute.device,
        threads=_threads(command),
    )


def sweep(command: Command, arguments: list[str]) -> ExitCode:
    """Plans, prices, charges, runs what is missing, and reports; the last line printed is the report's path."""
    priced = _price(command, arguments)
    execution_of(priced.plan)
    _refuse_large_delta(priced)
    ledger, folder = Ledger(Ledger.locate()), _folder(command, priced.plan)
    if ledger.path is not None:
        refuse_writing(ledger.path)  # before the locks beside it are made
    with _alone(ledger, folder, priced.plan), true_to_its_code(ledger, priced.plan):
        return _sweep(command, priced, ledger, folder)


def _sweep(command: Command, priced: PricedPlan, ledger: Ledger, folder: SweepFolder) -> ExitCode:
    plan = priced.plan
    _check_study(command, plan, folder)
    contents, per_step = _preflight(priced, command)
    seconds = _seconds(plan, per_step, command)
    ledger.verify()
    pricelist.show(priced, _statement(plan), seconds, _where(command))
    data = fingerprint_of(contents, ledger)
    news(plan.account, data, ledger)  # before the account is opened: a refusal leaves none behind
    open_account(priced, ledger)
    if said := raised_since(priced, ledger.statement(plan.account, "")):
        print(said, file=sys.stderr)
    if said := ledger.recognise(plan.account, data):
        priced = replace(priced, plan=replace(plan, notes=(*plan.notes, said)))
        print(said, file=sys.stderr)
    work = _WORKS[execution_of(plan)](priced, ledger, folder, _retry(command.retry))
    _store(command, priced, folder)
    if work.notice:
        print(work.notice)
    stopped = _run(command, plan, folder, work, ledger.statement(plan.account), seconds)
    if said := changed_since(data, plan, _data(command), ledger):
        print(said, file=sys.stderr)
    where = work.book.standing()
    if stopped and _open(where, work):
        print(
            f"Stopped with {_rest(where, work)}. What began stays charged; the same command goes on: {same_command()}"
        )
        return ExitCode.STOPPED
    return _report(command, plan, ledger, folder, work, where)


def _report(
    command: Command, plan: Plan, ledger: Ledger, folder: SweepFolder, work: RunQueue, where: AttemptStates
) -> ExitCode:
    """Writes down what came out, and says what is missing."""
    from dpsweep.reports.pages.curator_page import write_report

    found = results(work.runs, folder)
    try:
        study.record(plan, folder, work.runs, found, command.study)
    except BadInput as cause:
        print(f"The study was not written. {cause}", file=sys.stderr)
    if execution_of(plan) is not Execution.DRAWN_TRIES:  # the file is shared, and which tries were drawn is secret
        _speeds(command).record(work.runs, found)
    folder.plan.stat()  # a folder that vanished meanwhile is an error of the disk
    page = write_report(folder.root, ledger)
    for warning in warnings_of(found, plan.account):
        print(warning, file=sys.stderr)
    if troubled := len(where.failed) + len(where.killed):
        losses = work.losses.format(folder=folder.trials)
        print(f"{troubled} of {work.total} {losses}", file=sys.stderr)
    if _open(where, work):
        print(f"The sweep is left with {_rest(where, work)}; the same command goes on with them.", file=sys.stderr)
    print(page)
    return ExitCode.DONE_WITH_FAILURES if troubled or _open(where, work) else ExitCode.DONE


def _open(where: AttemptStates, work: RunQueue) -> int:
    """How many runs are not over."""
    return len(where.fresh + where.interrupted + where.working) + _unknown(work)


def _unknown(work: RunQueue) -> int:
    """How many runs are still to be proposed."""
    return work.total - len(work.runs)


def _rest(where: AttemptStates, work: RunQueue) -> str:
    """What is not over, in words."""
    counts = (
        (where.fresh, "not begun"),
        (where.interrupted, "waiting at a checkpoint"),
        (where.working, "still at work"),
    )
    said = [f"{len(trials)} {how}" for trials, how in counts if trials]
    said += [f"{_unknown(work)} not proposed"] if _unknown(work) else []
    return f"{', '.join(said)} of {work.total} trials"


def _run(
    command: Command, plan: Plan, folder: SweepFolder, work: RunQueue, statement: Statement, seconds: float | None
) -> bool:
    """Runs what is due, if anything is; returns whether a stop was asked for."""
    if not work.due and not _unknown(work):
        work.book.settle()
        if not _open(work.book.standing(), work):
            print(work.idle)
        return False
    workers = _workers(command)
    at_once = min(workers.jobs, command.max_batch_size or workers.jobs)
    runner = Runner(
        plan=plan,
        folder=folder,
        book=work.book,
        context=command.context,
        task=command.task,
        config=command.config,
        threads=_threads(command),
        workers=at_once,
        together=command.config.compute.together,
        batch=max(1, command.max_batch_size or (workers.jobs if work.in_turn else workers.batch)),
    )
    complaints: list[str] = []
    done = len(work.runs) - len(work.due)
    with graceful(folder.stop), Display((), work.total, done, folder, statement, seconds) as display:
        due = work.due or work.more(at_once)
        while due:
            display.expect(due)
            complaints += runner.run(due)
            due = work.more(at_once)
    for complaint in dict.fromkeys(complaints):
        print(f"The launcher lost jobs: {complaint}", file=sys.stderr)
    return folder.stop.exists()


_WORKS: Mapping[Execution, Callable[[PricedPlan, Ledger, SweepFolder, Retry], RunQueue]] = {
    Execution.EVERY_POINT: every_point,
    Execution.PROPOSED: proposed_runs,
    Execution.DRAWN_TRIES: drawn_tries,
}


def _price(command: Command, arguments: list[str]) -> PricedPlan:
    if "policy" in command.config:
        raise BadInput("Expected no policy here: `dpsweep budget open` fixes it, before the first sweep on a data set.")
    loader = command.context.config_loader
    request = read_request(arguments, loader)
    offered = offered_rules(request, command.config, loader)
    return compose_plan(points(request, command.config, loader), request, command.config, offered)


def _refuse_large_delta(priced: PricedPlan) -> None:
    """Raises `BadInput` where delta is 1 / units or more and nobody accepted that, unless the plan was charged before.

    What was charged before it was asked goes on, and its pages say what its delta means.
    """
    try:
        priced.require_small_delta()
    except BadInput:
        if not _charged(priced.plan):
            raise


def _charged(plan: Plan) -> bool:
    """Whether the plan was charged before."""
    statement = _statement(plan)
    return statement is not None and bool(statement.attempts(plan.id).charges)


def _preflight(priced: PricedPlan, command: Command) -> tuple[tuple[Content, ...], dict[str, float]]:
    """Everything that could fail by a mistake, tried before the charge: files, checksums, models, shapes."""
    from dpsweep.sweeper.job.block_job import machine_of

    if _workers(command).elsewhere and not os.environ.get(HOME_VARIABLE):
        raise BadInput(
            f"Expected {HOME_VARIABLE} to name a folder that all machines of this sweep share, with "
            "this launcher: there every job claims its receipt."
        )
    machine = replace(machine_of(command.config), threads=_threads(command))
    Plugins.instance().instantiate_launcher(
        hydra_context=command.context, task_function=command.task, config=command.config
    )
    if is_forked(command.config.hydra.launcher):
        forked_jobs.prepare(machine.device, machine.threads)
    contents = read_contents(priced.plan, machine.data)
    shapes = estimate.shapes_of(priced.plan)
    try:
        taken = estimate.seconds_per_step(list(shapes.values()), machine.device, machine.threads)
    except (ValueError, TypeError, RuntimeError) as cause:
        raise BadInput(f"This model cannot be trained on this data set: {cause}") from cause
    return contents, dict(zip(shapes, taken, strict=True))


def _check_study(command: Command, plan: Plan, folder: SweepFolder) -> None:
    """Raises `BadInput` where others may look into the study and the rule hides what it tells, or none opens."""
    if command.study is None:
        return
    if execution_of(plan) is Execution.DRAWN_TRIES:
        raise BadInput(
            f"Expected hydra.sweeper.study={command.study} to be null under a rule that hides its losers: whoever may "
            "look into the study sees how many tries there were, and how each did."
        )
    study.open_study(plan, folder, command.study)


def _data(command: Command) -> Path | None:
    """The user's folder with the official files."""
    return Path(command.config.data).expanduser() if command.config.data else None


def _store(command: Command, priced: PricedPlan, folder: SweepFolder) -> None:
    """Writes what is about to be run: the plan, the rule's draw (readable by its owner only), the configuration."""
    folder.make()
    priced.plan.write(folder.plan)
    if execution_of(priced.plan) is Execution.EVERY_POINT and not folder.draw.exists():
        draw = priced.rule.draw(len(priced.plan.trials), SystemRandom())
        write_json(folder.draw, draw.to_json(), mode=0o600)
    OmegaConf.save(command.config, folder.command)


def _folder(command: Command, plan: Plan) -> SweepFolder:
    """The sweep's folder, refused where it holds another plan."""
    OmegaConf.update(command.config, "plan.id", plan.id, force_add=True)  # what hydra.sweep.dir is named after
    store = PrivateStore.of(Ledger(Ledger.locate()), plan.account, plan.id)
    folder = SweepFolder(root=Path(command.config.hydra.sweep.dir).expanduser().absolute(), store=store)
    if folder.plan.exists() and (there := Plan.read(folder.plan).id) != plan.id:
        raise BadInput(f"Expected {folder.root} to be empty or hold plan {plan.id}; it holds plan {there}.")
    return folder


@contextmanager
def _alone(ledger: Ledger, folder: SweepFolder, plan: Plan) -> Iterator[None]:
    """Held by the one coordinator of a folder, and of a plan on a ledger, in whichever folder."""
    name, what = f"{plan.account}-{plan.id}", f"Plan {plan.id} on {plan.account}"
    of_plan = ledger.hold(name, what) if ledger.path is None else held(ledger.beside / "locks" / f"{name}.lock", what)
    with of_plan, held(folder.lock, f"The sweep in {folder.root}"):
        yield


def _statement(plan: Plan) -> Statement | None:
    """The account as it stands, None where it is not open yet; creates nothing."""
    ledger = Ledger(Ledger.locate())
    return ledger.statement(plan.account, plan.id) if plan.account in ledger.accounts() else None


def _retry(value: str) -> Retry:
    if value not in list(Retry):
        raise BadInput(f"Expected hydra.sweeper.retry={value} to be one of {', '.join(Retry)}.")
    return Retry(value)


def _workers(command: Command) -> Workers:
    return Workers.of(command.config.hydra.launcher, cores())


def _threads(command: Command) -> int:
    return command.config.compute.threads or _workers(command).threads


def _seconds(plan: Plan, per_step: Mapping[str, float] | None, command: Command) -> float | None:
    return None if per_step is None else estimate.plan_seconds(plan, per_step, _workers(command).jobs)


def _where(command: Command) -> str:
    workers = _workers(command).jobs
    device = {"auto": "the device found"}.get(command.config.compute.device, command.config.compute.device)
    return f"{device}, {workers} worker{'s' if workers > 1 else ''}"
