"""Hydra's composing without the work that repeats: thousands of tests compose from the same hundred files of conf/.

A file is parsed again only where it has changed, and so is a value with interpolations; the table of a file's
interpolations is made only where the file has any; the same words are composed once, if conf/ alone is composed from.
Configurations are kept as pickles, of which a copy is made in a fifth of the time that `deepcopy` takes. What Hydra
composes stays the same, which tests/test_composing.py shows; programs that are started fresh compose without this.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import omegaconf
from hydra import compose, initialize_config_dir, version
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.default_element import InputDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, grammar_parser

from dpsweep.sweeper.commands.hydra_app import CONF

Plugins.instance()  # imports the sources and registers them
FILES = SourcesRegistry.instance().resolve("file")
LOADS = FILES.load_config
MAPS = defaults_list._create_interpolation_map
COMPOSES = ConfigLoaderImpl._load_configuration_impl
PARSES = grammar_parser.parse
UNCHANGED = ("pkg", "structured")
"""Sources of configurations that come with a package, or are classes."""

_parsed: dict[tuple[str, int, int, int], bytes] = {}
_whole: dict[tuple[Any, ...], bytes] = {}

parse_once = lru_cache(maxsize=None)(PARSES)
"""The tree of a value with interpolations, which is only read."""


def load_once(source: ConfigSource, config_path: str) -> ConfigResult:
    """A copy of the file as it was parsed first, unless it has changed since."""
    path = os.path.realpath(os.path.join(source.path, source._normalize_file_name(config_path)))  # noqa: PTH118
    try:
        state = os.stat(path)  # noqa: PTH116 - as Hydra does
    except OSError:
        return LOADS(source, config_path)
    key = (f"{source.provider} {source.path} {config_path}", state.st_mtime_ns, state.st_size, state.st_ino)
    if key not in _parsed:
        _parsed[key] = pickle.dumps(LOADS(source, config_path))
    result: ConfigResult = pickle.loads(_parsed[key])
    return result


def map_if_needed(overrides: Any, defaults: Sequence[InputDefault], self_added: bool) -> DictConfig:
    """The choices that interpolations of a defaults list may name; none where it has no interpolation."""
    needed = any(not one.is_self() and one.is_interpolation() for one in defaults)
    return MAPS(overrides, list(defaults), self_added) if needed else _no_choices()


def composed_once(
    loader: ConfigLoaderImpl, config_name: str | None, overrides: list[str], run_mode: RunMode, **more: Any
) -> DictConfig:
    """A copy of what Hydra composes from these words, if all its sources are conf/ and packages."""
    sources = loader.get_sources()
    ours = all(source.scheme() in UNCHANGED or Path(source.path).resolve() == CONF for source in sources)
    if not ours or any("searchpath" in word for word in overrides):
        return COMPOSES(loader, config_name, overrides, run_mode, **more)
    places = tuple((source.provider, source.path) for source in sources)
    jobs = (version.getbase(), JobRuntime.instance().get("name"))
    key = (config_name, *overrides, run_mode, *sorted(more.items()), places, *jobs)
    if key not in _whole:
        _whole[key] = pickle.dumps(COMPOSES(loader, config_name, overrides, run_mode, **more))
    config: DictConfig = pickle.loads(_whole[key])
    config.hydra.runtime.cwd = str(Path.cwd())
    return config


def compose_quickly() -> None:
    """From now on this process, and what it forks, composes so."""
    FILES.load_config = load_once  # type: ignore[method-assign]
    defaults_list._create_interpolation_map = map_if_needed  # type: ignore[assignment]
    ConfigLoaderImpl._load_configuration_impl = composed_once  # type: ignore[method-assign,assignment]
    omegaconf.base.parse = omegaconf._utils.parse = parse_once  # type: ignore[attr-defined]


def compose_as_hydra_does() -> None:
    """Composes as a fresh program does."""
    FILES.load_config = LOADS  # type: ignore[method-assign]
    defaults_list._create_interpolation_map = MAPS
    ConfigLoaderImpl._load_configuration_impl = COMPOSES  # type: ignore[method-assign]
    omegaconf.base.parse = omegaconf._utils.parse = PARSES  # type: ignore[attr-defined]


def compose_default() -> None:
    """Composes the default sweep once and parses each file of conf/; it fills the tables of the grammar's parsers."""
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        compose("config", return_hydra_config=True)
        for source in GlobalHydra.instance().config_loader().get_sources():
            if source.scheme() not in UNCHANGED:
                for path in sorted(CONF.rglob("*.yaml")):
                    source.load_config(path.relative_to(CONF).with_suffix("").as_posix())
    GlobalHydra.instance().clear()


@cache
def _no_choices() -> DictConfig:
    return OmegaConf.create({})
