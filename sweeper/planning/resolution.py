"""The resolved configuration of each point of a grid: the part of it that identifies a trial.

A thousand points share nearly all of it. So groups that no axis can change are resolved once, for the first point, and
all points hold the same object: no part of a point's configuration is ever changed in place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.format_defaults import defaults_of, without_defaults
from dpsweep.accounting.stored_names.stored_classes import stored_form_of_config_part
from dpsweep.accounting.stored_names.tags import PARTS
from dpsweep.sweeper.planning.base_weights import config_with_base_weight_facts
from dpsweep.sweeper.planning.keys import KEYS_BY_STORED_NAME
from dpsweep.sweeper.trial.spec import config_with_noise_coefficients

BY_GRID = "by_grid"
"""The trainer that stands for the methods of the grid."""

IDENTITY = (
    "dataset",
    "model",
    "loss",
    "trainer",
    "lr_schedule",
    "clip_schedule",
    "sampler",
    "subsample",
    "score",
    "engine",
    "steps",
    "checkpoint",
    "privacy",
    "seed",
)
"""The stored keys that identify a trial; devices, paths and budgets are not among them."""

WHERE_GIVEN = ("ema", "augmentation", "features", "adapter", "noise", "initial_weights")
"""Further keys that identify a trial; they are not stored if they are null or empty."""

OF_GROUPS = ("dataset", "score")
"""Groups with keys that no class need know as fields: they are not stored at their default."""

HYPERPARAMETERS = "hyperparameters"
"""The key below a trainer whose fields are the user's."""

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_KEY = re.compile(r"(\w+)(\.\w+)*")


class Resolution:
    """The points of one choice of groups: `config` is updated for each point, by values of these axes alone."""

    def __init__(self, config: DictConfig, trainer: str, axes: Collection[str]) -> None:
        self._config = config
        self._trainer = trainer
        self._changing = {axis.partition(".")[0] for axis in axes}
        self._constant: dict[str, Any] = {}
        self._by_grid = chosen_option_of_group(config, "trainer") == BY_GRID
        if OmegaConf.is_dict(own := config.trainer.get(HYPERPARAMETERS)):
            OmegaConf.set_struct(own, False)  # a script's hyperparameters have names of its own

    def resolved_config_with_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The identity part of the configuration with these values; raises `BadInput` for a key that it lacks."""
        for key, value in values.items():
            try:
                path = KEYS_BY_STORED_NAME.get(key, key)
                named = str(OmegaConf.select(self._config, f"{path.rpartition('.')[0]}._target_") or "dpsweep.")
                OmegaConf.update(self._config, path, value, force_add=not named.startswith("dpsweep."))
            except OmegaConfBaseException:
                own = f"an axis of your own class: model._target_=my_model.Net +{key}=8,16"
                raise BadInput(
                    f"{key} is {own}."
                    if key.startswith("model.")
                    else f"trainer={self._trainer} has no {key}; {_fields_of_group_text(self._config, key)}."
                ) from None
            if key.partition(".")[0] not in (*IDENTITY, *WHERE_GIVEN):
                raise BadInput(f"Expected {key} to have one value: all points of a plan share it.")
        config = config_with_base_weight_facts(dict(self._config_parts_in_stored_form_by_key()))
        return _without_group_defaults(config_with_noise_coefficients(config))

    def _config_parts_in_stored_form_by_key(self) -> Iterator[tuple[str, Any]]:
        for key in IDENTITY:
            yield key, self._config_part_in_stored_form(key)
        for key in WHERE_GIVEN:
            if (part := self._config_part_in_stored_form(key)) not in (None, {}):
                yield key, part

    def _config_part_in_stored_form(self, key: str) -> Any:
        """One part of the configuration in its stored form."""
        if key in self._constant:
            return self._constant[key]
        resolved = self._config_part_as_plain_values(key)
        part = stored_form_of_config_part(resolved, key) if key in PARTS else resolved
        if self._is_part_same_for_all_points(key):
            self._constant[key] = part
        return part

    def _config_part_as_plain_values(self, key: str) -> Any:
        group, _, last = KEYS_BY_STORED_NAME.get(key, key).rpartition(".")
        node = (self._config[group] if group else self._config)[last]
        part: Any = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
        if key == "trainer" and self._by_grid:  # a user's class gets no unset keys
            return {name: value for name, value in dict(part).items() if value is not None}
        return part

    def _is_part_same_for_all_points(self, key: str) -> bool:
        """Whether no axis lies in a part, and it refers to constant parts alone."""
        if key in self._changing:
            return False
        group = KEYS_BY_STORED_NAME.get(key, key).partition(".")[0]
        raw = OmegaConf.to_container(OmegaConf.masked_copy(self._config, group), resolve=False)
        text = str(raw)
        references = _REFERENCE.findall(text)
        plain = len(references) == text.count("${") and all(map(_KEY.fullmatch, references))
        return plain and all(reference.partition(".")[0] in self._constant for reference in references)


def chosen_option_of_group(config: DictConfig, group: str) -> str:
    """The option that a composed configuration uses for a config group."""
    return str(OmegaConf.select(config, f"hydra.runtime.choices.{group}"))


def _without_group_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration without the groups' own keys where they are at their default."""
    return config | {group: without_defaults(config[group], defaults_of(group, "parts")) for group in OF_GROUPS}


def _fields_of_group_text(config: DictConfig, key: str) -> str:
    """The fields that the group of a wrong key has."""
    group = key.partition(".")[0]
    node = config.get(group)
    known = sorted(str(name) for name in node if name != "_target_") if OmegaConf.is_dict(node) else []
    return f"{group} has {', '.join(known)}" if known else f"there is no {group}"
