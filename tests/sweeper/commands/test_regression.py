"""Sweeps that learn numbers: stacked, by an engine, scored on public records and on private ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.trial_result import TrialResult
from tests.randomized import TRAINS

pytestmark = TRAINS

Program = Callable[..., subprocess.CompletedProcess[str]]
Compose = Callable[[Sequence[str]], PricedPlan]

LIGHT = ("dataset=regression", "accountant=rdp", "accountant.witnesses=[]", "compute.threads=1", "compute.device=cpu")
GRID = ("trainer=dpsgd", "trainer.lr=0.1,0.5", "trainer.clip_norm=10,100")


def scores(program: Program, root: Path, *line: str) -> tuple[list[float], str]:
    done = program(*LIGHT, *GRID, *line)
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.splitlines()[-1]).parents[1]
    plan = Plan.read(root / folder / "plan.json")
    results = [TrialResult.read(root / folder / "trials" / trial.id) for trial in plan.trials]
    page = (root / folder / "curator" / "report.html").read_text()
    return [result.score["value"] for result in results if result is not None and result.score is not None], page


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_numbers_are_learnt_the_same_by_every_engine(program: Program, tmp_path: Path) -> None:
    line = ("steps=30", "sampler.batch_size=1000", "privacy.noise_multiplier=0.001", "budget.epsilon=1e12", "seed=1")
    found = [scores(program, tmp_path, *line, f"engine={name}")[0] for name in ("auto", "opacus")]
    assert found[0] == pytest.approx(found[1], abs=3e-3), "each engine is another plan, with noise of its own"
    assert len(found[0]) == 4
    assert max(found[0]) > 0.9


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_a_page_says_what_a_score_is_the_mean_of(program: Program, tmp_path: Path) -> None:
    public, private = (
        scores(program, tmp_path, "steps=2", f"score={score}", "loss.cap=8")[1] for score in ("public", "private")
    )
    assert "Scores, means of max(0, 1 - squared error / 8) and told as the root mean squared error in" in public
    assert "noisy sums of these values and of 1 minus these values on held-out private records" in private
    for page in (public, private):
        assert "accurac" not in page.lower()


def test_losses_and_labels_must_agree(compose_priced: Compose) -> None:
    with pytest.raises(BadInput, match=r"^Expected dataset\.classes=1 >= 2 with loss=cross_entropy"):
        compose_priced(["dataset=digits", "dataset.classes=1", *GRID])
    with pytest.raises(BadInput, match=r"^Expected loss\.cap to be one of class_weights, label_smoothing\.$"):
        compose_priced([*LIGHT, *GRID, "loss=cross_entropy"])
    with pytest.raises(BadInput, match=r"^Expected dataset\.classes=10 == 1 with loss=squared_error"):
        compose_priced(["dataset=digits", *GRID, "loss=squared_error"])
