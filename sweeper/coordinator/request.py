"""The request of one command, typed and checked once; no code after it reads Hydra's configuration.

Hydra's composed configuration becomes the plain values that planning takes. The points of a rehearsal are those of the
command, with generated records in place of the data set's. The shape of the records comes from the resolved
configuration alone. A data set of dpsweep's is declared once, so that its mistakes are found, which opens no file; no
class of the user's is imported.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan, is_integer_at_least
from dpsweep.accounting.rehearsal import GENERATED, PREFIX
from dpsweep.accounting.stored_names.stored_classes import KIND, stored_form_of_config_part, tag_or_path_of_class
from dpsweep.sweeper.job.devices import compute_with_devices, limit_pool_to_devices
from dpsweep.sweeper.job.machine import (
    Compute,
    data_folder_from_typed_name,
    threads_within_omp_limit,
    usable_core_count,
)
from dpsweep.sweeper.launchers.hydra_jobs import HydraJobs, require_known_launcher_in_config
from dpsweep.sweeper.launchers.workers import Workers, is_fork_launcher
from dpsweep.sweeper.loggers.interface import Loggers
from dpsweep.sweeper.planning.cheapest_sampler import AUTO
from dpsweep.sweeper.planning.grid import Grid, sort_overrides_into_request
from dpsweep.sweeper.planning.plan_settings import BudgetSettings, PlanSettings, Point
from dpsweep.sweeper.planning.public_search import PUBLIC, winner_of_public_sweep
from dpsweep.sweeper.planning.recipe import with_unmeasured_numbers
from dpsweep.sweeper.planning.resolution import chosen_option_of_group
from dpsweep.sweeper.planning.search_options import WHEN_BUDGET_SPENT
from dpsweep.sweeper.planning.unknown_keys import (
    refuse_keys_without_value,
    refuse_short_words_in_files,
    wrong_override_sentence,
)
from dpsweep.sweeper.searches.admission import Retry
from dpsweep.sweeper.searches.interface import admitted_class_for_plan
from dpsweep.sweeper.trial.build import config_of_generated_records_like_dataset
from dpsweep.sweeper.trial.spec import build_object_of_config_part, declaration_from_config
from dpsweep.trainers.user_modules import FINDER, require_repeated_code

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

Choice = TypeVar("Choice", bound=StrEnum)


class Verb(StrEnum):
    """The action on a plan."""

    SWEEP = "sweep"
    RESUME = "resume"
    PLAN = "plan"
    PLAN_FOR_TRE = "plan_for_tre"
    ADVISE = "advise"
    REHEARSE = "rehearse"
    AUDIT = "audit"


@dataclass(frozen=True, kw_only=True)
class SweeperSettings:
    """The sweeper's own settings under `hydra.sweeper`, as they were typed."""

    verb: str
    max_batch_size: int | None
    retry: str
    resume: int
    study: str | None
    rules: bool = False


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """One command: the points and settings of its plan, the action on the plan, and the place where jobs run.

    `points` and `plan` determine the plan. `fit` and `rules` select the prices to show, `anyway` a search whose scores
    say nothing, `class_shares` the shares of the classes that widths assume, `retry` the attempts to pay for again,
    `resume` how often an interrupted run is launched again, `study` the database for results, None for a file in the
    sweep's folder. `page` says whether the sweep ends with its page, `loggers` where else its results are written,
    `audit` how large an audit is. `data` is the folder with the official files. At most `max_batch_size` jobs are
    handed to the launcher at once; it runs them on `workers`, `forked` from this process or not.
    """

    verb: Verb
    points: tuple[Point, ...]
    plan: PlanSettings
    fit: bool
    anyway: bool
    class_shares: tuple[float, ...]
    rules: bool
    retry: Retry
    resume: int
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
        verb = _parse_enum_choice(Verb, "verb", settings.verb)
        require_known_launcher_in_config(config)
        if "policy" in config:
            raise BadInput(
                "Expected no policy here: `dpsweep budget open` fixes it, before the first sweep on a data set."
            )
        if not is_integer_at_least(settings.resume, 0):
            raise BadInput(f"Expected hydra.sweeper.resume={settings.resume!r} to be an integer >= 0.")
        if settings.max_batch_size is not None and not is_integer_at_least(settings.max_batch_size, 1):
            raise BadInput(f"Expected hydra.sweeper.max_batch_size={settings.max_batch_size!r} to be an integer >= 1.")
        grid = Grid(sort_overrides_into_request(arguments, context.config_loader), config, context.config_loader)
        FINDER.trusted = set(grid.request.code)
        config = _config_of_pool_on_devices(config)
        rehearsal = verb is Verb.REHEARSE
        config = config_with_scratch_account(config) if rehearsal else config
        refuse_short_words_in_files(config)
        refuse_keys_without_value(config, grid.request.values)
        plan = plan_settings(config, grid.request.keys, grid.selection_rule_configs_by_name())
        plan, points = _settings_and_point_of_public_winner(plan, grid) or (plan, grid.points())
        points = tuple(points)
        require_repeated_code(
            [*(point.config for point in points), {"search": plan.search, "accountant": plan.accountant}]
        )
        points = points_on_generated_records(points) if rehearsal else points_refusing_generated_records(points)
        return cls(
            verb=verb,
            points=tuple(points),
            plan=plan,
            fit=_require_true_or_false("fit", config.plan.fit),
            anyway=_require_true_or_false("anyway", config.plan.anyway),
            class_shares=_require_shares(config.plan.class_shares),
            rules=settings.rules,
            retry=_parse_enum_choice(Retry, "retry", settings.retry),
            resume=settings.resume,
            study=settings.study,
            page=_require_true_or_false("page", config.report.page),
            loggers=loggers(config),
            audit=AuditSettings.from_config(_config_group_as_dict(config, "audit")),
            compute=Compute.from_config(config.compute),
            data=data_folder_from_typed_name(config.data),
            max_batch_size=settings.max_batch_size,
            workers=Workers.from_launcher_settings(config.hydra.launcher, usable_core_count()),
            forked=is_fork_launcher(config.hydra.launcher),
            jobs=HydraJobs(context=context, task=task, config=config),
        )

    @property
    def max_threads_per_job(self) -> int:
        """The threads that each job may use; a job with small steps uses one, unless the user gave a number."""
        return self.compute.threads or threads_within_omp_limit(self.workers.threads)

    @property
    def max_points_per_job(self) -> int | None:
        """The most points that one job trains: one if points are proposed from the scores of earlier ones."""
        return 1 if "trials" in self.plan.search else self.compute.together

    def device_and_workers_text(self, plan: Plan, jobs: int) -> str:
        """The device and the workers of a plan as text; for a queue, so many jobs and what a time leaves out."""
        device, workers = self.compute.device, self.workers_for_plan(plan)
        found = {"auto": "this machine"}.get(device, device)
        if workers.work:
            return f"{found}, {jobs} job{'s' if jobs > 1 else ''}; without the wait for a machine and the start of jobs"
        return f"{found}, {workers.jobs} worker{'s' if workers.jobs > 1 else ''}"

    def workers_for_plan(self, plan: Plan) -> Workers:
        """The workers that run a plan."""
        return admitted_class_for_plan(plan).workers_that_share_runs(self.workers)

    def launcher_refusal_sentence(self, priced: PricedPlan) -> str:
        """Why the launcher may not run a plan, whose secret draw it would show; empty if it may."""
        kind = admitted_class_for_plan(priced.plan)
        return kind.launcher_refusal_sentence(priced.rule.name, self.workers, self.resume)


