"""Every benchmark runs at its toy size; a missed aim is an exit code; `make bench` lists what was missed at the end."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.waiting import HANGS

ROOT = Path(__file__).parent.parent
SCRIPTS = {path.stem: path for path in sorted((ROOT / "benchmarks").glob("*.py"))}
QUICK = {"blocks", "ledger", "noise", "planning", "reading", "selection_gap", "selection_orders", "small_deltas"}
"""Those whose toy run takes at most about seven seconds of the processor; others are marked long."""

ONE_AIM = """
from dataclasses import dataclass
from measuring.aims import Aim
from measuring.script import start

@dataclass(frozen=True, kw_only=True)
class Size:
    seconds: float = 3.0
    names: tuple[str, ...] = ("one", "two")

def main(size):
    print(size)
    return [Aim(name="step, s", measured=size.seconds, at_most=2)]

start(main, full=Size(), toy=Size(seconds=4.0), about="About.")
"""


def run(script: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script in a folder, with the modules that benchmarks share and with a ledger of its own."""
    kept = {key: value for key, value in os.environ.items() if key not in ("DPSWEEP_DATA", "DPSWEEP_PRIVATE")}
    own = {"DPSWEEP_LEDGER": str(folder / "ledger.sqlite"), "DPSWEEP_KEY": str(folder / "key"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, str(script), *words],
        cwd=folder,
        env=kept | own | {"PYTHONPATH": str(ROOT / "benchmarks")},
        capture_output=True,
        text=True,
        timeout=HANGS,
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_benchmark_has_a_toy_run(name: str) -> None:
    """Without it the test below would run the benchmark at its full size."""
    text = SCRIPTS[name].read_text()
    has_sizes = "start(main, full=" in text and " toy=" in text
    assert has_sizes or 'case ["--toy"]:' in text or re.search(r"start_study\([^#]*\btoy,\s+__doc__", text)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.long]) for name in SCRIPTS]
)
def test_every_benchmark_runs_at_its_toy_size(name: str, tmp_path: Path) -> None:
    done = run(SCRIPTS[name], "--toy", folder=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.strip()


def test_quick_benchmarks_are_there() -> None:
    assert set(SCRIPTS) >= QUICK


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "one_aim.py"
    path.write_text(ONE_AIM)
    return path


@pytest.mark.parametrize(
    ("words", "code", "lines"),
    [
        ((), 1, ("Size(seconds=3.0, names=('one', 'two'))", "missed: step, s: 3, at most 2")),
        (("--seconds", "2", "--names", "two"), 0, ("Size(seconds=2.0, names=('two',))",)),
        (("--seconds", "nan"), 1, ("missed: step, s: nan, at most 2",)),
        (("--toy",), 0, ("Size(seconds=4.0, names=('one', 'two'))",)),
        (("--toy", "--seconds", "5"), 0, ("Size(seconds=5.0, names=('one', 'two'))",)),
    ],
)
def test_a_missed_aim_is_an_exit_code_but_for_toys(
    script: Path, tmp_path: Path, words: tuple[str, ...], code: int, lines: tuple[str, ...]
) -> None:
    done = run(script, *words, folder=tmp_path)
    assert done.returncode == code, done.stderr
    assert set(lines) <= set(done.stdout.splitlines())
    assert ("missed: " in done.stdout) == (code == 1)


def test_all_benchmarks_run_and_what_was_missed_is_listed_last(script: Path, tmp_path: Path) -> None:
    program = tmp_path / "all.py"
    broken = tmp_path / "broken.py"
    broken.write_text("print(1 / 0)")
    program.write_text(
        "import sys\nfrom pathlib import Path\nfrom measuring.run_all import run_all\n"
        "sys.exit(run_all([Path(name) for name in sys.argv[2:]], sys.argv[1].split()))"
    )
    done = run(program, "", str(script), str(broken), str(script), folder=tmp_path)
    missed = "   one_aim: step, s: 3, at most 2"
    assert done.returncode == 1
    assert done.stdout.splitlines()[-4:] == [
        "== all benchmarks ran; missed or failed:",
        missed,
        "   broken: failed with exit code 1",
        missed,
    ]
    done = run(program, "--seconds=1", str(script), folder=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "== all benchmarks ran; every aim is met")


def test_make_bench_runs_everything_but_the_named_studies() -> None:
    module = runpy.run_path(str(ROOT / "benchmarks" / "measuring" / "run_all.py"), run_name="imported")
    studies = set(module["STUDIES"])
    assert studies <= set(SCRIPTS)
    assert {path.stem for path in module["speed_benchmarks"]()} == set(SCRIPTS) - studies
    assert "measuring/run_all.py" in (ROOT / "Makefile").read_text()


def grid_sizes() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPTS["grid_sizes"]), run_name="imported")


