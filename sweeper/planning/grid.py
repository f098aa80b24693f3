"""Points of a sweep from its overrides and its grid: the cartesian product, as resolved configurations.

The trainer that a command line or a file names is the trainer that runs; `by_grid`, the default, stands for the methods
of `grid.trainers`. Configurations are composed once per choice of config groups and updated per point, so that a
thousand points take seconds. Nothing here imports torch or reads data.

Under `tuning=disjoint` and `tuning=subsampled` each point has a final run, declared before the search. The search and
the final run read different records, both at the sample rate that the configuration declares for all records: a part's
batch size is that of all records times the part's share. The noise per example of the final run is much smaller than
that of the search, so its learning rate is carried over by the rule's exponent (`carry`).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, QuotedString, Transformer
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf, open_dict

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import FINAL, Trial, Use, part_of_records
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.stored_names.stored_classes import (
    KIND,
    SCRIPT,
    TARGET,
    class_name_without_module,
    stored_form_of_config_part,
)
from dpsweep.sweeper.planning.keys import STORED_NAMES_BY_KEY, choices_that_have_key, is_root_of_key_known
from dpsweep.sweeper.planning.plan_settings import LIMITS, RATE, Point
from dpsweep.sweeper.planning.resolution import BY_GRID, Resolution, chosen_option_of_group
from dpsweep.sweeper.planning.unknown_keys import unknown_key_sentence, wrong_override_sentence
from dpsweep.sweeper.trial.script_run import config_with_script_checksum
from dpsweep.sweeper.trial.spec import (
    build_object_of_config_part,
    declaration_from_config,
    records_from_config,
    require_importable_class_of_part,
)
from dpsweep.trainers.declarations.losses import default_rate_factor
from dpsweep.trainers.methods.rate_laws import DIGITS as RATE_DIGITS
from dpsweep.trainers.methods.rate_laws import factor_of_automatic_rate

DEFAULTS = "defaults"
"""The key of Hydra's defaults list in a file."""

DEFAULT_GRIDS = ("few", "small")
"""The grids with the learning rates that are defaults of methods."""

DEFAULT_AXES = "trainer/axes"
"""The config group of each method's default axes, for grids that have none for it."""

OFFERS = "offers"
"""The configuration key under which the selection rules that were not chosen are composed."""

TRUSTED = "trusted"
"""The key of code that a file names and that the command repeats; only the command's value counts."""

SWEEPABLE = (
    "trainer",
    "model",
    "adapter",
    "lr_schedule",
    "clip_schedule",
    "sampler",
    "noise",
    "augmentation",
    "engine",
    "steps",
    "weights.ema",
    "privacy.noise_multiplier",
)
"""The keys that may differ between the points of one plan."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The user's overrides by kind: fixed overrides, swept groups, swept values.

    `code` has the dotted paths and scripts that the overrides name.
    """

    fixed: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]
    values: Mapping[str, tuple[Any, ...]]
    keys: frozenset[str]
    code: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class _Method:
    """A method to run: its name in plans, and the overrides that choose its trainer."""

    name: str
    chosen_by: tuple[str, ...]


def sort_overrides_into_request(arguments: Sequence[str], loader: ConfigLoader) -> Request:
    """Sorts Hydra overrides by kind; refuses continuous intervals and axes that one plan cannot have."""
    fixed: list[str] = []
    groups: dict[str, tuple[str, ...]] = {}
    values: dict[str, tuple[Any, ...]] = {}
    overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(arguments))
    for override in overrides:
        key = STORED_NAMES_BY_KEY.get(override.key_or_group, override.key_or_group)
        if not override.is_sweep_override():
            fixed.append(str(override.input_line))
            continue
        _check_axis_is_discrete_and_allowed(override, arguments)
        options = tuple(_unquoted_value(value) for value in override.sweep_iterator(transformer=Transformer.identity))
        if loader.get_group_options(key):
            groups[key] = tuple(str(option) for option in options)
        else:
            values[key] = options
    return Request(
        fixed=tuple(fixed),
        groups=groups,
        values=values,
        keys=frozenset(STORED_NAMES_BY_KEY.get(override.key_or_group, override.key_or_group) for override in overrides),
        code=code_in_words(arguments),
    )


def code_in_words(words: Iterable[str]) -> frozenset[str]:
    """The dotted paths and scripts that these words name, at any depth; a word that Hydra cannot read names none."""
    found: set[str] = set()
    for word in words:
        with suppress(HydraException):
            override = OverridesParser.create().parse_override(word)
            found.update(_code_in_override(override.key_or_group, override.value()))
    return frozenset(found)


