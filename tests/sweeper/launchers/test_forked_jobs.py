"""Forked jobs: the results of the basic launcher, each job on its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE
from dpsweep.sweeper.launchers import fork_launcher as forked_jobs
from dpsweep.sweeper.launchers.fork_launcher import can_fork
from dpsweep.sweeper.launchers.workers import FORKED
from dpsweep.trainers.randomness import secret_streams
from tests.sweeper import forking
from tests.sweeper.forking import SOON, end_by
from tests.sweeper.search_programs import Program, folder_of

Launch = Callable[..., Sequence[JobReturn]]

pytestmark = pytest.mark.skipif(not can_fork(), reason="needs Linux")

nobody_is_left = forking.nobody_is_left


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Launches jobs by a launcher of Hydra's."""
    GlobalHydra.instance().clear()

    def run(launcher: str, task: Callable[[DictConfig], Any], overrides: Sequence[Sequence[str]], jobs: int = 2) -> Any:
        asked = [f"hydra/launcher={launcher}", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
        asked += [f"hydra.launcher.n_jobs={jobs}"] if launcher == "fork" else []
        quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none", "hydra.output_subdir=null"]
        with initialize(config_path=None, **VERSION_BASE):
            loader = GlobalHydra.instance().config_loader()
            config = loader.load_configuration(None, [*asked, *quiet], run_mode=RunMode.MULTIRUN)
            context = HydraContext(config_loader=loader, callbacks=Callbacks())
            ready = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=config)
            return ready.launch(overrides, initial_job_idx=3)

    yield run
    GlobalHydra.instance().clear()


def square(config: DictConfig) -> tuple[int, int]:
    return int(HydraConfig.get().job.num), config.number**2


def told(job: JobReturn) -> dict[str, Any]:
    """What Hydra told a job, but for the launcher's own settings."""
    found: Any = OmegaConf.to_container(job.hydra_cfg)
    hydra: dict[str, Any] = found["hydra"]
    return hydra | {
        "launcher": None,
        "runtime": hydra["runtime"] | {"choices": None},
        "overrides": hydra["overrides"]["task"],
    }


FOUR = [[f"+number={number}"] for number in range(4)]


@pytest.mark.parametrize("jobs", [1, 2, 9, -1])
def test_jobs_come_back_as_the_basic_launchers_do(launch: Launch, jobs: int) -> None:
    plain, forked = launch("basic", square, FOUR), launch("fork", square, FOUR, jobs)
    assert [job.return_value for job in forked] == [(3, 0), (4, 1), (5, 4), (6, 9)]
    for one, other in zip(plain, forked, strict=True):
        assert told(one) == told(other)
        for name in ("cfg", "overrides", "working_dir", "task_name", "status", "return_value"):
            assert getattr(one, name) == getattr(other, name), name


