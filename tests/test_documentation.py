"""The README is true: its targets, files, options and numbers exist."""

from __future__ import annotations

import doctest
import re
import runpy
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from dpsweep.reports.reproduction.finding import known

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
TRAINERS = {path.stem for path in (ROOT / "conf" / "trainer").glob("*.yaml")} - {"output_perturbation", "by_grid"}
"""The methods that take any model and any number of steps."""


def test_the_readmes_python_is_run() -> None:
    failed, attempted = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert attempted > 0
    assert failed == 0


def test_the_readmes_first_plan_is_the_default_sweeps(compose_priced) -> None:  # type: ignore[no-untyped-def]
    assert set(re.findall(r"Plan (\w{12}) on mnist_5k|mnist_5k/(\w{12})/", README)) == {
        (plan := compose_priced([]).plan.id, ""),
        ("", plan),
    }


def test_every_make_target_of_the_readme_exists_and_every_target_is_phony() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)|\$ make ([a-z-]+)", README))
    assert {name for pair in named for name in pair if name} <= targets
    phony = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    assert targets == phony
    assert targets >= {"help", "install", "sweep", "plan", "report", "budget", "test", "lint", "bench", "clean"}


def test_clean_never_touches_a_ledger_or_a_sweep() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition("\nclean:")[2].partition("\n\n")[0]
    assert "sweeps" not in recipe
    assert "ledger" not in recipe.partition("\n")[2]


@pytest.mark.parametrize("path", re.findall(r"\]\(([\w/.]+)\)", README))
def test_every_linked_file_exists(path: str) -> None:
    assert (ROOT / path).is_file()


def test_every_option_of_the_table_exists_and_none_is_missing() -> None:
    for group in ("grid", "augmentation", "score", "accountant", "search", "experiment"):
        row = next(line for line in README.splitlines() if line.startswith(f"| `{group}="))
        named = set(re.findall(r"`([\w]+)`", row.partition("| `")[2].partition("|")[2]))
        assert named == {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}


def test_the_picture_of_the_rooms_is_as_the_imports_are() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert runpy.run_path(str(ROOT / "docs" / "rooms.py"))["insert"](page) == page, "python docs/rooms.py"


def test_architecture_names_files_that_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert all(
        (ROOT / name).is_file() for name in re.findall(r"`((?:accounting|trainers|sweeper|reports)/[\w/]+\.py)`", page)
    )


def test_the_table_of_methods_models_and_data_is_what_their_files_say() -> None:
    catalogue = runpy.run_path(str(ROOT / "docs" / "catalogue.py"))
    assert catalogue["insert"](README) == README, "python docs/catalogue.py"
    for group in catalogue["GROUPS"]:
        for path in (ROOT / "conf" / group).glob("*.yaml"):
            assert README.count(f"| `{group}={path.stem}` | ") == 1


@pytest.mark.parametrize("path", sorted((ROOT / "conf").rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_yaml_says_what_it_is(path: Path) -> None:
    assert path.read_text().startswith("#")
    assert isinstance(yaml.safe_load(path.read_text()), dict)


NOISELESS = {"sgd", "adam", "clipped_sgd", "normalized_sgd"}
"""For data declared public, with no budget to fit."""


def test_every_data_set_that_asks_the_user_nothing_and_every_trainer_make_a_plan(compose_priced) -> None:  # type: ignore[no-untyped-def]
    files = sorted((ROOT / "conf" / "dataset").glob("*.yaml"))
    for dataset in (path.stem for path in files if not OmegaConf.missing_keys(OmegaConf.load(path))):
        trainers = TRAINERS - NOISELESS if dataset == "digits" else {"dpnsgd", "dpsgd"}
        priced = compose_priced(
            [
                f"dataset={dataset}",
                "accountant=rdp",
                "accountant.witnesses=[]",
                f"trainer={','.join(trainers)}",
                "trainer.lr=1",
            ]
        )
        methods = {trial.method for trial in priced.plan.trials}
        assert methods | {"auto_s"} == trainers | {"auto_s"}, "its points may be dpnsgd's"
        assert priced.quote.guarantee.fits(priced.plan.budget), "the default sweep fits the default budget"
        assert 3 * priced.quote.epsilon <= priced.plan.budget.epsilon * 1.001


def test_the_exit_codes_of_the_readme_are_the_programs() -> None:
    from dpsweep.accounting.errors import ExitCode

    for code in ExitCode:
        assert re.search(rf"\b{code.value} ", README)


def test_the_gallery_shows_every_figure_with_every_claim_and_its_verdict() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text()
    sections = dict(re.findall(r"^### `(\w+)`.*?\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(known())
    for name, section in sections.items():
        assert f"(figures/{name}.png)" in section
        assert (ROOT / "docs" / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        verdicts = re.findall(r"^\| .* \| \*\*(holds|does not hold)\*\* \|$", section, re.MULTILINE)
        assert len(verdicts) == section.count("\n| ") - 1, "a row for the titles, and no claim without a verdict"
