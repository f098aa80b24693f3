"""Forked work and forked jobs: the same results, nothing inherited that could hurt, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
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

from accounting.errors import BadInput
from accounting.ledger import Ledger
from accounting.plan import Plan
from accounting.result import TrialResult
from sweeper import forked_jobs
from sweeper.folder import SweepFolder
from sweeper.forks import can_fork, fork_each
from sweeper.locks import held
from sweeper.workers import FORKED
from tests.sweeper.searches import Program, folder_of
from trainers.entropy import secret_streams

Launch = Callable[..., Sequence[JobReturn]]

pytestmark = pytest.mark.skipif(not can_fork(), reason="needs Linux")

SOON = 20
"""Seconds within which all is over that does not hang."""


def alive() -> set[str]:
    """The children of this process, the dead among them that nobody asked about."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_gone(pid: int) -> bool:
    """Whether there is no such process, or one that is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    """No zombie and no open file after any of these tests."""
    children, files = alive(), open_files()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    yield
    signal.signal(signal.SIGINT, before)
    assert alive() == children
    assert open_files() <= files


def say(text: str) -> bytes:
    return text.encode()


def end_by(number: signal.Signals) -> bytes:
    os.kill(os.getpid(), number)
    return b"it lives"


@pytest.mark.parametrize("at_once", [1, 2, 20])
def test_what_is_said_comes_back_in_order(at_once: int) -> None:
    works = [partial(say, f"{place}") for place in range(7)]
    assert fork_each(works, at_once) == [f"{place}".encode() for place in range(7)]


def test_no_work_is_no_result() -> None:
    assert fork_each([], 2) == []


@pytest.mark.parametrize("at_once", [1, 3])
def test_so_many_run_at_once_and_no_more(tmp_path: Path, at_once: int) -> None:
    def work() -> bytes:
        mine = tmp_path / f"{os.getpid()}"
        mine.touch()
        until = time.monotonic() + 2
        seen = 0
        while seen < at_once and time.monotonic() < until:
            seen = max(seen, len(list(tmp_path.iterdir())))
            time.sleep(0.005)
        time.sleep(0.02)
        seen = max(seen, len(list(tmp_path.iterdir())))
        mine.unlink()
        return f"{seen}".encode()

    seen = [int(said) for said in fork_each([work] * 6, at_once) if isinstance(said, bytes)]
    assert len(seen) == 6
    assert max(seen) == at_once


def test_much_comes_back_whole_from_several_at_once() -> None:
    assert fork_each([lambda: bytes(3_000_000)] * 3, 3) == [bytes(3_000_000)] * 3


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (partial(end_by, signal.SIGKILL), "A worker was ended by SIGKILL."),
        (partial(end_by, signal.SIGTERM), "A worker was ended by SIGTERM."),
        (lambda: os._exit(3), "A worker left with code 3 and no result."),
        (lambda: os._exit(0), "A worker left with code 0 and no result."),
        (lambda: 1 / 0, "A worker left with code 1 and no result."),
    ],
)
def test_a_lost_worker_is_one_sentence_and_its_neighbours_go_on(work: Callable[[], bytes], sentence: str) -> None:
    before, lost, *after = fork_each([partial(say, "a"), work, partial(say, "b"), partial(say, "c")], 2)
    assert (before, after) == (b"a", [b"b", b"c"])
    assert isinstance(lost, ChildProcessError)
    assert str(lost) == sentence


def test_a_worker_is_deaf_to_the_terminal() -> None:
    assert fork_each([partial(end_by, signal.SIGINT)], 1) == [b"it lives"]


def test_a_worker_handles_signals_as_a_new_program_does(tmp_path: Path) -> None:
    def handlers() -> bytes:
        names = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2, signal.SIGPIPE)
        return repr([signal.getsignal(one) for one in names]).encode()

    expected = [signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL, signal.SIG_IGN]
    kept = {
        number: signal.signal(number, lambda *_: (tmp_path / "heard").touch())
        for number in (signal.SIGTERM, signal.SIGUSR2)
    }
    try:
        assert fork_each([handlers], 1) == [repr(expected).encode()]
        (lost,) = fork_each([partial(end_by, signal.SIGUSR2)], 1)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    assert "SIGUSR2" in str(lost)
    assert not (tmp_path / "heard").exists()


def test_nothing_that_the_parent_has_open_is_open_in_a_worker(tmp_path: Path) -> None:
    def files() -> bytes:
        paths = Path("/proc/self/fd").iterdir()
        return "\n".join(str(path.readlink()) for path in paths if path.is_symlink()).encode()

    outputs = {str(Path(f"/proc/self/fd/{number}").readlink()) for number in (1, 2)}
    with held(tmp_path / "lock", "It"), (tmp_path / "open").open("w") as file:
        (said,) = fork_each([files], 1)
        assert file.write("the parent's still") > 0
    assert isinstance(said, bytes)
    found = said.decode().splitlines()
    rest = {name for name in found if name not in (os.devnull, *outputs) and not name.endswith("/fd")}
    (pipe,) = rest
    assert pipe.startswith("pipe:")
    assert str(tmp_path) not in said.decode()


def test_a_number_that_an_object_of_the_parents_knows_leads_nowhere_but_stays_taken(tmp_path: Path) -> None:
    """Else a worker's own file could get it, and be closed by that object."""
    with (tmp_path / "open").open("w") as file:
        (said,) = fork_each([lambda: os.fsencode(Path(f"/proc/self/fd/{file.fileno()}").readlink())], 1)
    assert said == os.fsencode(os.devnull)


