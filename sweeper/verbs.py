"""What the sweeper does with a command: plan it, or plan, price, charge, run and report it.

The order is the product: plan before price before charge before run. Everything that can go wrong by a typo goes wrong
before the charge.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf

from accounting.errors import BadInput, ExitCode
from accounting.execution import Execution, execution_of
from accounting.ledger import Ledger, Statement
from accounting.plan import Plan, digest, write_json
from sweeper import estimate, pricelist, study
from sweeper.admission import Retry
from sweeper.advice import fit, offers_of
from sweeper.books import Work, every_point
from sweeper.compose import PricedPlan, compose_plan
from sweeper.folder import SweepFolder
from sweeper.points import offered_rules, points, read_request
from sweeper.progress import Display
from sweeper.runner import Runner, results, wave_size
from sweeper.search import drawn_tries
from sweeper.speeds import Speeds

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction


@dataclass(frozen=True, kw_only=True)
class Command:
    """What Hydra hands over: the sweeper's settings, the composed configuration, the task, and its own context."""

    verb: str
    max_batch_size: int | None
    retry: str
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
    folder = _folder(command, priced.plan)
    with _per_step(command, priced.plan) as per_step:
        statement = _statement(priced.plan)
        offers = offers_of(priced)
        left = pricelist.left_of(priced, statement)
        wanted = offers if command.config.fit and left > 0 else ()
        fits = {offer.label: fit(priced, offer.rule, priced.plan.trials, left) for offer in wanted}
        pricelist.show_offers(priced, offers, statement, fits, command.config.show)
        pricelist.show_what_fits(priced, offers, statement, fits)
        pricelist.show(priced, statement, _seconds(priced.plan, per_step(), command), _where(command))
    try:
        if not folder.plan.exists():
            priced.plan.write(folder.plan)
    except OSError as cause:
        raise BadInput(f"Expected {folder.root} to be a place for plan.json: {cause.strerror}.") from cause
    return ExitCode.DONE


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
        path=Ledger.locate().parent / "speeds.json", device=command.config.compute.device, threads=_threads(command)
    )


def sweep(command: Command, arguments: list[str]) -> ExitCode:
    """Plans, prices, charges, runs what is missing, and reports; the last line printed is the report's path."""
    priced = _price(command, arguments)
    execution_of(priced.plan)
    ledger = Ledger(Ledger.locate())
    with _alone(ledger, priced.plan):
        return _sweep(command, priced, ledger)


def _sweep(command: Command, priced: PricedPlan, ledger: Ledger) -> ExitCode:
    from reports.page import write_report

    plan, folder = priced.plan, _folder(command, priced.plan)
    seconds = _seconds(plan, _preflight(priced, command), command)
    ledger.verify()
    pricelist.show(priced, _statement(plan), seconds, _where(command))
    work = _WORKS[execution_of(plan)](priced, ledger, folder, _retry(command.retry))
    _store(command, priced, folder)
    if work.notice:
        print(work.notice)
    _run(command, plan, folder, work, ledger.statement(plan.account), seconds)
    found = results(work.runs, folder)
    study.record(plan, folder, work.runs, found)
    if execution_of(plan) is Execution.EVERY_POINT:  # the file is shared, and which tries were drawn is secret
        _speeds(command).record(plan, found)
    page = write_report(folder.root, ledger)
    where = work.book.standing()
    if troubled := len(where.failed) + len(where.killed):
        losses = work.losses.format(folder=folder.trials)
        print(f"{troubled} of {len(work.runs)} {losses}", file=sys.stderr)
    if where.fresh:
        print(
            f"{len(where.fresh)} of {len(work.runs)} were never begun; the same command begins them.", file=sys.stderr
        )
    print(page)
    return ExitCode.DONE_WITH_FAILURES if troubled or where.fresh else ExitCode.DONE


def _run(
    command: Command, plan: Plan, folder: SweepFolder, work: Work, statement: Statement, seconds: float | None
) -> None:
    """Runs what is due, if anything is."""
    if not work.due:
        work.book.settle(())
        print(work.idle)
        return
    runner = Runner(
        plan=plan,
        folder=folder,
        book=work.book,
        context=command.context,
        task=command.task,
        config=command.config,
        wave=wave_size(command.config, command.max_batch_size),
    )
    with Display(work.due, len(work.runs), folder, statement, seconds):
        complaints = runner.run(work.due)
    for complaint in complaints:
        print(f"The launcher lost jobs: {complaint}", file=sys.stderr)


