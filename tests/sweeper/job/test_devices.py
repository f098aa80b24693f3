"""Workers lease GPUs: each process sees its own alone, no two compute on one, and none waits for a batch to end.

The GPUs are pretended, by `CUDA_VISIBLE_DEVICES`: nothing here computes on one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.sweeper.job import devices
from dpsweep.sweeper.job.devices import (
    VISIBLE,
    compute_with_devices,
    devices_of_first_job,
    lease_devices_for_process,
    limit_pool_to_devices,
    names_of_visible_devices,
)
from dpsweep.sweeper.job.machine import Compute
from dpsweep.sweeper.launchers.fork_launcher import can_fork, run_each_in_forked_process
from dpsweep.sweeper.launchers.hydra_jobs import overrides_from_values
from tests.sweeper.search_programs import Program
from tests.waiting import HANGS, wait

LINUX = pytest.mark.skipif(not can_fork(), reason="needs Linux")
LONG = pytest.mark.long


def compute(*names: str, device: str = "cpu", per_device: int = 1) -> Compute:
    return Compute.from_config(
        {
            **{"device": device, "threads": None, "chunk": None, "together": None},
            **{"per_device": per_device, "devices": list(names)},
        }
    )


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four GPUs are visible, whatever this machine has."""
    monkeypatch.setattr(devices, "_names_of_all_devices", lambda: ())
    monkeypatch.setenv(VISIBLE, "0,1,2,3")


@pytest.mark.parametrize(
    ("said", "names"),
    [("0,1", ("0", "1")), ("GPU-5a, GPU-6b", ("GPU-5a", "GPU-6b")), ("", ()), ("2,-1,3", ("2",)), ("-1", ())],
)
def test_the_variable_says_what_is_visible(
    four: None, monkeypatch: pytest.MonkeyPatch, said: str, names: tuple[str, ...]
) -> None:
    monkeypatch.setenv(VISIBLE, said)
    assert names_of_visible_devices() == names


