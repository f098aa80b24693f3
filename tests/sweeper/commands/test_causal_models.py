"""LoRA on a causal language model of a user's folder, from the command line to the logits that a stranger gets."""

from __future__ import annotations

import csv
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
import yaml
from safetensors.torch import load_file

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.trainers.declarations.adapters import Lora
from dpsweep.trainers.models.replaced_layers import attach_adapters
from tests.alone import BLOCKER, code_of
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of
from tests.trainers.pretrained_folders import UNTIED, WORDS, causal_folder, pretrained_folder

pytestmark = TRAINS

Program = Callable[..., CompletedProcess[str]]
ROWS = 240


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of texts of 0 to 5 words, and a folder of a language model."""
    causal_folder(tmp_path / "gpt2")
    drawn = random.Random(5)
    with (tmp_path / "notes.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["note"])
        rows.writerows([" ".join(drawn.choices(WORDS, k=number % 6))] for number in range(ROWS))
    return tmp_path


def line(folder: Path, *more: str) -> tuple[str, ...]:
    declared = {"name": "notes", "file": "notes.csv", "records": ROWS, "shape": "[8]", "text": "note"}
    given = (f"dataset.{key}={value}" for key, value in declared.items())
    private = ("privacy.epsilon=8", "privacy.delta=1e-4", "budget.epsilon=16", "budget.delta=1e-3")
    trained = ("trainer=dpsgd", "trainer.lr=2", "trainer.clip_norm=1", "steps=4", "sampler.batch_size=60")
    return (
        *("dataset=text_sequences", *given, *private, *trained, f"model.path={folder / 'gpt2'}", f"data={folder}"),
        *("adapter.rank=2", "compute.threads=1", *more),
    )


def alone(folder: Path, *statements: str) -> list[object]:
    """What Python prints in a folder where none of our packages can be imported, as JSON."""
    script = "\n".join((BLOCKER, *statements))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.long
@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("tied", [True, False])
def test_a_strangers_logits_are_those_of_the_base_with_its_adapter(program: Program, folder: Path, tied: bool) -> None:
    if not tied:
        causal_folder(folder / "gpt2", UNTIED)
    done = program(*line(folder))
    assert done.returncode == 0, done.stderr
    sweep = folder_of(done)
    (trial,) = (sweep / "trials").iterdir()
    assert "engine fused" in (trial / "train.log").read_text()
    result = TrialResult.read(trial)
    assert result is not None
    assert result.score is not None
    page = (sweep / "curator" / "report.html").read_text()
    for words in (
        "The model starts from the weights of tiny-encoder (licence: mit). They are declared public",
        "Training changes Lora of rank 2 on the layers named query, value",
        "Scores, means of the next-token accuracy, come from noisy sums of these values and of 1 minus these values",
    ):
        assert words in page
    released = program("release", str(sweep), module="dpsweep.sweeper.commands.cli")
    assert released.returncode == 0, released.stderr
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

    from dpsweep.trainers.models.hugging_face import hf_causal

    config = yaml.safe_load((card.parent / "config.yaml").read_text())
    arguments = {key: value for key, value in config["model"].items() if key != "kind"}
    base = hf_causal((8,), 14, **{**arguments, "path": str(folder / "gpt2")})
    untrained = {name: value.clone() for name, value in base.state_dict().items()}
    model = attach_adapters(base, Lora(**{key: value for key, value in config["adapter"].items() if key != "kind"}))
    saved = load_file(card.parent / "model.safetensors")
    model.load_state_dict(saved)
    for name, value in untrained.items():
        parent, _, kind = name.rpartition(".")
        assert torch.equal(saved[name if name in saved else f"{parent}.base_layer.{kind}"], value), name
    assert all(bool(value.any()) for name, value in saved.items() if "lora_B" in name), "adapters were trained"

    row = [2, 4, 6, 11, 3]
    with torch.no_grad():
        expected = model(torch.tensor([[*row, 0, 0, 0]]))[0].T[: len(row)]
    ours = alone(card.parent, code_of(card), f"save('whole')\nprint(json.dumps(logits({row}).tolist()))")
    assert torch.allclose(torch.tensor(ours), expected, atol=1e-6)
    theirs = alone(
        card.parent,
        "import json, torch\nfrom transformers import AutoModelForCausalLM",
        "model = AutoModelForCausalLM.from_pretrained('whole', local_files_only=True).eval()",
        f"print(json.dumps(model(input_ids=torch.tensor([{row}])).logits[0].tolist()))",
    )
    assert torch.allclose(torch.tensor(theirs), expected, atol=1e-5)


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_the_card_has_the_perplexity_on_texts_declared_public(program: Program, folder: Path) -> None:
    public = ("dataset.public=true", "score=training", "score.every=2", "privacy.noise_multiplier=1")
    given = [word for word in line(folder) if not word.startswith(("privacy.epsilon", "budget.epsilon"))]
    done = program(*given, *public)
    assert done.returncode == 0, done.stderr
    sweep = folder_of(done)
    (trial,) = (sweep / "trials").iterdir()
    result = TrialResult.read(trial)
    assert result is not None
    last = result.curator["curve"][-1]
    assert last["step"] == 4
    exported = program("export", str(sweep), module="dpsweep.sweeper.commands.cli")
    assert exported.returncode == 0, exported.stderr
    card = Path(exported.stdout.strip().splitlines()[-1]).read_text()
    assert f"Perplexity on training records: {math.exp(last['training_loss']):.4g}." in card


@pytest.mark.long
def test_the_same_command_is_the_same_plan_and_charges_nothing(program: Program, folder: Path) -> None:
    first = program(*line(folder, "adapter.rank=1,2", "page=false"))
    assert first.returncode == 0, first.stderr
    charged = Ledger(folder / "ledger.sqlite").statement("notes").charges
    again = program(*line(folder, "adapter.rank=1,2", "page=false"))
    assert again.returncode == 0, again.stderr
    assert Ledger(folder / "ledger.sqlite").statement("notes").charges == charged
    assert len(charged) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("model.path={folder}/bert",), "Expected model.path to be a causal language model: BertLMHeadModel reads"),
        (("model=hf",), "Expected outputs.shape=[3, 14] == [3, 14, 8], as dataset.classes and the positions"),
        (("loss=cross_entropy",), "Expected loss=next_token with dataset.name=notes"),
        (("dataset.shape=[13]",), "Expected dataset.shape=[13] to be [length], at most 12 tokens."),
        (("dataset.shape=[6]",), "of notes.csv to have at most 6 tokens, as dataset.shape; say dataset.cut=true"),
        (("dataset.text=story",), "Expected one column story in the header of notes.csv, got 0."),
    ],
)
def test_a_mistake_is_one_sentence_before_the_charge(
    program: Program, folder: Path, more: tuple[str, ...], words: str
) -> None:
    pretrained_folder(folder / "bert")
    done = program(*line(folder, *(word.replace("{folder}", str(folder)) for word in more)))
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert Ledger(folder / "ledger.sqlite").account_names() == ()