_WORKS: Mapping[Execution, Callable[[PricedPlan, Ledger, SweepFolder, Retry], Work]] = {
    Execution.EVERY_POINT: every_point,
    Execution.DRAWN_TRIES: drawn_tries,
}


def _price(command: Command, arguments: list[str]) -> PricedPlan:
    loader = command.context.config_loader
    request = read_request(arguments, loader)
    offered = offered_rules(request, command.config, loader)
    return compose_plan(points(request, command.config, loader), request, command.config, offered)


def _preflight(priced: PricedPlan, command: Command) -> dict[str, float]:
    """Everything that could fail by a mistake, tried before the charge: files, checksums, models, shapes."""
    from sweeper.declaration import declare
    from sweeper.trial import Machine

    machine = Machine.of(command.config, workers=_workers(command))
    declared = {digest(trial.config["dataset"]): trial.config for trial in priced.plan.trials}
    for config in declared.values():
        dataset = declare(config).dataset
        dataset.locate(machine.data)
        dataset.verify(machine.data)
    shapes = estimate.shapes_of(priced.plan)
    try:
        taken = estimate.seconds_per_step(list(shapes.values()), machine.device, machine.threads)
    except (ValueError, TypeError, RuntimeError) as cause:
        raise BadInput(f"This model cannot be trained on this data set: {cause}") from cause
    return dict(zip(shapes, taken, strict=True))


def _store(command: Command, priced: PricedPlan, folder: SweepFolder) -> None:
    """Writes what is about to be run: the plan, the rule's draw (readable by its owner only), the configuration."""
    priced.plan.write(folder.plan)
    if not folder.draw.exists():
        draw = priced.rule.draw(len(priced.plan.trials), SystemRandom())
        write_json(folder.draw, draw.to_json(), mode=0o600)
    OmegaConf.save(command.config, folder.command)


def _folder(command: Command, plan: Plan) -> SweepFolder:
    """The sweep's folder, refused where it holds another plan."""
    command.config.plan = plan.id
    folder = SweepFolder(root=Path(command.config.hydra.sweep.dir).expanduser().absolute())
    if folder.plan.exists() and (there := Plan.read(folder.plan).id) != plan.id:
        raise BadInput(f"Expected {folder.root} to be empty or hold plan {plan.id}; it holds plan {there}.")
    return folder


@contextmanager
def _alone(ledger: Ledger, plan: Plan) -> Iterator[None]:
    """Holds the lock that one coordinator of a plan may hold; beside the ledger, so that it holds for any folder."""
    path = ledger.path.parent / "locks" / f"{plan.account}-{plan.id}.lock"
    path.parent.mkdir(exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BadInput(f"Another process is running plan {plan.id} on {plan.account}; nothing was started.") from None
    try:
        yield
    finally:
        lock.release()


def _statement(plan: Plan) -> Statement | None:
    """The account as it stands, None where it is not open yet; creates nothing."""
    path = Ledger.locate()
    if not path.exists() or plan.account not in (ledger := Ledger(path)).accounts():
        return None
    return ledger.statement(plan.account)


def _retry(value: str) -> Retry:
    if value not in list(Retry):
        raise BadInput(f"Expected hydra.sweeper.retry={value} to be one of {', '.join(Retry)}.")
    return Retry(value)


def _workers(command: Command) -> int:
    return wave_size(command.config, None)


def _threads(command: Command) -> int:
    return command.config.compute.threads or max(1, (os.cpu_count() or 1) // _workers(command))


def _seconds(plan: Plan, per_step: Mapping[str, float] | None, command: Command) -> float | None:
    return None if per_step is None else estimate.plan_seconds(plan, per_step, _workers(command))


def _where(command: Command) -> str:
    workers = _workers(command)
    device = {"auto": "the device found"}.get(command.config.compute.device, command.config.compute.device)
    return f"{device}, {workers} worker{'s' if workers > 1 else ''}"