def _require_shares(value: object) -> tuple[float, ...]:
    """The declared shares of the classes; raises `BadInput` unless they are numbers above 0 that sum to 1."""
    shares = tuple(value) if isinstance(value, ListConfig) else () if value is None else (value,)
    if shares and not (all(isinstance(one, float) and one > 0 for one in shares) and abs(sum(shares) - 1) < 0.01):
        raise BadInput(f"Expected plan.class_shares={value} to be shares above 0 that sum to 1, as in [.95,.05].")
    return shares


def _config_of_pool_on_devices(config: DictConfig) -> DictConfig:
    """The configuration with the names of the GPUs that a pool leases, and with as many workers as these allow."""
    launcher, cores = config.hydra.launcher, usable_core_count()
    is_pool = "n_jobs" in launcher and Workers.from_launcher_settings(launcher, cores).here
    compute = compute_with_devices(Compute.from_config(config.compute), is_pool=is_pool)
    if compute.devices:
        config = copy.deepcopy(config)
        OmegaConf.set_readonly(config.hydra, False)
        OmegaConf.update(config, "compute.devices", list(compute.devices))
        OmegaConf.update(config, "hydra.launcher.n_jobs", limit_pool_to_devices(launcher.n_jobs, cores, compute))
    return config


def _settings_and_point_of_public_winner(plan: PlanSettings, grid: Grid) -> tuple[PlanSettings, Iterable[Point]] | None:
    """The settings and the one point of `tuning=public`; None under every other rule."""
    if tag_or_path_of_class(plan.tuning) != PUBLIC:
        return None
    winner = winner_of_public_sweep(Path(str(plan.tuning["sweep"])).expanduser())
    rule = {**plan.tuning, "sweep": winner.plan}
    offered = {label: rule if tag_or_path_of_class(other) == PUBLIC else other for label, other in plan.offered.items()}
    return replace(plan, tuning=rule, offered=offered), [grid.point_with_values(winner.method, winner.values)]


