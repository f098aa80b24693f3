"""What the sweeper does with a command: plan it, or plan, price, charge, run and report it.

The order is the product: plan before price before charge before run. Everything that can go wrong by a typo goes wrong
before the charge.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf

from accounting.errors import BadInput, ExitCode
from accounting.ledger import Ledger, Statement
from accounting.plan import Plan, digest, write_json
from sweeper import estimate, pricelist, study
from sweeper.admission import Retry, admit, standing
from sweeper.compose import PricedPlan, compose_plan
from sweeper.folder import SweepFolder
from sweeper.points import points, read_request
from sweeper.progress import Display
from sweeper.runner import Runner, failures, results, wave_size

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
    """Prints what the sweep would cost and about how long it would take; changes nothing."""
    priced = _price(command, arguments)
    per_step = estimate.ask(
        list(estimate.shapes_of(priced.plan).values()), command.config.compute.device, _threads(command)
    )
    pricelist.show(priced, _statement(priced.plan), _seconds(priced.plan, per_step, command), _where(command))
    return ExitCode.DONE


def sweep(command: Command, arguments: list[str]) -> ExitCode:
    """Plans, prices, charges, runs what is missing, and reports; the last line printed is the report's path."""
    priced = _price(command, arguments)
    ledger = Ledger(Ledger.locate())
    with _alone(ledger, priced.plan):
        return _sweep(command, priced, ledger)


def _sweep(command: Command, priced: PricedPlan, ledger: Ledger) -> ExitCode:
    from reports.page import write_report

    plan, folder = priced.plan, _folder(command, priced.plan)
    per_step = _preflight(priced, command)
    seconds = _seconds(plan, per_step, command)
    ledger.verify()
    pricelist.show(priced, _statement(plan), seconds, _where(command))
    trials = admit(priced, ledger, folder, _retry(command.retry))
    _store(command, priced, folder)
    statement = ledger.statement(plan.account)
    runner = Runner(
        plan=plan,
        folder=folder,
        ledger=ledger,
        context=command.context,
        task=command.task,
        config=command.config,
        wave=wave_size(command.config, command.max_batch_size),
    )
    if trials:
        with Display(trials, len(plan.trials), folder, statement, seconds):
            complaints = runner.run(trials)
        for complaint in complaints:
            print(f"The launcher lost jobs: {complaint}", file=sys.stderr)
    else:
        print(f"All {len(plan.trials)} trials of this plan are finished; nothing is run or charged.")
    found = results(plan, folder)
    study.record(plan, folder, found)
    page = write_report(folder.root, ledger)
    where = standing(plan, folder, ledger.statement(plan.account))
    troubled = failures(found) + len(where.killed)
    if troubled:
        print(
            f"{troubled} of {len(plan.trials)} trials failed or were killed; they stay charged. Their logs are in "
            f"{folder.root / 'trials'}; the same command charges for the killed ones again and repeats them.",
            file=sys.stderr,
        )
    print(page)
    return ExitCode.DONE_WITH_FAILURES if troubled else ExitCode.DONE


def _price(command: Command, arguments: list[str]) -> PricedPlan:
    loader = command.context.config_loader
    request = read_request(arguments, loader)
    return compose_plan(points(request, command.config, loader), request, command.config)


def _preflight(priced: PricedPlan, command: Command) -> list[float]:
    """Everything that could fail by a mistake, tried before the charge: files, checksums, models, shapes."""
    from sweeper.declaration import declare
    from sweeper.trial import Machine

    machine = Machine.of(command.config, workers=_workers(command))
    declared = {digest(trial.config["dataset"]): trial.config for trial in priced.plan.trials}
    for config in declared.values():
        dataset = declare(config).dataset
        dataset.locate(machine.data)
        dataset.verify(machine.data)
    try:
        return estimate.seconds_per_step(
            list(estimate.shapes_of(priced.plan).values()), machine.device, machine.threads
        )
    except (ValueError, TypeError, RuntimeError) as cause:
        raise BadInput(f"This model cannot be trained on this data set: {cause}") from cause


def _store(command: Command, priced: PricedPlan, folder: SweepFolder) -> None:
    """Writes what is about to be run: the plan, the rule's draw (readable by its owner only), the configuration."""
    priced.plan.write(folder.plan)
    if not folder.draw.exists():
        tries = priced.rule.draw(len(priced.plan.trials), SystemRandom()).tries
        folder.draw.touch(mode=0o600)
        write_json(folder.draw, {"tries": list(tries)})
        folder.draw.chmod(0o600)
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


def _seconds(plan: Plan, per_step: Sequence[float] | None, command: Command) -> float | None:
    if per_step is None:
        return None
    return estimate.plan_seconds(plan, dict(zip(estimate.shapes_of(plan), per_step, strict=True)), _workers(command))


def _where(command: Command) -> str:
    workers = _workers(command)
    device = {"auto": "the device found"}.get(command.config.compute.device, command.config.compute.device)
    return f"{device}, {workers} worker{'s' if workers > 1 else ''}"
