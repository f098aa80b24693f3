"""Sweep folders made of the accounting's own values: a real ledger, real plans, real result files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import yaml
from hydra.utils import instantiate
from matplotlib.figure import Figure

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent, PlanEvent, mechanisms_with_counts
from dpsweep.accounting.events.types import canonical_text
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import Ended
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.records.plan import REPEAT, Block, Plan, Trial
from dpsweep.accounting.records.trial_result import MODEL_FILE, Status, TrialResult
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.accounting.selection.rules import RULES, Composition
from dpsweep.accounting.stored_names import tags
from dpsweep.reports.exhibits import prices
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.trainers.declarations.clip_schedules import step_counts_by_noise_factor
from tests.charges import charge_event, start_attempts

_PRICES: dict[tuple[Any, ...], tuple[prices.Price, ...]] = {}
RULE = {"_target_": "dpsweep.accounting.selection.rules.Composition"}
COUNTS_STD = 9.0
STEPS = 80
LRS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
CLIPS = (0.1, 0.4, 1.6, 6.4, 12.8)
REGULARIZERS = (0.0001, 0.001, 0.01, 0.1, 1.0)
LR = "trainer.lr"
CLIP = "trainer.clip_norm"
REGULARIZER = "trainer.regularizer"


@dataclass(frozen=True, kw_only=True)
class Made:
    """A sweep folder and the ledger it was charged to."""

    folder: Path
    ledger: Ledger
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a sweep is made of. `fates` maps a point's place in the plan to how its attempt ended."""

    axes: Mapping[str, Mapping[str, tuple[Any, ...]]]
    noises: tuple[float, ...] = (4.0,)
    fates: Mapping[int, str] = field(default_factory=dict)
    accuracy: Callable[[int], float] = lambda place: 0.5 + 0.4 * ((place * 37) % 101) / 101
    private: bool = True
    counts_std: float = COUNTS_STD
    randomness: str = "secret"
    dataset: str = "digits"
    model: str = "dpsweep.trainers.models.fully_connected.logistic"
    error: str = "RuntimeError: out of memory"
    rule: Mapping[str, Any] = field(default_factory=lambda: dict(RULE))
    repeats: Iterable[int] = ()
    realised_steps: Callable[[int], int] = lambda _: STEPS
    bounds: Mapping[str, Any] | None = None
    training: DpEvent | None = None
    claimants: tuple[Any, ...] = (Pld(), Rdp())
    config: Mapping[str, Any] = field(default_factory=dict)


def make(root: Path, recipe: Recipe) -> Made:
    """Charges, starts and settles a sweep as the coordinator does."""
    trials = list(_trials(recipe))
    event = Composition().event([trial.event for trial in trials])
    budget = Guarantee(epsilon=1000.0, delta=1e-3)
    plan = Plan(
        account=recipe.dataset,
        budget=budget,
        delta=1e-5,
        rule=recipe.rule,
        blocks=tuple(Block(trials=(trial,)) for trial in trials),
        event=event,
    )
    folder = root / "sweep"
    plan.write(folder / "plan.json")
    task = {
        "overrides": {"task": [f"dataset={recipe.dataset}", "trainer.lr=0.1,0.2"]},
        "job": {"name": "dpsweep"},
    }
    (folder / "multirun.yaml").write_text(yaml.safe_dump({"hydra": task}))
    ledger = Ledger(root / "ledger.sqlite")
    with suppress(BadInput):  # another sweep of the test opened it
        ledger.open_account(plan.account, budget)
    _charge(ledger, plan, plan.trials, plan.event, "plan", recipe.claimants)
    for place, trial in enumerate(trials):
        _attempt(folder, ledger, plan, trial, place, recipe)
    for place in recipe.repeats:
        _charge(ledger, plan, (trials[place],), trials[place].event, "repeat", recipe.claimants)
    return Made(folder=folder, ledger=ledger, plan=plan)


