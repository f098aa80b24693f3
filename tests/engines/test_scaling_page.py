"""The consoles of docs/scaling.md, line by line, on real engines of this machine.

Commands are the page's own. What it cannot know is put in their place: a site's names, paths and sizes, and a search
that ends in seconds. Nothing is installed: the extras that are named must be there, else the section is skipped.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.engines import postgres_site, ray_site, slurm_site
from tests.engines.test_scenarios import ray_commands
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import results
from tests.waiting import HANGS, wait

pytestmark = [pytest.mark.long, TRAINS]

PAGE = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
EXTRAS = {"parallel": "joblib", "slurm": "submitit", "ray": "ray", "postgres": "psycopg"}
SMALL = (
    *("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "score.noise_std=30"),
    *("accountant=rdp", "accountant.witnesses=[]", "privacy.noise_multiplier=60", "compute.device=cpu", "page=false"),
)
STANDS_FOR = {
    r"dataset=\w+": "",
    r"grid=\w+": "",
    r"data=\S+": "",
    r"hydra\.launcher\.partition=\S+": "hydra.launcher.partition=cpu",
    r"hydra\.launcher\.account=\S+": "",  # the site of the tests keeps no accounts
    r"hydra\.launcher\.gpus_per_node=\d+": "",
    r"hydra\.launcher\.ray\.remote\.num_gpus=\d+": "",
    r"compute\.devices=\S+": "",
    r"hydra\.launcher\.cpus_per_task=\d+": "hydra.launcher.cpus_per_task=2",
    r"hydra\.launcher\.mem_gb=\d+": "hydra.launcher.mem_gb=2",
    r"hydra\.launcher\.ray\.init\.num_cpus=\d+": "hydra.launcher.ray.init.num_cpus=2",
    r"hydra\.launcher\.ray\.remote\.num_cpus=\d+": "hydra.launcher.ray.remote.num_cpus=2",
}
"""Words of a sweep on the page, and what this machine has in their place."""


def consoles() -> dict[str, list[str]]:
    """The commands of each section, without their remarks."""
    sections = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
    found = {}
    for title, text in sections.items():
        blocks = "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
        found[title] = [line[2:].partition("  #")[0].strip() for line in blocks.splitlines() if line.startswith("$ ")]
    return {title: lines for title, lines in found.items() if lines}


def words_here(command: str, places: dict[str, str]) -> list[str]:
    """The words of a command of the page, with what stands for its placeholders on this machine."""
    for name, place in places.items():
        command = command.replace(name, place)
    words = shlex.split(command)
    for pattern, own in STANDS_FOR.items():
        words = [own if re.fullmatch(pattern, word) else word for word in words]
    return [word for word in words if word]


def test_the_page_has_consoles_of_every_engine() -> None:
    assert list(consoles()) == [
        *("One machine", "A Slurm site", "A Ray cluster", "PostgreSQL"),
    ]


@pytest.mark.parametrize("title", consoles())
def test_every_line_of_a_console_does_what_it_says(
    title: str, environment: dict[str, str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = consoles()[title]
    extras = {extra for line in lines for extra in re.findall(r"dpsweep\[(\w+)\]", line)}
    if missing := [extra for extra in extras if not importlib.util.find_spec(EXTRAS[extra])]:
        pytest.skip(f"needs dpsweep[{','.join(missing)}]")
    sites: dict[str, Any] = {"A Slurm site": slurm_site, "A Ray cluster": ray_site, "PostgreSQL": postgres_site}
    if title in sites and (reason := sites[title].reason_why_not()):
        pytest.skip(reason)
    places = {
        "/srv/": f"{tmp_path}/",
        "/shared/": f"{tmp_path}/shared/",
        "/private/": f"{tmp_path}/",
        "/mnt/other-disk/": f"{tmp_path}/other/",
    }
    environment |= {"OMP_NUM_THREADS": "1", "DPSWEEP_PRIVATE": str(tmp_path / "stores")}
    with ExitStack() as stack:
        if title == "A Slurm site":
            site = stack.enter_context(slurm_site.site_running_in(tmp_path_factory.mktemp("slurm")))
            environment |= {"SLURM_CONF": site.environment["SLURM_CONF"]}
        if title == "A Ray cluster":
            cluster = stack.enter_context(ray_site.cluster_started_by(ray_commands()))
            environment |= {key: cluster.environment[key] for key in ("HOME", "RAY_AUTH_MODE")}
            places["FIRST:6379"] = cluster.address
        if title == "PostgreSQL":
            servers = stack.enter_context(postgres_site.servers_running())
            environment |= {"PGPASSFILE": servers.environment["PGPASSFILE"]}
            own = f"@127.0.0.1:{servers.pool}/"
            for name in ("HOST/NAME", "HOST/STUDIES"):
                places[f"@{name}"] = f"{own}{postgres_site.DATABASE}"
        for number, line in enumerate(lines):
            run_line(line, number, places, environment, tmp_path)
        if title == "A Slurm site":
            wait(lambda: set(site.jobs().values()) == {"COMPLETED"})


def run_line(line: str, number: int, places: dict[str, str], environment: dict[str, str], folder: Path) -> None:
    """Runs a line of a console; sets a variable for those after it."""
    program, *words = words_here(line, places)
    if program == "export":
        environment |= [words[0].split("=", 1)]
    elif program == "dpsweep":
        sweep = words[:1] == ["sweep"]
        command = [sys.executable, "-m", "dpsweep", *words, *((*SMALL, f"steps={30 + number}") if sweep else ())]
        before = set(folder.rglob("plan.json"))
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANGS)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        new = set(folder.rglob("plan.json")) - before
        assert [len(results(path.parent)) for path in new] == [2] * sweep, line
    else:
        assert program in ("pip", "ray", "optuna-dashboard"), f"no test runs {line}"
