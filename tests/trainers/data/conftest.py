"""The user's data folder, and a local stand-in for the places where data sets are published."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Publisher:
    """A web server on this machine: what it serves, and which files it was asked for."""

    url: str
    folder: Path
    asked: list[str] = field(default_factory=list)


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder and notes what is asked for instead of printing it."""

    def __init__(self, *args: Any, asked: list[str], **kwargs: Any) -> None:
        self._asked = asked
        super().__init__(*args, **kwargs)

    def do_GET(self) -> None:
        self._asked.append(self.path.lstrip("/"))
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    """An empty folder and the address that serves it."""
    folder = tmp_path / "published"
    folder.mkdir()
    asked: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder), asked=asked)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Publisher(url=f"http://127.0.0.1:{server.server_port}/", folder=folder, asked=asked)
        server.shutdown()
        thread.join()


@pytest.fixture
def nowhere() -> str:
    """An address that refuses every connection."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        port = server.server_port
    return f"http://127.0.0.1:{port}/"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Downloads are kept apart from the user's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dpsweep"


@pytest.fixture
def user_data() -> Path:
    """The folder with the official files, where this machine has one."""
    if not (folder := os.environ.get("DPSWEEP_DATA")):
        pytest.skip("DPSWEEP_DATA names no folder with official files")
    return Path(folder)
