"""Conversion of Hydra's composed configuration to the plain values that planning takes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.rehearsal import PREFIX
from dpsweep.sweeper.keys.unknown_words import in_our_words
from dpsweep.sweeper.loggers.copies import Loggers
from dpsweep.sweeper.planning.plan_settings import BudgetSettings, PlanSettings
from dpsweep.sweeper.request.audit_settings import AuditSettings
from dpsweep.sweeper.trial.spec import build


def plan_settings(
    config: DictConfig, keys: frozenset[str], offered: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> PlanSettings:
    """The plan settings of the configuration; `keys` are the keys that the command line names.

    `offered` are the configurations of the rules that `tuning=auto` may choose. Raises `BadInput` if a group lacks a
    value.
    """
    privacy, dataset, tuning, search = (_group(config, name) for name in ("privacy", "dataset", "tuning", "search"))
    return PlanSettings(
        account=dataset["name"],
        budget=budget_settings(config),
        privacy=privacy,
        tuning=tuning,
        search=search,
        accountant=_group(config, "accountant"),
        looks_every=config.score.get("every"),
        checkpoint_every=config.checkpoint.get("every") if OmegaConf.is_dict(config.checkpoint) else None,
        subsample=config.subsample,
        repeats=config.repeats,
        spare_attempts=config.plan.spare_attempts,
        final=config.final,
        solve=str(config.solve),
        show=str(config.show),
        keys=keys,
        offered=offered,
    )


def rehearsed(config: DictConfig) -> DictConfig:
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
    if public and OmegaConf.is_missing(config.budget, "epsilon"):
        config = cast(DictConfig, OmegaConf.merge(config, {"budget": {"epsilon": None}}))  # no promise is made
    budget, privacy = _group(config, "budget"), _group(config, "privacy")
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
    return {name: build(node, "logger") for name, node in _group(config, "logger").items()}


def audit_settings(config: DictConfig) -> AuditSettings:
    """The size of an audit."""
    return AuditSettings.of(_group(config, "audit"))


def _group(config: DictConfig, name: str) -> dict[str, Any]:
    """One group of the configuration as plain values; raises `BadInput` if a value is missing."""
    try:
        part = OmegaConf.to_container(config[name], resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as cause:
        sentence = in_our_words(cause, ()) or f"Expected {name} to be complete: {str(cause).splitlines()[0]}."
        raise BadInput(sentence) from cause
    if not isinstance(part, dict):
        raise BadInput(f"Expected {name}={part!r} to be a group of keys.")
    return {str(key): value for key, value in part.items()}
