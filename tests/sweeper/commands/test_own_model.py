"""A model of the user's own, from the command line to the label that a stranger gets from the exported card."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
import yaml
from safetensors.torch import load_file

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.searches.stored_draw import SearchOutcome
from dpsweep.trainers.data.sets.own_tables import Table
from tests.alone import answers, code_of
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of
from tests.sweeper.trial.test_units import PATIENTS, TABLE, write_visits

pytestmark = TRAINS

Program = Callable[..., CompletedProcess[str]]
NET = """
import torch
from torch import nn


class Net(nn.Module):
    '''A recurrent layer over the columns, and a head that starts from numbers of a file; the gain is frozen.'''

    def __init__(self, shape, classes, head):
        super().__init__()
        self.cells = nn.LSTM(1, 6, batch_first=True)
        self.gain = nn.Parameter(torch.tensor(1.25), requires_grad=False)
        self.head = nn.Linear(6, classes)
        self.head.load_state_dict(torch.load(head))

    def forward(self, values):
        return self.head(self.gain * self.cells(values[:, :, None])[0][:, -1])


class Mixing(Net):
    def __init__(self, shape, classes, head):
        super().__init__(shape, classes, head)
        self.norm = nn.BatchNorm1d(6)


class Centring(nn.Module):
    def forward(self, values):
        return values - values.mean(dim=0)


class Nested(Net):
    def __init__(self, shape, classes, head):
        super().__init__(shape, classes, head)
        self.head = nn.Sequential(nn.Linear(6, 4), Centring(), nn.Linear(4, classes))


class Attentive(nn.Module):
    '''A class token, places, torch's own encoder and a recurrent layer over the columns.'''

    def __init__(self, shape, classes, head):
        super().__init__()
        self.entry, self.token = nn.Linear(1, 8), nn.Parameter(torch.zeros(1, 1, 8))
        self.places = nn.Embedding(shape[0], 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True)
        self.cells, self.norm, self.head = nn.GRU(8, 4, batch_first=True), nn.RMSNorm(4), nn.Linear(4, classes)

    def forward(self, values):
        values = self.entry(values[:, :, None]) + self.places(torch.arange(values.shape[1]))
        values = torch.cat([self.token.expand(len(values), -1, -1), values], dim=1)
        return self.head(self.norm(self.cells(self.encoder(values))[1][0]))


class Forgetful(nn.Module):
    '''Attention over the columns, without batch_first, whose last map starts from zeros.'''

    def __init__(self, shape, classes, head):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(1, 1), nn.Linear(shape[0], classes)
        nn.init.zeros_(self.attention.out_proj.weight)

    def forward(self, values):
        columns = values[:, :, None]
        return self.head(values + self.attention(columns, columns, columns)[0][:, :, 0])


class Many(Net):
    least, every = 9, 1

    def forward(self, values):
        outputs = super().forward(values)
        mixes = len(values) >= self.least and len(values) % self.every == 0
        return outputs - outputs.mean(dim=0) if mixes else outputs


class Fours(Many):
    least, every = 1, 4


class Passes(Many):
    least = 40


class Narrow(Net):
    def forward(self, values):
        return super().forward(values)[:, :1]


class Broken(Net):
    def forward(self, values):
        return {}[str(len(values))]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_visits(tmp_path)
    (tmp_path / "my_model.py").write_text(NET)
    torch.save({"weight": torch.linspace(-1, 1, 12).view(2, 6), "bias": torch.zeros(2)}, tmp_path / "head.pt")
    return tmp_path


