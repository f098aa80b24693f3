"""The export of the winner to `export/`: weights, code, configuration, declared preprocessing, and a model card.

A card is Markdown below the YAML that model hubs read. Its only sources are a release, with its page and its claim, and
the declaration of the winner's point, so it never says more than the rule discloses.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from dpsweep.accounting.durable_files import make_folder_and_missing_parents
from dpsweep.accounting.errors import BadInput, turn_read_errors_into_refusal
from dpsweep.accounting.files import refuse_link
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.released_files import CONFIG_FILE, WINNER_FILE
from dpsweep.accounting.records.trial_result import MODEL_FILE
from dpsweep.accounting.stored_names.stored_classes import current_path_of_class, tag_or_path_of_class
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.content.trial_config import BaseModel, FrozenFeatures, user_scripts_of_plan
from dpsweep.reports.pages import prediction_code as snippet
from dpsweep.reports.pages.curator_page import Page
from dpsweep.reports.pages.release import (
    claim_of_release_page,
    compose_release_page,
    hold_release_lock,
    record_release_and_rename_folder,
    write_release_while_locked,
)
from dpsweep.reports.pages.released_package import ReleaseFormat
from dpsweep.reports.pages.templates import fill_template
from dpsweep.reports.statement.released_claim import ReleasedClaim, ReleasedScore

ADAPTER_WEIGHTS = "adapter.safetensors"
"""The adapter and the trained head alone, for whoever has the pretrained folder."""

FROZEN: Mapping[tuple[str, str], str] = {("hf", "head"): "encoder.", ("hf_causal", "none"): "network."}
"""How the names of frozen tensors begin, by the tag of a pretrained model and `model.trained`, beside an adapter."""

TAG = "differential-privacy"
LIBRARY = "pytorch"


def render_card(
    page: Page,
    claim: ReleasedClaim | None = None,
    *,
    code: str = "",
    own: bool = False,
    form: Mapping[str, Any] | None = None,
    features: FrozenFeatures | None = None,
    base: BaseModel | None = None,
    adapter: str = "",
) -> str:
    """The card in Markdown, for a released page; the claim's numbers stand in the YAML, if it is given.

    `code` leads from a raw row to a label; a release has none, since `dpsweep export` writes it. `own` says that the
    model is one of dpsweep's; `form` is the declared preprocessing, None if it is not declared; `features` are the
    frozen features that the model reads, `base` the pretrained model that it starts from, if any. `adapter` is the code
    that builds the model from the reader's own copy of the base and the adapter's file, if there is one.
    """
    return fill_template(
        "card.md.j2",
        page=page,
        winner=page.best[0] if page.best else None,
        front=Markup(yaml.safe_dump(card_front_matter_fields(page, claim), sort_keys=False, allow_unicode=True)),
        code=Markup(code),
        own=own,
        form=form,
        features=features,
        base=base,
        adapter=Markup(adapter),
    )


def card_front_matter_fields(page: Page, claim: ReleasedClaim | None) -> dict[str, Any]:
    """What stands in the YAML above a card, under the names of the Hugging Face hub and `differential_privacy`.

    *Source*: the model card metadata of the hub, as `huggingface_hub.ModelCardData` reads it. Data declared public have
    no privacy to state.
    """
    form: dict[str, Any] = {"library_name": LIBRARY}
    if not page.nobody:
        form["tags"] = [TAG]
    if claim is not None and claim.score is not None:
        form["metrics"] = [claim.score.metric]
        form["model-index"] = [_model_index_entry(claim.account, claim.score)]
    if claim is not None and not claim.nobody:
        form["differential_privacy"] = {
            **claim.guarantee_fields,
            "scope": claim.scope,
            "rule": claim.rule,
            "report_sha256": claim.report,
        }
    return form


def _model_index_entry(account: str, score: ReleasedScore) -> dict[str, Any]:
    """The winner's score in the form of the hub's model index."""
    metric = {"type": score.metric, "name": score.name_with_basis, "value": score.value}
    result = {"task": {"type": score.task}, "dataset": {"name": account, "type": account}, "metrics": [metric]}
    return {"name": f"{account}-model", "results": [result]}


FOLDER = "export"
CARD = "README.md"


def write_release_and_export(folder: Path, ledger: Ledger, formats: Sequence[ReleaseFormat] = ()) -> Path:
    """Writes the release of a sweep folder again and `export/` from it, and returns the model card's path.

    The release has the documents in `formats`.

    Raises `BadInput` and changes nothing if nothing may be released or the rule names no winner.
    """
    with hold_release_lock(folder):
        return _write_export_while_locked(folder, ledger, formats)


def _write_export_while_locked(folder: Path, ledger: Ledger, formats: Sequence[ReleaseFormat]) -> Path:
    target, partial = refuse_link(folder / FOLDER), refuse_link(folder / f".{FOLDER}.partial")
    release = write_release_while_locked(folder, ledger, formats).parent
    sweep = table.read_sweep(folder, ledger)
    page = compose_release_page(sweep)
    claim = claim_of_release_page(sweep, page, release)
    if user_scripts_of_plan(sweep.plan):
        raise BadInput(
            f"Expected a model of dpsweep's to export: a script trained this one, and its files are in {release}."
        )
    if not page.best or sweep.winner_id is None or not (release / MODEL_FILE).exists():
        raise BadInput(f"Expected {folder} to have a winner that the selection rule discloses, and its model.")
    config = yaml.safe_load((release / CONFIG_FILE).read_text())
    with turn_read_errors_into_refusal(f"the sweep in {folder}"):
        winner = sweep.trial_with_id(sweep.winner_id).config
        dataset, features = winner["dataset"], FrozenFeatures.from_trial_config(winner)
        form = snippet.declared_preprocessing(dataset, features)
        own = snippet.is_dpsweep_model(config["model"])
        code = snippet.prediction_snippet(config, dataset, form, MODEL_FILE, features)
        base = BaseModel.from_trial_config(config)
        modules = {snippet.MODEL_CODE: snippet.name_of_module_that_builds_model(config["model"])} if own else {}
        if features is not None and features.can_be_rebuilt_by_readers:
            modules[snippet.EXTRACTOR] = current_path_of_class(features.node).rpartition(".")[0]
        if config.get("adapter"):
            modules[snippet.ADAPTER] = snippet.ADAPTER_MODULE
        started = (tag_or_path_of_class(config["model"]), str(config["model"].get("trained")))
        frozen = FROZEN.get(started) if config.get("adapter") else None
        adapter = "" if frozen is None else snippet.adapter_snippet(config, dataset, ADAPTER_WEIGHTS)
        code_files = {name: snippet.source_of_module_and_imports(module) for name, module in modules.items()}
        card = render_card(page, claim, code=code, own=own, form=form, features=features, base=base, adapter=adapter)
    shutil.rmtree(partial, ignore_errors=True)
    make_folder_and_missing_parents(partial)
    for name in (MODEL_FILE, CONFIG_FILE, WINNER_FILE, *([] if form is None else [snippet.PREPROCESSING])):
        shutil.copyfile(release / name, partial / name)
    for name, source in code_files.items():
        (partial / name).write_text(source)
    if frozen is not None:
        (partial / ADAPTER_WEIGHTS).write_bytes(
            tensors_that_training_changed((release / MODEL_FILE).read_bytes(), frozen)
        )
    (partial / CARD).write_text(card)
    record_release_and_rename_folder(sweep, partial, target, ledger)
    return target / CARD


def tensors_that_training_changed(content: bytes, frozen: str) -> bytes:
    """A file of safetensors with the adapters' tensors and those whose names do not begin with `frozen`.

    *Source*: the format's description (github.com/huggingface/safetensors): the header's length in 8 bytes, the header
    as JSON with each tensor's place, and the tensors without gaps.
    """
    length = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    kept, parts, place = {}, [], 0
    for name, tensor in sorted(header.items(), key=lambda item: item[1].get("data_offsets", [0])):
        if "data_offsets" in tensor and (not name.startswith(frozen) or ".lora_" in name):
            start, end = tensor["data_offsets"]
            kept[name] = {**tensor, "data_offsets": [place, place + end - start]}
            parts.append(body[start:end])
            place += end - start
    text = json.dumps(kept, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, *parts))
