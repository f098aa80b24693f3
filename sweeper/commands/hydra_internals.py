"""What dpsweep takes from inside Hydra, for its series 1.3 and 1.4 alike; no other module imports `hydra._internal`.

Hydra offers no public way to compose a request without a program, to take the mode from a flag, or to say which file
could not be read. Each of these is here once, so that another series of Hydra changes this module alone.

Hydra 1.4 warns of what Hydra 1.5 will refuse, in sentences for the authors of a program. Two are not passed on to its
users. `version_base` is given to Hydra 1.3 alone. A callback of the user's is built without a list of allowed classes,
as on 1.3, where Hydra's own list of refused ones holds; pyproject.toml excludes Hydra 1.5.
"""

from __future__ import annotations

import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra._internal import config_loader_impl, defaults_list, utils
from hydra._internal import hydra as hydra_program
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.hydra import Hydra
from hydra._internal.sources_registry import SourcesRegistry
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.tags import CONF

_SERIES_1_3 = hydra.__version__.startswith("1.3.")
VERSION_BASE: Mapping[str, Any] = {"version_base": "1.3"} if _SERIES_1_3 else {}
"""The behaviour that dpsweep is written for: Hydra 1.3 has to be asked for it, and 1.4 has no other."""

_REPLACE: Mapping[str, Any] = {} if _SERIES_1_3 else {"replace": True}
"""Hydra 1.3 replaces a stored configuration, and 1.4 has to be asked to."""

NO_LIST_OF_ALLOWED_CLASSES = r"hydra\.utils\.instantiate\(\) resolved"
"""How Hydra 1.4 begins its warning of an object that it builds without such a list."""

NODE_OF_DEFAULTS = defaults_list._create_defaults_tree_impl.__code__
"""The code whose frames stand for the nodes of a defaults list, each a file, in `root`."""

Load = Callable[[Any, str], Any]

_OF_USER = ("command-line", "hydra.searchpath in command-line", "hydra.searchpath in main")
"""The providers of configurations from folders that neither dpsweep nor an installed distribution has named."""


def parse_hydra_options(words: Sequence[str]) -> tuple[Namespace, list[str]]:
    """Hydra's own options among these words, and the options that it does not know; raises `ArgumentError`."""
    parser = get_args_parser()
    parser.exit_on_error = False
    return parser.parse_known_intermixed_args(list(words))


def store_config_of_group(group: str, name: str, node: Mapping[str, Any]) -> None:
    """Stores the configuration that the choice `name` of this group stands for, or replaces it."""
    ConfigStore.instance().store(group=group, name=name, node=node, package="_global_", **_REPLACE)


def run_hydra_application(task: TaskFunction, folder: Path, *, multirun: bool) -> None:
    """Runs Hydra on the words of `sys.argv`, with the configurations of this folder.

    With `multirun`, which the words say too, Hydra need not compose a whole configuration to read its mode there. Hydra
    raises exceptions in place of printing them, by no environment variable that children would inherit.
    """
    get_mode, report = Hydra.get_mode, utils.run_and_report
    for module in (utils, hydra_program):
        module.run_and_report = lambda work: work()  # type: ignore[attr-defined]
    if multirun:
        Hydra.get_mode = lambda *_, **__: RunMode.MULTIRUN  # type: ignore[method-assign]
    try:
        with _callbacks_without_list_of_allowed_classes():
            hydra.main(config_path=str(folder), config_name="config", **VERSION_BASE)(task)()
    finally:
        Hydra.get_mode = get_mode  # type: ignore[method-assign]
        for module in (utils, hydra_program):
            module.run_and_report = report  # type: ignore[attr-defined]


def compose_for_sweep(folder: Path, words: Sequence[str]) -> tuple[DictConfig, HydraContext]:
    """The configuration of a sweep with these words, composed in this folder, and Hydra's context for its jobs."""
    program = Hydra.create_main_hydra2("dpsweep", create_config_search_path(str(folder)))
    config = program.compose_config("config", list(words), RunMode.MULTIRUN, with_log_configuration=False)
    with _callbacks_without_list_of_allowed_classes():
        return config, HydraContext(config_loader=program.config_loader, callbacks=Callbacks(config))


