"""A command is read once at Hydra's door: a typed, frozen value, of which the jobs alone hold what is Hydra's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import FrozenInstanceError, fields, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.sweep_folder import private_store_of_plan
from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE
from dpsweep.sweeper.coordinator.preflight import count_records_without_features
from dpsweep.sweeper.coordinator.request import SweeperSettings, SweepRequest, Verb
from dpsweep.sweeper.searches.admission import Retry
from tests.conftest import Program

Read = Callable[..., SweepRequest]
GRID = ("trainer=dpnsgd", "trainer.lr=1,2", "trainer.regularizer=1")
PLAIN = (str, int, float, bool, type(None), Path)


@pytest.fixture
def read() -> Iterator[Read]:
    """The request of a command line with these settings of the sweeper."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(CONF), **VERSION_BASE):
        loader = GlobalHydra.instance().config_loader()
        context: Any = SimpleNamespace(config_loader=loader)

        def make(*overrides: str, verb: str = "sweep", retry: str = "killed", resume: int = 0) -> SweepRequest:
            config = loader.load_configuration(
                "config", ["dataset=digits", *GRID, *overrides], run_mode=RunMode.MULTIRUN
            )
            settings = SweeperSettings(verb=verb, max_batch_size=None, retry=retry, resume=resume, study=None)
            return SweepRequest.from_config(config, GRID, settings, context=context, task=print)

        yield make


def leaves(value: object) -> Iterator[object]:
    """Everything that a value is made of, the jobs apart."""
    if is_dataclass(value):
        for field in fields(value):
            if field.name != "jobs":
                yield from leaves(getattr(value, field.name))
    elif isinstance(value, (tuple, frozenset)) or type(value) is list:
        for one in value:
            yield from leaves(one)
    elif type(value) is dict or (isinstance(value, Mapping) and not OmegaConf.is_config(value)):
        yield from leaves((*value.keys(), *value.values()))
    else:
        yield value


def test_a_request_is_typed(read: Read) -> None:
    request = read("compute.threads=3", "data=somewhere", "plan.fit=true", verb="plan", retry="again")
    assert (request.verb, request.retry, request.fit, request.resume) == (Verb.PLAN, Retry.AGAIN, True, 0)
    assert (request.max_threads_per_job, request.data) == (3, Path("somewhere"))
    assert [dict(point.axes)["trainer.lr"] for point in request.points] == [1, 2]
    assert request.plan.keys >= {"trainer", "trainer.lr"}


def test_a_request_holds_nothing_of_hydras_but_the_jobs(read: Read) -> None:
    values = list(leaves(read("tuning=private_selection", "search=tpe", "search.trials=4")))
    assert len(values) > 100
    assert [value for value in values if not isinstance(value, PLAIN)] == []


def test_a_request_does_not_change(read: Read) -> None:
    request = read()
    with pytest.raises(FrozenInstanceError):
        request.study = "another"  # type: ignore[misc]


def test_the_jobs_of_a_plan_leave_the_request_as_it_is(read: Read) -> None:
    jobs = read().jobs
    assert jobs.for_plan("0123456789ab").sweep_folder_path == Path("sweeps/digits/0123456789ab").absolute()
    assert "plan" not in jobs.config or "id" not in jobs.config.plan


@pytest.mark.parametrize(
    ("overrides", "settings", "reason"),
    [
        ([], {"verb": "train"}, "Expected hydra.sweeper.verb=train to be one of sweep, resume, plan."),
        ([], {"retry": "some"}, "Expected hydra.sweeper.retry=some to be one of paid, killed, failed, again, none."),
        ([], {"resume": -1}, "Expected hydra.sweeper.resume=-1 to be an integer >= 0."),
        (["compute.together=0"], {}, "Expected compute.together=0 to be null or an integer >= 1."),
        (["compute.chunk=true"], {}, "Expected compute.chunk=True to be null or an integer >= 1."),
        (["+policy=addition"], {}, "Expected no policy here"),
    ],
)
def test_a_wrong_setting_is_refused_at_the_door(
    read: Read, overrides: list[str], settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadInput, match=reason):
        read(*overrides, **settings)


@pytest.mark.parametrize(
    "target", ["os.system", "builtins.print", "nothing.AtAll", "hydra_plugins.honest_sweeper.HonestSweeper"]
)
def test_what_is_no_launcher_is_refused_at_the_door(target: str, read: Read) -> None:
    with pytest.raises(BadInput, match=rf"^Expected hydra\.launcher\._target_={target} to be a launcher of Hydra's"):
        read(f"hydra.launcher._target_={target}")


@pytest.mark.parametrize("verb", ["plan", "sweep"])
def test_a_class_that_is_no_launcher_is_not_even_imported(
    verb: str, program: Program, ledger: Ledger, tmp_path: Path
) -> None:
    (tmp_path / "my_model.py").write_text("open('ran', 'w').close()\nclass Bait: pass\n")
    words = ("hydra.launcher._target_=my_model.Bait", "hydra.sweep.dir=out", f"hydra.sweeper.verb={verb}")
    done = program("dataset=digits", *GRID, *words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("Expected hydra.launcher._target_ to be left out")
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"my_model.py"}
    assert ledger.account_names() == ()


def test_records_without_features_are_counted_before_the_steps_are_solved_for(read: Read, ledger: Ledger) -> None:
    point = read("features=scattering", "steps=when_budget_spent", "privacy.noise_multiplier=2").points[0]
    assert count_records_without_features(point.config, private_store_of_plan(ledger, "digits", "")) == 1797
