"""Hydra's composing without the work that repeats: thousands of tests compose from the same hundred files of conf/.

A file is parsed again only where it has changed, and so is a value with interpolations; the table of a file's
interpolations is made only where the file has any. If conf/ alone is composed from, the same choices of files are
listed and merged once, and the same words are composed once.
Configurations are kept as pickles, of which a copy is made in a fifth of the time that `deepcopy` takes. What Hydra
composes stays the same, which tests/test_composing.py shows; programs that are started fresh compose without this.
Hydra 1.4 composes in other steps: there files and values are parsed once, and nothing else is kept.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import omegaconf
from hydra import compose, initialize_config_dir, version
from hydra._internal import config_loader_impl, defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
from hydra._internal.defaults_list import DefaultsList, Overrides
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.default_element import InputDefault, ResultDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, grammar_parser

from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE

Plugins.instance()  # imports the sources and registers them
FILES = SourcesRegistry.instance().resolve("file")
LOADS = FILES.load_config
MAPS: Any = getattr(defaults_list, "_create_interpolation_map", None)
COMPOSES = ConfigLoaderImpl._load_configuration_impl
LISTS = config_loader_impl.create_defaults_list
MERGES = ConfigLoaderImpl._compose_config_from_defaults_list
PARSES = grammar_parser.parse
UNCHANGED = ("pkg", "structured")
"""Sources of configurations that come with a package, or are classes."""

_parsed: dict[tuple[str, int, int, int], bytes] = {}
_listed: dict[tuple[Any, ...], bytes] = {}
_merged: dict[tuple[Any, ...], bytes] = {}
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


def listed_once(
    repo: IConfigRepository, config_name: str | None, overrides_list: list[Override], **more: Any
) -> DefaultsList:
    """A copy of the list of files that these choices make, whatever the other words say."""
    if not _ours(repo.get_sources()):
        return LISTS(repo, config_name, overrides_list, **more)
    overrides = Overrides(repo=repo, overrides_list=overrides_list)
    values = {id(one) for one in overrides.config_overrides}
    choices = (one.input_line for one in overrides_list if id(one) not in values)
    key = (config_name, *choices, *sorted(more.items()), *_places(repo.get_sources()))
    if key not in _listed:
        found = LISTS(repo, config_name, overrides_list, **more)
        _listed[key] = pickle.dumps((found.defaults, found.defaults_tree, found.overrides.known_choices))
    defaults, tree, overrides.known_choices = pickle.loads(_listed[key])
    return DefaultsList(
        defaults=defaults, config_overrides=overrides.config_overrides, defaults_tree=tree, overrides=overrides
    )


def merged_once(loader: ConfigLoaderImpl, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
    """A copy of these files' merged contents."""
    if not _ours(repo.get_sources()):
        return MERGES(loader, defaults, repo)
    key = (*(astuple(one) for one in defaults), *_places(repo.get_sources()))
    if key not in _merged:
        _merged[key] = pickle.dumps(MERGES(loader, defaults, repo))
    config: DictConfig = pickle.loads(_merged[key])
    return config


def composed_once(
    loader: ConfigLoaderImpl, config_name: str | None, overrides: list[str], run_mode: RunMode, **more: Any
) -> DictConfig:
    """A copy of what Hydra composes from these words, if all its sources are conf/ and packages."""
    if not _ours(loader.get_sources()) or any("searchpath" in word for word in overrides):
        return COMPOSES(loader, config_name, overrides, run_mode, **more)
    jobs = (version.getbase(), JobRuntime.instance().get("name"))
    key = (config_name, *overrides, run_mode, *sorted(more.items()), *_places(loader.get_sources()), *jobs)
    if key not in _whole:
        _whole[key] = pickle.dumps(COMPOSES(loader, config_name, overrides, run_mode, **more))
    config: DictConfig = pickle.loads(_whole[key])
    config.hydra.runtime.cwd = str(Path.cwd())
    return config


def _ours(sources: Sequence[ConfigSource]) -> bool:
    """Whether all sources are conf/ and packages."""
    return all(source.scheme() in UNCHANGED or Path(source.path).resolve() == CONF for source in sources)


def _places(sources: Sequence[ConfigSource]) -> Iterator[tuple[str, str]]:
    return ((source.provider, source.path) for source in sources)


def compose_quickly() -> None:
    """From now on this process, and what it forks, composes so."""
    FILES.load_config = load_once  # type: ignore[method-assign]
    omegaconf.base.parse = omegaconf._utils.parse = parse_once  # type: ignore[attr-defined]
    if MAPS is None:
        return
    defaults_list._create_interpolation_map = map_if_needed  # type: ignore[assignment]
    ConfigLoaderImpl._load_configuration_impl = composed_once  # type: ignore[method-assign,assignment]
    ConfigLoaderImpl._compose_config_from_defaults_list = merged_once  # type: ignore[method-assign,assignment]
    config_loader_impl.create_defaults_list = listed_once  # type: ignore[assignment]


def compose_as_hydra_does() -> None:
    """Composes as a fresh program does."""
    FILES.load_config = LOADS  # type: ignore[method-assign]
    omegaconf.base.parse = omegaconf._utils.parse = PARSES  # type: ignore[attr-defined]
    if MAPS is None:
        return
    defaults_list._create_interpolation_map = MAPS
    ConfigLoaderImpl._load_configuration_impl = COMPOSES  # type: ignore[method-assign]
    ConfigLoaderImpl._compose_config_from_defaults_list = MERGES  # type: ignore[method-assign]
    config_loader_impl.create_defaults_list = LISTS


OFTEN = ((), *(("dataset=digits", "accountant=rdp", f"trainer={name}") for name in ("dpsgd", "dpnsgd")))
"""Words that many programs are given."""


def compose_default() -> None:
    """Composes what is often asked for, and parses each file of conf/; it fills the tables of the grammar's parsers."""
    with initialize_config_dir(config_dir=str(CONF), **VERSION_BASE):
        for words in OFTEN:
            compose("config", list(words), return_hydra_config=True)
        for source in GlobalHydra.instance().config_loader().get_sources():
            if source.scheme() not in UNCHANGED:
                for path in sorted(CONF.rglob("*.yaml")):
                    source.load_config(path.relative_to(CONF).with_suffix("").as_posix())
    GlobalHydra.instance().clear()


@cache
def _no_choices() -> DictConfig:
    return OmegaConf.create({})
