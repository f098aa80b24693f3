"""The export: a model that others can load, and a card that says no more than the release does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, save, save_file

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.trial_result import MODEL_FILE
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.pages.model_export import (
    CARD,
    render_card,
    tensors_that_training_changed,
    write_release_and_export,
)
from dpsweep.reports.pages.prediction_code import declared_preprocessing, prediction_snippet
from dpsweep.reports.pages.release import compose_release_page
from dpsweep.trainers.models.fully_connected import logistic
from tests.alone import answers, code_of

AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2), "trainer.clip_norm": (0.5, 1)}}
SweepOf = Callable[..., Any]


def with_models(made: Any) -> Any:
    """The sweep, each of whose trials kept a model that may be told from the others."""
    for number, trial in enumerate(made.plan.trials):
        model = logistic((1, 8, 8), 10)
        torch.nn.init.normal_(model[1].weight, generator=torch.Generator().manual_seed(number))
        torch.nn.init.constant_(model[1].bias, float(number))
        save_file(dict(model.state_dict()), made.folder / "trials" / trial.id / MODEL_FILE)
    return made


@pytest.mark.long
def test_the_cards_code_labels_as_the_winner_does_without_our_packages(sweep_of: SweepOf) -> None:
    made = with_models(sweep_of(AXES))
    card = write_release_and_export(made.folder, made.ledger)
    assert card == made.folder / "export" / CARD
    files = {CARD, MODEL_FILE, "config.yaml", "model.py", "preprocessing.json", "winner.json"}
    assert {path.name for path in card.parent.iterdir()} == files
    model = logistic((1, 8, 8), 10)
    winner = made.folder / "trials" / str(read_sweep(made.folder, made.ledger).winner_id) / MODEL_FILE
    assert (card.parent / MODEL_FILE).read_bytes() == winner.read_bytes()
    model.load_state_dict(load_file(winner))
    images = torch.randint(17, (20, 1, 8, 8), generator=torch.Generator().manual_seed(1))
    expected = model(images / 16).argmax(dim=1).tolist()
    assert answers(card.parent, code_of(card), images.tolist()) == expected
    assert len(set(expected)) > 1


def test_a_release_holds_what_was_declared_and_nothing_of_where_files_lie(sweep_of: SweepOf) -> None:
    made = with_models(sweep_of(AXES))
    card = write_release_and_export(made.folder, made.ledger)
    texts = [(folder / "preprocessing.json").read_text() for folder in (card.parent, made.folder / "release")]
    assert texts[0] == texts[1]
    form = json.loads(texts[0])
    assert (form["shape"], form["scale"], form["pool"], form["labels"]) == ([1, 8, 8], 16.0, 1, None)
    assert "sklearn" not in texts[0]


@pytest.mark.parametrize("dataset", [{"kind": "embedded_images"}, {"_target_": "my_data.Mine"}])
def test_a_card_says_where_only_the_data_sets_class_knows_what_an_input_is(
    sweep_of: SweepOf, dataset: dict[str, str]
) -> None:
    """As where the file was lost, or where the class is the user's own."""
    declaration = {"name": "mine", "shape": [1, 8, 8], "classes": 10, **dataset}
    assert declared_preprocessing(declaration) is None
    code = prediction_snippet({"model": {"kind": "logistic"}}, declaration, None, MODEL_FILE)
    made = with_models(sweep_of(AXES))
    card = render_card(compose_release_page(read_sweep(made.folder, made.ledger)), code=code, own=True)
    assert "Only the data set's class can turn a raw row into an input" in card
    assert "preprocessing.json" not in card


def test_the_card_says_what_the_release_says(sweep_of: SweepOf) -> None:
    made = with_models(sweep_of(AXES))
    card = write_release_and_export(made.folder, made.ledger).read_text()
    page = compose_release_page(read_sweep(made.folder, made.ledger))
    for line in page.statement:
        assert f"- **{line.topic}** ({line.level.value}): {line.text}" in card
    assert page.best[0].score in card
    assert f"({page.facts['honest_epsilon'].text}, " in card


def test_hostile_names_are_text(sweep_of: SweepOf, tmp_path: Path) -> None:
    made = with_models(sweep_of(AXES))
    page = replace(compose_release_page(read_sweep(made.folder, made.ledger)), title="<script>alert(1)</script> & 'co'")
    card = render_card(page, code="model = 1 < 2", own=True)
    assert "# &lt;script&gt;alert(1)&lt;/script&gt; &amp; 'co': the winner" in card
    (tmp_path / CARD).write_text(card)
    assert code_of(tmp_path / CARD).splitlines()[0] == "model = 1 < 2"


def test_where_there_is_no_winner_nothing_is_exported(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    for path in Path(made.folder).glob(f"trials/*/{MODEL_FILE}"):
        path.unlink()
    with pytest.raises(BadInput, match=r"to have a winner that the selection rule discloses, and its model\.$"):
        write_release_and_export(made.folder, made.ledger)
    assert not (made.folder / "export").exists()


def test_an_adapters_file_has_what_training_changed() -> None:
    tensors = {
        "encoder.query.base_layer.weight": torch.ones(2, 3),
        "encoder.query.lora_A.weight": torch.full((1, 3), 2.0),
        "encoder.query.lora_B.weight": torch.full((2, 1), 3.0, dtype=torch.bfloat16),
        "head.weight": torch.full((2, 2), 4.0),
    }
    alone = load(tensors_that_training_changed(save(tensors), "encoder."))
    assert set(alone) == set(list(tensors)[1:])
    assert all(
        torch.equal(value, tensors[name]) and value.dtype == tensors[name].dtype for name, value in alone.items()
    )