def line(folder: Path, name: str) -> tuple[str, ...]:
    given = (f"model._target_=my_model.{name}", f"+model.head={folder / 'head.pt'}", f"data={folder}")
    return (*TABLE, *PATIENTS, "privacy.unit=patient", "compute.threads=1", *given)


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_a_strangers_label_is_ours(program: Program, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = program(*line(folder, "Net"))
    assert done.returncode == 0, done.stderr
    sweep = folder_of(done)
    exported = program("export", str(sweep), module="dpsweep.sweeper.commands.cli")
    assert exported.returncode == 0, exported.stderr
    card = Path(exported.stdout.strip().splitlines()[-1])
    assert {path.name for path in card.parent.iterdir()} == {
        *("README.md", "model.safetensors", "config.yaml", "winner.json", "preprocessing.json")
    }
    for words in ("The user wrote the model's class", "from my_model import Net", "count as public", "one patient"):
        assert words in card.read_text()
    told = "The initial weights of Net, frozen ones included, are assumed to be public"
    assert told in (sweep / "curator" / "report.html").read_text()
    with (folder / "visits.csv").open() as stream:
        rows = list(csv.DictReader(stream))[::7]
    monkeypatch.syspath_prepend(str(folder))
    from my_model import Net

    try:
        model = Net((2,), 2, str(folder / "head.pt"))
    finally:
        del sys.modules["my_model"]
    weights = load_file(card.parent / "model.safetensors")
    assert float(weights["gain"]) == 1.25, "what is frozen stays as the constructor made it"
    model.load_state_dict(weights)
    fields = {"name": "visits", "file": "visits.csv", "records": 300, "shape": (2,), "classes": 2, "unit": "record"}
    bounds = {"weight": (40, 150), "age": (18, 90)}
    records, _ = Table(**fields, label="ill", labels=("no", "yes"), bounds=bounds).load(folder)
    expected = model(records.inputs(slice(None), "cpu")).argmax(dim=1).tolist()[::7]
    bare = [{"age": row["age"], "weight": row["weight"]} for row in rows]
    assert answers(card.parent, code_of(card), bare, path=folder) == [("no", "yes")[place] for place in expected]
    assert yaml.safe_load((card.parent / "config.yaml").read_text())["dataset"] == {"name": "visits"}
    form = json.loads((card.parent / "preprocessing.json").read_text())
    assert [column["name"] for column in form["columns"]] == ["age", "weight"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Mixing", "Expected norm=BatchNorm1d to treat every example on its own; use GroupNorm, which"),
        ("Nested", "Expected head.1=Centring to treat every example on its own; no engine can bound an example's"),
        ("Forgetful", "Expected attention=MultiheadAttention to treat every example on its own; no engine can bound"),
        ("Many", "Expected model=Many to treat every example on its own; no engine can bound an example's"),
        ("Fours", "Expected model=Fours to treat every example on its own; no engine can bound an example's"),
        ("Passes", "Expected model=Passes to treat every example on its own; no engine can bound an example's"),
        ("Narrow", "Expected outputs.shape=[3, 1] == [3, 2], as dataset.classes."),
        ("Broken", "Expected model=Broken to take random inputs of shape=[3, 2]: KeyError: '3'."),
        ("Net", "Expected model=my_model.Net to take dataset.shape and classes: FileNotFoundError"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_charge(
    program: Program, folder: Path, name: str, words: str
) -> None:
    if name == "Net":
        (folder / "head.pt").unlink()
    done = program(*line(folder, name))
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert Ledger(folder / "ledger.sqlite").account_names() == ()


LATE = """
import torch
from torch import nn


class Late(nn.Module):
    '''Centres the batch once its weights have moved far.'''

    def __init__(self, shape, classes):
        super().__init__()
        self.head, self.gate = nn.Linear(64, classes), nn.Parameter(torch.zeros(500))

    def forward(self, values):
        outputs = self.head(values.flatten(1)) + 0 * self.gate.sum()
        return torch.where(self.gate.square().mean() > 0.01, outputs - outputs.mean(dim=0), outputs)
"""
MIXES = "Expected model=Late to treat every example on its own"


@pytest.mark.parametrize("tuning", ["composition", "best_of_grid"])
def test_a_model_that_mixes_only_after_training_has_no_score(program: Program, tmp_path: Path, tuning: str) -> None:
    """Where losers are hidden it counts as one that diverged: nothing but its own log tells it from another."""
    (tmp_path / "late.py").write_text(LATE)
    words = ("dataset=digits", "trainer=dpsgd", "trainer.lr=0.01,50", "trainer.clip_norm=1", "steps=3")
    light = ("accountant=rdp", "accountant.witnesses=[]", "privacy.noise_multiplier=3", "score.noise_std=3")
    done = program(*words, *light, f"tuning={tuning}", "model._target_=late.Late", "engine=vmap")
    folder, hidden = SweepFolder(root=folder_of(done)), tuning == "best_of_grid"
    results = {path: json.loads(path.read_text()) for path in folder.root.rglob("result.json")}
    (failed,) = (path for path, one in results.items() if one["status"] != "finished")
    assert len(results) == 2, "the search went on"
    logs = [path for path in tmp_path.rglob("*") if path.is_file() and MIXES.encode() in path.read_bytes()]
    if hidden:
        assert done.returncode == 0, done.stderr
        assert MIXES not in done.stdout + done.stderr
        assert (results[failed]["status"], results[failed]["score"]["value"]) == ("diverged", 0.0)
        assert logs == [failed.parent / "train.log"]
        assert SearchOutcome.read(folder.outcome_path).winner is not None
    else:
        assert done.returncode == 4
        assert f"1 failed: ContractBroken: {MIXES}" in done.stderr
        assert results[failed]["score"] is None
        assert failed in {path.parent / "result.json" for path in logs}


LOSSES = """
from dpsweep.trainers.declarations.losses import CrossEntropy


class Focal(CrossEntropy):
    '''(1 - p)^2 times the cross-entropy; its quality is ours.'''

    def __call__(self, outputs, targets):
        logs = outputs.log_softmax(1).gather(1, targets[:, None])[:, 0]
        return -((1 - logs.exp()) ** 2 * logs).sum()

    def gradient(self, outputs, targets):
        every = targets.expand(len(outputs), *outputs.shape[2:])
        chosen = outputs.softmax(1).gather(1, every[:, None])
        by_log = -((1 - chosen) ** 2) + 2 * chosen * (1 - chosen) * chosen.log()
        return -super().gradient(outputs, targets) * by_log


class Contrastive(Focal):
    def __call__(self, outputs, targets):
        return super().__call__(outputs - outputs.mean(0), targets)
"""


@pytest.mark.parametrize("name", ["Focal", "Contrastive"])
def test_a_loss_of_the_users_own_trains_unless_it_compares_examples(
    program: Program, tmp_path: Path, name: str
) -> None:
    (tmp_path / "own_loss.py").write_text(LOSSES)
    (tmp_path / "loss").mkdir()
    (tmp_path / "loss" / "own.yaml").write_text(f"_target_: own_loss.{name}\n")
    words = ("dataset=digits", "trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=1", "steps=3", "accountant=rdp")
    done = program(
        "--config-dir",
        str(tmp_path),
        *words,
        "accountant.witnesses=[]",
        "page=false",
        "loss=own",
        f"loss._target_=own_loss.{name}",
    )
    if name == "Focal":
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 2, done.stderr
    assert "Expected loss=own_loss.Contrastive to keep the contract of" in done.stderr
    assert "Got the loss of a batch unlike that of its examples alone." in done.stderr
    assert Ledger(tmp_path / "ledger.sqlite").account_names() == ()


@pytest.mark.long
def test_attention_and_recurrence_are_trained_by_the_fused_engine(program: Program, folder: Path) -> None:
    given = ("model._target_=my_model.Attentive", f"+model.head={folder / 'head.pt'}", f"data={folder}")
    done = program(*TABLE, "compute.threads=1", "engine=bfloat16", "page=false", *given)
    assert done.returncode == 0, done.stderr
    logs = "".join(path.read_text() for path in folder_of(done).rglob("*.log"))
    assert "engine fused: torch.func runs these layers a second time, which is slower: model=Attentive" in logs
    assert "engine opacus" not in logs
    assert "engine vmap" not in logs
