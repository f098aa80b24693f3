"""What people and machines do to a sweep, each in a process of its own that may be killed at any instant.

The coordinator and the jobs are the program's own. Played are the training, the files of the data set, which are not
timed or tried, and the launcher, which runs a job in the coordinator's process, as Hydra's first launcher does.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from dpsweep.accounting.errors import DpsweepError, ExitCode
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import PrivateStore
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder, private_store_of_plan
from dpsweep.accounting.searches.interface import search_class_for_plan, search_for_plan
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.reports.pages import curator_page, release
from dpsweep.sweeper.coordinator import sweep_coordinator
from dpsweep.sweeper.coordinator.preflight import TrainingCheck, read_verified_private_contents
from dpsweep.sweeper.coordinator.request import AuditSettings, SweepRequest, Verb
from dpsweep.sweeper.coordinator.sweep_coordinator import SweepCoordinator
from dpsweep.sweeper.job import job_task
from dpsweep.sweeper.job.block_job import run_block
from dpsweep.sweeper.job.machine import Compute
from dpsweep.sweeper.launchers.hydra_jobs import JOB, Value
from dpsweep.sweeper.launchers.workers import Workers
from dpsweep.sweeper.planning.plan_settings import PlanSettings
from dpsweep.sweeper.searches import secret_draw
from dpsweep.sweeper.searches.admission import Retry
from dpsweep.sweeper.trial.blocks import TRIES
from tests.faults.syscalls import Fault, arm
from tests.fuzzing.played_training import PlayedTraining

COMPUTE = Compute(device="cpu", threads=1, chunk=None, together=1)
DEFECT = 70
"""The exit code of a command that ended by an exception which is none of ours."""


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """A launcher that runs each job at once, in this process."""

    sweep_folder_path: Path
    command_overrides: tuple[str, ...] = ()
    refills: bool = False

    def for_plan(self, plan_id: str) -> Jobs:
        return self

    def try_launcher(self, jobs: int) -> None:
        """It takes any number of jobs."""

    def write_config(self, path: Path) -> None:
        path.write_text("hydra: {overrides: {task: []}}\n")

    def job_launcher_for_folder(self, root: Path) -> Jobs:
        return self

    def launch(self, jobs: Sequence[Mapping[str, Value]], first: int) -> list[Exception | None]:
        return [_ended(job) for job in jobs]


def _ended(job: Mapping[str, Value]) -> Exception | None:
    try:
        run_job(job)
    except Exception as error:  # noqa: BLE001 - as launchers do, which hand it on
        return error
    return None


def run_job(settings: Mapping[str, Any]) -> None:
    """A job with these settings, as a launcher starts it."""
    config = OmegaConf.create({**JOB, "hydra": {"runtime": {"cwd": "/"}, "sweep": {"dir": None}, "launcher": {}}})
    for key, value in settings.items():
        OmegaConf.update(config, key, value)
    HydraConfig.instance().cfg = config  # type: ignore[assignment]
    run_block(config)


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where commands are given: a ledger, a folder that the program does not know of, and one plan with its price."""

    ledger: Path
    outside: Path
    priced: PricedPlan
    settings: PlanSettings

    @property
    def plan(self) -> Plan:
        return self.priced.plan

    @property
    def store(self) -> PrivateStore:
        return private_store_of_plan(Ledger(self.ledger), self.plan.account, self.plan.id)

    def folder(self, root: Path) -> SweepFolder:
        return SweepFolder(root=root, store=self.store)


def sweep(desk: Desk, folder: Path, retry: Retry, seed: int) -> ExitCode:
    """The command of the sweep in this folder, from its plan on."""
    _play(desk, seed)
    request: Any = SweepRequest(
        rules=False,
        verb=Verb.SWEEP,
        points=(),
        plan=desk.settings,
        fit=False,
        anyway=True,
        class_shares=(),
        retry=retry,
        resume=0,
        study=None,
        page=False,
        loggers={},
        audit=AuditSettings(),
        compute=COMPUTE,
        data=None,
        max_batch_size=None,
        workers=Workers(jobs=1, threads=1, batch=2, here=True),
        forked=False,
        jobs=Jobs(sweep_folder_path=folder),  # type: ignore[arg-type]
    )
    return SweepCoordinator(request, Ledger(desk.ledger)).charge_and_run(desk.priced)


def late_job(desk: Desk, folder: Path, block: int, seed: int) -> ExitCode:
    """A job that a queue starts when its coordinator is gone, on whatever lies in the folder now."""
    _play(desk, seed)
    here = desk.folder(folder)
    plan = Plan.read(here.plan_path)
    drawn = search_class_for_plan(plan) is SecretDraw
    blocks = [TRIES] if drawn else [one.id for one in search_for_plan(plan, here).trainable_blocks()]
    if blocks:
        settings = {"block": blocks[block % len(blocks)], "hydra.sweep.dir": str(folder)}
        run_job(settings | {"store": str(desk.store.root), "compute.device": "cpu", "compute.threads": 1})
    return ExitCode.DONE


def hand_out(desk: Desk, folder: Path, seed: int) -> ExitCode:
    """The release of a folder, without its pictures."""
    curator_page.draw_maps_of_sweep = release.pages.draw_maps_of_sweep = lambda sweep: ()
    release.write_release(folder, Ledger(desk.ledger))
    return ExitCode.DONE


def _play(desk: Desk, seed: int) -> None:
    """Puts the played parts in their places in this process."""
    training: Any = PlayedTraining(log=desk.outside / "looks", seed=seed)
    draws = Random(seed)
    job_task.train_sessions_and_write_results = training
    secret_draw.SystemRandom = lambda: draws  # type: ignore[assignment,misc]
    sweep_coordinator.check_training = lambda plan, request, store, speeds: TrainingCheck(
        contents=read_verified_private_contents(plan, None), threads=1, costs=None
    )
    sweep_coordinator.price_table.print_price_of_plan = lambda *_: None  # type: ignore[assignment]
    sweep_coordinator.compare_plan_with_account = lambda *_, **__: None  # type: ignore[assignment]


def typed(
    desk: Desk,
    command: Callable[..., ExitCode],
    words: tuple[Any, ...],
    environment: Mapping[str, str],
    fault: Fault | None,
) -> None:
    """What a process does that is given this command: its exit code, and its last words in a file outside."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(desk.ledger.parent)
    said = desk.outside / "said"
    with said.open("w") as stream, redirect_stdout(stream), redirect_stderr(stream):
        if fault is not None:
            arm(fault)
        try:
            code = int(command(desk, *words))
        except DpsweepError as refusal:
            code = int(refusal.exit_code)
            print(refusal, flush=True)
        except BaseException:  # noqa: BLE001 - it is reported
            code = DEFECT
            traceback.print_exc()
        stream.flush()
    os._exit(code)
