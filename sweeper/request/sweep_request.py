"""The request of one command, typed and checked once; no code after it reads Hydra's configuration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.names.stored_classes import name_of
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.sweeper.coordinator.admission import Retry
from dpsweep.sweeper.job.machine import Compute, cores, data_folder, limited_threads
from dpsweep.sweeper.keys.missing_values import refuse_missing
from dpsweep.sweeper.launchers.hydra_jobs import HydraJobs, require_launcher
from dpsweep.sweeper.launchers.workers import Workers, is_forked
from dpsweep.sweeper.loggers.copies import Loggers
from dpsweep.sweeper.planning.grid import Grid, read_request
from dpsweep.sweeper.planning.plan_settings import PlanSettings
from dpsweep.sweeper.planning.point import Point
from dpsweep.sweeper.planning.public_search import PUBLIC, public_winner
from dpsweep.sweeper.request.audit_settings import AuditSettings
from dpsweep.sweeper.request.configuration import audit_settings, loggers, plan_settings, rehearsed
from dpsweep.sweeper.request.generated_points import on_generated_records, refuse_generated

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

Choice = TypeVar("Choice", bound=StrEnum)


class Verb(StrEnum):
    """The action on a plan."""

    SWEEP = "sweep"
    RESUME = "resume"
    PLAN = "plan"
    ADVISE = "advise"
    REHEARSE = "rehearse"
    AUDIT = "audit"


@dataclass(frozen=True, kw_only=True)
class SweeperSettings:
    """The sweeper's own settings under `hydra.sweeper`, as they were typed."""

    verb: str
    max_batch_size: int | None
    retry: str
    study: str | None


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """One command: the points and settings of its plan, the action on the plan, and the place where jobs run.

    `points` and `plan` determine the plan. `show` and `fit` select the prices to show, `retry` the attempts to pay for
    again, `study` the database for results, None for a file in the sweep's folder. `page` says whether the sweep ends
    with its page, `loggers` where else its results are written, `audit` how large an audit is. `data` is the folder
    with the official files. At most `max_batch_size` jobs are handed to the launcher at once; it runs them on
    `workers`, `forked` from this process or not.
    """

    verb: Verb
    points: tuple[Point, ...]
    plan: PlanSettings
    show: str
    fit: bool
    retry: Retry
    study: str | None
    page: bool
    loggers: Loggers
    audit: AuditSettings
    compute: Compute
    data: Path | None
    max_batch_size: int | None
    workers: Workers
    forked: bool
    jobs: HydraJobs

    @classmethod
    def from_config(
        cls,
        config: DictConfig,
        arguments: Sequence[str],
        settings: SweeperSettings,
        *,
        context: HydraContext,
        task: TaskFunction,
    ) -> SweepRequest:
        """The request from a composed configuration and the overrides that define its grid."""
        verb = _choice(Verb, "verb", settings.verb)
        require_launcher(config)
        if "policy" in config:
            raise BadInput(
                "Expected no policy here: `dpsweep budget open` fixes it, before the first sweep on a data set."
            )
        grid = Grid(read_request(arguments, context.config_loader), config, context.config_loader)
        rehearsal = verb is Verb.REHEARSE
        config = rehearsed(config) if rehearsal else config
        refuse_missing(config, grid.request.values)
        plan = plan_settings(config, grid.request.keys, grid.offered_rules())
        plan, points = _found(plan, grid) or (plan, grid.points())
        points = on_generated_records(points) if rehearsal else refuse_generated(points)
        return cls(
            verb=verb,
            points=tuple(points),
            plan=plan,
            show=plan.show,
            fit=_flag("fit", config.fit),
            retry=_choice(Retry, "retry", settings.retry),
            study=settings.study,
            page=_flag("page", config.page),
            loggers=loggers(config),
            audit=audit_settings(config),
            compute=Compute.of(config.compute),
            data=data_folder(config.data),
            max_batch_size=settings.max_batch_size,
            workers=Workers.of(config.hydra.launcher, cores()),
            forked=is_forked(config.hydra.launcher),
            jobs=HydraJobs(context=context, task=task, config=config),
        )

    @property
    def most_threads(self) -> int:
        """The threads that each job may use; a job with small steps uses one, unless the user gave a number."""
        return self.compute.threads or limited_threads(self.workers.threads)

    @property
    def together(self) -> int | None:
        """The most points that one job trains: one if points are proposed from the scores of earlier ones."""
        return 1 if "trials" in self.plan.search else self.compute.together

    def place_under(self, rule: SelectionRule) -> str:
        """The device and the number of workers under this rule, as text."""
        device, workers = self.compute.device, self.workers_under(rule).jobs
        found = {"auto": "the device found"}.get(device, device)
        return f"{found}, {workers} worker{'s' if workers > 1 else ''}"

    def workers_under(self, rule: SelectionRule) -> Workers:
        """The workers that run a plan under this rule."""
        return self.workers.under_a_draw() if rule.draws_in_secret else self.workers

    def launcher_refusal(self, rule: SelectionRule) -> str:
        """Why the launcher may not run a plan under this rule, whose secret draw it would show; empty if it may."""
        if not rule.draws_in_secret:
            return ""
        return self.workers.refusal_under_a_draw(rule.name, self.compute.processes)

    def check_launcher(self, rule: SelectionRule) -> None:
        """Raises `BadInput` if the launcher may not run a plan under this rule."""
        if message := self.launcher_refusal(rule):
            raise BadInput(message)


def _found(plan: PlanSettings, grid: Grid) -> tuple[PlanSettings, Iterable[Point]] | None:
    """The settings and the one point of `tuning=public`; None under every other rule."""
    if name_of(plan.tuning) != PUBLIC:
        return None
    winner = public_winner(Path(str(plan.tuning["sweep"])).expanduser())
    rule = {**plan.tuning, "sweep": winner.plan}
    offered = {label: rule if name_of(other) == PUBLIC else other for label, other in plan.offered.items()}
    return replace(plan, tuning=rule, offered=offered), [grid.point(winner.method, winner.values)]


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"Expected {name}={value} to be true or false.")
    return value


def _choice(choices: type[Choice], name: str, value: str) -> Choice:
    if value not in list(choices):
        raise BadInput(f"Expected hydra.sweeper.{name}={value} to be one of {', '.join(choices)}.")
    return choices(value)
