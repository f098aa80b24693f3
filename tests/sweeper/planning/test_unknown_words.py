"""Wrong words on the command line are refused in one sentence of ours, with the right word where one is near."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.sweeper.planning.keys import (
    choice_file_path,
    choices_by_group,
    documented_keys,
    file_header_comment,
    is_root_of_key_known,
)
from dpsweep.sweeper.planning.unknown_keys import (
    CHOICES_OF_OTHER_TOOLS,
    SYNONYMS,
    axis_in_brackets_sentence,
    translate_foreign_override,
    unknown_choice_sentence,
    unknown_key_sentence,
)
from tests.source_files import ROOT

Program = Callable[..., subprocess.CompletedProcess[str]]
CLI = "dpsweep.sweeper.commands.cli"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["datset=mnist"], "Did you mean dataset?"),
        (["dataset=mnsit"], "Did you mean dataset=mnist?"),
        (["trainer=dpsgd,dpnsdg"], "Did you mean trainer=dpnsgd?"),
        (["dataset=visits.csv"], "For a table of your own: dpsweep declare visits.csv."),
        (["dataset=/data/visits.csv"], "Expected dataset=/data/visits.csv to be one of"),
        (["model=net.Net"], "For a class of your own: model._target_=net.Net."),
        (["privacy.noise_multiplier=0.0001"], "at which training has a price, got epsilon inf"),
        (["sampler.bachsize=3"], "Did you mean sampler.batch_size?"),
        (["plan.finl=true"], "Did you mean plan.final?"),
        (["initial_weight=by_repetition"], "Did you mean initial_weights?"),
        (["weights={ema: 0.9, emma: 1}"], "Expected weights.emma to be a key of the configuration."),
        (["weights=3"], "Expected weights=3 to be a group of keys."),
        (["max_grad_norm=1"], "in dpsweep's words: trainer.clip_norm=1."),
        (["C=1,2"], "in dpsweep's words: trainer.clip_norm=1,2."),
        (["epochs=3,5", "dataset=mnist"], "in dpsweep's words: steps=144,240."),
        (["epochs=1", "score=public", "sampler.batch_size=1000"], "in dpsweep's words: steps=5."),
        (["trainer.clip_norm=1"], "to be a key of dpnsgd, which runs. Name a method that has it: trainer=dpsgd"),
        (["trainer=dpadam", "trainer.momentum=0.3"], "beside a choice of trainer that has this key: dpmomentum."),
        (["dataset=npz", "dataset.file=x.npz"], "`dpsweep help dataset=npz` lists the keys of that one."),
        (["foo"], "Expected foo to be KEY=VALUE"),
        (["trainer.lr=[0.1"], "check its brackets"),
        (["trainer.lr=np.logspace(-2, 1, 4)"], "as a list of values: trainer.lr=0.01,0.1,1,10."),
        (
            ["trainer.lr=[1, 2,3]"],
            "without brackets, which make one value of it; its values as an axis: trainer.lr=1,2,3",
        ),
        (["trainer.lr=[]"], "trainer.lr has no value."),
        (
            ["trainer.lr=loguniform(1e-4,1)"],
            "can be priced, and the hidden rules' laws over them: trainer.lr=0.0001,0.001,0.01,0.1,1.",
        ),
        (["trainer.lr=tune.choice([1,2])"], "trainer.lr=1,2. What is drawn at random is search=random over the list."),
        (["trainer={'lr': 1, 'clip_norm': 0.5}"], "give each key its list: trainer.lr=1,2"),
        (["trainer=dpsgd", "model.width=8,16"], "model._target_=my_model.Net +model.width=8,16"),
        (["privacy.delta=2"], "privacy.delta is a probability; yours, 2, is above 1."),
        (["budget.sealed=0.3"], "Write 'budget.sealed={share: 0.3, parts: 2}', or auto."),
        (["trainer=[dpsgd,dpnsgd]"], "its values as an axis: trainer=dpsgd,dpnsgd."),
        (["hydra/sweeper=optuna"], "search=tpe, search=gp and search=random, with search.trials=20"),
        (["hydra.sweeper.n_trials=20"], "in dpsweep's words: search.trials=20."),
        (["hydra.sweeper.params.trainer.lr=interval(0.1,100)"], "in dpsweep's words: trainer.lr=0.1,1,10,100."),
        (["+hydra.sweeper.params.trainer.lr=choice(1,2)"], "in dpsweep's words: trainer.lr=choice(1,2)."),
        (
            ["hydra.sweeper.retry=again,none"],
            "only hyperparameters may be axes, and hydra.sweeper.retry is a key of Hydra.",
        ),
        (["score.metric=AUC"], "in dpsweep's words: score.metric=auroc."),
        (["tuning=privat"], "Did you mean tuning=private_selection?"),
        (["search=optuna"], "Did you mean search=tpe?"),
        (["--epsilon", "3"], "Expected --epsilon as KEY=VALUE, here privacy.epsilon=3: the options are --again,"),
        (["-x"], "Expected -x as KEY=VALUE, as in privacy.epsilon=3: the options are --again,"),
        (
            ["trainer._target_=decimal.Decimal", "trainer.lr=1"],
            "Expected trainer=Decimal to inherit from dpsweep.train",
        ),
        (["trainer.update._target_=mine.Mine"], "in a file of your own, trainer/NAME.yaml, with all parts of the"),
        (["dataset=torch_dataset", "dataset.source._target_=a.B"], "in braces: 'dataset.source={_target_: a.B}'."),
        (["privacy.epsilon=${oc.env:NOWHERE_SET}"], "the environment variable NOWHERE_SET to be set"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one(
    program: Program, tmp_path: Path, words: list[str], sentence: str
) -> None:
    done = program("plan", *words, module=CLI)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Could not override" not in done.stderr
    assert "usage:" not in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.rglob("plan.json")) == []


def test_pages_that_are_named_for_an_own_choice_exist() -> None:
    for group in choices_by_group():
        for page in re.findall(r"docs/\w+\.md", unknown_key_sentence(f"{group}.part._target_", [])):
            assert (ROOT / page).is_file()


def test_all_missing_values_are_named_at_once_with_their_meanings(program: Program) -> None:
    done = program("plan", "dataset=table", "dataset.name=visits", "dataset.delimiter=;", module=CLI)
    assert done.returncode == 2
    for key in ("dataset.file", "dataset.label", "dataset.labels", "dataset.bounds", "privacy.delta", "budget.epsilon"):
        assert f"  {key}=" in done.stderr
    assert "dataset.name=" not in done.stderr
    assert "dataset.units=" not in done.stderr
    units = program("plan", "dataset=table", "dataset.target=[0,9]", "dataset.unit_column=id", module=CLI).stderr
    assert "dataset.units=" in units
    assert "dataset.contribution_cap=" in units
    assert "dataset.labels=" not in units
    assert "The model predicts this column" in done.stderr


def test_numbers_come_from_environment_variables(
    program: Program, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    environment["EPSILON_OF_OURS"] = "1.25"
    done = program("plan", "dataset=digits", "privacy.epsilon=${oc.env:EPSILON_OF_OURS}", "accountant=rdp", module=CLI)
    assert done.returncode == 0, done.stderr
    assert "1.25" in done.stdout


def test_a_key_that_is_given_twice_is_told_with_the_word_that_counts(
    program: Program,
) -> None:
    words = ("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "accountant=rdp", "accountant.witnesses=[]")
    done = program("plan", *words, "trainer.lr=3", "trainer.lr=0.1,0.2", "steps=7", "steps=8", "seed=1", module=CLI)
    assert "trainer.lr is given several times: trainer.lr=0.1,0.2 is used, and trainer.lr=3 is ignored." in done.stderr
    assert "steps is given several times: steps=8 is used, and steps=7 is ignored." in done.stderr
    assert "2 (2 dpsgd)" in done.stdout
    assert "seed is given" not in done.stderr


def test_the_version_is_printed(program: Program) -> None:
    assert program("--version", module=CLI).stdout.startswith("dpsweep 0.")


def test_verbs_have_help_and_a_typo_is_answered(program: Program) -> None:
    assert "dpsweep plan dataset=adult" in program("plan", "--help", module=CLI).stdout
    assert program(module=CLI).stdout == program("--help", module=CLI).stdout
    done = program("swep", module=CLI)
    assert done.returncode == 2
    assert "Did you mean sweep?" in done.stderr


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("search=optuna", "search=tpe"),
        ("loss=mse", "loss=squared_error"),
        ("loss=l1", "loss=absolute_error"),
        ("tuning=liu_talwar", "tuning=random_stopping"),
        ("tuning=papernot_steinke", "tuning=private_selection"),
        ("accountant=moments", "accountant=rdp"),
        ("trainer=adamw", "trainer=dpadam"),
    ],
)
def test_a_choice_of_another_name_is_answered_with_ours(word: str, ours: str) -> None:
    assert unknown_choice_sentence(*word.split("=")).endswith(f" Did you mean {ours}?")


@pytest.mark.parametrize("folder", ["conf", "."])
def test_a_file_of_the_users_own_is_found_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / folder / "dataset").mkdir(parents=True)
    (tmp_path / folder / "dataset" / "mnist2.yaml").touch()
    sentence = unknown_choice_sentence("dataset", "mnist2")
    assert sentence.endswith(f" {Path(folder, 'dataset', 'mnist2.yaml')} is found with `--config-dir {folder}`.")


def test_every_choice_of_another_name_is_one_of_ours() -> None:
    ours = {choice for choices in choices_by_group().values() for choice in choices}
    assert set(CHOICES_OF_OTHER_TOOLS.values()) <= ours
    assert not set(CHOICES_OF_OTHER_TOOLS) & ours


@pytest.mark.parametrize("name", sorted(SYNONYMS))
def test_other_tools_words_lead_to_keys_and_groups_that_exist(name: str) -> None:
    key = SYNONYMS[name].format(name)
    assert key in documented_keys() or key in choices_by_group() or key.startswith("hydra."), key
    assert is_root_of_key_known(key)
    assert translate_foreign_override(name, "1", []) is not None


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("microbatches=4", "compute.chunk"),
        ("per_example_max_grad_norm=1", "trainer.clip_norm=1"),
        ("optimizer=adamw,sgd_", "trainer=dpadam,sgd_"),
        ("privacy.accountant=rdp", "accountant=rdp"),
    ],
)
def test_words_of_the_trade_are_translated_with_their_values(word: str, ours: str) -> None:
    name, _, value = word.partition("=")
    assert translate_foreign_override(name, value, []) == ours


@pytest.mark.parametrize("word", ["trainer.lr=[1, 2]", "trainer.lr={values: [1,2]}", "trainer.lr={ values : [ 1,2 ] }"])
def test_a_list_in_brackets_is_answered_with_the_axis(word: str) -> None:
    sentence = axis_in_brackets_sentence(word)
    assert sentence is not None
    assert sentence.endswith("its values as an axis: trainer.lr=1,2.")


@pytest.mark.parametrize(("word", "key"), [("solve", "plan.solve"), ("initial_weights", "weights.initial")])
def test_a_file_names_a_key_with_its_group(program: Program, tmp_path: Path, word: str, key: str) -> None:
    """Nothing would read it otherwise: the noise would be solved for where the file says steps."""
    (tmp_path / "my" / "experiment").mkdir(parents=True)
    (tmp_path / "my" / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{word}: steps\n")
    done = program("plan", "dataset=digits", "experiment=mine", "--config-dir", "my", module=CLI)
    assert done.returncode == 2, done.stdout
    assert f"Expected a file to name {key}, got {word}:" in done.stderr


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("=3", "Expected =3 to be KEY=VALUE, as in steps=100."),
        ("data=2026", "Expected data=2026 to be the name of a folder, a number in quotes: data=\"'2026'\"."),
        ("compute=cpu", "Expected compute=cpu to be a group of keys, as in compute.device=cpu."),
        ("compute=null", "Expected compute=None to be a group of keys, as in compute.device=cpu."),
        ("compute.device=gpu", "Expected compute.device=gpu to be auto, cpu or cuda."),
        (
            "hydra.sweeper.max_batch_size=1.5",
            "Expected hydra.sweeper.max_batch_size=1.5 to fit its key: Value '1.5' of type 'float' could not be "
            "converted to Integer.",
        ),
    ],
)
def test_a_value_of_a_wrong_kind_is_one_line_of_a_plan_and_of_a_sweep(program: Program, word: str, said: str) -> None:
    for verb in ("plan", "sweep"):
        done = program(verb, "dataset=digits", word, module=CLI)
        assert (done.returncode, done.stderr.splitlines()[0]) == (2, said), done.stderr
        assert len(done.stderr.splitlines()) == 2


def test_a_comment_of_a_file_is_sentences() -> None:
    for group, choices in choices_by_group().items():
        for choice in choices if group != "experiment" else ():
            comment = file_header_comment(choice_file_path(group, choice))
            assert not re.search(r"[a-z] For papers|\. [a-z]+ (?!al\b)[a-z]+ ", comment), comment
