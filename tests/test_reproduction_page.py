"""docs/reproduction.md names the figures that there are, and those alone."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

from dpsweep.reports.reproduction.finding import Trained, find, known

PAGE = (Path(__file__).parent.parent / "docs" / "reproduction.md").read_text()


def first_cells(heading: str) -> list[str]:
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in part.splitlines() if line.startswith("| `")))


def test_one_line_per_figure_and_none_that_is_missing() -> None:
    assert tuple(sorted(first_cells("Figures"))) == known()
    assert not set(first_cells("Missing")) & set(known())


def test_what_needs_no_training_is_said_to() -> None:
    for line in PAGE.splitlines():
        if (name := re.match(r"\| `(\w+)` \| [YMB]", line)) and name[1] in known():
            assert line.endswith("| none |") is not isinstance(find(name[1]), Trained)


def test_every_command_of_the_page_names_a_figure_and_a_scale_that_exist() -> None:
    from dpsweep.sweeper.commands.experiment_scale import FULL, REDUCED

    assert set(re.findall(r"(?:FIGURE|experiment)=([a-d]_\w+)", PAGE)) <= set(known())
    assert set(re.findall(r"(?:SCALE|scale)=(\w+)", PAGE)) <= {FULL, *REDUCED}


def test_the_gallery_keeps_what_was_not_made_again(tmp_path: Path) -> None:
    script = runpy.run_path(str(Path(__file__).parent.parent / "docs" / "gallery.py"))
    assert script["insert"](PAGE, script["gallery"]({}, PAGE)) == PAGE
    findings = {
        "title": "T",
        "source": "S",
        "findings": [{"claim": "C", "numbers": "N", "verdict": "undecided", "scope": ""}],
    }
    (tmp_path / "findings.json").write_text(json.dumps(findings))
    made = script["insert"](PAGE, script["gallery"]({"b_fig9": tmp_path}, PAGE))
    assert "| C | N | **undecided** |" in made
    assert len(script["sections"](made)) == len(known())
    assert "MA composes up to" not in script["sections"](made)["b_fig9"]
