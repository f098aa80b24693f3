"""What a script cannot be charged for is refused in one sentence while the sweep is planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.job.block_job import _refuse_untrusted_classes
from dpsweep.sweeper.trial.blocks import most_stacked_points
from dpsweep.sweeper.trial.script_run import read_unchanged_script_content
from dpsweep.sweeper.trial.spec import declaration_from_config
from tests.sweeper.trial.scripts import SWEEP, write_script

Compose = Callable[[Sequence[str]], PricedPlan]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_script(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("tuning=private_selection", "tuning.mean=3"),
            r"Expected trainer=script, .*to be another trainer under private_selection",
        ),
        (
            ("tuning=best_of_grid",),
            r"Expected trainer=script, .*to be another trainer under best_of_grid",
        ),
        (("tuning=noisy_max", "score.noise_std=null"), r"to be another trainer|noisy"),
        (("script=gone.py",), r"Expected script=gone\.py to be a readable file: No such file or directory\."),
        (("script=broken.py",), r"Expected script=broken\.py to be a Python program: .*broken\.py, line 1\)\."),
        (("trainer.script=???",), r"Expected script=FILE with trainer=script"),
        (("model=mlp",), r"Expected model to be left out with trainer=script"),
        (("engine=vmap",), r"Expected engine to be left out with trainer=script"),
        (("ema=0.9",), r"Expected ema to be left out with trainer=script"),
        (("augmentation=shift_flip",), r"Expected augmentation to be left out with trainer=script"),
        (("clip_schedule=linear",), r"Expected clip_schedule to be left out with trainer=script"),
        (("lr_schedule=cosine",), r"Expected lr_schedule=constant with trainer=script"),
        (("loss.class_weights=[1,2,1,1,1,1,1,1,1,1]",), r"Expected loss\.class_weights to be null with trainer=script"),
        (("subsample=shared",), r"subsample"),
        (("sampler=shuffle",), r"Expected sampler=shuffle to be poisson or fixed_size with trainer=script"),
        (("+trainer.hyperparameters.lr=1",), r"Expected trainer\.hyperparameters\.lr to be a name other than"),
        (("+trainer.hyperparameters.sizes=[1,2]",), r"Expected trainer\.hyperparameters\.sizes=.* a number or a text"),
    ],
)
def test_a_script_that_cannot_be_charged_for_is_refused(
    compose_priced: Compose, folder: Path, words: tuple[str, ...], sentence: str
) -> None:
    (folder / "broken.py").write_text("def (:\n")
    with pytest.raises((BadInput, ValueError), match=sentence) as refusal:
        compose_priced([*SWEEP, *words])
    assert "\n" not in str(refusal.value)


def test_a_script_has_axes_of_its_own_out_of_the_box(compose_priced: Compose) -> None:
    plan = compose_priced([word for word in SWEEP if not word.startswith("trainer.lr")]).plan
    assert [trial.axes for trial in plan.trials] == [{"trainer.lr": lr} for lr in (0.05, 0.1, 0.2, 0.4)]


def test_the_checksum_of_the_script_identifies_the_plan(compose_priced: Compose, folder: Path) -> None:
    plan = compose_priced(SWEEP).plan
    (trial,) = plan.trials
    assert trial.config["model"] == {}
    assert plan.id == compose_priced([*SWEEP, "script=./train.py"]).plan.id
    script = declaration_from_config(trial.config).trainer
    assert read_unchanged_script_content(script) == (folder / "train.py").read_bytes()
    (folder / "train.py").write_text("print('another')")
    with pytest.raises(ContractBroken, match=r"Expected train\.py to be as it was charged: its SHA-256 is another"):
        read_unchanged_script_content(script)
    assert compose_priced(SWEEP).plan.id != plan.id


def test_a_script_runs_only_if_the_command_names_it(compose_priced: Compose) -> None:
    plan = compose_priced(SWEEP).plan
    (name,) = plan.names_of_user_classes_and_scripts
    assert name.startswith("train.py (sha256 ")
    _refuse_untrusted_classes(plan, [name])
    for trusted in ([], ["train.py"], [name.replace("sha256 ", "sha256 0")]):
        with pytest.raises(BadInput, match=r"no script run because a file names it\.$"):
            _refuse_untrusted_classes(plan, trusted)


def test_scripts_are_not_stacked(compose_priced: Compose) -> None:
    priced = compose_priced([*SWEEP, "+trainer.hyperparameters.hidden=4,8"])
    assert [trial.axes["trainer.hyperparameters.hidden"] for trial in priced.plan.trials] == [4, 8]
    assert most_stacked_points(priced.plan.trials[0].config) == 0
    assert [path.name for path in Path().iterdir()] == ["train.py"], "planning writes nothing"
