"""What jobs are told reaches them unchanged, and what a launcher loses is launched again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.callbacks import Callbacks
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError

from dpsweep.accounting.errors import BadInput, ContractBroken, LedgerDamaged, ReceiptUsed
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import PrivateStore, Receipt
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.searches.interface import search_for_plan
from dpsweep.sweeper.job.locks import training_lock
from dpsweep.sweeper.job.machine import Compute
from dpsweep.sweeper.launchers.hydra_jobs import HydraJobs, JobLauncher, overrides_from_values
from dpsweep.sweeper.launchers.workers import FORKED
from dpsweep.sweeper.searches.admission import Retry
from dpsweep.sweeper.searches.interface import admitted_search_for_plan
from dpsweep.sweeper.searches.runner import Runner
from dpsweep.sweeper.trial.blocks import points_in_part_of_block
from tests.jobs import job_config
from tests.sweeper.search_programs import GRID, Compose, result_of

Launch = Callable[[list[str]], list[JobReturn]]


@pytest.mark.parametrize(
    "name", ["488993726622", "12e45678", "00000001", "1_000", "null", "true", "a b", "it's", "a\\b"]
)
def test_names_that_look_like_something_else_stay_names(name: str) -> None:
    (parsed,) = OverridesParser.create().parse_overrides(overrides_from_values({"block": name}))
    value = parsed.value()
    assert isinstance(value, str)
    assert value == name


@given(st.from_regex(r"[0-9a-f]{12}", fullmatch=True))
def test_every_identity_survives(identity: str) -> None:
    (parsed,) = OverridesParser.create().parse_overrides(overrides_from_values({"plan": identity}))
    assert parsed.value() == identity


def test_numbers_and_nothing_keep_their_types() -> None:
    parsed = OverridesParser.create().parse_overrides(overrides_from_values({"compute.threads": 2, "data": None}))
    assert [override.value() for override in parsed] == [2, None]


@dataclass
class Launcher:
    """Hands each launch to the next of `launches`, the last of which goes on for ever; jobs go by their one trial."""

    plan: Plan
    launches: list[Launch]
    launched: list[list[str]] = field(default_factory=list)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        parser = OverridesParser.create()
        jobs = [
            {one.key_or_group: one.value() for one in parser.parse_overrides(list(job))[:3]} for job in job_overrides
        ]
        blocks = {block.id: block for block in self.plan.blocks}
        parts = [points_in_part_of_block(blocks[str(job["block"])], job["part"], job["parts"]) for job in jobs]
        trials = [trial.id for (trial,) in parts]
        self.launched.append(trials)
        return self.launches[min(len(self.launched), len(self.launches)) - 1](trials)


OneByOne = type("ForkLauncher", (Launcher,), {"__module__": FORKED.rpartition(".")[0]})
"""The same as a launcher that asks for jobs one by one; it asks for all of them before it runs one."""


@dataclass
class Sweep:
    """A plan of four points, admitted, and what its jobs do."""

    plan: Plan
    folder: SweepFolder
    ledger: Ledger
    start: Callable[..., tuple[tuple[str, ...], list[list[str]]]]

    def take(self, block: str) -> JobReturn:
        place = self.folder.trial_folder(block)
        receipt = Receipt.claim(place, self.folder.private_store, plan=self.plan.id, trial=block)
        (trial,) = (trial for trial in self.plan.trials if trial.id == block)
        result_of(trial, 0.5, receipt.attempt).write(place)
        return JobReturn(status=JobStatus.COMPLETED)

    def all(self, blocks: list[str]) -> list[JobReturn]:
        return [self.take(block) for block in blocks]

    def attempts(self) -> list[int]:
        attempts = self.ledger.statement(self.plan.account, self.plan.id).attempts_of_plan(self.plan.id)
        return [attempts.started[trial.id] for trial in self.plan.trials]


@pytest.fixture
def sweep(tmp_path: Path, ledger: Ledger, compose_priced: Compose, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    priced = compose_priced(GRID)
    folder = SweepFolder(root=tmp_path / "sweep", store=PrivateStore(root=tmp_path / "private"))
    config = OmegaConf.create(
        {
            "hydra": {"sweep": {"dir": "."}, "runtime": {}, "help": {}},
        }
    )
    context = HydraContext(config_loader=Any, callbacks=Callbacks())
    task: Any = None

    def start(
        *launches: Launch,
        batch: int = 4,
        retry: Retry = Retry.NONE,
        refill: Callable[[int], Sequence[Trial]] | None = None,
    ) -> tuple[tuple[str, ...], list[list[str]]]:
        launcher = (Launcher if refill is None else OneByOne)(plan=priced.plan, launches=list(launches))
        monkeypatch.setattr(Plugins, "instantiate_launcher", lambda *_, **__: launcher)
        work = admitted_search_for_plan(priced, folder, ledger, retry).charge_and_queue_due_runs()
        priced.plan.write(folder.plan_path)
        runner = Runner(
            search=search_for_plan(priced.plan, folder),
            log=work.log,
            jobs=HydraJobs(context=context, task=task, config=config),
            compute=Compute(device="cpu", threads=1, chunk=None, together=1),
            data=None,
            workers=1 if refill is None else 3,
            batch=batch,
            refill=refill,
        )
        return work.run(runner, work.due if refill is None else work.due[:1]), launcher.launched

    return Sweep(plan=priced.plan, folder=folder, ledger=ledger, start=start)


def failed(error: Exception) -> JobReturn:
    return JobReturn(status=JobStatus.FAILED, _return_value=error)


def test_all_that_is_due_is_handed_over_by_the_batch(sweep: Sweep) -> None:
    complaints, launched = sweep.start(sweep.all, batch=3)
    assert [len(blocks) for blocks in launched] == [3, 1]
    assert complaints == ()
    assert sweep.attempts() == [1, 1, 1, 1]


def test_a_launcher_that_asks_for_jobs_gets_those_that_are_due_by_then(sweep: Sweep) -> None:
    asked: list[int] = []

    def refill(waiting: int) -> Sequence[Trial]:
        asked.append(waiting)
        return sweep.plan.trials[len(asked) : len(asked) + 1] if len(asked) < 3 else ()

    complaints, launched = sweep.start(sweep.all, refill=refill)
    assert launched == [[trial.id for trial in sweep.plan.trials[:3]]]
    assert asked == [2, 2, 2]
    assert complaints == ()
    assert sweep.attempts() == [1, 1, 1, 0]


@pytest.mark.parametrize(("kind", "handed"), [(Launcher, list), (OneByOne, map)])
def test_jobs_of_an_iterator_are_a_list_for_a_launcher_that_cannot_refill(
    kind: type[Launcher], handed: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[type] = []
    monkeypatch.setattr(kind, "launch", lambda _, jobs, initial_job_idx: seen.append(type(jobs)) or [])
    launcher = JobLauncher(launcher=kind(plan=Any, launches=[]))
    assert launcher.launch(iter([{"part": 0}]), 0) == launcher.launch([{"part": 0}], 0) == []
    assert seen == [handed, list]


def test_a_search_that_cannot_go_on_says_so_when_its_jobs_have_ended(sweep: Sweep) -> None:
    def refill(waiting: int) -> Sequence[Trial]:
        raise LedgerDamaged("The ledger is gone.")

    with pytest.raises(LedgerDamaged, match="is gone"):
        sweep.start(sweep.all, refill=refill)
    assert TrialResult.read(sweep.folder.trial_folder(sweep.plan.trials[0].id)) is not None


def test_jobs_that_a_launcher_lost_are_launched_again_as_the_same_attempts(sweep: Sweep) -> None:
    def dies(blocks: list[str]) -> list[JobReturn]:
        sweep.take(blocks[1])
        raise OSError("a worker died\nin the middle")

    complaints, launched = sweep.start(dies, sweep.all)
    assert complaints == ("OSError: a worker died",)
    assert launched[1] == [block for block in launched[0] if block != launched[0][1]]
    assert sweep.attempts() == [1, 1, 1, 1]


def test_a_launcher_that_never_works_is_tried_once_and_costs_no_attempt(sweep: Sweep) -> None:
    def dies(blocks: list[str]) -> list[JobReturn]:
        raise OSError("no such queue")

    complaints, launched = sweep.start(dies)
    assert complaints == ("OSError: no such queue",)
    assert len(launched) == 1
    again, launched = sweep.start(sweep.all)
    assert again == ()
    assert len(launched[0]) == 4
    assert sweep.attempts() == [1, 1, 1, 1]


def test_a_job_that_died_after_it_began_is_not_launched_again(sweep: Sweep) -> None:
    def dies(blocks: list[str]) -> list[JobReturn]:
        Receipt.claim(
            sweep.folder.trial_folder(blocks[0]), sweep.folder.private_store, plan=sweep.plan.id, trial=blocks[0]
        )
        raise OSError("killed")

    _, launched = sweep.start(dies, sweep.all)
    assert [len(blocks) for blocks in launched] == [4, 3]
    assert not (sweep.folder.trial_folder(launched[0][0]) / "result.json").exists()


def test_a_receipt_that_an_orphan_took_first_is_no_complaint(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    def late(blocks: list[str]) -> list[JobReturn]:
        sweep.all(blocks)
        return [failed(ReceiptUsed("taken")) for _ in blocks]

    complaints, launched = sweep.start(late)
    assert complaints == ()
    assert len(launched) == 1
    assert capsys.readouterr().err == ""


def test_a_refusal_stops_the_sweep_after_its_neighbours_are_settled(sweep: Sweep) -> None:
    def refuses(blocks: list[str]) -> list[JobReturn]:
        refused = sweep.plan.trials[2].id
        return [failed(BadInput("edited")) if block == refused else sweep.take(block) for block in blocks]

    with pytest.raises(ContractBroken, match="refused its block, which stays charged: edited"):
        sweep.start(refuses)
    attempts = sweep.ledger.statement(sweep.plan.account, sweep.plan.id).attempts_of_plan(sweep.plan.id)
    assert {one[0] for one in attempts.starts if (*one, attempts.resumed[one]) not in attempts.settled} == {
        sweep.plan.trials[2].id
    }


def test_a_repetition_is_another_charge_and_goes_on_without_a_third(sweep: Sweep) -> None:
    def one_and_stop(blocks: list[str]) -> list[JobReturn]:
        sweep.folder.stop_file_path.touch()
        return [sweep.take(blocks[0])]

    sweep.start(sweep.all)
    sweep.start(one_and_stop, batch=1, retry=Retry.AGAIN)
    assert sorted(sweep.attempts()) == [1, 1, 1, 2]
    sweep.folder.stop_file_path.unlink()
    sweep.start(sweep.all)
    assert sweep.attempts() == [2, 2, 2, 2]
    assert len(sweep.ledger.statement("digits").charges) == 2
    sweep.start(sweep.all)
    assert sweep.attempts() == [2, 2, 2, 2]


def test_a_stop_keeps_what_waits_from_being_launched(sweep: Sweep) -> None:
    def stopped(blocks: list[str]) -> list[JobReturn]:
        sweep.folder.stop_file_path.touch()
        return [sweep.take(blocks[0]), *(JobReturn(status=JobStatus.COMPLETED) for _ in blocks[1:])]

    complaints, launched = sweep.start(stopped, batch=2)
    assert complaints == ()
    assert [len(blocks) for blocks in launched] == [2]
    assert sorted(sweep.attempts()) == [0, 0, 1, 1]


def test_jobs_that_outlive_their_launcher_are_waited_for(sweep: Sweep) -> None:
    """A queue that loses one job gives up on all of them, and the others go on."""
    begun, ended = threading.Event(), []

    def work(block: str) -> None:
        with training_lock(sweep.folder.trial_folder(block)):
            begun.set()
            time.sleep(0.8)
            sweep.take(block)
            ended.append(block)

    def gives_up(blocks: list[str]) -> list[JobReturn]:
        threading.Thread(target=work, args=(blocks[3],)).start()
        begun.wait()
        raise OSError("one job is gone")

    _, launched = sweep.start(gives_up, sweep.all)
    assert ended == [launched[0][3]]
    assert len(launched[1]) == 3
    result = sweep.folder.trial_folder(ended[0]) / "result.json"
    assert Status.FINISHED.value in result.read_text()


def test_a_job_has_the_values_that_it_is_told_and_those_of_the_sweeps_hydra(tmp_path: Path) -> None:
    told = {"block": "00000001", "hydra.sweep.dir": str(tmp_path), "data": None, "compute.device": "cpu"}
    config = job_config(overrides_from_values(told | {"compute.threads": 3, "trusted": ["my.Net"]}), tmp_path)
    assert (config.block, config.compute.threads, config.hydra.sweep.dir) == ("00000001", 3, str(tmp_path))
    assert (list(config.trusted), config.parts, config.store) == (["my.Net"], 1, None)
    assert (config.hydra.output_subdir, config.hydra.runtime.cwd) == (None, str(tmp_path))
    assert "dataset" not in config
    with pytest.raises(ConfigAttributeError, match="tyop"):
        job_config(["tyop=1"], tmp_path)
