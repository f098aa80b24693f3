"""The winner for others to use, in `export/`: its weights, its configuration and a model card.

All of it is taken from the page and the files of a release, so a card never says more than the rule discloses.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from accounting.errors import BadInput
from accounting.ledger import Ledger
from accounting.reading import as_written, refuse_link, whole
from accounting.released_winner import CONFIG_FILE
from accounting.result import MODEL_FILE
from accounting.stored import fields_of, home_of
from reports import table
from reports.page import Page
from reports.release import compose, write_release
from reports.rendering import fill
from reports.table import Sweep

FOLDER = "export"
CARD = "README.md"


def write_export(folder: Path, ledger: Ledger) -> Path:
    """Makes the release of a sweep folder anew, and `export/` of it, and returns the model card's path.

    Raises `BadInput`, and leaves what is there, where nothing may be released, and where the rule names no winner.
    """
    target, partial = refuse_link(folder / FOLDER), refuse_link(folder / f".{FOLDER}.partial")
    release = write_release(folder, ledger).parent
    sweep = table.read(folder, ledger)
    page = compose(sweep)
    if not page.best or not (release / MODEL_FILE).exists():
        raise BadInput(f"Expected {folder} to have a winner that may be shown, and its model.")
    config = yaml.safe_load((release / CONFIG_FILE).read_text())
    with as_written(f"the sweep in {folder}"):
        card = render_card(page, _call(config, sweep))
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name in (MODEL_FILE, CONFIG_FILE):
        shutil.copyfile(release / name, partial / name)
    (partial / CARD).write_text(card)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    return target / CARD


def render_card(page: Page, call: str) -> str:
    """The card in Markdown, for a released page and the call that makes its model."""
    winner, code = page.best[0], Markup(call)
    return fill("card.md.j2", page=page, winner=winner, call=code, file=MODEL_FILE)


def _call(config: Mapping[str, Any], sweep: Sweep) -> str:
    """Two lines of Python that make the model; shape and classes are the data set's public declaration."""
    module, _, factory = home_of(config["model"]).rpartition(".")
    dataset = sweep.plan.trials[0].config["dataset"]
    given = fields_of(config["model"])
    if strange := [key for key in given if not key.isidentifier()]:
        raise BadInput(f"Expected model.{strange[0]} to be the name of an argument.")
    parts = [
        str(tuple(whole("dataset.shape", length) for length in dataset["shape"])),
        str(whole("dataset.classes", dataset["classes"])),
        *(f"{key}={value!r}" for key, value in given.items()),
    ]
    return f"from {module} import {factory}\n\nmodel = {factory}({', '.join(parts)})"