@pytest.fixture(autouse=True)
def priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most sweeps of these tests have the same events; their prices under other rules take a page's longest time."""
    price = prices.prices_by_tries

    def remembered(plan: Plan, rule: Callable[[int], Any]) -> tuple[prices.Price, ...]:
        runs = tuple(
            canonical_text(part) for trial in plan.trials for part in trial.event.events_by_population.values()
        )
        key = (runs, plan.delta, plan.adjacency, repr(rule(3)))
        if key not in _PRICES:
            _PRICES[key] = price(plan, rule)
        return _PRICES[key]

    monkeypatch.setattr(prices, "prices_by_tries", remembered)


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are empty: for tests of what stands beside them, since drawing takes most of a release's time."""
    save = Figure.savefig

    def save_blank(figure: Figure, *args: Any, **options: Any) -> None:
        figure.clear()
        save(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", save_blank)


def _written(method: str) -> dict[str, str]:
    """The method's class, as its file in conf/ names it; DP-SGD's where there is no such method."""
    folder = Path(__file__).parent.parent.parent / "conf" / "trainer"
    path = next((one for one in folder.glob("*.yaml") if one.stem == method), folder / "dpsgd.yaml")
    return {"_target_": yaml.safe_load(path.read_text())["_target_"]}


def _trials(recipe: Recipe) -> Iterable[Trial]:
    for method, axes in recipe.axes.items():
        for noise, *values in itertools.product(recipe.noises, *axes.values()):
            point = dict(zip(axes, values, strict=True))
            trainer = {key.rpartition(".")[2]: value for key, value in point.items() if key != REPEAT}
            config = {
                "dataset": {
                    "_target_": "dpsweep.trainers.data.sets.images.EmbeddedImages",
                    "name": recipe.dataset,
                    "shape": [1, 8, 8],
                    "classes": 10,
                    "records": 1797,
                    "test_records": 0,
                    "unit": "record",
                    "distribution": "scikit-learn",
                    "file": "sklearn/datasets/data/digits.csv.gz",
                    "md5": "a0339c30a8a5312a1b6f9e5c719dcce5",
                    "pool": 1,
                    "scale": 16.0,
                    "mean": 0.0,
                    "std": 1.0,
                },
                "model": {"_target_": recipe.model},
                "trainer": _written(method) | trainer,
                "lr_schedule": {"_target_": "dpsweep.trainers.declarations.lr_schedules.Constant"},
                "clip_schedule": {"_target_": "dpsweep.trainers.declarations.clip_schedules.Constant"},
                "sampler": {"_target_": "dpsweep.trainers.declarations.batch_sampling.Poisson", "batch_size": 180},
                "score": {
                    "_target_": "dpsweep.trainers.declarations.scores.PrivateHoldout",
                    "fraction": 0.2,
                    "noise_std": recipe.counts_std,
                },
                "steps": STEPS,
                "privacy": {"noise_multiplier": noise, "adjacency": "add_or_remove_one", "unit": "record"},
                "seed": None,
                **recipe.config,
            }
            step = events.poisson_gaussian(sample_rate=180 / 1438, noise_multiplier=noise)
            training = events.repeat(step, STEPS)
            if recipe.bounds is not None:
                config["clip_schedule"] = dict(recipe.bounds)
                noises = step_counts_by_noise_factor(instantiate(recipe.bounds), STEPS)
                training = events.compose(
                    events.repeat(events.poisson_gaussian(sample_rate=180 / 1438, noise_multiplier=noise * more), count)
                    for more, count in noises.items()
                )
            training = training if recipe.training is None else recipe.training
            score = events.gaussian(noise_multiplier=recipe.counts_std) if recipe.private else None
            if len(recipe.noises) > 1:
                point = point | {"privacy.noise_multiplier": noise}
            if REPEAT in point:
                config[REPEAT] = point.pop(REPEAT)
            yield Trial(
                method=method,
                axes=point,
                config=config,
                event=PlanEvent(training=training, validation=score),
            )


def _charge(
    ledger: Ledger,
    plan: Plan,
    trials: Iterable[Trial],
    event: PlanEvent,
    reason: str,
    claimants: tuple[Any, ...],
) -> None:
    charge_event(
        ledger,
        plan.account,
        plan=plan.id,
        trials=[trial.id for trial in trials],
        event=event,
        delta=plan.delta,
        panel=Panel(claimants=claimants),
        record={"reason": reason},
    )


def _attempt(folder: Path, ledger: Ledger, plan: Plan, trial: Trial, place: int, recipe: Recipe) -> None:
    fate = recipe.fates.get(place, "finished")
    if fate == "not run":
        return
    (receipt,) = start_attempts(ledger, plan.account, plan=plan.id, trials=[trial.id])
    receipt.write(folder / "trials" / trial.id)
    if fate == "killed":
        return
    status, value = Status(fate), recipe.accuracy(place)
    score = {"value": value, "low": max(0.0, value - 0.02), "high": min(1.0, value + 0.02)}
    steps = STEPS // 2 if status is Status.DIVERGED else recipe.realised_steps(place)
    leaves = [leaf for leaf, count in mechanisms_with_counts(trial.event.training) for _ in range(count)]
    ran = events.compose((leaves + leaves)[:steps])
    now = datetime.now(UTC).isoformat(timespec="seconds")
    TrialResult(
        trial=trial.id,
        attempt=1,
        status=status,
        score={
            Status.FINISHED: score,
            Status.DIVERGED: {"value": 0.0, "low": 0.0, "high": 0.0},
            Status.FAILED: None,
        }[status],
        event=None if status is Status.FAILED else events.to_json(ran),
        steps=steps,
        seconds=12.3456789 + place,
        device="cpu",
        randomness=recipe.randomness,
        started=now,
        ended=now,
        parameters=None if status is Status.FAILED else 650,
        error=recipe.error if status is Status.FAILED else None,
        versions={"dpsweep": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
        curator={"batch_sizes": {"smallest": 151151, "mean": 180.987654321, "largest": 217217}},
    ).write(folder / "trials" / trial.id)
    if status is Status.FINISHED:
        (folder / "trials" / trial.id / MODEL_FILE).write_text(f"weights of point {place}")
    ended = Ended(trial=trial.id, attempt=1, resume=0, realised={"status": status.value})
    ledger.end(plan.account, plan=plan.id, ended=[ended])


@dataclass(frozen=True, kw_only=True)
class OnlyWinner(Composition):
    """A rule that pays for everything and hides every loser."""

    name: ClassVar[str] = "only_winner"
    discloses: ClassVar[frozenset[Disclosure]] = frozenset({Disclosure.WINNER, Disclosure.WINNER_SCORE})


@pytest.fixture
def sweep_of(tmp_path: Path) -> Callable[..., Made]:
    """Makes a sweep in the test's own folder, from a recipe's fields."""
    return lambda axes, **fields: make(tmp_path, Recipe(axes=axes, **fields))


@pytest.fixture
def only_winner(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The configuration of a rule that hides losers."""
    monkeypatch.setitem(cast("dict[str, Any]", RULES), "only_winner", OnlyWinner)
    monkeypatch.setitem(tags.FAMILY_OF, "only_winner", "rule")
    return {"kind": "only_winner"}


@pytest.fixture(scope="session")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Two methods, 7 x 5 points each, with a point of every fate, a repeat, and its page already written."""
    made = make(
        tmp_path_factory.mktemp("troubled"),
        Recipe(
            axes={"dpsgd": {LR: LRS, CLIP: CLIPS}, "dpnsgd": {LR: LRS, REGULARIZER: REGULARIZERS}},
            fates={3: "failed", 5: "diverged", 6: "killed", 8: "not run"},
            repeats=(3,),
        ),
    )
    write_report(made.folder, made.ledger)
    return made