def test_a_lock_stays_its_holders_whatever_workers_do(tmp_path: Path) -> None:
    """Letting go of an inherited lock would let go of the parent's."""
    with held(tmp_path / "lock", "It"):
        fork_each([partial(say, "a"), partial(end_by, signal.SIGKILL)], 2)
        (said,) = fork_each([partial(_is_refused, tmp_path / "lock")], 1)
        assert said == b"True"
    with held(tmp_path / "lock", "It"):
        pass


def _is_refused(lock: Path) -> bytes:
    try:
        with held(lock, "It"):
            return b"False"
    except BadInput:
        return b"True"


def test_an_object_of_the_parents_is_not_finalised_in_a_worker(tmp_path: Path) -> None:
    class Connection:
        def __init__(self) -> None:
            self.oneself = self

        def __del__(self) -> None:
            with (tmp_path / "closed").open("a") as file:
                file.write(f"{os.getpid()}\n")

    def collect() -> bytes:
        import gc

        return f"{gc.collect() and 0}".encode()

    Connection()
    fork_each([collect] * 2, 1)
    import gc

    gc.collect()
    assert (tmp_path / "closed").read_text() == f"{os.getpid()}\n"


def test_ctrl_c_ends_all_at_once_and_forgets_none_that_just_began(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> bytes:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)
        return b""

    def slow(pid: int) -> int:
        time.sleep(0.5)
        return find(pid)

    find = os.pidfd_open
    monkeypatch.setattr(os, "pidfd_open", slow)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fork_each([lambda: time.sleep(60) or b"", interrupt], 2)
    assert time.monotonic() - started < SOON


@pytest.mark.long
def test_two_hundred_come_and_go() -> None:
    assert fork_each([partial(say, "done")] * 200, 2) == [b"done"] * 200


def test_where_the_system_keeps_no_word_of_children_their_results_still_come() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert fork_each([partial(say, "a")] * 3, 2) == [b"a"] * 3
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_nobody_waits_for_a_workers_own_children(tmp_path: Path) -> None:
    def leave_one_behind() -> bytes:
        if pid := os.fork():
            (tmp_path / "pid").write_text(f"{pid}")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
        os._exit(0)

    started = time.monotonic()
    (lost,) = fork_each([leave_one_behind], 1)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert "SIGKILL" in str(lost)
    assert time.monotonic() - started < SOON