def test_numbers_stand_for_the_names_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number means another GPU in each job of a queue; a name does not."""
    monkeypatch.setattr(devices, "_names_of_all_devices", lambda: ("GPU-a", "GPU-b"))
    monkeypatch.delenv(VISIBLE, raising=False)
    assert names_of_visible_devices() == ("GPU-a", "GPU-b")
    monkeypatch.setenv(VISIBLE, "1")
    assert names_of_visible_devices() == ("GPU-b",)
    assert compute_with_devices(compute("1"), is_pool=True).devices == ("GPU-b",)
    with pytest.raises(BadInput, match=r"devices=\[0\] to be among the GPUs that are visible here, got 1\.$"):
        compute_with_devices(compute("0"), is_pool=True)
    with pytest.raises(BadInput, match="to name each GPU once"):
        compute_with_devices(compute("1", "GPU-b"), is_pool=True)


def test_a_pool_takes_all_gpus_where_it_may_use_some(four: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(device: str, *, is_pool: bool = True, built: bool = True) -> tuple[str, ...] | None:
        monkeypatch.setattr(devices, "is_torch_built_for_cuda", lambda: built)
        asked = Compute(device=device, threads=None, chunk=None, together=None)
        return compute_with_devices(asked, is_pool=is_pool).devices

    assert taken("auto") == taken("cuda") == taken("cuda", built=False) == ("0", "1", "2", "3")
    assert taken("cpu") == taken("auto", built=False) == taken("auto", is_pool=False) == ()


@pytest.mark.parametrize(
    ("asked", "is_pool", "sentence"),
    [
        (compute("0", "7"), True, r"devices=\[0,7\] to be among the GPUs that are visible here, got 0,1,2,3\."),
        (compute("1", "1"), True, r"devices=\[1,1\] to name each GPU once; compute\.per_device lets jobs share one\."),
        (compute("0"), False, "with hydra/launcher=joblib or fork only"),
        (compute("0", device="auto"), True, "with a torch for CUDA"),
    ],
)
def test_what_cannot_be_leased_is_refused(
    four: None, monkeypatch: pytest.MonkeyPatch, asked: Compute, is_pool: bool, sentence: str
) -> None:
    monkeypatch.setattr(devices, "is_torch_built_for_cuda", lambda: False)
    with pytest.raises(BadInput, match=f"^Expected compute.{sentence}" if "devices" in sentence else sentence):
        compute_with_devices(asked, is_pool=is_pool)


@pytest.mark.parametrize("wrong", [0, True, "2", None])
def test_a_gpu_is_shared_by_a_whole_number_of_jobs(wrong: object) -> None:
    with pytest.raises(BadInput, match="per_device"):
        Compute(device="cpu", threads=None, chunk=None, together=None, per_device=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "n_jobs", "jobs"),
    [
        (compute("0", "1", "2"), -1, 3),
        (compute("0", "1", "2"), 2, 2),
        (compute("0", "1", "2"), 8, 3),
        (compute("0", "1", "2"), -8, 1),
        (compute("0", "1", "2"), 0, 0),
        (compute("0", "1", "2", per_device=2), -1, 6),
        (compute(), -1, -1),
        (compute(), 8, 8),
    ],
)
def test_a_pool_has_a_process_for_each_lease(asked: Compute, n_jobs: int, jobs: int) -> None:
    assert limit_pool_to_devices(n_jobs, 8, asked) == jobs


def test_steps_are_tried_on_the_gpus_of_one_job() -> None:
    assert devices_of_first_job(compute("2", "3", "4")) == {VISIBLE: "2"}
    assert devices_of_first_job(compute()) == {}


def test_a_job_is_told_its_devices_as_text() -> None:
    assert overrides_from_values({"compute.devices": ("0", "GPU-a")}) == ["compute.devices=['0','GPU-a']"]


def lease_and_compute(asked: Compute, folder: Path, company: int = 1) -> bytes:
    """What a job does: its GPUs, and when it computed, which it does until so many jobs are at work."""
    assert lease_devices_for_process(asked, folder / "devices", lambda: False)
    began = time.monotonic()
    (folder / f"{os.getpid()}.began").touch()
    wait(lambda: len(list(folder.glob("*.began"))) >= company)
    time.sleep(0.05)
    return f"{os.environ[VISIBLE]} {began} {time.monotonic()}".encode()


def leased_together(asked: Compute, folder: Path, company: int) -> list[str]:
    """The GPUs of so many jobs, each of which ends when all of them are at work."""
    outputs = run_each_in_forked_process([partial(lease_and_compute, asked, folder, company)] * company, company)
    return sorted(name for name, times in intervals_by_device(outputs).items() for _ in times)


def intervals_by_device(outputs: Sequence[bytes | ChildProcessError]) -> dict[str, list[tuple[float, float]]]:
    """When jobs computed on each GPU, or group of GPUs, in the order of their beginnings."""
    found: dict[str, list[tuple[float, float]]] = {}
    for output in outputs:
        assert isinstance(output, bytes)
        name, began, ended = output.decode().split()
        found.setdefault(name, []).append((float(began), float(ended)))
    return {name: sorted(times) for name, times in found.items()}


@LINUX
def test_eight_workers_never_compute_on_one_of_four_gpus_at_once(tmp_path: Path) -> None:
    """Twice as many workers as GPUs are there only where two sweeps are."""
    work = partial(lease_and_compute, compute("0", "1", "2", "3"), tmp_path, 4)
    found = intervals_by_device(run_each_in_forked_process([work] * 8, 8))
    assert sorted(found) == list("0123")
    assert sum(map(len, found.values())) == 8
    for times in found.values():
        assert all(one[1] <= other[0] for one, other in pairwise(times))
    assert (tmp_path / "devices").stat().st_mode & 0o777 == 0o700


@LINUX
@pytest.mark.parametrize(
    ("asked", "leased"),
    [
        (compute(*"01234567"), list("01234567")),
        (compute("0", "1", per_device=2), ["0", "0", "1", "1"]),
    ],
    ids=["one each", "two share one"],
)
def test_as_many_workers_as_leases_work_at_once(tmp_path: Path, asked: Compute, leased: list[str]) -> None:
    assert leased_together(asked, tmp_path, len(leased)) == leased


def lease_and_die(folder: Path) -> bytes:
    lease_devices_for_process(compute("0"), folder / "devices", lambda: False)
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


@LINUX
def test_a_killed_worker_frees_its_gpu_and_a_waiting_one_can_stop(tmp_path: Path) -> None:
    def lease_twice_and_fork_a_waiter() -> bytes:
        assert lease_devices_for_process(compute("0"), tmp_path, lambda: False)
        assert lease_devices_for_process(compute("0"), tmp_path, lambda: True), "a process keeps what it has"
        return b"".join(map(bytes, run_each_in_forked_process([waiter], 1)))  # type: ignore[arg-type]

    def waiter() -> bytes:
        devices._leased.clear()  # a fork of the holder, with a lock file of its own
        return str(lease_devices_for_process(compute("0"), tmp_path, iter([False, False, True]).__next__)).encode()

    (killed,) = run_each_in_forked_process([partial(lease_and_die, tmp_path)], 1)
    assert isinstance(killed, ChildProcessError)
    assert intervals_by_device(run_each_in_forked_process([partial(lease_and_compute, compute("0"), tmp_path)], 1))
    assert run_each_in_forked_process([lease_twice_and_fork_a_waiter], 1) == [b"False"]


SWEEP = (
    *("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2,3,4,5,6,7,8", "steps=3", "seed=1"),
    *("privacy.noise_multiplier=60", "score.noise_std=30", "accountant=rdp", "accountant.witnesses=[]", "page=false"),
    *("compute.device=cpu", "compute.together=1"),
)

PROGRAM = """
import sys

