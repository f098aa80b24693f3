"""Numbers as targets, end to end: scikit-learn's diabetes, whose scores, page, card and model speak in its unit."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

import dpsweep
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import user_ledger_place
from dpsweep.reports.pages.model_export import write_release_and_export
from tests.alone import answers
from tests.randomized import TRAINS

BOUNDS = {
    **{"age": (15, 85), "sex": (1, 2), "bmi": (15, 45), "bp": (60, 140), "s1": (80, 320)},
    **{"s2": (30, 250), "s3": (15, 110), "s4": (1, 10), "s5": (3, 6.5), "s6": (50, 140)},
}
COLUMNS = tuple(BOUNDS)
PUBLIC = 88
"""The last rows, which are the test file."""

DATA = (
    *("dataset=table", "dataset.name=diabetes", "dataset.shape=[10]", "dataset.classes=1"),
    *("dataset.label=progression", "dataset.target=[25,350]"),
    f"dataset.bounds={{{', '.join(f'{name}: [{low},{high}]' for name, (low, high) in BOUNDS.items())}}}",
)
TRAINING = ("trainer=dpsgd", "trainer.clip_norm=1", "accountant=rdp", "accountant.witnesses=[]", "compute.threads=1")


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv("DPSWEEP_KEY", str(tmp_path / "fingerprint.key"))


def diabetes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    data = load_diabetes(scaled=False)
    assert tuple(data.feature_names) == COLUMNS
    return data.data, data.target


def write_table(path: Path, rows: NDArray[np.float64], targets: Sequence[Any]) -> Path:
    with path.open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow((*COLUMNS, "progression"))
        lines.writerows((*row, target) for row, target in zip(rows, targets, strict=True))
    return path


def errors_of_ridge(rows: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Absolute errors on the last rows of a fit without privacy to the others."""
    low, high = np.array(list(BOUNDS.values())).T
    inputs = (np.clip(rows, low, high) - low) / (high - low)
    fitted = Ridge(alpha=0.1).fit(inputs[:-PUBLIC], targets[:-PUBLIC])
    return np.abs(fitted.predict(inputs[-PUBLIC:]) - targets[-PUBLIC:])


@pytest.mark.parametrize(
    ("loss", "rates"), [("squared_error", "0.2,0.5"), ("absolute_error", "0.1,0.2"), ("huber", "0.5,1")]
)
def test_a_model_with_little_noise_errs_like_a_ridge_regression(loss: str, rates: str, tmp_path: Path) -> None:
    rows, targets = diabetes()
    private = write_table(tmp_path / "private.csv", rows[:-PUBLIC], targets[:-PUBLIC])
    public = write_table(tmp_path / "public.csv", rows[-PUBLIC:], targets[-PUBLIC:])
    swept = dpsweep.sweep(
        [
            *(
                *DATA,
                *TRAINING,
                f"loss={loss}",
                "score=public",
                f"dataset.file={private}",
                f"dataset.test_file={public}",
            ),
            *("dataset.records=354", f"dataset.test_records={PUBLIC}", f"trainer.lr={rates}", "steps=300"),
            *("sampler.batch_size=354", "privacy.noise_multiplier=0.05", "privacy.delta=1e-3", "seed=1"),
            *("budget.epsilon=1e12", "budget.delta=1e-3", "page=false"),
        ]
    )
    errors = errors_of_ridge(rows, targets)
    expected = {"root_mean_squared_error": math.sqrt((errors**2).mean()), "mean_absolute_error": errors.mean()}
    name = "root_mean_squared_error" if loss == "squared_error" else "mean_absolute_error"
    best = swept.best
    assert best is not None
    assert "accuracy" not in best
    assert best[name] == min(swept.trials[name]), "the run with the smallest error wins"
    assert best[name] < 1.15 * expected[name]
    assert best[name] > 0.8 * expected[name]
    assert (swept.trials[f"{name}_low"] < swept.trials[name]).all()
    assert (swept.trials[name] < swept.trials[f"{name}_high"]).all()
    assert sorted(swept.trials["gap"])[0] == 0


