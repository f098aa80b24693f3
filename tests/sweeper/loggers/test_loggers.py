"""Loggers: only declared names and charged scores, once, after the results are stored, and never under hiding rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.selection.rules import Composition
from dpsweep.sweeper.loggers.interface import LoggedRun, LoggedSweep, check_loggers_allowed_and_installed
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import TWO, Program, folder_of, results
from tests.sweeper.loggers import readers
from tests.sweeper.loggers.readers import Stored

READERS: dict[str, tuple[str, Callable[[Path], Iterator[Stored]]]] = {
    "tensorboard": ("tensorboard", readers.of_tensorboard),
    "mlflow": ("mlflow", readers.of_mlflow),
    "wandb": ("wandb", readers.of_wandb),
}
"""Loggers by name: the library, and how it is read back."""

DECLARED = {
    "method",
    "noise_multiplier",
    "steps",
    "batch_size",
    "trainer.lr",
    "trainer.regularizer",
    "trainer.weight_decay",
}
SCORES = {"accuracy", "accuracy_low", "accuracy_high"}
FACTS = {f"dpsweep.{name}" for name in ("data_set", "plan", "rule", "mark", "privacy")}
THEIRS = {
    "tensorboard": frozenset(),
    "mlflow": {"mlflow.runName"},
    "wandb": {"_wandb", "_wandb.runtime", "_runtime", "_timestamp", "_step"},
}
"""Names that a library adds on its own: those of W&B are of the time at which the results were written."""

UNPRICED = (b"loss", b"grad", b"batch_sizes", b"seconds", b"curve", b"empty", b"right", b"error", b"device")
"""Beginnings of names of values that no price covers."""


def require(logger: str) -> None:
    if find_spec(READERS[logger][0]) is None:
        pytest.skip(f"needs {READERS[logger][0]}: pip install 'dpsweep[loggers]'")


def read_back(logger: str, folder: Path) -> list[Stored]:
    return list(READERS[logger][1](folder))


def files_of(logger: str, folder: Path) -> bytes:
    pattern = {"tensorboard": "sweeps/*/*/tensorboard/*/*", "wandb": "sweeps/*/*/wandb/offline-run-*/*.wandb"}[logger]
    return b"".join(path.read_bytes() for path in folder.glob(pattern))


@TRAINS
@pytest.mark.parametrize("logger", READERS)
def test_a_library_reads_back_hyperparameters_and_charged_scores_alone(
    logger: str, program: Program, tmp_path: Path, ledger: Ledger
) -> None:
    require(logger)
    done = program(*TWO, f"logger={logger}")
    assert done.stderr == ""
    folder = folder_of(done)
    stored = read_back(logger, tmp_path)
    scores = sorted(float(result.score_value or 0) for result in results(folder).values())
    assert sorted(run.scores["accuracy"] for run in stored) == pytest.approx(scores, abs=1e-6)
    assert {float(run.hyperparameters["trainer.regularizer"]) for run in stored} == {0.1, 1.0}
    for run in stored:
        assert run.hyperparameters.keys() == DECLARED
        assert run.scores.keys() == SCORES
        assert run.facts.keys() == FACTS
        assert run.others <= THEIRS[logger]
        assert run.facts["dpsweep.mark"] == "private"
        assert run.facts["dpsweep.plan"] == folder.name
        (charge,) = ledger.statement("digits").charges
        assert run.facts["dpsweep.privacy"].startswith("Epsilon ")
        assert charge.plan == folder.name
    if logger == "mlflow":
        assert (tmp_path / "mlflow.db").stat().st_mode & 0o777 == 0o600
    else:  # MLflow's database has tables and columns of its own
        assert [name for name in UNPRICED if name in files_of(logger, tmp_path)] == []
    assert folder_of(program(*TWO, f"logger={logger}")) == folder
    assert len(read_back(logger, tmp_path)) == len(stored) == 2
    assert len(ledger.statement("digits").charges) == 1


@TRAINS
@pytest.mark.parametrize(
    ("words", "mark", "promise"),
    [
        (("seed=1",), "seeded", "None. "),
        (("dataset.public=true", "trainer=sgd", "score=training", "score.every=1"), "public", "None: these data were"),
    ],
    ids=["seed", "public"],
)
def test_results_without_a_promise_are_marked(
    words: tuple[str, ...], mark: str, promise: str, program: Program, tmp_path: Path
) -> None:
    require("tensorboard")
    grid = TWO if mark == "seeded" else ("dataset=digits", "trainer.lr=1,2", "steps=3")
    done = program(*grid, *words, "logger=tensorboard")
    assert done.returncode == 0, done.stderr
    stored = read_back("tensorboard", tmp_path)
    assert len(stored) == 2
    for run in stored:
        assert run.facts["dpsweep.mark"] == mark
        assert run.facts["dpsweep.privacy"].startswith(promise)
        assert run.scores.keys() <= SCORES
        assert run.hyperparameters.keys() <= DECLARED
    assert [name for name in UNPRICED if name in files_of("tensorboard", tmp_path)] == []


@pytest.mark.parametrize("rule", ["private_selection", "best_of_grid", "noisy_max", "threshold"])
def test_rules_that_hide_scores_refuse_a_logger_before_the_charge(
    rule: str, program: Program, tmp_path: Path, ledger: Ledger
) -> None:
    more = ("tuning.threshold=0.8",) if rule == "threshold" else ()
    refused = program(*TWO, f"tuning={rule}", *more, "logger=tensorboard")
    assert refused.returncode == 2
    assert f"Expected logger=tensorboard to be none under {rule}: it would show every run" in refused.stderr
    assert ledger.account_names() == ()
    assert not list(tmp_path.glob("sweeps/*/*/tensorboard"))


@dataclass(frozen=True)
class Elsewhere:
    """A logger whose library is not installed."""

    title: str = "Nothing"
    package: str = "nothing_of_the_kind"

    def write(self, run: LoggedRun, sweep: LoggedSweep, folder: Path) -> None:
        raise NotImplementedError


def test_a_library_that_is_not_installed_is_one_sentence() -> None:
    with pytest.raises(BadInput, match=r"^Expected Nothing for logger=mine: it needs the package nothing"):
        check_loggers_allowed_and_installed({"mine": Elsewhere()}, Composition())


@TRAINS
def test_a_logger_that_fails_costs_a_sentence_and_is_given_the_rest_later(
    program: Program, tmp_path: Path, ledger: Ledger
) -> None:
    require("tensorboard")
    (tmp_path / "board").write_text("a file where a folder should be")
    words = (*TWO, "logger=tensorboard", "logger.tensorboard.folder=board")
    done = program(*words)
    assert done.returncode == 0
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("The runs were not all logged to TensorBoard: ")
    assert warning.endswith("the same command logs what is missing.")
    folder = folder_of(done)
    before = {path: path.read_bytes() for path in folder.glob("trials/*/result.json")}
    assert len(before) == 2
    (tmp_path / "board").unlink()
    assert program(*words).stderr == ""
    assert len(list((tmp_path / "board").iterdir())) == 2
    assert {path: path.read_bytes() for path in folder.glob("trials/*/result.json")} == before
    assert len(ledger.statement("digits").charges) == 1


def test_loggers_are_no_part_of_a_plan(compose_priced: Callable[[list[str]], PricedPlan]) -> None:
    identities = {compose_priced([*TWO, *words]).plan.id for words in ([], ["logger=wandb"], ["logger=[mlflow,wandb]"])}
    assert len(identities) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("logger=wandb", "logger.wandb.mode=upload"), "Expected mode=upload to be one of offline, online."),
        (("logger=neptune",), "Expected logger=neptune to be one of mlflow, none, tensorboard, wandb."),
        (("logger=mlflow", "+logger.mlflow.autolog=true"), "Expected logger.autolog to be one of experiment, uri."),
    ],
)
def test_wrong_words_charge_nothing(words: tuple[str, ...], sentence: str, program: Program, ledger: Ledger) -> None:
    refused = program(*TWO, *words)
    assert refused.returncode == 2
    assert sentence in refused.stderr
    assert ledger.account_names() == ()
