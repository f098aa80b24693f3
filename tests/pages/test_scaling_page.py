"""docs/scaling.md is true: its commands compose, its settings exist, its numbers are the launchers' own."""

from __future__ import annotations

import math
import re
import runpy
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE
from dpsweep.sweeper.launchers import workers
from dpsweep.sweeper.launchers.hydra_jobs import IDLE_SECONDS
from dpsweep.sweeper.launchers.workers import MOST, WORK_SECONDS, Workers
from dpsweep.sweeper.trial.blocks import FLOATS, jobs_with_due_points
from tests.engines.test_scenarios import SCENARIOS

Compose = Callable[[Sequence[str]], PricedPlan]
LINE = ("dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "steps=3", "privacy.noise_multiplier=3")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text()
SECTIONS = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
COMMANDS = [
    line.removeprefix("$ dpsweep sweep ").partition("  #")[0]
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("$ dpsweep sweep ")
]


@pytest.fixture
def loader() -> Iterator[ConfigLoaderImpl]:
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(CONF), **VERSION_BASE):
        yield GlobalHydra.instance().config_loader()  # type: ignore[misc]


def composed(loader: ConfigLoaderImpl, *overrides: str) -> DictConfig:
    """The configuration; skips where the launcher's extra is not installed."""
    for launcher in re.findall(r"hydra/launcher=([a-z]+)", " ".join(overrides)):
        if launcher != "ray":  # ours
            pytest.importorskip(f"hydra_plugins.hydra_{launcher}_launcher", reason="an extra of docs/scaling.md")
    return loader.load_configuration("config", list(overrides), run_mode=RunMode.MULTIRUN)


def test_the_page_has_commands_of_every_launcher() -> None:
    assert {name for command in COMMANDS for name in re.findall(r"hydra/launcher=(\w+)", command)} == {
        "fork",
        "joblib",
        "submitit_slurm",
        "ray",
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_composes_and_tells_how_many_workers(
    command: str, loader: ConfigLoaderImpl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "jobs_that_fit_into_cluster", lambda settings: 1)  # tests/engines has a cluster
    config = composed(loader, *shlex.split(command))
    assert Workers.from_launcher_settings(config.hydra.launcher, cores=8).jobs >= 1


def test_the_numbers_of_workers_and_threads_are_those_of_the_page(loader: ConfigLoaderImpl) -> None:
    four = {
        name: Workers.from_launcher_settings(composed(loader, *shlex.split(command)).hydra.launcher, cores=8)
        for name, command in zip(("fork", "joblib"), COMMANDS, strict=False)
    }
    assert (four["fork"].jobs, four["fork"].threads) == (4, 1)
    assert (four["joblib"].jobs, four["joblib"].threads) == (4, 2)
    first_slurm = next(command for command in COMMANDS if "submitit_slurm" in command)
    slurm = composed(loader, *shlex.split(first_slurm)).hydra.launcher
    workers_of_slurm = Workers.from_launcher_settings(slurm, cores=8)
    assert (workers_of_slurm.jobs, workers_of_slurm.threads) == (32, 4)
    assert f"jobs of one array; at most {MOST}" in PAGE
    assert f"jobs of about {WORK_SECONDS / 60:g} minutes of work" in PAGE
    half = Workers.from_launcher_settings({**slurm, "timeout_min": 2}, cores=8).work / (2 * 60)
    assert half == 0.5, "half of hydra.launcher.timeout_min"


def test_the_numbers_of_gpus_are_those_of_the_code(compose_priced: Compose) -> None:
    text = " ".join(SECTIONS["One machine"].split())
    assert f"no job for {IDLE_SECONDS} seconds" in text
    assert f"at most 2^{math.log2(FLOATS):g} parameters" in text
    rates = f"trainer.lr={','.join(map(str, range(1, 17)))}"
    plan = compose_priced([*LINE, "trainer=dpsgd", "trainer.clip_norm=1", rates]).plan
    jobs = [*jobs_with_due_points(plan.blocks, plan.trials, workers=4, together=None)]
    assert [len(job.due) for job in jobs] == [4] * 4
    assert "16 points on four GPUs are four jobs" in text


def test_every_setting_of_the_slurm_table_exists_with_the_default_that_is_said(loader: ConfigLoaderImpl) -> None:
    config = composed(loader, "hydra/launcher=submitit_slurm")
    keys = set(re.findall(r"`(hydra\.(?:launcher|sweeper)\.\w+)`", SECTIONS["A Slurm site"]))
    assert len(keys) > 10
    for key in keys:
        assert OmegaConf.select(config, key.rpartition(".")[0]).keys() >= {key.rpartition(".")[2]}
    said = {
        key: int(number)
        for key, number in re.findall(
            r"^\| `hydra\.launcher\.(\w+)` \|.* (\d+) (?:seconds )?where it is not", PAGE, re.M
        )
    }
    assert said.pop("cpus_per_task") == Workers.from_launcher_settings(config.hydra.launcher, cores=8).threads
    assert said == {"timeout_min": 60, "signal_delay_s": 120, "array_parallelism": 256}
    assert said == {key: config.hydra.launcher[key] for key in said}
    assert config.hydra.launcher.max_num_timeout == 0


def test_every_other_setting_of_the_page_exists(loader: ConfigLoaderImpl) -> None:
    config = composed(loader)
    for key in re.findall(r"`((?:compute|checkpoint|hydra\.sweep|hydra\.sweeper)\.\w+)(?:=\w+)?`", PAGE):
        parent, _, name = key.rpartition(".")
        assert name in OmegaConf.select(config, parent), key


def test_every_extra_of_the_page_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set(re.findall(r"dpsweep\[(\w+)\]", PAGE))
    assert named == {"parallel", "slurm", "ray", "postgres"}
    assert named <= set(extras)


def test_the_pages_links_lead_to_headings() -> None:
    for page, heading in re.findall(r"\]\(([\w.]+)#([\w-]+)\)", PAGE):
        headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
        assert heading in {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}


def test_the_exit_code_of_the_page_is_the_programs() -> None:
    assert f"exit code {ExitCode.DONE_WITH_FAILURES.value} and says" in PAGE


STRUCK = {
    "Slurm: `scancel`, time limit, requeue or preemption of one job": (
        *("Slurm: scancel", "Slurm: time limit", "Slurm: requeue", "Slurm: preemption"),
    ),
    "Slurm: the coordinator is killed, and its jobs go on": ("Slurm: killed coordinator",),
    "Slurm: a node dies": ("Slurm: dead node",),
    "Ray: a worker is killed, or a raylet with all of its processes": ("Ray: killed worker", "Ray: killed raylet"),
    "Ray: the coordinator is killed": ("Ray: killed coordinator",),
    "PostgreSQL crashes and starts again": ("PostgreSQL: crash, and back",),
    "PostgreSQL goes away and is started later": ("PostgreSQL: stopped",),
}
"""The scenarios of each row of the page's table."""


def test_the_table_of_faults_is_what_the_tests_of_real_engines_demand() -> None:
    assert {name for names in STRUCK.values() for name in names} == set(SCENARIOS)
    for row, names in STRUCK.items():
        (cells,) = {SCENARIOS[name].row for name in names}
        assert f"| {row} {cells}" in PAGE.splitlines()


def test_the_table_of_researchers_is_what_was_measured() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "generators" / "researchers.py"))
    assert script["insert"](PAGE) == PAGE, "python docs/generators/researchers.py"
