"""A stranger's names in a folder are visible text in every file of a page: nothing is obeyed, turned or broken."""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dpsweep.accounting.printing import escape_invisible_except_line_breaks
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.figures.charts import Chart, draw_charts
from dpsweep.reports.pages.curator_page import write_page
from dpsweep.reports.pages.release import compose_release_page
from dpsweep.reports.pages.templates import fill_template
from dpsweep.reports.statement.methods_text import escape_tex
from tests.reports.pages.test_page import Reader

HOSTILE = "d\x1b]0;owned\x07\u202etigid\u2066\x9b31m\ud800\rx"
SHOWN = "d\\x1b]0;owned\\x07\\u202etigid\\u2066\\x9b31m\\ud800\\x0dx"
AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2, 0.4), "trainer.clip_norm": (0.5, 1)}}
TEXTS = (".html", ".svg", ".csv", ".tex", ".bib", ".json", ".md", ".yaml", ".py")


@pytest.fixture
def page(sweep_of: Callable[..., Any], tmp_path: Path) -> Path:
    """The page of a release whose names, numbers and pictures were a stranger's."""
    made = sweep_of(AXES)
    composed = compose_release_page(table.read_sweep(made.folder, made.ledger))
    assert composed.records is not None
    picture = draw_charts(HOSTILE[:1], HOSTILE, Chart(title=HOSTILE, x_label=HOSTILE, y_label="y", curves=()))
    finding = Exhibit(key="own", title=HOSTILE, note=HOSTILE, source=HOSTILE, drawings=(picture,), findings=(HOSTILE,))
    return write_page(
        replace(
            composed,
            title=HOSTILE,
            records=composed.records.assign(method=pd.Series([HOSTILE] * len(composed.records), dtype=object)),
            findings=(*composed.findings, finding),
            outcome=HOSTILE,
        ),
        tmp_path / "page",
    )


def test_every_text_file_of_a_page_is_visible(page: Path) -> None:
    files = [path for path in page.parent.iterdir() if path.suffix in TEXTS]
    assert {path.suffix for path in files} >= {".html", ".svg", ".csv", ".tex", ".json"}
    for path in files:
        content = path.read_bytes().decode()
        assert escape_invisible_except_line_breaks(content) == content, path.name
        if path.suffix == ".svg":
            ElementTree.fromstring(content)
    text = "".join(Reader(page.read_text()).texts)
    assert text.count(SHOWN) >= 4
    assert {row["method"] for row in csv.DictReader(page.with_name("trials.csv").read_text().splitlines())} == {SHOWN}


def test_tex_has_no_command_of_a_strangers() -> None:
    shown = escape_tex("\\input{/etc/passwd}^^5c\x1b\u202e%\n\\end{document}")
    assert escape_invisible_except_line_breaks(shown) == shown
    assert "\n" not in shown
    assert not re.search(r"\\(input|end)\b", shown)
    assert "\\^" not in shown
    assert "^" not in shown.replace("\\textasciicircum{}", "")


def test_a_template_escapes_for_html_after_it_is_visible() -> None:
    from dpsweep.reports.pages.templates import _escape_html_in_markdown, _make_control_characters_visible

    assert _make_control_characters_visible("<b>\x1b</b>\n") == "<b>\\x1b</b>\n"
    assert _escape_html_in_markdown("<b>\u202e</b>") == "&lt;b&gt;\\u202e&lt;/b&gt;"
    assert _make_control_characters_visible(3) == 3
    assert callable(fill_template)
