"""The README and docs/ are true: their targets, files, options, outputs and numbers exist."""

from __future__ import annotations

import doctest
import math
import re
import runpy
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from dpsweep.accounting.stored_names.stored_classes import build_from_stored_form

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LONGEST_README, MOST_LINKS = 60, 5
PAGES = {
    path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md")) if ".template" not in path.suffixes
}
SETTINGS = PAGES["settings.md"]
COMMANDS = "\n".join((README, PAGES["tutorial.md"], PAGES["how-to.md"]))
EXAMPLES = runpy.run_path(str(ROOT / "docs" / "generators" / "examples.py"))
TRAINERS = {path.stem for path in (ROOT / "conf" / "trainer").glob("*.yaml")} - {
    "output_perturbation",
    "by_grid",
    "script",
}
"""The methods that take any model and any number of steps."""


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= LONGEST_README
    assert len(re.findall(r"(?<!!)\[[^\]]+\]\(", README)) <= MOST_LINKS


def test_the_prices_that_the_readme_names_are_those_of_its_picture() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "generators" / "price_by_tries.py"))
    drawn = script["stored_numbers"](ROOT / "docs" / "figures" / "price_by_tries.png")
    composed, hidden = drawn["composition"], drawn["private selection"]["epsilons"][-1]
    named = re.search(
        r"A run of epsilon ([\d.]+) that was the best of (\d+) cost up to epsilon (\d+), and (\d+) u", README
    )
    assert named is not None
    assert float(named[1]) == math.ceil(100 * composed["epsilons"][0]) / 100
    assert [int(one) for one in named.groups()[1:]] == [
        composed["tries"][-1],
        math.ceil(composed["epsilons"][-1]),
        math.ceil(hidden),
    ]


def test_the_python_of_the_library_page_is_run() -> None:
    failed, attempted = doctest.testfile(str(ROOT / "docs" / "library.md"), module_relative=False)
    assert attempted > 0
    assert failed == 0


def test_the_sweep_that_the_tutorial_shows_is_the_default_one(compose_priced) -> None:  # type: ignore[no-untyped-def]
    identity = compose_priced([]).plan.id
    assert set(re.findall(r"Plan (\w{12}) on mnist_5k", PAGES["tutorial.md"])) == {identity}
    assert set(re.findall(r"sweeps/mnist_5k/(\w+)", PAGES["tutorial.md"])) == {identity}


@pytest.mark.parametrize(
    "arguments",
    sorted({name for path in EXAMPLES["PAGES"] for name, _ in EXAMPLES["examples"](path.read_text())}),
)
def test_plans_that_pages_show_are_what_the_program_prints(arguments: str) -> None:
    output = EXAMPLES["timeless"](EXAMPLES["output"](arguments))
    pages = [dict(EXAMPLES["examples"](path.read_text())) for path in EXAMPLES["PAGES"]]
    shown = [EXAMPLES["timeless"](page[arguments]) for page in pages if arguments in page]
    assert shown == [output] * len(shown), "python docs/generators/examples.py"


def test_every_make_target_of_the_pages_exists_and_every_target_is_phony() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)|\$ make ([a-z-]+)", COMMANDS))
    assert {name for pair in named for name in pair if name} <= targets
    phony = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    assert targets == phony
    assert targets >= {"help", "install", "sweep", "plan", "report", "budget", "test", "lint", "bench", "clean"}


def test_clean_never_touches_a_ledger_or_a_sweep() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition("\nclean:")[2].partition("\n\n")[0]
    assert "sweeps" not in recipe
    assert "ledger" not in recipe.partition("\n")[2]


@pytest.mark.parametrize("name", ["README.md", *PAGES])
def test_every_link_leads_to_a_file_and_to_a_heading(name: str) -> None:
    page = ROOT / "README.md" if name == "README.md" else ROOT / "docs" / name
    for target, anchor in re.findall(r"\]\(([\w/.-]*)(?:#([\w-]+))?\)", page.read_text()):
        path = page.parent / target if target else page
        assert path.is_file(), target
        assert not anchor or anchor in anchors(path.read_text()), f"{target}#{anchor}"


def test_the_index_lists_every_page_of_the_folder_once() -> None:
    listed = {page: title for title, page in re.findall(r"^- \[(.+)\]\(([\w.-]+)\):", PAGES["index.md"], re.MULTILINE)}
    assert listed == {
        page: text.splitlines()[0].removeprefix("# ") for page, text in PAGES.items() if page != "index.md"
    }
    assert PAGES["index.md"].count("\n- ") == len(listed)


def test_every_option_of_the_table_exists_and_none_is_missing() -> None:
    for group in (
        "grid",
        "features",
        "adapter",
        "augmentation",
        "score",
        "accountant",
        "search",
        "logger",
    ):
        row = next(line for line in SETTINGS.splitlines() if line.startswith(f"| `{group}="))
        named = set(re.findall(r"`([\w]+)`", row.partition("| `")[2].partition("|")[2]))
        assert named == {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}


