"""LoRA on a Hugging Face encoder of a user's folder, from the command line to the label that a stranger gets."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
import yaml
from safetensors.torch import load_file

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.trainers.data.vocabularies import FolderTokenizer
from dpsweep.trainers.declarations.adapters import Lora
from dpsweep.trainers.models.replaced_layers import attach_adapters
from tests.alone import answers, code_of
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of
from tests.trainers.pretrained_folders import WORDS, pretrained_folder

pytestmark = TRAINS

Program = Callable[..., CompletedProcess[str]]
ROWS = 240


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of texts, and a folder of a model."""
    pretrained_folder(tmp_path / "bert")
    drawn = random.Random(5)
    with (tmp_path / "reviews.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["review", "label"])
        for number in range(ROWS):
            words = drawn.choices(WORDS[2:8], k=4)
            rows.writerow([" ".join([WORDS[number % 2], *words]), ("up", "down")[number % 2]])
    return tmp_path


def line(folder: Path, *more: str) -> tuple[str, ...]:
    declared = {"name": "reviews", "file": "reviews.csv", "records": ROWS, "shape": "[8]", "classes": 2}
    declared |= {"text": "review", "label": "label", "labels": "[up, down]"}
    given = (f"dataset.{key}={value}" for key, value in declared.items())
    private = ("privacy.epsilon=8", "privacy.delta=1e-4", "budget.epsilon=16", "budget.delta=1e-3")
    trained = ("trainer=dpsgd", "trainer.lr=2", "trainer.clip_norm=1", "steps=4", "sampler.batch_size=60")
    return (
        *("dataset=text_table", *given, *private, *trained, f"model.path={folder / 'bert'}", f"data={folder}"),
        *("adapter.rank=2", "compute.threads=1", *more),
    )


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_a_strangers_label_is_that_of_the_base_with_its_adapter(program: Program, folder: Path) -> None:
    done = program(*line(folder))
    assert done.returncode == 0, done.stderr
    sweep = folder_of(done)
    (trial,) = (sweep / "trials").iterdir()
    assert "engine fused" in (trial / "train.log").read_text()
    page = (sweep / "curator" / "report.html").read_text()
    for words in (
        "The model starts from the weights of tiny-encoder (licence: mit). They are declared public",
        "Training changes Lora of rank 2 on the layers named query, value",
    ):
        assert words in page
    exported = program("export", str(sweep), module="dpsweep.sweeper.commands.cli")
    assert exported.returncode == 0, exported.stderr
    card = Path(exported.stdout.strip().splitlines()[-1])
    assert {path.name for path in card.parent.iterdir()} == {
        *(
            "README.md",
            "model.safetensors",
            "adapter.safetensors",
            "config.yaml",
            "winner.json",
            "preprocessing.json",
            "model.py",
            "adapter.py",
        )
    }
    config = yaml.safe_load((card.parent / "config.yaml").read_text())
    assert config["model"]["path"] == "bert", "a release has no paths"
    assert str(folder) not in card.read_text()

    from dpsweep.trainers.models.hugging_face import hf

    arguments = {key: value for key, value in config["model"].items() if key != "kind"}
    base = hf((8,), 2, **{**arguments, "path": str(folder / "bert")})
    untrained = {name: value.clone() for name, value in base.state_dict().items()}
    adapter = {key: value for key, value in config["adapter"].items() if key != "kind"}
    model = attach_adapters(base, Lora(**adapter))
    saved = load_file(card.parent / "model.safetensors")
    model.load_state_dict(saved)
    for name, value in untrained.items():
        if name.startswith("encoder."):
            parent, _, kind = name.rpartition(".")
            key = name if name in saved else f"{parent}.base_layer.{kind}"
            assert torch.equal(saved[key], value), name
    assert all(bool(value.any()) for name, value in saved.items() if "lora_B" in name), "adapters were trained"
    vocabulary = Plan.read(sweep / "plan.json").trials[0].config["dataset"]["vocabulary"]
    tokenizer = FolderTokenizer(**{key: value for key, value in vocabulary.items() if key != "kind"})
    numbers = tokenizer.token_numbers_of_texts([" ".join(WORDS[:3]), "bad film", "dull"], 8)
    expected = model(torch.from_numpy(numbers)).argmax(dim=1).tolist()
    rows = [[int(number) for number in row if number] for row in numbers.tolist()]
    alone = hf((8,), 2, **{**arguments, "path": str(folder / "bert")})
    attach_adapters(alone, Lora(**adapter))
    trained = load_file(card.parent / "adapter.safetensors")
    assert trained.keys() == {name for name in saved if "lora_" in name or name.startswith("head.")}
    alone.load_state_dict(trained, strict=False)
    assert all(torch.equal(value, saved[name]) for name, value in alone.state_dict().items())
    other = card.read_text().split("```python\n")[2].split("```")[0]
    code = f"{code_of(card)}\nmodel = None\n{other}".replace("/whole/path/of/your/copy", str(folder / "bert"))
    assert answers(card.parent, code, rows) == answers(card.parent, code_of(card), rows)
    assert answers(card.parent, code_of(card), rows) == [("up", "down")[place] for place in expected]


@pytest.mark.long
def test_ranks_are_an_axis_and_the_same_command_is_the_same_plan(program: Program, folder: Path) -> None:
    done = program(*line(folder, "adapter.rank=1,2", "page=false"))
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "sweeps").glob("*/*/plan.json")
    assert sorted(trial.config["adapter"]["rank"] for trial in Plan.read(path).trials) == [1, 2]
    again = program(*line(folder, "adapter.rank=1,2", "page=false"))
    assert again.returncode == 0, again.stderr
    (account,) = Ledger(folder / "ledger.sqlite").account_names()
    assert len([*(folder / "sweeps").glob("*/*/plan.json")]) == 1, account


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("adapter.rank=0",), "Expected adapter.rank=0"),
        (
            ("adapter.targets=[attention]",),
            "its linear layers: query, key, value, dense, head.",
        ),
        pytest.param(("model.path=/nowhere",), "to be a folder with", marks=pytest.mark.long),
        (("model.path=bert",), "Expected model.path=bert to be an absolute path of a folder."),
        (("model.trained=encoder",), "to be frozen with adapter=lora"),
        pytest.param(("dataset.shape=[13]",), "to be (length,), at most 12 words.", marks=pytest.mark.long),
        pytest.param(
            ("dataset.vocabulary.padding=1",),
            "Expected dataset.vocabulary.padding=1 == 0, the model's.",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_mistake_is_one_sentence_before_the_charge(
    program: Program, folder: Path, more: tuple[str, ...], words: str
) -> None:
    done = program(*line(folder, *more))
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert Ledger(folder / "ledger.sqlite").account_names() == ()


LOSES = """
import copy
from torch import nn


class Net(nn.Module):
    '''Adapters are trained in a wrapped copy, and the unwrapped original is saved (Opacus, issue 820).'''

    def __init__(self, shape, classes):
        super().__init__()
        self.wrapped = nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
        self.original = [copy.deepcopy(self.wrapped)]

    def forward(self, values):
        return self.wrapped(values)

    def state_dict(self, *arguments, **options):
        return {f"wrapped.{name}": value for name, value in self.original[0].state_dict().items()}
"""


def test_a_model_that_would_save_untrained_weights_is_refused_before_the_charge(
    program: Program, tmp_path: Path
) -> None:
    (tmp_path / "my_model.py").write_text(LOSES)
    done = program("dataset=digits", "model={_target_: my_model.Net}", "trainer=dpsgd", "trainer.lr=1", "steps=2")
    assert done.returncode == 2, done.stderr
    assert "Expected model=Net to save the weights that are trained: its state_dict lacks those of" in done.stderr
    assert Ledger(tmp_path / "ledger.sqlite").account_names() == ()
