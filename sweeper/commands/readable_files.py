"""Configuration files that cannot be read: one sentence with the file and the line, before anything is charged."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hydra.plugins.config_source import ConfigResult
from omegaconf import OmegaConf
from omegaconf.errors import GrammarParseError

from dpsweep.accounting.errors import BadInput, exception_as_short_line
from dpsweep.sweeper.commands.hydra_internals import (
    NODE_OF_DEFAULTS,
    Load,
    config_files_of_name,
    refuse_hydra_keys_of_user,
    wrap_reading_of_configurations,
)

UNREADABLE = (yaml.YAMLError, ValueError, RecursionError, GrammarParseError)
"""No YAML, no UTF-8 or a number of too many digits, lists within lists within lists, and `${` without its end."""


def keys_and_values_in_file(name: str) -> dict[str, Any]:
    """The keys and values of a file of settings; raises `BadInput` for a file that holds none."""
    try:
        form = OmegaConf.to_container(OmegaConf.load(name))
    except (OSError, *UNREADABLE) as cause:
        raise BadInput(f"Expected {name} to be a file in YAML: {exception_as_short_line(cause)}.") from cause
    if not isinstance(form, dict) or not form:
        raise BadInput(f"Expected {name} to have keys and their values, as in steps: 100.")
    return {str(key): value for key, value in form.items()}


@contextmanager
def name_file_in_config_errors() -> Iterator[None]:
    """Within it, an error of reading a configuration file is a `BadInput` that names the file."""
    with wrap_reading_of_configurations(_wrap_config_loader_to_name_bad_file, _wrap_defaults_list_to_name_circle):
        yield


def _wrap_config_loader_to_name_bad_file(load: Load, name: Callable[[Any, str], str]) -> Load:
    def load_config(self: Any, config_path: str) -> ConfigResult | None:
        _refuse_file_never_read(config_files_of_name(self, config_path))
        try:
            result: ConfigResult | None = load(self, config_path)
        except BadInput:
            raise
        except UNREADABLE as cause:
            place, reason = name(self, config_path), _parser_message_without_position(cause)
            raise BadInput(
                f"Expected {place}{_line_number_text(cause)} to be a configuration in YAML, got: {reason}."
            ) from cause
        return result and refuse_hydra_keys_of_user(result, config_path)

    return load_config


def _refuse_file_never_read(files: Sequence[Path]) -> None:
    """Raises `BadInput` for a user's file that Hydra passes over, since another folder has one of its name."""
    for other in files[1:]:
        if other.read_bytes() != files[0].read_bytes():
            raise BadInput(f"Expected {other} to have another name, since {files[0]} is read in its place.")


def _wrap_defaults_list_to_name_circle(list_defaults: Callable[..., Any]) -> Callable[..., Any]:
    def create_defaults_list(*arguments: Any, **named: Any) -> Any:
        try:
            return list_defaults(*arguments, **named)
        except RecursionError as cause:
            circle = " -> ".join(f"{path}.yaml" for path in _files_in_defaults_circle(cause))
            raise BadInput(f"Expected the defaults of no configuration to include itself, got: {circle}.") from cause

    return create_defaults_list


def _files_in_defaults_circle(error: RecursionError) -> list[str]:
    """The files, each with the next one in its defaults, up to the first one that is there again."""
    path: list[str] = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is NODE_OF_DEFAULTS:
            file = frame.f_locals["root"].node.get_config_path()
            if file in path:
                return [*path[path.index(file) :], file]
            path.append(file)
    return path


def _line_number_text(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return "" if mark is None else f", line {mark.line + 1},"


def _parser_message_without_position(error: Exception) -> str:
    """What a parser says, without the places that follow it."""
    if isinstance(error, yaml.MarkedYAMLError):
        return " ".join(", ".join(part for part in (error.context, error.problem) if part).split())
    if isinstance(error, yaml.reader.ReaderError):
        return f"{error.reason}, at its character {error.position + 1}"
    if isinstance(error, GrammarParseError):
        return str(error).splitlines()[0]
    return (
        "lists or mappings that are nested too deeply"
        if isinstance(error, RecursionError)
        else exception_as_short_line(error).removesuffix(".")
    )
