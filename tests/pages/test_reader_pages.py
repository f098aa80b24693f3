"""Pages for newcomers, data-protection officers and programmers are true: their keys and names exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from dpsweep.sweeper.planning.keys import documented_keys

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = ("first_data", "growing_data", "sharp_edges", "coming_from", "data_protection_officer", "platforms")
CHOICES = {path.name for path in (ROOT / "conf").iterdir() if path.is_dir()}
OUTSIDE = {"hydra/launcher", "hydra.launcher.n_jobs"}


@pytest.mark.parametrize("name", ["api", "data_protection_officer"])
def test_what_is_generated_is_as_the_program_is(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text()
    if name == "api":
        assert runpy.run_path(str(DOCS / "generators" / "api.py"))["render"]() == page, "python docs/generators/api.py"
    else:
        assert runpy.run_path(str(DOCS / "generators" / "odds.py"))["insert"](page) == page, (
            "python docs/generators/odds.py"
        )


def keys(page: str) -> set[str]:
    """The keys of our configuration that a page gives a value to, or names with a dot."""
    code = " ".join(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page, flags=re.DOTALL)))
    words = re.findall(r"(?<![\w./-])([a-z_]+(?:[./][a-z_]+)*)=", code)
    return {word for word in words if "." in word or "/" in word or word in CHOICES}


@pytest.mark.parametrize("name", PAGES)
def test_every_key_of_a_page_exists(name: str) -> None:
    known = {*documented_keys(), *CHOICES, *OUTSIDE}
    assert keys((DOCS / f"{name}.md").read_text()) <= known


def test_keys_are_found_on_a_page() -> None:
    assert keys("`search=tpe search.trials=20` and `load_if_exists=True`, `hydra/launcher=x`") == {
        *("search", "search.trials", "hydra/launcher")
    }


def test_our_side_of_each_table_names_our_keys() -> None:
    known = {*documented_keys(), *CHOICES, *OUTSIDE}
    rows = re.findall(r"^\| .* \| (.*) \|$", (DOCS / "coming_from.md").read_text(), re.MULTILINE)
    dotted = {word for row in rows for word in re.findall(r"`((?:privacy|sampler|trainer|compute|search)\.\w+)", row)}
    assert dotted
    assert dotted <= known
