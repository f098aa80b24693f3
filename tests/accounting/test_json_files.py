"""Files written in one rename, and what a writer that was killed leaves behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dpsweep.accounting.durable_files import write_json
from dpsweep.accounting.files import STALE_SECONDS, remove_stale_temporary_files


def test_what_a_killed_writer_left_is_removed_once_nobody_can_be_writing_it(tmp_path: Path) -> None:
    write_json(tmp_path / "trials" / "a" / "result.json", {})
    old, new = tmp_path / "trials" / "a" / ".result.json.17.partial", tmp_path / ".plan.json.18.partial"
    other = tmp_path / "data.partial"
    for path in (old, new, other):
        path.write_text("half")
    past = time.time() - STALE_SECONDS - 1
    for path in (old, other):
        os.utime(path, (past, past))
    (tmp_path / ".link.partial").symlink_to(other)
    remove_stale_temporary_files(tmp_path)
    assert not old.exists()
    assert new.exists() and other.exists() and (tmp_path / "trials" / "a" / "result.json").exists()
    remove_stale_temporary_files(tmp_path / "nowhere")
