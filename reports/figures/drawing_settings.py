"""Matplotlib under its own defaults and our style alone, whatever the user's configuration of it says.

Matplotlib reads a `matplotlibrc` from the working folder, from `MATPLOTLIBRC` or from the user's folder of
configurations, and a backend from `MPLBACKEND`, while it is imported. None of them changes a picture: everything is
drawn within `own_settings`. None of them stops a command: where an import fails under them, it is repeated without
them. A program that imports us keeps its settings for its own figures.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager
from typing import Any, TypeVar

LIBRARY = "matplotlib"
READ_AT_IMPORT = (LIBRARY, "matplotlib.font_manager", "matplotlib.style")
"""The modules that read the user's configuration."""

SETTINGS = ("MATPLOTLIBRC", "MPLBACKEND", "MPLCONFIGDIR")
DATE = "SOURCE_DATE_EPOCH"
"""Our files have no dates, and matplotlib stops at a value that is no number."""

NOT_OURS = ("backend", "backend_fallback", "interactive", "toolbar")
"""Settings of windows: no figure of ours has one, and a backend is loaded where it is set."""

Made = TypeVar("Made")


def import_matplotlib() -> None:
    """Imports matplotlib, without the user's configuration if it cannot be imported with it.

    Its complaints about a configuration are not shown: nothing here depends on it.
    """
    with _silent_library():
        try:
            _import_all()
        except (OSError, ValueError, RuntimeError):  # no text, no permission, no such backend, no place for its cache
            for name in [name for name in sys.modules if name.partition(".")[0] == LIBRARY]:
                del sys.modules[name]
            with _no_configuration():
                _import_all()


@contextmanager
def own_settings(style: Mapping[Any, Any], name: str = "") -> Iterator[None]:
    """Within it matplotlib has its own defaults and this style; `name` is the seed of the ids in an SVG file.

    A glyph that the font lacks is drawn as a box, without a warning: names may be in any script.
    """
    import matplotlib as mpl

    settings: dict[Any, Any] = {key: value for key, value in mpl.rcParamsDefault.items() if key not in NOT_OURS}
    settings |= {"text.parse_math": False, **style} | ({"svg.hashsalt": name} if name else {})
    with _removed(DATE), _silent_library(), warnings.catch_warnings(), mpl.rc_context(settings):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def drawn(draw: Callable[[], Made], failed: Callable[[str], Made]) -> Made:
    """What `draw` draws, or what `failed` makes of the reason why it cannot be drawn.

    `draw` is given finished numbers: no price is computed in it, so no contradiction of prices ends here.
    """
    try:
        return draw()
    except Exception as cause:  # noqa: BLE001 - whatever a drawing library raises, the page of a charged sweep stands
        return failed(f"{type(cause).__name__}: {cause}")


def _import_all() -> None:
    for name in READ_AT_IMPORT:
        importlib.import_module(name)


@contextmanager
def _no_configuration() -> Iterator[None]:
    """Within it an import of matplotlib has no settings but its own; its cache of fonts is thrown away."""
    with ExitStack() as settings:
        empty = settings.enter_context(tempfile.TemporaryDirectory())
        for name in SETTINGS:
            settings.enter_context(_removed(name))
        settings.enter_context(chdir(empty))
        os.environ["MPLCONFIGDIR"] = empty
        yield


@contextmanager
def _removed(name: str) -> Iterator[None]:
    """Within it the environment has no such variable."""
    value = os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


@contextmanager
def _silent_library() -> Iterator[None]:
    """Within it matplotlib logs errors alone."""
    log = logging.getLogger(LIBRARY)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