def _code_in_override(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _code_in_override(str(inner), one)
    elif isinstance(value, ChoiceSweep | list):
        for one in value.list if isinstance(value, ChoiceSweep) else value:
            yield from _code_in_override(key, one)
    elif (last := key.rpartition(".")[2]) in (TARGET, SCRIPT, TRUSTED):
        text = str(_unquoted_value(value))
        yield str(Path(text)) if last == SCRIPT else text


@dataclass(frozen=True)
class Grid:
    """A request on a grid: its points, and the selection rules that it might choose instead.

    `master` is the configuration that Hydra composed from the fixed overrides. Hydra takes a fifth of a second for each
    composition, so `master` is the base of all points, and there is one for each further choice of groups.
    """

    request: Request
    master: DictConfig
    loader: ConfigLoader

    def points(self) -> Iterator[Point]:
        """All points: each method's axes from the grid, or its default ones, replaced by the command line's."""
        request, base = self.request, self.master
        others = {key: options for key, options in request.groups.items() if key != "trainer"}
        methods = list(_methods(request, base))
        named = [method.name for method in methods]
        for method in methods:
            for choice in itertools.product(*others.values()):
                choices = dict(zip(others, choice, strict=True))
                config = self._compose_config_of_method(method, choices)
                axes, default_axes = self._axes_of_method(config, method.name, named)
                given_rate = OmegaConf.select(config, RATE)
                resolution = Resolution(config, method.name, (*axes, RATE) if isinstance(given_rate, str) else axes)
                for combination in itertools.product(*axes.values()):
                    values = dict(zip(axes, combination, strict=True))
                    point = self._point_with_resolved_config(resolution, method.name, values, given_rate)
                    yield replace(point, axes=choices | values, default_axes=default_axes)

    def _point_with_resolved_config(
        self, resolution: Resolution, method: str, values: Mapping[str, Any], given_rate: object
    ) -> Point:
        """The point with these values; an automatic learning rate has its factor in its place."""
        factor = factor_of_automatic_rate(values.get(RATE, given_rate))
        config = resolution.resolved_config_with_values(values if factor is None else {**values, RATE: factor})
        resolved = config_with_script_checksum(config, self.request.keys)
        return Point(method=method, axes=values, config=resolved, rate_factor=factor)

    def _axes_of_method(
        self, config: DictConfig, method: str, named: Sequence[str]
    ) -> tuple[dict[str, tuple[Any, ...]], bool]:
        """The axes of one method, and whether default ones of the method are among them.

        They are the grid's axes for the method, or, where it has none, the method's default axes
        (`conf/trainer/axes`); then the grid's panels; then the command line's axes, which replace all others. An axis
        of the command line that only some of the `named` methods have is an axis of those.
        """
        by_method, panels = (_as_mapping(f"grid.{key}", config.grid.get(key)) for key in ("axes", "panels"))
        axes = {
            name: self._axes_without_overridden_keys(f"grid.axes.{name}", by_method[name]) for name in by_method
        }.get(method)
        has_default = axes is None and method in self.loader.get_group_options(DEFAULT_AXES)
        if axes is None and has_default:
            file = self._load_option_file(f"{DEFAULT_AXES}/{method}").config
            axes = self._axes_without_overridden_keys(
                f"{DEFAULT_AXES}/{method}", _as_mapping(f"{DEFAULT_AXES}/{method}", file).get(method)
            )
        if axes is None and not self.request.values:
            if isinstance(path := config.trainer.get(TARGET), str):
                require_importable_class_of_part(path, "trainer")
            raise BadInput(
                f"Expected trainer={method} to have axes: this grid has none for it, and there are no default ones in "
                f"{DEFAULT_AXES}. Give them on the command line (trainer.lr=0.1,0.2)."
            )
        is_typed = any(key.startswith("grid.axes") for key in self.request.keys)
        is_default = has_default or (chosen_option_of_group(config, "grid") in DEFAULT_GRIDS and not is_typed)
        if axes and RATE in axes and is_default:
            axes[RATE] = _weighted_rates(axes[RATE], config)
        typed = {
            key: values
            for key, values in self.request.values.items()
            if len(named) == 1 or method in (choices_that_have_key(key, named) or named)  # to read all of conf/ is slow
        }
        panels_axes = self._axes_without_overridden_keys("grid.panels", panels)
        return (axes or {}) | panels_axes | typed, has_default and bool(axes)

    def _axes_without_overridden_keys(self, place: str, axes: object) -> dict[str, tuple[Any, ...]]:
        """The axes that a file has at a place, without those that the command line fixes or replaces."""
        if not isinstance(axes, dict):
            raise BadInput(f"Expected {place}={axes!r} to map keys to lists of values.")
        named = {STORED_NAMES_BY_KEY.get(key, key): values for key, values in _as_mapping(place, axes).items()}
        kept = {key: values for key, values in named.items() if key not in self.request.keys}
        for key, values in kept.items():
            if not isinstance(values, list) or not values:
                raise BadInput(f"Expected axis {key}={values!r} of {place} to be a non-empty list of values.")
        return {key: tuple(values) for key, values in kept.items()}

    def point_with_values(self, method: str, values: Mapping[str, Any]) -> Point:
        """The one point of a method with these values, which another sweep has found; the command line's own win.

        Raises `BadInput` if the command line has axes.
        """
        for key in (*self.request.groups, *self.request.values):
            raise BadInput(f"Expected {key} to have one value: one point runs, the one that was found.")
        own = {key: value for key, value in values.items() if key not in self.request.keys}
        choices = {key: str(value) for key, value in own.items() if self.loader.get_group_options(key)}
        config = self._compose_config_of_method(_Method(name=method, chosen_by=(f"trainer={method}",)), choices)
        others = {key: value for key, value in own.items() if key not in choices}
        resolution = Resolution(config, method, (*others, RATE))
        return replace(self._point_with_resolved_config(resolution, method, others, config.trainer.get("lr")), axes=own)

    def selection_rule_configs_by_name(self) -> dict[str, Mapping[str, Any]]:
        """The selection rules of `conf/tuning` by name, as configured here; rules with missing values are left out.

        The rule that the command line chose includes the command line's overrides.
        """
        chosen = chosen_option_of_group(self.master, "tuning")
        names = [name for name in self.loader.get_group_options("tuning") if name != chosen]
        rules = {chosen: self.master.tuning} | self._compose_rules(names)
        complete = {name: rule for name, rule in rules.items() if not OmegaConf.missing_keys(rule)}
        resolved: dict[str, Any] = {name: OmegaConf.to_container(rule, resolve=True) for name, rule in complete.items()}
        return {name: stored_form_of_config_part(rule, "rule") for name, rule in resolved.items() if TARGET in rule}

    def _compose_rules(self, names: Sequence[str]) -> dict[str, DictConfig]:
        """These selection rules within the configuration; Hydra composes only those that use its defaults lists."""
        files = {name: self._load_option_file(f"tuning/{name}") for name in names}
        plain = {name: file.config for name, file in files.items() if _has_neither_defaults_nor_package(file)}
        config = copy.deepcopy(self.master)
        with open_dict(config):
            config[OFFERS] = plain
        others = [f"+tuning@{OFFERS}.{name}={name}" for name in names if name not in plain]
        composed = self._compose_config([*self.request.fixed, *others])[OFFERS] if others else {}
        rules = {**config[OFFERS], **composed}
        return {name: rules[name] for name in names}

    def _load_option_file(self, path: str) -> ConfigResult:
        """The file of a config group's option, from the first folder of Hydra's search path that has it."""
        return next(source for source in self.loader.get_sources() if source.is_config(path)).load_config(path)

    def _compose_config_of_method(self, method: _Method, choices: Mapping[str, str]) -> DictConfig:
        """The fixed overrides with this method and these choices of other groups; a copy, which may be updated."""
        if not choices and method.name == chosen_option_of_group(self.master, "trainer"):
            return copy.deepcopy(self.master)
        groups = (f"{key}={value}" for key, value in choices.items())
        return self._compose_config([*self.request.fixed, *method.chosen_by, *groups])

    def _compose_config(self, overrides: Sequence[str]) -> DictConfig:
        try:
            return self.loader.load_sweep_config(self.master, list(overrides))
        except HydraException as cause:
            running = [method.name for method in _methods(self.request, self.master)]
            sentence = wrong_override_sentence(cause, self.request.fixed, running=running)
            raise BadInput(sentence or str(cause).splitlines()[0]) from cause


def _has_neither_defaults_nor_package(file: ConfigResult) -> bool:
    """Whether a file has neither a defaults list nor a package of its own: its contents are the option."""
    return file.header["package"] is None and DEFAULTS not in file.config


def _weighted_rates(rates: Sequence[Any], config: DictConfig) -> tuple[Any, ...]:
    """Default learning rates, times the factor of declared class weights."""
    if config.loss.get("class_weights") is None:
        return tuple(rates)
    loss = build_object_of_config_part(_as_mapping("loss", config.loss), "loss")
    return tuple(float(f"{rate * default_rate_factor(loss):.{RATE_DIGITS}g}") for rate in rates)


def _methods(request: Request, config: DictConfig) -> Iterator[_Method]:
    """The methods to run: those that the command line or a file names; `by_grid` stands for the grid's methods."""
    for name in request.groups.get("trainer", (chosen_option_of_group(config, "trainer"),)):
        if name != BY_GRID:
            yield _Method(name=name, chosen_by=(f"trainer={name}",))
        elif "trainer" not in request.groups and config.trainer.get(TARGET) is not None:
            yield _Method(name=_name_of_method_given_as_class(request, config), chosen_by=())
        else:
            for method in config.grid.trainers:
                yield _Method(name=str(method), chosen_by=(f"trainer={method}",))


def _name_of_method_given_as_class(request: Request, config: DictConfig) -> str:
    """The name of a method that is given as a class: `trainer={_target_: ...}` as it was typed, or the class."""
    typed = [line.partition("=")[2] for line in request.fixed if line.startswith("trainer={")]
    return typed[-1] if typed else class_name_without_module({TARGET: config.trainer[TARGET]})


def _as_mapping(place: str, node: Any) -> dict[str, Any]:
    """A part of the configuration as plain values by key; empty where there is none."""
    plain = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    if plain is not None and not isinstance(plain, dict):
        raise BadInput(f"Expected {place}={plain!r} to map keys to lists of values.")
    return {str(key): value for key, value in (plain or {}).items()}


def _check_axis_is_discrete_and_allowed(override: Override, words: Sequence[str]) -> None:
    key = override.key_or_group
    if not override.is_discrete_sweep():
        raise BadInput(
            f"Expected {override.input_line} to list its values: a continuous interval has no points to declare and "
            f"check before the charge. Write {key}=a,b,c, as finely as you like: search=tpe pays for its trials alone."
        )
    if not any(key == root or key.startswith(f"{root}.") for root in SWEEPABLE):
        if not is_root_of_key_known(key):
            raise BadInput(unknown_key_sentence(key, words))
        raise BadInput(
            f"Expected {key} to have one value: a plan has one data set, one budget and one rule. "
            f"An axis may be one of {', '.join(SWEEPABLE)}; for several values of {key} run a sweep each."
        )


def _unquoted_value(value: Any) -> Any:
    return value.text if isinstance(value, QuotedString) else value


UNSCORED = "unscored"
DIGITS = 4
"""Significant digits of a carried learning rate."""


def points_with_final_runs(points: Iterable[Point], rule: SelectionRule, *, with_card: bool) -> Iterator[Point]:
    """The points as the rule runs them, each with its final run if the rule has one.

    With a card, a final run on records of its own holds none of them out.
    """
    run = rule.final_run
    for point in points:
        if run is None:
            yield point
        else:
            search, final = (_point_on_part_of_records(point, part_of_records(run, use)) for use in Use)
            if with_card and run.share is not None and not run.is_secret:
                final = final.with_settings(score=_no_score(final.config["score"]))
            yield replace(search, final=final.with_settings(**{FINAL: True}))


def carry_learning_rate_to_final_run(trial: Trial, rule: SelectionRule) -> Trial:
    """The trial with the learning rate of its final run carried over from its own noise per example."""
    run = rule.final_run
    if trial.final is None or run is None or run.carry is None or "lr" not in trial.config["trainer"]:
        return trial
    own, final = (_noise_multiplier_over_batch_size(one.config) for one in (trial, trial.final))
    if not own or not final:
        return trial
    rate = float(f"{trial.config['trainer']['lr'] * (own / final) ** run.carry:.{DIGITS}g}")
    if not LIMITS[RATE][0] <= rate <= LIMITS[RATE][1]:
        raise BadInput(f"Expected tuning.carry={run.carry} to carry {RATE} to a number in its limits, got {rate:g}.")
    config: Mapping[str, Any] = {**trial.final.config, "trainer": {**trial.final.config["trainer"], "lr": rate}}
    axes = {**trial.final.axes, RATE: rate} if RATE in trial.final.axes else trial.final.axes
    return replace(trial, final=replace(trial.final, axes=axes, config=config))


def _no_score(score: Mapping[str, Any]) -> dict[str, Any]:
    """No score, with the metric that a card tells."""
    return {KIND: UNSCORED} | {key: score[key] for key in ("metric", "positive", "bins") if key in score}


def _point_on_part_of_records(point: Point, part: Mapping[str, Any] | None) -> Point:
    """The point on a part of the records, with the sample rate that it has on all of them."""
    if part is None:
        return point
    whole, point = point, point.with_settings(part=part)
    sampler = point.config["sampler"]
    if not isinstance(batch_size := sampler.get("batch_size"), int):
        return point
    part_units, units = (records_from_config(one.config).nominal_training_units for one in (point, whole))
    return point.with_settings(sampler={**sampler, "batch_size": max(1, round(batch_size * (part_units / units)))})


def _noise_multiplier_over_batch_size(config: Mapping[str, Any]) -> float:
    """The standard deviation of the noise on a mean of bounded gradients, in units of the bound."""
    return float(config["privacy"]["noise_multiplier"]) / declaration_from_config(config).sampler.batch_size