def _require_true_or_false(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"Expected {name}={value} to be true or false.")
    return value


def _parse_enum_choice(choices: type[Choice], name: str, value: str) -> Choice:
    if value not in list(choices):
        raise BadInput(f"Expected hydra.sweeper.{name}={value} to be one of {', '.join(choices)}.")
    return choices(value)


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """An audit of at least `steps` steps and scores of each method, and an attack by `canaries`, at `confidence`.

    Without canaries there is no attack. `by` names the audit, one that a distribution has registered.
    """

    by: str = "recompute"
    steps: int = 100
    canaries: int = 3000
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for name, least in (("steps", 2), ("canaries", 0)):
            if not is_integer_at_least(getattr(self, name), least):
                raise BadInput(f"Expected audit.{name}={getattr(self, name)!r} to be an integer >= {least}.")
        if not isinstance(self.confidence, float) or not 0.5 <= self.confidence < 1:
            raise BadInput(f"Expected audit.confidence={self.confidence!r} to be a number from 0.5 to below 1.")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> AuditSettings:
        """What the group `audit` of a configuration asks for."""
        try:
            return cls(**config)
        except TypeError:
            known = ", ".join(cls.__dataclass_fields__)
            raise BadInput(f"Expected audit={dict(config)!r} to have {known}, and nothing else.") from None