def test_where_no_more_processes_may_start_the_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    (lost,) = fork_each([partial(say, "a")], 1)
    assert str(lost) == "A worker could not be started: Resource temporarily unavailable."


ORPHANS = """
import os, sys, time
from pathlib import Path
from sweeper.folder import SweepFolder
from sweeper.forks import fork_each
from sweeper.locks import held

def work():
    Path(f"{os.getpid()}.pid").touch()
    print("a worker's word")
    time.sleep(60)
    return b""

print("the parent's word")
with held(Path("lock"), "It"):
    fork_each([work] * 2, 2)
"""


def test_workers_die_with_their_parent_and_its_locks_are_free(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        parent = subprocess.Popen([sys.executable, "-c", ORPHANS], cwd=tmp_path, stdout=out)
    wait(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
    assert _is_refused(tmp_path / "lock") == b"True"
    parent.kill()
    parent.wait()
    wait(lambda: all(is_gone(pid) for pid in workers))
    assert _is_refused(tmp_path / "lock") == b"False"


def test_what_the_parent_has_yet_to_print_is_printed_once(tmp_path: Path) -> None:
    program = ORPHANS.replace("time.sleep(60)", "pass")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.splitlines()) == ["a worker's word", "a worker's word", "the parent's word"]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Launches jobs by a launcher of Hydra's."""
    GlobalHydra.instance().clear()

    def run(launcher: str, task: Callable[[DictConfig], Any], overrides: Sequence[Sequence[str]], jobs: int = 2) -> Any:
        asked = [f"hydra/launcher={launcher}", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
        asked += [f"hydra.launcher.n_jobs={jobs}"] if launcher == "fork" else []
        quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none", "hydra.output_subdir=null"]
        with initialize(version_base="1.3", config_path=None):
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
    assert str(caught.value).startswith(sentence)
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

    inputs = torch.rand(1000, 500)
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
        forked_jobs.prepare(device, threads)
    forked_jobs.prepare("cpu", 1)


def test_no_workers_at_all_are_refused(launch: Launch) -> None:
    with pytest.raises(BadInput, match="n_jobs=0"):
        launch("fork", square, FOUR, 0)


def test_hydras_door_is_the_launcher_that_workers_know() -> None:
    from hydra_plugins.hydra_fork_launcher import ForkLauncher, ForkLauncherConf

    assert ForkLauncherConf()._target_ == FORKED == f"{ForkLauncher.__module__}.{ForkLauncher.__qualname__}"


def test_hydras_door_is_light() -> None:
    program = (
        "import hydra_plugins.hydra_fork_launcher, sys\n"
        "print(*[name for name in ('torch', 'sweeper', 'accounting', 'ctypes', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def results(folder: SweepFolder) -> list[TrialResult | None]:
    """What came out, without the times."""
    found = [TrialResult.read(folder.trial(trial.id)) for trial in Plan.read(folder.plan).trials]
    return [one and replace(one, seconds=0.0, started="", ended="") for one in found]


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
    """To the last bit: the same seed, the same single thread."""
    forked = folder_of(program(*SEEDED, "hydra/launcher=fork", "hydra.launcher.n_jobs=2"))
    environment["DPSWEEP_LEDGER"] += "-of-another"
    plain = folder_of(program(*SEEDED, "compute.threads=1", "hydra.sweep.dir=plain"))
    assert results(forked) == results(plain)
    assert len(results(plain)) == 2
    assert None not in results(plain)


IMPORTS = """
import sys
import hydra
from sweeper.app import CONF
from sweeper.job import run_block

def task(config):
    before = set(sys.modules)
    run_block(config)
    print("imported:", *sorted(set(sys.modules) - before))

hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(task)()
"""


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
    assert "digits" not in ledger.accounts()
