"""A user's journey: a model file of one's own, a sweep from a notebook, a map in the notebook, files that may leave."""

from __future__ import annotations

import ast
import base64
import json
from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from tests.notebooks import outputs_of
from tests.randomized import TRAINS

MODEL = """
from math import prod

from torch import nn


class Net(nn.Module):
    def __init__(self, shape, classes, width=12):
        super().__init__()
        self.hidden, self.head = nn.Linear(prod(shape), width), nn.Linear(width, classes)

    def forward(self, values):
        return self.head(self.hidden(values.flatten(1)).tanh())


class Mixing(Net):
    def __init__(self, shape, classes, width=12):
        super().__init__(shape, classes, width)
        self.hidden = nn.Sequential(self.hidden, nn.BatchNorm1d(width))
"""
NOTEBOOK = (
    "import dpsweep\n"
    'words = ["dataset=digits", "model._target_=my_model.Net", "+model.width=8", "trainer=dpsgd", "trainer.lr=1,4",\n'
    '         "trainer.clip_norm=0.5,1", "steps=4", "privacy.epsilon=6", "accountant=rdp", "accountant.witnesses=[]"]',
    "dpsweep.plan(words).epsilon",
    'dpsweep.sweep([*words, "model._target_=my_model.Mixing"])',
    "swept = dpsweep.sweep(words)",
    "swept.trials",
    "swept.heatmap()",
    "swept.best",
    "again = dpsweep.sweep(words)\nagain.epsilon",
    "swept.release()",
)
LEAVES = {
    *("report.html", "report.json", "trials.csv", "config.yaml", "model.safetensors", "preprocessing.json"),
    *("winner.json", "heatmap.png", "heatmap.svg", "heatmap-dpsgd.png", "heatmap-dpsgd.svg"),
    *("privacy.png", "privacy.svg", "heatmap.pdf", "heatmap-dpsgd.pdf", "privacy.pdf"),
    *("statement.html", "statement.pdf", "price.json", "price_check.py"),
    *("methods.tex", "methods.bib"),
}
"""The files of a release under composition."""


@TRAINS
@pytest.mark.long
def test_a_model_file_is_swept_from_a_notebook_up_to_its_release(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "my_model.py").write_text(MODEL)
    made, price, refused, swept, trials, heatmap, best, again, released = outputs_of(NOTEBOOK, tmp_path, environment)
    assert "error" not in made
    epsilon = float(price["text/plain"])
    assert 5.9 < epsilon <= 6

    assert refused["error"].startswith("BadInput: ")
    assert "Expected hidden.1=BatchNorm1d to treat every example on its own" in refused["error"]

    assert "error" not in swept, swept
    report = Path(swept["text"].strip().splitlines()[-1])
    assert report.parts[-2:] == ("curator", "report.html")
    assert report.is_file()
    folder = report.parent.parent

    assert trials["text/html"].count("finished") == 4
    assert "trainer.clip_norm" in trials["text/html"]
    assert base64.b64decode(heatmap["image/png"]).startswith(b"\x89PNG")
    told = {"accuracy", "accuracy_low", "accuracy_high"}
    assert ast.literal_eval(best["text/plain"]).keys() == {"method", "trainer.lr", "trainer.clip_norm", *told}
    assert float(again["text/plain"]) == epsilon
    (charge,) = Ledger(tmp_path / "ledger.sqlite").statement("digits").charges
    assert charge.plan == folder.name

    assert released["text/plain"].endswith(f"{folder.name}/release/report.html')")
    assert {path.name for path in (folder / "release").iterdir()} == LEAVES
    form = json.loads((folder / "release" / "report.json").read_text())
    (claim,) = [line["text"] for line in form["statement"] if line["topic"] == "Claim"]
    assert claim.startswith("The release of this search satisfies (")