def test_every_environment_variable_of_the_settings_page_is_read_somewhere_and_none_is_missing() -> None:
    files = [
        path
        for folder in ("accounting", "trainers", "sweeper", "reports", "conf")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".yaml")
    ]
    read = {name for path in files for name in re.findall(r"\bDPSWEEP_[A-Z]+\b", path.read_text())}
    assert set(re.findall(r"^\| `(DPSWEEP_[A-Z]+)` \|", SETTINGS, re.MULTILINE)) == read


def test_the_picture_of_the_rooms_is_as_the_imports_are() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert runpy.run_path(str(ROOT / "docs" / "generators" / "rooms.py"))["insert"](page) == page, (
        "python docs/generators/rooms.py"
    )


def test_the_page_of_rules_by_number_of_points_and_its_picture_are_what_was_measured() -> None:
    page = (ROOT / "docs" / "search.md").read_text()
    script = runpy.run_path(str(ROOT / "docs" / "generators" / "grid_sizes.py"))
    assert script["insert"](page) == page, "python docs/generators/grid_sizes.py"
    assert script["MEANS"].read_text() == script["means"](), "python docs/generators/grid_sizes.py"
    assert script["numbers"]() == script["drawn_numbers"](), "python docs/generators/grid_sizes.py"


def test_the_page_of_published_results_is_what_was_trained() -> None:
    page = (ROOT / "docs" / "learning.md").read_text()
    assert runpy.run_path(str(ROOT / "docs" / "generators" / "learning_results.py"))["insert"](page) == page, (
        "python docs/generators/learning_results.py"
    )


def test_architecture_names_files_that_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert all(
        (ROOT / name).is_file() for name in re.findall(r"`((?:accounting|trainers|sweeper|reports)/[\w/]+\.py)`", page)
    )


def test_the_table_of_methods_models_and_data_is_what_their_files_say() -> None:
    catalogue = runpy.run_path(str(ROOT / "docs" / "generators" / "catalogue.py"))
    assert catalogue["insert"](SETTINGS) == SETTINGS, "python docs/generators/catalogue.py"
    for group in catalogue["GROUPS"]:
        for path in (ROOT / "conf" / group).glob("*.yaml"):
            table, appendix = SETTINGS.split(catalogue["APPENDIX"])
            assert table.count(f"| `{group}={path.stem}` | ") + appendix.count(f"`{group}={path.stem}`") == 1


@pytest.mark.parametrize("path", sorted((ROOT / "conf").rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_yaml_says_what_it_is(path: Path) -> None:
    assert path.read_text().startswith("#")
    assert isinstance(yaml.safe_load(path.read_text()), dict)


NOISELESS = {
    name
    for name in TRAINERS
    if build_from_stored_form(
        yaml.safe_load((ROOT / "conf" / "trainer" / f"{name}.yaml").read_text()), "trainer"
    ).noiseless
}
"""For data declared public, with no budget to fit."""


@pytest.mark.long
def test_every_data_set_that_asks_the_user_nothing_and_every_trainer_make_a_plan(compose_priced) -> None:  # type: ignore[no-untyped-def]
    files = sorted((ROOT / "conf" / "dataset").glob("*.yaml"))
    asking = {
        path for path in files if "model.path" in path.read_text() or OmegaConf.missing_keys(OmegaConf.load(path))
    }
    for dataset in (path.stem for path in files if path not in asking):
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
        assert priced.quote.guarantee.is_within_budget(priced.plan.budget), "the default sweep fits the default budget"
        assert 3 * priced.quote.epsilon <= priced.plan.budget.epsilon * 1.001


def test_the_readme_names_the_commands_of_the_main_job_and_of_the_tests_and_ci_runs_the_second() -> None:
    named = re.search(
        r"^`(make [a-z-]+)` runs the main job\b.*?`(make [a-z-]+)` runs the tests\b", README, re.MULTILINE
    )
    assert named is not None
    makefile = (ROOT / "Makefile").read_text()
    for command in named.groups():
        assert re.search(rf"^{command.removeprefix('make ')}:.*## ", makefile, re.MULTILINE), command
    job, tests = named.groups()
    assert re.search(rf"^{job.removeprefix('make ')}:.*\n\t.*/dpsweep sweep ", makefile, re.MULTILINE)
    assert re.search(rf"^{tests.removeprefix('make ')}:.*\n\t.*\(PYTEST\)", makefile, re.MULTILINE)
    assert tests in (ROOT / ".ci" / "run").read_text().splitlines(), "a line of its own"


def test_the_maps_of_the_readme_are_made_by_the_commands_that_it_shows() -> None:
    commands = runpy.run_path(str(ROOT / "docs" / "generators" / "readme_maps.py"))["commands"]()
    assert commands == {"first_map": [], "three_methods": ["dataset=mnist", "trainer=dpsgd,dpnsgd,dpadam"]}
    assert all(f"](docs/{name}.png)" in README for name in commands)
