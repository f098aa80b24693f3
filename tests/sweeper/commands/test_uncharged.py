"""Nothing trains uncharged: neither round the sweeper, nor by hand, nor after a folder or the ledger was deleted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import reserved_amounts
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import private_store_of_plan
from dpsweep.accounting.records.trial_result import Status, TrialResult
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import FOUR, TWO, Program, folder_of, results

pytestmark = TRAINS


def test_a_deleted_folder_does_not_lower_the_bill(program: Program, ledger: Ledger) -> None:
    line = (*TWO, "privacy.epsilon=12")
    folder = folder_of(program(*line))
    before = reserved_amounts(ledger.statement("digits"))
    shutil.rmtree(folder)
    assert program(*line).returncode == 4
    assert reserved_amounts(ledger.statement("digits")) == before
    assert folder_of(program(*line, "--again")) == folder
    assert reserved_amounts(ledger.statement("digits"))[0] == pytest.approx(2 * before[0])
    shutil.rmtree(folder)
    refused = program(*line, "--again")
    assert refused.returncode == 3
    assert reserved_amounts(ledger.statement("digits"))[0] == pytest.approx(2 * before[0])


CHEAP = """
import sys
from dataclasses import replace
from dpsweep.accounting.pricing.panel import Panel
real = Panel.quote
def quote(self, *terms):
    told = real(self, *terms)
    parts = dict.fromkeys(told.parts, 0.05)
    return replace(told, guarantee=replace(told.guarantee, epsilon=0.05), parts=parts, lower=0.0, attack=0.0)
Panel.quote = quote
from dpsweep.__main__ import main
sys.exit(main())
"""
"""dpsweep, whose plans say that they cost 0.05."""


def test_a_price_that_planning_computes_too_low_is_not_charged(ledger: Ledger, environment: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", CHEAP, "sweep", *TWO], env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "priced at epsilon 0.05, and costs" in done.stderr
    assert not ledger.statement("digits").charges


def test_a_folder_from_another_ledger_is_refused_before_the_charge(
    program: Program, environment: dict[str, str], tmp_path: Path
) -> None:
    folder_of(program(*TWO))
    other = Ledger(tmp_path / "elsewhere" / "ledger.sqlite")
    environment["DPSWEEP_LEDGER"] = str(other.path)
    done = program(*TWO)
    assert done.returncode == 2
    assert "Use the ledger that it was run with" in done.stderr
    assert other.statement("digits").charges == ()


def test_a_deleted_ledger_is_no_fresh_budget(program: Program, ledger: Ledger) -> None:
    folder_of(program(*TWO))
    assert ledger.path is not None
    before = ledger.statement("digits")
    ledger.path.unlink()
    done = program(*TWO)
    assert done.returncode == 0, done.stderr
    after = ledger.statement("digits")
    assert after.charges == before.charges
    assert after.balance == before.balance


def test_what_does_not_fit_is_refused_and_says_what_would(program: Program, ledger: Ledger) -> None:
    refused = program(*FOUR, "privacy.epsilon=25")
    assert refused.returncode == 3
    assert "24.000 of 24" in refused.stderr
    assert "3 of these 4 runs" in refused.stderr
    assert "privacy.epsilon=24" in refused.stderr
    assert "dpsweep budget raise" in refused.stderr
    assert reserved_amounts(ledger.statement("digits")) == (0.0, 0.0)
    assert ledger.statement("digits").charges == ()


NO_NAME = (
    "Expected --config-name to be left out: a sweep is composed from dpsweep's own config.yaml; `experiment=NAME` adds "
    "experiment/NAME.yaml of the folder that --config-dir names."
)
OUTSIDE = (
    "Nothing trains outside a charged sweep: start one with `dpsweep sweep` (no hydra.mode=RUN, no other "
    "hydra/sweeper)."
)
BASIC = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
BYPASSES = {
    "hydra.mode=RUN": OUTSIDE,
    "hydra.mode=null": OUTSIDE,
    "hydra.mode=RUN hydra.job.chdir=true hydra.run.dir=here": OUTSIDE,
    "hydra.mode=RUN block=abc plan.id=def": "Expected block=abc to be left out: the sweeper fills it in.",
    "hydra/sweeper=basic": OUTSIDE,
    "-m hydra/sweeper=basic": OUTSIDE,
    "hydra/sweeper=basic hydra/launcher=fork trainer.lr=1,2": OUTSIDE,
    f"hydra.sweeper._target_={BASIC}": "Expected hydra.sweeper._target_ to be left out: it would do nothing here, or "
    "something else than in a program of Hydra's. `dpsweep help hydra` lists what works.",
    "--config-name=job hydra.mode=RUN": OUTSIDE,
    "--config-name=job -m": NO_NAME,
    "--config-name=job -m ++block=abc": "Expected ++block=abc to be left out: the sweeper fills it in.",
    "block=abc": "Expected block=abc to be left out: the sweeper fills it in.",
    "parts=2": "Expected parts=2 to be left out: the sweeper fills it in.",
    "plan.id=abc": "Expected plan.id=abc to be left out: the sweeper fills it in.",
    "--experimental-rerun=job.pickle": "Expected --experimental-rerun to be left out: nothing trains from a file that "
    "Hydra has stored.",
    "hydra.callbacks.door._target_=hydra.experimental.callback.Callback hydra.mode=RUN": "Expected "
    "hydra.callbacks.door._target_ to be left out: it refuses jobs outside a charged sweep.",
    "~hydra.callbacks.door": "Expected ~hydra.callbacks.door to be left out: it refuses jobs outside a charged sweep.",
}


@pytest.mark.parametrize("bypass", BYPASSES)
def test_ways_round_the_sweeper_train_nothing_and_say_so_in_one_sentence(
    program: Program, ledger: Ledger, tmp_path: Path, bypass: str
) -> None:
    words = bypass.split()
    done = program(*words, *([] if words[0].startswith("--config-name") else ["dataset=digits"]))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [BYPASSES[bypass], "(exit code 2: bad input, nothing was charged)"]
    assert [path.name for path in tmp_path.rglob("*") if path.name != "multirun.yaml"] == []
    assert ledger.account_names() == ()


BY_HAND = """
import sys
from pathlib import Path
from dpsweep.sweeper.commands.one_sentence import one_sentence
from dpsweep.sweeper.job.block_job import run_block
from tests.jobs import job_config
block, folder, store = sys.argv[1:]
with one_sentence():
    run_block(job_config([f"block='{block}'", f"hydra.sweep.dir={folder}", f"store={store}"], Path()))
