"""What a machine's own configuration says of pictures costs no command, and changes no byte of a release."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of

Program = Callable[..., subprocess.CompletedProcess[str]]
SWEEP = ("dataset=digits", "trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=1", "steps=2", "privacy.epsilon=8")
NO_LATEX = b"text.usetex: True\nfont.family: serif\nsavefig.dpi: 20\nsvg.fonttype: path\n"
PICTURES = (".png", ".svg", ".pdf")


@pytest.mark.long
@TRAINS
def test_a_matplotlibrc_costs_no_page_and_changes_no_release(
    program: Program, fresh_program: Program, tmp_path: Path
) -> None:
    folder = folder_of(program(*SWEEP))
    released = []
    for content in (None, NO_LATEX, bytes(range(128, 256))):
        if content is not None:
            (tmp_path / "matplotlibrc").write_bytes(content)
        for verb in ("report", "release"):
            done = fresh_program(verb, str(folder), module="dpsweep.sweeper.commands.cli")
            assert (done.returncode, done.stderr) == (0, "")
        files = (path for path in sorted((folder / "release").iterdir()) if path.suffix in PICTURES)
        released.append({path.name: path.read_bytes() for path in files if path.name != "statement.pdf"})
    assert len(released[0]) >= 6
    assert released[0] == released[1] == released[2]
