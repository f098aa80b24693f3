"""Every key of conf/ is explained by a comment there, and docs/configuration.md is made of these comments."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from dpsweep.sweeper.planning.key_explanation import explanation_text, groups_and_keys_text
from dpsweep.sweeper.planning.keys import (
    CONF,
    commented_keys,
    documented_keys,
    file_header_comment,
    is_key_users_never_set,
)

ROOT = Path(__file__).parents[3]


def test_every_key_that_a_user_may_give_is_explained() -> None:
    given = [
        key for key in documented_keys().values() if any(key.values.values()) and not is_key_users_never_set(key.name)
    ]
    assert len(given) > 100
    assert [key.name for key in given if not key.meaning] == []


def test_the_page_is_made_of_the_comments() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "generators" / "configuration.py"))
    assert (ROOT / "docs" / "configuration.md").read_text() == page["render"](), (
        "python docs/generators/configuration.py"
    )


def test_a_comment_explains_its_line_or_the_key_below_it(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(
        "# What the file is.\n_target_: some.Class\nplain: 1\nbeside: 2 # of the line\n# of the\n# next key\n"
        "below: {inner: 3}\nnested:\n  deep: [a, b] # within\n"
    )
    found = {key.name: (key.value, key.comment) for key in commented_keys(file)}
    assert file_header_comment(file) == "What the file is."
    assert found == {
        "plain": ("1", None),
        "beside": ("2", "of the line"),
        "below": ("", "of the next key"),
        "below.inner": ("3", "of the next key"),
        "nested": ("", None),
        "nested.deep": ("[a, b]", "within"),
    }


@pytest.mark.parametrize("word", ["trainer.lr", "lr", "trainer", "trainer=dpsgd", "privacy", "epochs", "sigma"])
def test_keys_groups_choices_and_other_tools_words_are_explained(word: str) -> None:
    assert len(explanation_text(word).splitlines()) >= 1
    assert "Expected" not in explanation_text(word)


@pytest.mark.parametrize(
    ("word", "choice"), [("dpsgd", "trainer=dpsgd"), ("random_stopping", "tuning=random_stopping")]
)
def test_a_choice_is_explained_by_its_own_name(word: str, choice: str) -> None:
    assert explanation_text(word) == explanation_text(choice)


def test_a_name_in_several_groups_is_explained_in_each() -> None:
    assert {line.partition(":")[0] for line in explanation_text("none").splitlines() if line} >= {
        *("adapter=none", "augmentation=none", "features=none", "logger=none")
    }


def test_a_method_without_a_comment_of_its_own_is_explained_as_a_method() -> None:
    assert "trainer.lr = 0.03: Steps have this learning rate." in explanation_text("trainer=dpadam")


@pytest.mark.parametrize("word", ["hydra", "hydra.run.dir", "hydra/launcher", "hydra.launcher.n_jobs"])
def test_hydras_own_keys_are_told_by_those_that_work(word: str) -> None:
    told = explanation_text(word)
    assert "hydra.sweep.dir=" in told
    assert "dpsweep help hydra" in groups_and_keys_text()
    for page in re.findall(r"docs/[\w-]+\.md", told):
        assert (ROOT / page).is_file()


def test_a_long_name_of_a_choice_stands_apart_from_its_meaning() -> None:
    assert "  dataset=covertype_sample  Columns have " in explanation_text("dataset.bounds")


def test_the_list_names_every_group_and_key_once() -> None:
    lines = groups_and_keys_text().splitlines()
    assert sum(line.startswith("  trainer.lr ") for line in lines) == 1
    groups = {group.name for group in CONF.iterdir() if group.is_dir()} - {"experiment"}
    assert all(any(line.startswith(f"  {group}=") for line in lines) for group in groups)
    appendix = lines.index("choices that only papers use:")
    assert lines[appendix:].count("  trainer=        adadp, dpadamwosm, output_perturbation, projected_dpsgd") == 1
    assert not any("adadp" in line for line in lines[:appendix])
