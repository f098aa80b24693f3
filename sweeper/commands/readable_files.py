"""Configuration files that cannot be read: one sentence with the file and the line, before anything is charged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.validation import in_short

UNREADABLE = (yaml.YAMLError, ValueError, RecursionError)
"""No YAML, no UTF-8 or a number of too many digits, and lists within lists within lists."""

Load = Callable[[Any, str], Any]


@contextmanager
def files_by_name() -> Iterator[None]:
    """Within it, an error of reading a configuration file is a `BadInput` that names the file."""
    Plugins.instance()  # registers the kinds of sources
    files = SourcesRegistry.instance().resolve("file")
    places: tuple[tuple[Any, Callable[[Any, str], str]], ...] = ((files, _file), (ConfigRepository, _choice))
    before = [kind.load_config for kind, _ in places]
    for (kind, name), load in zip(places, before, strict=True):
        kind.load_config = _named(load, name)
    try:
        yield
    finally:
        for (kind, _), load in zip(places, before, strict=True):
            kind.load_config = load


def _named(load: Load, name: Callable[[Any, str], str]) -> Load:
    def load_config(self: Any, config_path: str) -> ConfigResult | None:
        try:
            result: ConfigResult | None = load(self, config_path)
        except BadInput:
            raise
        except UNREADABLE as cause:
            place, reason = name(self, config_path), _reason(cause)
            raise BadInput(f"Expected {place}{_line(cause)} to be a configuration in YAML, got: {reason}.") from cause
        return result

    return load_config


def _file(source: ConfigSource, config_path: str) -> str:
    """The path of a file of this folder."""
    return str(Path(source.path, source._normalize_file_name(config_path)))


def _choice(repository: ConfigRepository, config_path: str) -> str:
    """A file by its group and its name: it could be read, and its defaults make no sense."""
    return f"{config_path}.yaml"


def _line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return "" if mark is None else f", line {mark.line + 1},"


def _reason(error: Exception) -> str:
    """What a parser says, without the places that follow it."""
    if isinstance(error, yaml.MarkedYAMLError):
        return " ".join(", ".join(part for part in (error.context, error.problem) if part).split())
    if isinstance(error, yaml.reader.ReaderError):
        return f"{error.reason}, at its character {error.position + 1}"
    return "lists or mappings that are nested too deeply" if isinstance(error, RecursionError) else in_short(error)
