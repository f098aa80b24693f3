"""Several labels per record, end to end: tables and pictures are learnt, scored, told on a card and handed over."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import dpsweep
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import user_ledger_place
from dpsweep.reports.pages.model_export import write_release_and_export
from dpsweep.sweeper.trial.build import config_of_generated_records_like_dataset
from dpsweep.sweeper.trial.spec import build_object_of_config_part
from tests.alone import answers
from tests.randomized import TRAINS

TABLE = (
    *("dataset=table", "dataset.name=visits", "dataset.records=600", "dataset.shape=[2]", "dataset.classes=3"),
    *("dataset.label=[fever,cough,rash]", 'dataset.labels=["no","yes"]'),
    "dataset.bounds={age: [0,100], pressure: [80,200]}",
)
PICTURES = (
    *("dataset=npz", "dataset.name=scans", "dataset.records=600", "dataset.shape=[1,16,16]", "dataset.classes=2"),
    *("dataset.label_names=[top,bottom]", "dataset.bounds=[0,255]", "model=cnn"),
)
TRAINING = (
    *("loss=binary_cross_entropy", "trainer=dpsgd", "trainer.clip_norm=0.5", "accountant=rdp"),
    *("accountant.witnesses=[]", "compute.threads=1", "privacy.delta=1e-3", "budget.delta=2e-3"),
)


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv("DPSWEEP_KEY", str(tmp_path / "fingerprint.key"))


def write_visits(folder: Path) -> str:
    """Fever follows the age, cough the pressure, and a rash both."""
    rng = np.random.default_rng(0)
    numbers = rng.uniform((0, 80), (100, 200), size=(600, 2))
    scaled = (numbers - (0, 80)) / (100, 120)
    labels = np.column_stack([scaled[:, 0] > 0.5, scaled[:, 1] > 0.5, scaled.sum(axis=1) > 1])
    with (folder / "visits.csv").open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(("age", "pressure", "fever", "cough", "rash"))
        lines.writerows(
            (*row, *("yes" if one else "no" for one in own)) for row, own in zip(numbers, labels, strict=True)
        )
    return f"dataset.file={folder / 'visits.csv'}"


def write_scans(folder: Path) -> str:
    """A half of a picture is light if its label is 1."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (600, 2))
    pictures = rng.integers(0, 100, (600, 1, 16, 16)) + 150 * np.repeat(labels, 8, axis=1)[:, None, :, None]
    np.savez(folder / "scans.npz", features=pictures.astype(np.uint8), labels=labels)
    return f"dataset.path={folder / 'scans.npz'}"


@pytest.mark.parametrize("kind", ["table", "pictures"])
def test_several_labels_are_learnt(kind: str, tmp_path: Path) -> None:
    words = (*TABLE, write_visits(tmp_path)) if kind == "table" else (*PICTURES, write_scans(tmp_path))
    swept = dpsweep.sweep(
        [
            *(*words, *TRAINING, "privacy.noise_multiplier=0.1", "budget.epsilon=1e12", "seed=1"),
            *("trainer.lr=2,8", "steps=60", "sampler.batch_size=200", "page=false"),
        ]
    )
    assert swept.best is not None
    assert swept.best["accuracy"] > 0.85, "the share of right labels"
    assert swept.best["accuracy"] == max(swept.trials["accuracy"])


@TRAINS
def test_page_card_and_exported_model_tell_each_label(tmp_path: Path) -> None:
    swept = dpsweep.sweep(
        [
            *(*TABLE, write_visits(tmp_path), *TRAINING, "privacy.epsilon=8", "budget.epsilon=100"),
            *("trainer.lr=1,4", "steps=3", "sampler.batch_size=60", "budget.sealed={share: 0.4, parts: 1}"),
        ]
    )
    page = (swept.folder / "curator" / "report.html").read_text()
    assert "Best by noisy share of right labels" in page
    for name in ("fever", "cough", "rash"):
        assert f"accuracy of {name}" in page
    assert "always gives the same answer" not in page
    card = write_release_and_export(swept.folder, Ledger(user_ledger_place()))
    text = card.read_text()
    assert "Accuracy of fever: " in text
    code = text.split("```python\n")[1].split("```")[0]
    (told,) = answers(card.parent, f"{code}\nlabel = labels", [{"age": "30", "pressure": "100"}])
    assert set(told) == {"fever", "cough", "rash"}
    assert set(told.values()) <= {"no", "yes"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("loss=cross_entropy",), r"Expected loss=binary_cross_entropy with dataset\.name=visits, whose records have"),
        (
            ("dataset.label=fever", "dataset.classes=2"),
            r"Expected dataset\.name=visits to have several labels per record",
        ),
        (
            ("score.metric=balanced_accuracy",),
            r"Expected score\.metric=balanced_accuracy to be accuracy where a record",
        ),
        (("dataset.classes=2",), r"Expected dataset\.classes=2 == 3 >= 2, as many as label names"),
    ],
)
def test_what_does_not_fit_several_labels_is_refused(words: Sequence[str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=sentence):
        dpsweep.plan(
            [
                *TABLE,
                write_visits(tmp_path),
                *TRAINING,
                "privacy.epsilon=8",
                "budget.epsilon=100",
                "trainer.lr=1",
                *words,
            ]
        )


@pytest.mark.parametrize(
    ("declared", "loss", "shape"),
    [
        ({"classes": 3, "label": ["a", "b", "c"], "labels": ["no", "yes"]}, "binary_cross_entropy", (20, 3)),
        ({"classes": 1, "target": [25, 350], "target_unit": "mmHg"}, "squared_error", (20,)),
    ],
)
def test_a_rehearsal_has_labels_of_the_same_kind(
    declared: dict[str, object], loss: str, shape: tuple[int, ...]
) -> None:
    dataset = {"kind": "table", "name": "visits", "records": 20, "shape": [2], "unit": "record", **declared}
    config = config_of_generated_records_like_dataset(dataset, {"kind": loss})
    generated = build_object_of_config_part(config, "dataset")
    records, _ = generated.load(None)
    assert tuple(records.labels.shape) == shape
    assert str(records.labels.dtype) == "torch.float32"
    assert 0 <= float(records.labels.min()) <= float(records.labels.max()) <= 1
    assert len(generated.label_names) == (shape[1] if len(shape) > 1 else 0)
    assert generated.target == declared.get("target")
