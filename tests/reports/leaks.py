"""What a release holds, as a reader with any tool would see it, and what only the curator may know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.records.trial_result import TrialResult


def contents(folder: Path) -> bytes:
    """Every byte of a sweep's release, and the words in its PDF files."""
    paths = [path for path in sorted((folder / "release").rglob("*")) if path.is_file()]
    words = [words_of(path).encode() for path in paths if path.suffix == ".pdf"]
    return b"\n".join([path.read_bytes() for path in paths] + words)


def words_of(pdf: Path) -> str:
    """The texts of a PDF file, as a reader copies them."""
    pypdf = pytest.importorskip("pypdf", reason="needs pip install 'dpsweep[dev]'")
    return "\n".join(page.extract_text() for page in pypdf.PdfReader(pdf).pages)


def secrets_of(made: Any) -> set[str]:
    """All that only the curator may know: what the ledger and the results say besides prices and scores."""
    found = {made.plan.id, str(made.folder), made.folder.parent.name, str(made.ledger.path)}
    for entry in made.ledger.statement(made.plan.account).entries:
        found |= {entry.digest, entry.digest[:12], entry.at, entry.at[:10], f'"seq": {entry.seq}'}
    for trial in made.plan.trials:
        found.add(trial.id)
        result = TrialResult.read(made.folder / "trials" / trial.id)
        if result is not None:
            found |= {str(batch) for batch in result.curator["batch_sizes"].values()}
            found |= {f"{result.seconds}", f"{result.seconds:.4g}", f"{result.seconds:.1f} s", result.started}
            found |= {result.error} - {None}
    return found | {"seconds", ">killed<", "attempt", "out of memory", "batch_sizes"}