def compose_config(folder: Path, words: Sequence[str]) -> DictConfig:
    """The configuration with these words, composed in this folder, without Hydra's own part."""
    with hydra.initialize_config_dir(config_dir=str(folder), **VERSION_BASE):
        return hydra.compose("config", overrides=list(words))


@contextmanager
def _callbacks_without_list_of_allowed_classes() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=NO_LIST_OF_ALLOWED_CLASSES)
        yield


@contextmanager
def wrap_reading_of_configurations(
    wrap_load: Callable[[Load, Callable[[Any, str], str]], Load],
    wrap_list_of_defaults: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Iterator[None]:
    """Within it Hydra reads configurations through these wrappers, and those of the user's own set no key of Hydra's.

    `wrap_load` wraps a function that reads one configuration, and is given another one that names its file.
    """
    Plugins.instance()  # registers the kinds of sources
    files = SourcesRegistry.instance().resolve("file")
    places: tuple[tuple[Any, Callable[[Any, str], str]], ...] = (
        (files, _config_file_path),
        (ConfigRepository, _config_name_with_yaml_suffix),
    )
    before = [kind.load_config for kind, _ in places]
    loader: Any = config_loader_impl
    list_defaults, load_into_package = loader.create_defaults_list, loader.ConfigLoaderImpl._load_single_config

    def load_single_config(self: Any, default: Any, repo: Any) -> ConfigResult:
        result: ConfigResult = load_into_package(self, default=default, repo=repo)
        if not default.primary and not default.config_path.startswith("hydra/"):
            refuse_hydra_keys(result, default.config_path)
        return refuse_hydra_keys_of_user(result, default.config_path)

    for (kind, name), load in zip(places, before, strict=True):
        kind.load_config = wrap_load(load, name)
    loader.create_defaults_list = wrap_list_of_defaults(list_defaults)
    loader.ConfigLoaderImpl._load_single_config = load_single_config
    try:
        yield
    finally:
        loader.create_defaults_list = list_defaults
        loader.ConfigLoaderImpl._load_single_config = load_into_package
        for (kind, _), load in zip(places, before, strict=True):
            kind.load_config = load


def refuse_hydra_keys_of_user(result: ConfigResult, config_path: str) -> ConfigResult:
    """A configuration; raises `BadInput` if it is the user's own and sets keys below `hydra`.

    Hydra would import and call what they name, and write where they say, before anything is checked.
    """
    if result.provider in _OF_USER or (result.provider == "main" and result.path != f"file://{CONF}"):
        refuse_hydra_keys(result, config_path)
    return result


def refuse_hydra_keys(result: ConfigResult, config_path: str) -> None:
    """Raises `BadInput` if a configuration sets keys below `hydra`."""
    if "hydra" in result.config:
        raise BadInput(
            f"Expected {result.path.removeprefix('file://')}/{config_path}.yaml to set nothing below hydra: Hydra runs "
            "what its keys name, so that they are for the command line alone."
        )


def _config_file_path(source: ConfigSource, config_path: str) -> str:
    """The path of a file of this folder."""
    return str(Path(source.path, source._normalize_file_name(config_path)))


def _config_name_with_yaml_suffix(repository: ConfigRepository, config_path: str) -> str:
    """A file by its group and its name: it could be read, and its defaults make no sense."""
    return f"{config_path}.yaml"


def config_files_of_name(repository: object, config_path: str) -> list[Path]:
    """The files of this name in the program's folder and in those that the command names, in Hydra's order of search.

    Hydra reads the first one. A single source has none.
    """
    return [
        Path(source.path, f"{config_path.removesuffix('.yaml')}.yaml")
        for source in (repository.get_sources() if isinstance(repository, ConfigRepository) else ())
        if source.scheme() == "file"
        and source.provider.startswith(("main", "command-line", "hydra.searchpath"))
        and source.is_config(config_path)
    ]
