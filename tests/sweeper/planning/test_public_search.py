"""`tuning=public`: the winner of a sweep on public data runs once on private records, at the price of one run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.reports.pages.release import write_release
from dpsweep.sweeper.planning.public_search import winner_of_public_sweep
from tests.randomized import TRAINS
from tests.reports.disclosure.forms import FORMATS
from tests.sweeper.coordinator.test_recognition import write_visits
from tests.sweeper.digits_sweeps import LIGHT, folder_of
from tests.sweeper.search_programs import Program

pytestmark = TRAINS

OPEN = (
    *("dataset=table", "dataset.name=visits", "dataset.file=visits.csv", "dataset.records=300", "dataset.shape=[2]"),
    *("dataset.classes=2", "dataset.label=ill", "dataset.labels=[no,yes]", "data=."),
    *("dataset.bounds={weight:[40,150],age:[18,90]}", "dataset.public=true", "score=training", "sampler.batch_size=20"),
    *("privacy.delta=1e-5", "budget.delta=1e-4"),
    *("trainer=dpnsgd", "trainer.regularizer=0.1,1", "trainer.lr=2,8", "model=logistic,softmax", "steps=3"),
    *("privacy.noise_multiplier=0.5,2", "repeats=2"),
)
PRIVATE = ("dataset=digits", "steps=3", "privacy.epsilon=4", *LIGHT, "tuning=public", "tuning.sweep=open")


def refusal(program: Program, words: Sequence[str]) -> str:
    done = program("plan", *words, module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 2
    return done.stderr


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_from_a_public_search_to_the_release_of_one_run(program: Program, ledger: Ledger, tmp_path: Path) -> None:
    write_visits(tmp_path)
    opened = folder_of(program(*OPEN, "hydra.sweep.dir=open"))
    search = Plan.read(opened / "plan.json")
    scores = {trial.id: TrialResult.read(opened / "trials" / trial.id) for trial in search.trials}
    best = max(search.trials, key=lambda trial: scores[trial.id].score_value or 0.0)  # type: ignore[union-attr]

    folder = folder_of(program(*PRIVATE))
    plan = Plan.read(folder / "plan.json")
    (trial,) = plan.trials
    assert trial.method == best.method
    for part in ("trainer", "model"):
        assert trial.config[part] == best.config[part]
    assert trial.axes == {
        key: value for key, value in best.axes.items() if key not in ("repeat", "privacy.noise_multiplier")
    }
    assert trial.config["privacy"]["noise_multiplier"] not in (0.5, 2)
    assert plan.rule == {"kind": "public", "sweep": search.id}
    (charge,) = ledger.statement("digits").charges
    assert charge.body["epsilon"] <= 4.0
    assert "1 of 1" in verify_sweep_folder_and_describe(
        folder, ledger
    ) or "all paid" in verify_sweep_folder_and_describe(folder, ledger)
    release = write_release(folder, ledger, tuple(FORMATS.values()))
    entry = release.with_name(FORMATS["registry"].file)
    assert "Hyperparameters were tuned on the protected records" not in entry.read_text()
    for page in (release, entry, folder / "curator" / "report.html"):
        assert f"was found by sweep {search.id} on other data, which its curator declared public" in page.read_text()
    again = program(*PRIVATE)
    assert "nothing is run or charged" in again.stdout
    assert ledger.statement("digits").charges == (charge,)

    assert "Expected trainer.lr to have one value" in refusal(program, (*PRIVATE, "trainer.lr=1,2"))
    assert "Expected model to have one value" in refusal(program, (*PRIVATE, "model=logistic,softmax"))
    planned = program("plan", *PRIVATE, "trainer.lr=5", module="dpsweep.sweeper.commands.cli")
    assert planned.returncode == 0, planned.stderr
    (own,) = (path for path in tmp_path.glob("sweeps/digits/*/plan.json") if path.parent != folder)
    assert Plan.read(own).trials[0].config["trainer"]["lr"] == 5, "what the command line names wins"
    with pytest.raises(BadInput, match=r"sweep with dataset\.public=true: what a search on private records of digits"):
        winner_of_public_sweep(folder)
    shutil.rmtree(opened / "trials")
    with pytest.raises(BadInput, match="to have a finished run, got none"):
        winner_of_public_sweep(opened)


def test_what_is_no_public_sweep_is_refused_and_costs_nothing(program: Program, ledger: Ledger, tmp_path: Path) -> None:
    assert "to be the folder of a sweep, with a plan.json" in refusal(program, PRIVATE)
    assert "  tuning.sweep=  This is the folder of that sweep" in refusal(program, PRIVATE[:-1])
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "plan.json").write_text(json.dumps({"format": 1}))
    assert "Traceback" not in refusal(program, PRIVATE)
    assert ledger.account_names() == ()
