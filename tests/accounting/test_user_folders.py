"""The user's folders are those that platformdirs names, on each system."""

from __future__ import annotations

import sys
from pathlib import PureWindowsPath

import pytest
from platformdirs import macos, unix, windows

from dpsweep.accounting import durable_files
from dpsweep.accounting.durable_files import user_folder

SYSTEMS = {"linux": unix.Unix, "darwin": macos.MacOS, "win32": windows.Windows}


@pytest.mark.parametrize("named", ["", "relative", "/elsewhere", None])
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("kind", ["data", "config", "state"])
def test_a_folder_is_where_platformdirs_has_it(
    kind: str, system: str, named: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_files.sys, "platform", system)
    monkeypatch.setattr(windows, "_resolve_win_folder", windows.get_win_folder_from_env_vars, raising=False)
    monkeypatch.setenv("LOCALAPPDATA", "/Users/ada/AppData/Local")
    monkeypatch.setenv("HOME", "/home/ada")
    variable = f"XDG_{kind.upper()}_HOME"
    monkeypatch.delenv(variable, raising=False)
    if named is not None:
        monkeypatch.setenv(variable, named)
    theirs = str(getattr(SYSTEMS[system]("dpsweep"), f"user_{kind}_dir"))
    assert PureWindowsPath(user_folder(kind)) == PureWindowsPath(theirs)
    assert sys.platform == system
