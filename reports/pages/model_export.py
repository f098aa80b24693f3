"""The export of the winner to `export/`: weights, code, configuration, declared preprocessing and a model card.

Its only sources are a release and the declaration of the winner's point, so a card never says more than the rule
discloses.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import yaml

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.folders import make_folder
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.names.stored_classes import home_of
from dpsweep.accounting.records.commitment import read_commitment
from dpsweep.accounting.records.released_files import CONFIG_FILE, WINNER_FILE
from dpsweep.accounting.records.trial_result import MODEL_FILE
from dpsweep.accounting.validation import as_written, refuse_link
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.content.base_model import BaseModel
from dpsweep.reports.content.frozen_features import FrozenFeatures
from dpsweep.reports.content.user_script import scripts_of
from dpsweep.reports.pages import model_code, preprocessing
from dpsweep.reports.pages import prediction_code as snippet
from dpsweep.reports.pages.model_card import render_card
from dpsweep.reports.pages.release import claim_of, compose, one_writer, publish, publish_announced, write_alone
from dpsweep.reports.pages.released_package import ReleaseFormat
from dpsweep.reports.statement.released_claim import ReleasedModel

FOLDER = "export"
CARD = "README.md"


def write_export(folder: Path, ledger: Ledger, formats: Sequence[ReleaseFormat] = ()) -> Path:
    """Writes the release of a sweep folder again and `export/` from it, and returns the model card's path.

    The release has the documents in `formats`.

    Raises `BadInput` and changes nothing if nothing may be released or the rule names no winner.
    """
    with one_writer(folder):
        return _write_alone(folder, ledger, formats)


def _write_alone(folder: Path, ledger: Ledger, formats: Sequence[ReleaseFormat]) -> Path:
    target, partial = refuse_link(folder / FOLDER), refuse_link(folder / f".{FOLDER}.partial")
    release = write_alone(folder, ledger, formats).parent
    sweep = table.read(folder, ledger)
    if publish_announced(sweep, partial, target, ledger):
        return target / CARD
    page = compose(sweep)
    claim = claim_of(sweep, page, read_commitment(release) or "", ReleasedModel.of(release))
    if scripts_of(sweep.plan):
        raise BadInput(
            f"Expected a model of dpsweep's to export: a script trained this one, and its files are in {release}."
        )
    if not page.best or sweep.winner is None or not (release / MODEL_FILE).exists():
        raise BadInput(f"Expected {folder} to have a winner that the selection rule discloses, and its model.")
    config = yaml.safe_load((release / CONFIG_FILE).read_text())
    with as_written(f"the sweep in {folder}"):
        winner = sweep.trial(sweep.winner).config
        dataset, features = winner["dataset"], FrozenFeatures.of(winner)
        form = preprocessing.declared(dataset, features)
        own = snippet.is_own(config["model"])
        code = snippet.snippet(config, dataset, form, MODEL_FILE, features)
        base = BaseModel.of(config)
        modules = {model_code.FILE: snippet.model_module(config["model"])} if own else {}
        if features is not None and features.package is not None:
            modules[snippet.EXTRACTOR] = home_of(features.node).rpartition(".")[0]
        if config.get("adapter"):
            modules[snippet.ADAPTER] = snippet.ADAPTER_MODULE
        code_files = {name: model_code.code_of(module) for name, module in modules.items()}
        card = render_card(page, code, own=own, form=form, features=features, base=base, claim=claim)
    shutil.rmtree(partial, ignore_errors=True)
    make_folder(partial)
    for name in (MODEL_FILE, CONFIG_FILE, WINNER_FILE, *([] if form is None else [preprocessing.FILE])):
        shutil.copyfile(release / name, partial / name)
    for name, source in code_files.items():
        (partial / name).write_text(source)
    (partial / CARD).write_text(card)
    publish(sweep, partial, target, ledger)
    return target / CARD