class Unpicklable(ValueError):
    """One that no pickle brings back."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}, {why}")


def fail(config: DictConfig) -> str:
    if config.how == "known":
        raise BadInput("Expected steps=0 >= 1.")
    if config.how == "unpicklable":
        raise Unpicklable("it failed", "twice")
    if config.how == "exit":
        sys.exit(7)
    if config.how == "killed":
        end_by(signal.SIGKILL)
    return "well"


@pytest.mark.parametrize(
    ("how", "kind", "sentence"),
    [
        ("+how=known", BadInput, "Expected steps=0 >= 1."),
        ("+how=unpicklable", RuntimeError, "Unpicklable: it failed, twice"),
        ("+how=exit", ChildProcessError, "A job left by SystemExit: 7"),
        ("+how=killed", ChildProcessError, "A worker was ended by SIGKILL."),
        ("unknown=1", Exception, "Could not override 'unknown'"),
    ],
)
def test_a_failed_job_says_why_and_its_neighbours_go_on(
    launch: Launch, how: str, kind: type[Exception], sentence: str
) -> None:
    jobs = launch("fork", fail, [["+how=well"], [how], ["+how=well"]])
    assert [job.status for job in jobs] == [JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.COMPLETED]
    with pytest.raises(kind) as caught:
        _ = jobs[1].return_value
    assert sentence in str(caught.value)
    assert list(jobs[1].overrides or ()) == [how]
    assert [jobs[0].return_value, jobs[2].return_value] == ["well", "well"]


def test_the_traceback_of_a_job_comes_with_its_error(launch: Launch) -> None:
    (job,) = launch("fork", fail, [["+how=known"]])
    (note,) = job._return_value.__notes__
    assert "in fail" in note


def result_without_end(config: DictConfig) -> Callable[[], None]:
    return lambda: None


def test_a_result_that_cannot_be_handed_back_is_a_failed_job(launch: Launch) -> None:
    (job,) = launch("fork", result_without_end, [[]])
    assert job.status is JobStatus.FAILED
    assert "pickle" in str(job._return_value)


def train_a_little(config: DictConfig) -> tuple[int, float]:
    import torch

    inputs = torch.rand(1000, 500, generator=torch.Generator().manual_seed(1))
    layer = torch.nn.Linear(500, 500)
    layer(inputs).exp().mean().backward()  # type: ignore[no-untyped-call]
    assert layer.weight.grad is not None
    return torch.get_num_threads(), float(layer.weight.grad.sum())


def train_or_die(config: DictConfig) -> tuple[int, float]:
    signal.alarm(SOON)
    return train_a_little(config)


def test_torch_trains_in_a_job_though_the_parent_has_used_several_threads(launch: Launch) -> None:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train_a_little(OmegaConf.create())
        jobs = launch("fork", train_or_die, [[]] * 4)
    finally:
        torch.set_num_threads(before)
    assert [job.return_value[0] for job in jobs] == [1] * 4


def draw(config: DictConfig) -> list[int]:
    streams = secret_streams()
    return [int(one.integers(2**63)) for one in (streams.subsampling, streams.noise, streams.score)]


@pytest.mark.randomized(
    draws="18 keys", bound="two of 18 draws of 63 bits are the same", false_alarm=18 * 17 / 2 * 2.0**-63
)
def test_no_two_jobs_draw_the_same_secret_noise(launch: Launch) -> None:
    """A fork copies the state of every generator that is there."""
    draw(OmegaConf.create())
    drawn = [number for job in launch("fork", draw, [[]] * 6) for number in job.return_value]
    assert len(set(drawn)) == len(drawn) == 18


def test_a_parent_that_uses_cuda_is_refused(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    with pytest.raises(BadInput, match="not to use CUDA yet"):
        launch("fork", square, FOUR)


def test_other_systems_are_refused(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(BadInput, match="on Linux only, got darwin"):
        launch("fork", square, FOUR)


@pytest.mark.parametrize(("device", "threads", "said"), [("cuda", 1, "device=cuda"), ("cpu", 2, "threads=2")])
def test_what_a_forked_job_cannot_use_is_refused(device: str, threads: int, said: str) -> None:
    with pytest.raises(BadInput, match=f"Expected compute.{said} to be"):
        forked_jobs.import_trial_modules_before_fork(device, threads)
    forked_jobs.import_trial_modules_before_fork("cpu", 1)


def test_no_workers_at_all_are_refused(launch: Launch) -> None:
    with pytest.raises(BadInput, match="n_jobs=0"):
        launch("fork", square, FOUR, 0)


def test_hydras_door_is_the_launcher_that_workers_know() -> None:
    from hydra_plugins.hydra_fork_launcher import ForkLauncher, ForkLauncherConf

    assert ForkLauncherConf()._target_ == FORKED == f"{ForkLauncher.__module__}.{ForkLauncher.__qualname__}"


def test_hydras_door_is_light() -> None:
    program = (
        "import hydra_plugins.hydra_fork_launcher, sys\n"
        "print(*[name for name in ('torch', 'dpsweep', 'ctypes', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def results(folder: SweepFolder) -> list[TrialResult | None]:
    """What came out, without the times, the random salts, and the last digits of the weights."""
    found = [TrialResult.read(folder.trial_folder(trial.id)) for trial in Plan.read(folder.plan_path).trials]
    return [one and replace(one, seconds=0.0, started="", ended="", salt="", model=None) for one in found]


SEEDED = (
    "dataset=digits",
    "trainer=dpsgd",
    "trainer.clip_norm=1",
    "trainer.lr=1,2",
    "score.noise_std=30",
    "accountant=rdp",
    "accountant.witnesses=[]",
    "steps=3",
    "privacy.noise_multiplier=3",
    "compute.device=cpu",
    "seed=1",
)


def test_a_sweep_comes_out_as_the_basic_launchers_does(program: Program, environment: dict[str, str]) -> None:
    """The same seed, the same single thread; trials that train together round their weights in another order."""
    forked = folder_of(program(*SEEDED, "hydra/launcher=fork", "hydra.launcher.n_jobs=2"))
    environment["DPSWEEP_LEDGER"] += "-of-another"
    plain = folder_of(program(*SEEDED, "compute.threads=1", "hydra.sweep.dir=plain"))
    assert results(forked) == results(plain)
    assert len(results(plain)) == 2
    assert None not in results(plain)


IMPORTS = """
import sys
from dpsweep.sweeper.commands import hydra_app as app
from dpsweep.sweeper.job import block_job as job

def task(config, run_block=job.run_block):
    before = set(sys.modules)
    run_block(config)
    print("imported:", *sorted(set(sys.modules) - before))

job.run_block = task
app.main(sys.argv[1:])
"""


@pytest.mark.long
def test_no_job_imports_what_all_of_them_would(tmp_path: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *SEEDED, "hydra/launcher=fork"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("imported:")] == ["imported:"] * 2


def test_more_threads_are_refused_before_the_charge(program: Program, ledger: Ledger) -> None:
    done = program(*SEEDED, "hydra/launcher=fork", "compute.threads=2")
    assert done.returncode == 2
    assert "Expected compute.threads=2 to be 1 or null" in done.stderr
    assert "digits" not in ledger.account_names()