def plan_settings(
    config: DictConfig, keys: frozenset[str], offered: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> PlanSettings:
    """The plan settings of the configuration; `keys` are the keys that the command line names.

    `offered` are the configurations of the rules that `tuning=auto` may choose. Raises `BadInput` if a group lacks a
    value.
    """
    privacy, dataset, tuning, search, plan, report, _ = (
        _config_group_as_dict(config, name)
        for name in ("privacy", "dataset", "tuning", "search", "plan", "report", "weights")
    )
    return PlanSettings(
        account=dataset["name"],
        budget=budget_settings(config),
        privacy=privacy,
        tuning=stored_form_of_config_part(tuning, "rule"),
        search=search,
        accountant=_config_group_as_dict(config, "accountant"),
        looks_every=config.score.get("every"),
        checkpoint_every=config.checkpoint.get("every") if OmegaConf.is_dict(config.checkpoint) else None,
        subsample=config.subsample,
        repeats=config.repeats,
        spare_attempts=plan["spare_attempts"],
        sealed=_plain_value(config.budget.sealed),
        card=plan["card"],
        about=report["about"],
        final=plan["final"],
        solve=str(plan["solve"]),
        show=str(plan["show"]),
        limit=plan["limit"],
        keys=keys,
        offered=offered,
        is_sampler_open=chosen_option_of_group(config, "sampler") == AUTO,
    )


def config_with_scratch_account(config: DictConfig) -> DictConfig:
    """The configuration with a scratch account: its own name, and the search's price as budget if none is given.

    The grid composes its points from the configuration before this.
    """
    config = copy.deepcopy(config)
    for key in ("epsilon", "delta"):
        price = None if OmegaConf.is_missing(config.privacy, key) else config.privacy[key]
        if price is not None and OmegaConf.is_missing(config.budget, key):
            config.budget[key] = price
    if not OmegaConf.is_missing(config.dataset, "name"):
        config.dataset.name = f"{PREFIX}{config.dataset.name}"
    return config


def budget_settings(config: DictConfig) -> BudgetSettings:
    """The settings that the configuration declares for its data set's account."""
    public = config.dataset.public is True
    if public:  # no promise is made, so that a budget need not be declared
        unlimited = {"epsilon": None, "delta": config.privacy.delta}
        missing = {key: value for key, value in unlimited.items() if OmegaConf.is_missing(config.budget, key)}
        config = cast(DictConfig, OmegaConf.merge(config, {"budget": missing}))
    budget, privacy = _config_group_as_dict(config, "budget"), _config_group_as_dict(config, "privacy")
    column = OmegaConf.select(config, "dataset.unit_column")
    return BudgetSettings(
        epsilon=budget["epsilon"],
        delta=budget["delta"],
        adjacency=privacy["adjacency"],
        unit=privacy["unit"],
        public=public,
        unit_column=column,
        column_unit=None if column is None else config.dataset.unit,
    )


def loggers(config: DictConfig) -> Loggers:
    """The loggers that the configuration names."""
    return {
        name: build_object_of_config_part(node, "logger")
        for name, node in _config_group_as_dict(config, "logger").items()
    }


def _plain_value(value: Any) -> Any:
    """A value of a configuration without its types."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _config_group_as_dict(config: DictConfig, name: str) -> dict[str, Any]:
    """One group of the configuration as plain values; raises `BadInput` if a value is missing."""
    try:
        node = config[name]
        part = OmegaConf.to_container(node, resolve=True, throw_on_missing=True) if OmegaConf.is_config(node) else node
    except OmegaConfBaseException as cause:
        sentence = (
            wrong_override_sentence(cause, ()) or f"Expected {name} to be complete: {str(cause).splitlines()[0]}."
        )
        raise BadInput(sentence) from cause
    if not isinstance(part, dict):
        raise BadInput(f"Expected {name}={part!r} to be a group of keys.")
    return {str(key): value for key, value in part.items()}


def points_on_generated_records(points: Iterable[Point]) -> Iterator[Point]:
    """The points on generated records; raises `BadInput` with the keys of the data set that are missing for that."""
    for place, point in enumerate(points):
        dataset = point.config["dataset"]
        if KIND in dataset and place == 0:
            open_steps = point.config["steps"] == WHEN_BUDGET_SPENT
            numbered = with_unmeasured_numbers(point)
            declaration_from_config((numbered.with_settings(steps=1) if open_steps else numbered).config)
        yield point.with_settings(dataset=config_of_generated_records_like_dataset(dataset, point.config["loss"]))


def points_refusing_generated_records(points: Iterable[Point]) -> Iterator[Point]:
    """The points, unless one declares generated records: only a rehearsal trains on them."""
    for point in points:
        if tag_or_path_of_class(point.config["dataset"]) == GENERATED:
            raise BadInput("Expected the records of a data set: generated ones are for `dpsweep rehearse` alone.")
        yield point
