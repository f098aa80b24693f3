"""The export: a model that others can load, and a card that says no more than the release does."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from accounting.errors import BadInput
from accounting.result import MODEL_FILE
from reports.export import CARD, render_card, write_export
from reports.release import compose
from reports.table import read
from trainers.models.logistic import logistic

AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2), "trainer.clip_norm": (0.5, 1)}}
SweepOf = Callable[..., Any]


def with_models(made: Any) -> Any:
    """The sweep, each of whose trials kept a model that may be told from the others."""
    for number, trial in enumerate(made.plan.trials):
        model = logistic((1, 8, 8), 10)
        torch.nn.init.constant_(model[1].bias, float(number))
        save_file(dict(model.state_dict()), made.folder / "trials" / trial.id / MODEL_FILE)
    return made


def code_of(card: str) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    return str(code)


def test_the_cards_code_loads_the_winner(sweep_of: SweepOf, monkeypatch: pytest.MonkeyPatch) -> None:
    made = with_models(sweep_of(AXES))
    card = write_export(made.folder, made.ledger)
    assert card == made.folder / "export" / CARD
    assert {path.name for path in card.parent.iterdir()} == {CARD, MODEL_FILE, "config.yaml"}
    monkeypatch.chdir(card.parent)
    found: dict[str, Any] = {}
    exec(code_of(card.read_text()), found)
    winner = read(made.folder, made.ledger).winner
    kept = load_file(made.folder / "trials" / str(winner) / MODEL_FILE)
    exported = load_file(card.parent / MODEL_FILE)
    for name, tensor in found["model"].state_dict().items():
        assert torch.equal(tensor, exported[name])
        assert torch.equal(tensor, kept[name])


def test_the_card_says_what_the_release_says(sweep_of: SweepOf) -> None:
    made = with_models(sweep_of(AXES))
    card = write_export(made.folder, made.ledger).read_text()
    page = compose(read(made.folder, made.ledger))
    for line in page.statement:
        assert f"- **{line.topic}** ({line.standing.value}): {line.text}" in card
    assert page.best[0].score in card
    assert f"({page.facts['honest_epsilon'].text}, " in card


def test_hostile_names_are_text(sweep_of: SweepOf) -> None:
    made = with_models(sweep_of(AXES))
    page = replace(compose(read(made.folder, made.ledger)), title="<script>alert(1)</script> & 'co'")
    card = render_card(page, "model = 1 < 2")
    assert "# &lt;script&gt;alert(1)&lt;/script&gt; &amp; 'co': the winner" in card
    assert code_of(card).splitlines()[1] == "model = 1 < 2"


def test_where_there_is_no_winner_nothing_is_exported(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    for path in Path(made.folder).glob(f"trials/*/{MODEL_FILE}"):
        path.unlink()
    with pytest.raises(BadInput, match=r"to have a winner that may be shown, and its model\.$"):
        write_export(made.folder, made.ledger)
    assert not (made.folder / "export").exists()