def task(config):
    import os, time
    from pathlib import Path
    from dpsweep.sweeper.job import block_job
    from dpsweep.sweeper.job.job_task import JobTask
    from dpsweep.sweeper.job.machine import Compute

    seen, had_torch = Path("seen"), []
    machine, train = Compute.machine_of_worker_process, JobTask.train_claimed_trials

    def look_for_torch(self, *args, **settings):
        had_torch.append("torch" in sys.modules)
        return machine(self, *args, **settings)

    def train_when_others_have(self, sessions):
        (seen / f"{os.getpid()}-{sessions[0].trial.id}.began").touch()
        try:
            (seen / "first").touch(exist_ok=False)
            waits = True
        except FileExistsError:
            waits = WAITS_FOR_ALL
        deadline = time.monotonic() + HANGS
        while waits and len(list(seen.glob(WAITS_FOR))) < NUMBER and time.monotonic() < deadline:
            time.sleep(0.02)
        began = time.monotonic()
        train(self, sessions)
        line = [os.environ["CUDA_VISIBLE_DEVICES"], os.getpid(), had_torch[0], time.monotonic() < deadline]
        (seen / f"{sessions[0].trial.id}.ended").write_text(" ".join(map(str, line)))

    Compute.machine_of_worker_process, JobTask.train_claimed_trials = look_for_torch, train_when_others_have
    try:
        getattr(block_job, "real", block_job.run_block)(config)
    finally:
        Compute.machine_of_worker_process, JobTask.train_claimed_trials = machine, train

if __name__ == "__main__":
    from dpsweep.sweeper.commands import hydra_app
    from dpsweep.sweeper.job import block_job
    block_job.real, block_job.run_block = block_job.run_block, task
    hydra_app.main(sys.argv[1:])
"""

Run = Callable[..., list[list[str]]]


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    def sweep(*words: str, number: int, waits_for: str, all_wait: bool) -> list[list[str]]:
        """The device, the process, whether torch was there, and whether the wait ended, of each run of a sweep."""
        (tmp_path / "seen").mkdir()
        constants: Mapping[str, object] = {
            **{"NUMBER": number, "WAITS_FOR": waits_for, "WAITS_FOR_ALL": all_wait, "HANGS": HANGS / 4},
        }
        text = PROGRAM
        for name, value in sorted(constants.items(), reverse=True):  # the longest name first
            text = text.replace(name, repr(value))
        done = subprocess.run(
            [sys.executable, "-c", text, *SWEEP, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [path.read_text().split() for path in (tmp_path / "seen").glob("*.ended")]

    return sweep


@LONG
@pytest.mark.parametrize("launcher", [pytest.param("fork", marks=LINUX), "joblib"])
def test_eight_workers_have_eight_gpus(run: Run, environment: dict[str, str], launcher: str) -> None:
    """Each run waits until eight are at work, whatever the number of cores."""
    environment[VISIBLE] = "0,1,2,3,4,5,6,7"
    if launcher == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs dpsweep[parallel]")
    listed = "compute.devices=0,1,2,3,4,5,6,7"
    seen = run(listed, f"hydra/launcher={launcher}", number=8, waits_for="*.began", all_wait=True)
    assert sorted(device for device, *_ in seen) == list("01234567")
    assert len({process for _, process, *_ in seen}) == 8
    assert {ended for *_, ended in seen} == {"True"}
    if launcher == "joblib":
        assert {torch for *_, torch, _ in seen} == {"False"}


@pytest.mark.parametrize("launcher", [pytest.param("fork", marks=LINUX), pytest.param("joblib", marks=LONG)])
def test_a_sampler_proposes_a_run_when_one_ends(run: Run, environment: dict[str, str], launcher: str) -> None:
    """The first run ends after four others: with two workers that wait for one another it would wait for ever."""
    environment[VISIBLE] = "0,1"
    if launcher == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs dpsweep[parallel]")
    search = ("search=tpe", "search.trials=6", "compute.devices=0,1")
    seen = run(*search, f"hydra/launcher={launcher}", number=4, waits_for="*.ended", all_wait=False)
    assert len(seen) == 6
    assert {device for device, *_ in seen} == {"0", "1"}
    assert {ended for *_, ended in seen} == {"True"}


@LINUX
def test_unknown_devices_are_refused_before_the_charge(
    program: Program, environment: dict[str, str], ledger: Ledger
) -> None:
    environment[VISIBLE] = "0,1,2,3"
    done = program(*SWEEP, "hydra/launcher=fork", "compute.devices=7")
    assert done.returncode == 2
    assert "Expected compute.devices=[7] to be among the GPUs that are visible here, got 0,1,2,3." in done.stderr
    assert "digits" not in ledger.account_names()
