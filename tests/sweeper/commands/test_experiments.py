"""The papers' experiments: in three sizes each, within the budgets that they declare, small ones without a download."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.stored_names.stored_classes import current_path_of_class
from dpsweep.reports.reproduction.finding import Computed, Trained, figure_names, find_figure
from dpsweep.reports.reproduction.training import PLAN, check_known_scale_and_no_data_override, run_plan_and_read_lines
from dpsweep.sweeper.commands.hydra_app import CONF, FULL, REDUCED, SCALES, merge_scale_into_experiment_argument
from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE
from dpsweep.sweeper.planning import trained_weights
from dpsweep.sweeper.trial.spec import declaration_from_config
from tests.randomized import TRAINS

pytestmark = TRAINS

Program = Callable[..., subprocess.CompletedProcess[str]]
Compose = Callable[[Sequence[str]], PricedPlan]

FAST = ("accountant=rdp", "accountant.witnesses=[]")
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
DECLARED_PUBLIC = {
    "a_fig1",
    "a_fig2",
    "a_fig1_mnist",
    "a_fig2_mnist",
    "b_fig2_3",
    "b_fig4_5",
    "d_fig1",
    "d_fig1_convex",
}
"""Experiments that look at the training loss, or at norms of gradients."""

LOOKED_AT = {"b_fig7", "b_fig7_mnist_4_9", "b_fig8", "b_fig10", "b_fig11_14", "d_fig3"}
"""Experiments that look at a test set in the course of training; at smoke size, at digits that are declared public."""

NO_NOISE = {"a_fig1", "a_fig1_mnist", "d_fig1", "d_fig1_convex"}

NO_TEST_SET = {"d_fig4", "d_fig4_rates"}
REPLACED = dict.fromkeys((*NO_TEST_SET, "d_fig4_mnist"), ("accountant=pld",))
"""Experiments whose data have no public test set, and such as Renyi curves have no bound for."""

LARGE = {
    "b_fig2_3": ("trainer=dpsgd", "trainer.clip_norm=1"),
    "b_fig4_5": ("trainer=dpsgd", "trainer.clip_norm=1"),
    "b_fig7": ("trainer=dpsgd",),
    "b_fig7_mnist_4_9": ("trainer=dpsgd",),
    "b_fig10": ("steps=2000",),
    "b_fig11_14": ("trainer.clip_norm=1",),
    "d_fig2": ("trainer=dpsgd", "steps=100"),
    "d_fig2_rates": ("trainer=dpsgd", "steps=100"),
    "d_fig4": ("trainer=dpsgd", "steps=100"),
    "d_fig4_rates": ("trainer=dpsgd", "steps=100"),
    "d_fig4_mnist": ("trainer=dpsgd", "steps=100"),
}
"""What is left out of the largest plans here, so that composing them takes no time."""
PUBLISHED = tuple(
    f"{part}.{key}=/roberta/{value}"
    for part, file in (("model.weights", "model.safetensors"), ("dataset.vocabulary", "tokenizer.json"))
    for key, value in (("file", file), ("sha256", "0"))
)
OWN_COPY = dict.fromkeys(("a_fig4", "a_fig5"), PUBLISHED)
"""What the user says where an experiment starts from published weights."""

OPEN = {"d_fig2", "d_fig2_rates", "d_fig4", "d_fig4_rates", "d_fig4_mnist"}
"""Experiments whose steps are found, which takes a while: quickly only in the smallest plan."""


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("scale", [pytest.param(FULL, marks=pytest.mark.long), *REDUCED])
def test_every_experiment_fits_the_budget_that_it_declares(
    compose_priced: Compose, name: str, scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    less = LARGE.get(name, ()) if scale == FULL or (name in OPEN and scale == "small") else ()
    if scale == FULL and name in OWN_COPY:  # whose weights are not here to be counted: RoBERTa-base has so many
        less += OWN_COPY[name]
        monkeypatch.setattr(trained_weights, "_number_of_weights", lambda form: 124_647_170)
    accountant = REPLACED.get(name, FAST)
    priced = compose_priced(
        merge_scale_into_experiment_argument([f"experiment={name}", f"scale={scale}", *accountant, *less])
    )
    assert priced.quote.guarantee.is_within_budget(priced.plan.budget)
    assert priced.plan.has_public_data == (name in DECLARED_PUBLIC or (scale == "smoke" and name in LOOKED_AT))
    assert name in NO_NOISE or all(trial.config["privacy"]["noise_multiplier"] for trial in priced.plan.trials)
    dataset = declaration_from_config(priced.plan.trials[0].config).dataset
    assert not hasattr(dataset, "files") or scale != "smoke", "a smoke run downloads nothing"
    if scale == FULL:
        score = "PublicTest" if dataset.test_records else "PrivateHoldout"
        score = "OnTraining" if name in DECLARED_PUBLIC - {"a_fig1", "a_fig2"} else score
        assert {current_path_of_class(trial.config["score"]) for trial in priced.plan.trials} == {
            f"dpsweep.trainers.declarations.scores.{score}"
        }


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(OPEN))
def test_open_steps_spend_the_budget_of_the_small_experiment(compose_priced: Compose, name: str) -> None:
    priced = compose_priced(merge_scale_into_experiment_argument([f"experiment={name}", "scale=small"]))
    assert 0.98 * priced.plan.budget.epsilon < priced.quote.epsilon <= priced.plan.budget.epsilon
    assert len({trial.config["steps"] for trial in priced.plan.trials}) >= 4


def test_every_experiment_has_its_figure_and_every_figure_its_experiment() -> None:
    assert [name for name in figure_names() if isinstance(find_figure(name), Trained)] == EXPERIMENTS
    for name in EXPERIMENTS:
        assert tuple(OmegaConf.load(CONF / "experiment" / f"{name}.yaml")[SCALES]) == REDUCED


@pytest.mark.parametrize("line", [["experiment=b_fig7"], ["experiment=b_fig7_mnist_4_9", "scale=small"]])
def test_no_composed_configuration_has_the_sizes_that_were_not_chosen(line: list[str]) -> None:
    with initialize_config_dir(config_dir=str(CONF), **VERSION_BASE):
        config = compose("config", merge_scale_into_experiment_argument(line))
    assert SCALES not in config
    if len(line) > 1:
        assert (config.steps, config.dataset.name) == (2000, "mnist_4_9"), "b_fig7's changes to its own experiment"


def test_a_size_may_be_written_before_the_experiments_name() -> None:
    assert merge_scale_into_experiment_argument(["experiment=smoke/b_fig7"]) == merge_scale_into_experiment_argument(
        ["experiment=b_fig7", "scale=smoke"]
    )


def test_an_experiment_of_the_users_own_needs_no_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsweep.sweeper.commands.hydra_app.EXPERIMENTS", tmp_path)
    (tmp_path / "plain.yaml").write_text("# @package _global_\nsteps: 5\n")
    (tmp_path / "broken.yaml").write_text("steps: [")
    assert merge_scale_into_experiment_argument(["experiment=plain"]) == ["experiment=plain"]
    assert merge_scale_into_experiment_argument(["experiment=broken"]) == ["experiment=broken"], (
        "Hydra names the file and the line"
    )


def test_the_papers_sizes(compose_priced: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    """Yang et al. 2022, Figure 3; Mohapatra et al. 2022, Table 2 and section 5; RoBERTa is not here to be built."""
    monkeypatch.setattr(trained_weights, "_number_of_weights", lambda form: 1000)
    heatmaps = compose_priced(["experiment=a_fig3", *FAST]).plan
    assert len(heatmaps.trials) == 3 * 2 * 35
    assert {trial.config["privacy"]["noise_multiplier"] for trial in heatmaps.trials} == {3.6, 2.0, 1.2}
    first = heatmaps.trials[0].config
    assert (first["steps"], first["sampler"]["batch_size"], first["dataset"]["records"]) == (5000, 1000, 50_000)
    assert first["lr_schedule"]["milestones"] == [0.5, 0.75]
    assert "resnet20" in current_path_of_class(first["model"])
    sentences = compose_priced(["experiment=a_fig4", *PUBLISHED, *FAST]).plan
    first = sentences.trials[0].config
    assert (len(sentences.trials), first["privacy"]["noise_multiplier"]) == (2 * 6 * 5, 0.635)
    assert (first["steps"], first["sampler"]["batch_size"], first["model"]["trained"]) == (673, 1000, "encoder")
    assert len(compose_priced(["experiment=a_fig5", *PUBLISHED, *FAST]).plan.trials) == 2 * 5 * 5
    simulated = OmegaConf.load(CONF / "experiment" / "b_fig2_3.yaml")
    assert simulated.steps == 5000
    for axes in simulated.grid.axes.values():
        assert [len(set(values)) for values in axes.values()] == [40, 40]


def test_the_command_line_wins_over_an_experiment_and_that_over_its_data_set(compose_priced: Compose) -> None:
    own = compose_priced(["experiment=d_fig3", *FAST]).plan.trials[-1].config
    assert (own["steps"], current_path_of_class(own["model"])) == (2000, "dpsweep.trainers.models.convolutional.cnn")
    typed = compose_priced(["experiment=d_fig3", "model=logistic", "steps=7", "dataset=fashion_mnist", *FAST]).plan
    assert {trial.config["steps"] for trial in typed.trials} == {7}
    assert {current_path_of_class(trial.config["model"]) for trial in typed.trials} == {
        "dpsweep.trainers.models.fully_connected.logistic"
    }
    assert typed.account == "fashion_mnist"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["scale=big", "experiment=a_fig3"], "Expected scale=big to be one of full, small, smoke."),
        (["scale=small"], "Expected scale=small to come with an experiment, as in experiment=a_fig3."),
    ],
)
def test_a_scale_that_fits_nothing_is_one_sentence(line: list[str], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        merge_scale_into_experiment_argument(line)
    assert str(refused.value) == said


def test_an_unknown_experiment_is_one_sentence(program: Program, tmp_path: Path) -> None:
    done = program("experiment=b_fig99", "scale=smoke")
    assert done.returncode == 2
    assert "Expected experiment=b_fig99 to be one of a_batches" in done.stderr.splitlines()[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_reproducing_runs_the_ordinary_command_on_an_account_of_its_own(program: Program, tmp_path: Path) -> None:
    done = program("a_fig5_sst2", "--scale", "smoke", "steps=3", module="dpsweep.reports.reproduction")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "reproductions" / "a_fig5_sst2" / "smoke"
    assert Path(done.stdout.splitlines()[-1]) == Path("reproductions/a_fig5_sst2/smoke/index.html")
    assert {path.name for path in tmp_path.iterdir()} == {"reproductions"}, "the user's ledger was not made"
    page = (folder / "index.html").read_text()
    assert "Price: epsilon at delta 1e-5" in page
    assert "public benchmark, or made up" in page
    assert "A linear model of frozen public features" in page, "it says where its settings differ from the paper's"
    assert page.count('class="verdict"') == 4
    assert "noise 1.2: " in page, "batches of a fixed size have their noise too"
    (piece,) = (folder / "processor_time.jsonl").read_text().splitlines()
    again = program("a_fig5_sst2", "--scale", "smoke", "steps=3", module="dpsweep.reports.reproduction")
    assert "nothing is run or charged" in again.stdout
    assert (folder / "processor_time.jsonl").read_text().splitlines() == [piece]
    assert json.loads(piece)["seconds"] > 0
    shutil.rmtree(folder)
    refused = program("a_fig5_sst2", "--scale", "smoke", "budget.epsilon=1", module="dpsweep.reports.reproduction")
    assert refused.returncode == 3, "what is removed is forgotten, and the declared budget holds"
    assert "delete reproductions/a_fig5_sst2/smoke and run the command again" in refused.stderr
    assert not (folder / "index.html").exists()


@pytest.mark.parametrize(
    "word",
    [
        "dataset=npz",
        "dataset.vocabulary={file: x}",
        "+dataset.name=mnist",
        "~dataset",
        "hydra.sweep.dir=x",
        "hydra.launcherx=y",
        "scale=full",
    ],
)
def test_no_figures_own_account_is_charged_for_other_data(program: Program, tmp_path: Path, word: str) -> None:
    """It goes with the folder, and its page says that the records are public."""
    done = program("b_fig6", "--scale", "smoke", "--", word, module="dpsweep.reports.reproduction")
    assert done.returncode == 2
    assert done.stderr.startswith(f"Expected no override {word}: the figure's account is for its own public data")
    assert not list(tmp_path.iterdir())


def test_the_launcher_of_a_figure_is_the_users_choice(tmp_path: Path) -> None:
    words = ["hydra/launcher=fork", "hydra.launcher.n_jobs=2"]
    check_known_scale_and_no_data_override("b_fig6", "smoke", words)
    lines = run_plan_and_read_lines("b_fig6", "smoke", words, tmp_path)
    assert any(PLAN.match(line) for line in lines)
    assert any("2 workers" in line for line in lines)


@pytest.mark.parametrize("figure", ["b_fig6", "all"])
def test_an_unknown_scale_of_a_figure_is_one_sentence(program: Program, tmp_path: Path, figure: str) -> None:
    done = program(figure, "--scale", "tiny", module="dpsweep.reports.reproduction")
    assert (done.returncode, done.stderr) == (2, "Expected SCALE=tiny to be one of full, small, smoke.\n")
    assert not list(tmp_path.iterdir())


def test_a_figure_that_trains_nothing_says_how_it_is_made() -> None:
    computed = [name for name in figure_names() if isinstance(find_figure(name), Computed)]
    assert {"b_fig1", "b_fig9", "b_table3", "c_bounds"} <= set(computed)
    for name in computed:
        with pytest.raises(BadInput, match=f"make reproduce FIGURE={name}"):
            merge_scale_into_experiment_argument([f"experiment={name}", "scale=small"])