"""
"""A job as our sweeper starts it."""


def test_a_finished_block_is_not_trained_again_by_hand(
    program: Program, environment: dict[str, str], ledger: Ledger
) -> None:
    """The receipt was used: neither the same block nor an edited point trains on it."""
    folder = folder_of(program(*TWO))
    plan = Plan.read(folder / "plan.json")
    before = results(folder)
    store = private_store_of_plan(ledger, plan.account, plan.id).root

    def by_hand() -> str:
        command = [sys.executable, "-c", BY_HAND, plan.blocks[0].id, str(folder), str(store)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 2
        return done.stderr

    assert "already used" in by_hand()
    form = json.loads((folder / "plan.json").read_text())
    form["blocks"][0][0]["config"]["trainer"]["lr"] = 99.0
    (folder / "plan.json").write_text(json.dumps(form))
    assert "edited after planning" in by_hand()
    assert {trial: result.ended for trial, result in before.items()} == {
        trial.id: TrialResult.read(folder / "trials" / trial.id).ended  # type: ignore[union-attr]
        for trial in plan.trials
    }


SPY = '''
"""A data set that writes down what the ledger held when its records were read."""
import json, os
from dataclasses import dataclass
from pathlib import Path
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import user_ledger_place
from dpsweep.trainers.data.interface import DataSet
from dpsweep.trainers.data.sets.images import EmbeddedImages

@dataclass(frozen=True, kw_only=True)
class Spy(DataSet):
    name: str
    records: int
    test_records: int
    shape: tuple
    classes: int
    unit: str
    inner: EmbeddedImages
    fail: bool = False

    def locate(self, folder): pass
    def verify(self, folder): return self.inner.verify(folder)
    def load(self, folder):
        statement = Ledger(user_ledger_place()).statement_or_none(self.name)
        entries = () if statement is None else statement.entries
        seen = json.dumps([sum(entry.kind == kind for entry in entries) for kind in ("charge", "start")])
        with Path(os.environ["SPY"]).open("a+") as stream:
            stream.seek(0)
            is_first = seen not in stream.read().splitlines()
            stream.write(seen + "\\n")
        if self.fail and entries and is_first:
            raise OSError("the disk is gone")
        return self.inner.load(folder)
'''


@pytest.fixture
def spy(tmp_path: Path, environment: dict[str, str]) -> tuple[str, ...]:
    (tmp_path / "spy.py").write_text(SPY)
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    digits = (Path(__file__).parents[3] / "conf" / "dataset" / "digits.yaml").read_text()
    head, _, body = digits.partition("dataset:\n")
    inner, _, tail = body.partition("\n\n")
    spied = "dataset:\n  _target_: spy.Spy\n  name: digits\n  records: 1797\n  test_records: 0\n  shape: [1, 8, 8]\n"
    spied += "  classes: 10\n  unit: record\n  inner:\n" + "\n".join(f"  {line}" for line in inner.splitlines())
    (tmp_path / "conf" / "dataset" / "spied.yaml").write_text(f"{head}{spied}\n\n{tail}")
    environment |= {"SPY": str(tmp_path / "seen"), "PYTHONPATH": str(tmp_path)}
    rest = [override for override in TWO if not override.startswith("dataset=")]
    return ("dataset=spied", f"hydra.searchpath=[file://{tmp_path / 'conf'}]", "trusted=[spy.Spy]", *rest)


def test_records_are_trained_on_only_after_the_charge_and_the_start_are_committed(
    program: Program, spy: tuple[str, ...], tmp_path: Path
) -> None:
    folder_of(program(*spy))
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert seen[0] == [0, 0], "the check of the number of units, as a file is checked before it may cost budget"
    assert seen[1:] == [[1, 2]], "one charge and the starts of both runs stood in the ledger when a job read"


def test_a_failing_trial_is_a_result_stays_charged_and_is_said(
    program: Program, spy: tuple[str, ...], ledger: Ledger
) -> None:
    done = program(*spy, "+dataset.fail=true")
    assert done.returncode == 4
    assert "2 of 2 trials failed" in done.stderr
    folder = folder_of(done)
    for trial, result in results(folder).items():
        assert result.status is Status.FAILED
        assert result.error == "OSError: the disk is gone"
        assert "the disk is gone" in (folder / "trials" / trial / "train.log").read_text()
    before = reserved_amounts(ledger.statement("digits"))
    again = program(*spy, "+dataset.fail=true")
    assert again.returncode == 4
    assert reserved_amounts(ledger.statement("digits")) == before, "a failed trial is not paid for again unasked"
    retried = program(*spy, "+dataset.fail=true", "hydra.sweeper.retry=failed")
    assert retried.returncode == 3 or reserved_amounts(ledger.statement("digits"))[0] > before[0]