def test_one_point_is_the_rate_that_other_data_sets_choose() -> None:
    """The whole octave of DP-SGD's default that loses least in the mean over other data sets and three epsilons."""
    study = grid_sizes()
    settings = study["configured"]()
    found = [
        line
        for line in study["lines"](ROOT / "benchmarks" / "learning_rates.jsonl")
        if line["method"] == "dpsgd"
        and line["epsilon"] in settings["epsilons"]
        and line["data"] in settings["chosen_by"]
    ]
    losses: dict[tuple[str, float], dict[float, float]] = {}
    for cell in {(line["data"], line["epsilon"]) for line in found}:
        rounds = [line["accuracy"] for line in found if (line["data"], line["epsilon"]) == cell]
        means = {float(rate): fmean(own[rate] for own in rounds) for rate in rounds[0]}
        losses[cell] = {rate: max(means.values()) - mean for rate, mean in means.items()}
    for data in settings["data"]:
        others = [own for (name, _), own in losses.items() if name != data]
        octaves = [2.0 * 2.0**k for k in range(-4, 5)]
        best = min(octaves, key=lambda rate: fmean(own[rate] for own in others))
        assert best == settings["learning_rate"]
        assert f"trainer.lr={best:g} " in settings["own"][study["ONE_POINT"]]["words"]


def test_a_way_is_behind_another_where_all_comparisons_at_once_say_so() -> None:
    study = grid_sizes()
    Way = study["Way"]  # noqa: N806 - a class
    spread = [-0.3, -0.1, 0.0, 0.1, 0.3]
    means = {Way(rule="best", points=4): 90.0, Way(rule="near", points=4): 89.98, Way(rule="last", points=4): 80.0}
    place = {way: [mean + one for one in spread] for way, mean in means.items()}
    oracle = {Way(rule=study["ORACLE"], points=1): [91.0] * 5}
    cells = {("a", 1.0): place | oracle, ("b", 1.0): place | oracle | {Way(rule="alone", points=2): [99.0] * 5}}
    ranked = study["ranked_ways"](cells, 1.0, ["a", "b"])
    assert [(row.way.rule, row.ranks) for row in ranked] == [("best", (1, 2)), ("near", (1, 2)), ("last", (3, 3))]
    assert [round(row.below_oracle, 2) for row in ranked] == [1.0, 1.02, 11.0]


def test_the_oracle_is_its_best_point_and_a_search_without_a_winner_counts_as_nothing() -> None:
    study = grid_sizes()
    common = {"data": "a", "epsilon": 1.0, "points": 1}
    found = [
        {**common, "rule": study["ORACLE"], "accuracy": {"one": 0.5, "other": 0.25 * turn}, "round": turn}
        for turn in range(3)
    ]
    for rule, told in (("one point, no search", {"p": 0.4}), ("unlucky", {})):
        found += [{**common, "rule": rule, "accuracy": told, "round": turn} for turn in range(3)]
    (own,) = study["cells_of"](found).values()
    assert {way.rule: fmean(values) for way, values in own.items()} == {
        study["ORACLE"]: 50.0,
        "one point, no search": 40.0,
        "unlucky": 0.0,
    }
