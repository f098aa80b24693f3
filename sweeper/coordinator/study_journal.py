"""An Optuna journal that is kept in memory and written once, all of it or nothing.

Optuna's own file backend flushes every line to the disk, and a killed process may leave half a line or a lock behind.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from dpsweep.accounting.durable_files import write_bytes


class StudyJournal(BaseJournalBackend):
    """The lines of a journal: a backend of Optuna's `JournalStorage`."""

    def __init__(self, lines: list[dict[str, Any]] | None = None) -> None:
        self._lines = lines or []
        self._stored = len(self._lines)

    @classmethod
    def from_file_or_empty(cls, path: Path) -> StudyJournal:
        """The lines of a file, none if there is no file."""
        return cls([json.loads(line) for line in path.read_text().splitlines()] if path.exists() else [])

    def write_file_if_lines_added(self, path: Path) -> None:
        """Writes all lines, for the owner alone, if lines were added."""
        if len(self._lines) > self._stored:
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in self._lines)
            write_bytes(path, text.encode(), mode=0o600)

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """The lines from this number on."""
        yield from self._lines[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds lines."""
        self._lines.extend(logs)