@TRAINS
def test_page_card_and_exported_model_speak_in_the_unit_of_the_target(tmp_path: Path) -> None:
    rows, targets = diabetes()
    table = write_table(tmp_path / "diabetes.csv", rows, targets)
    swept = dpsweep.sweep(
        [
            *(*DATA, *TRAINING, "loss=squared_error", "loss.cap=0.25", "dataset.target_unit=points"),
            *(f"dataset.file={table}", "dataset.records=442", "trainer.lr=0.1,0.3", "steps=3"),
            *(
                "sampler.batch_size=50",
                "privacy.epsilon=8",
                "privacy.delta=1e-3",
                "budget.sealed={share: 0.4, parts: 1}",
            ),
            *("budget.epsilon=100", "budget.delta=2e-3"),
        ]
    )
    page = (swept.folder / "curator" / "report.html").read_text()
    assert "Best by noisy root mean squared error" in page
    assert "Noisy root mean squared error in points, with half the width" in page
    assert "mean absolute error" in page
    assert "ccurac" not in page
    assert "always gives the same answer" not in page
    form = json.loads((swept.folder / "curator" / "report.json").read_text())
    low, high = map(float, form["best"][0]["interval"].removesuffix(" points").split(" to "))
    best = swept.best
    assert best is not None
    error = best["root_mean_squared_error"]
    assert low <= error <= high <= 162.5, "an error is at most the root of the cap, half of the range"
    assert low <= best["root_mean_squared_error_low"] < low + 0.101, "an end on the page is rounded outwards"

    card = write_release_and_export(swept.folder, Ledger(user_ledger_place()))
    text = card.read_text()
    assert "name: noisy root mean squared error, points" in text
    assert "task:\n      type: regression" in text
    told = json.loads((card.parent / "preprocessing.json").read_text())
    assert (told["target"], told["target_unit"], told["labels"]) == ([25.0, 350.0], "points", None)
    code = text.split("```python\n")[1].split("```")[0]
    examples = [dict(zip(COLUMNS, row, strict=True)) for row in rows[:5].tolist()]
    predicted = answers(card.parent, f"{code}\nlabel = number", examples)
    assert all(-300 < one < 700 for one in predicted)
    assert max(predicted) - min(predicted) > 0.01
    released = (card.parents[1] / "release" / "trials.csv").read_text().splitlines()[0].split(",")
    assert {"root_mean_squared_error", "root_mean_squared_error_low"} < set(released)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("loss=cross_entropy",),
            r"Expected dataset\.classes=1 >= 2 with loss=cross_entropy; use loss=squared_error\.$",
        ),
        (("loss=huber", "dataset.classes=2"), r"Expected dataset\.classes=2 == 1 with dataset\.target=\[25,350\]"),
        (("loss=squared_error", "score.metric=f1"), r"Expected score\.metric=f1 to be accuracy where the label is a"),
        (("loss=squared_error", 'dataset.labels=["a","b"]'), r"Expected either dataset\.labels=.* or dataset\.target="),
    ],
)
def test_what_does_not_fit_a_number_is_refused(words: Sequence[str], sentence: str, tmp_path: Path) -> None:
    rows, targets = diabetes()
    table = write_table(tmp_path / "diabetes.csv", rows, targets)
    with pytest.raises(BadInput, match=sentence):
        dpsweep.plan(
            [
                *(*DATA, *TRAINING, f"dataset.file={table}", "dataset.records=442", "trainer.lr=0.1"),
                *("privacy.delta=1e-3", "budget.epsilon=100", "budget.delta=2e-3", *words),
            ]
        )


def test_a_target_that_is_no_number_costs_nothing(tmp_path: Path) -> None:
    rows, targets = diabetes()
    table = write_table(tmp_path / "diabetes.csv", rows, [*targets[:-1], "unknown"])
    with pytest.raises(
        BadInput, match=r"^Expected progression in line 443 of .* a finite number, got 'unknown'\. dataset\.na_values="
    ):
        dpsweep.sweep(
            [
                *(*DATA, *TRAINING, "loss=squared_error", f"dataset.file={table}", "dataset.records=442"),
                *("trainer.lr=0.1", "privacy.delta=1e-3", "budget.epsilon=100", "budget.delta=2e-3"),
            ]
        )
    assert not (tmp_path / "ledger.sqlite").exists()
