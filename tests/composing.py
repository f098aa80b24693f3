"""Hydra's composing without the work that repeats: thousands of tests compose from the same hundred files of conf/.

A file is parsed again only where it has changed, and the table of a file's interpolations is made only where the file
has any. What Hydra composes stays the same, which tests/test_composing.py shows; programs that are started fresh
compose without this.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal import defaults_list
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_loader import ConfigLoader
from hydra.core.default_element import InputDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from dpsweep.sweeper.commands.hydra_app import CONF

Plugins.instance()  # imports the sources and registers them
FILES = SourcesRegistry.instance().resolve("file")
LOADS = FILES.load_config
MAPS = defaults_list._create_interpolation_map

_parsed: dict[tuple[str, int, int, int], ConfigResult] = {}
_whole: dict[tuple[str, ...], DictConfig] = {}


def load_once(source: ConfigSource, config_path: str) -> ConfigResult:
    """A copy of the file as it was parsed first, unless it has changed since."""
    path = os.path.realpath(os.path.join(source.path, source._normalize_file_name(config_path)))  # noqa: PTH118
    try:
        state = os.stat(path)  # noqa: PTH116 - as Hydra does
    except OSError:
        return LOADS(source, config_path)
    key = (f"{source.provider} {source.path} {config_path}", state.st_mtime_ns, state.st_size, state.st_ino)
    if key not in _parsed:
        _parsed[key] = LOADS(source, config_path)
    return copy.deepcopy(_parsed[key])


def map_if_needed(overrides: Any, defaults: Sequence[InputDefault], self_added: bool) -> DictConfig:
    """The choices that interpolations of a defaults list may name; none where it has no interpolation."""
    needed = any(not one.is_self() and one.is_interpolation() for one in defaults)
    return MAPS(overrides, list(defaults), self_added) if needed else _no_choices()


def composed(loader: ConfigLoader, words: Sequence[str]) -> DictConfig:
    """A copy of what Hydra composes from conf/ and these overrides of a sweep."""
    if (key := tuple(words)) not in _whole:
        _whole[key] = loader.load_configuration("config", list(words), run_mode=RunMode.MULTIRUN)
    return copy.deepcopy(_whole[key])


def compose_quickly() -> None:
    """From now on this process, and what it forks, composes so."""
    FILES.load_config = load_once  # type: ignore[method-assign]
    defaults_list._create_interpolation_map = map_if_needed  # type: ignore[assignment]


def compose_as_hydra_does() -> None:
    """Composes as a fresh program does."""
    FILES.load_config = LOADS  # type: ignore[method-assign]
    defaults_list._create_interpolation_map = MAPS


def compose_default() -> None:
    """Composes the default sweep once, which parses its files and fills the tables of the grammar's parsers."""
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        compose("config", return_hydra_config=True)
    GlobalHydra.instance().clear()


@cache
def _no_choices() -> DictConfig:
    return OmegaConf.create({})
