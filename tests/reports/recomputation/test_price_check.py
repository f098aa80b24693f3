"""The program that recomputes a released price: independent, as tight as the accountants, and not to be fooled."""

from __future__ import annotations

import ast
import copy
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events import build as events
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.selection.rules import PoissonSelection, PrivateSelection
from dpsweep.reports.pages.release import write_release
from dpsweep.reports.pages.released_package import PROGRAM_HEAD
from dpsweep.reports.recomputation import event_price
from dpsweep.reports.recomputation.event_price import epsilon, epsilon_by_renyi
from dpsweep.reports.recomputation.loss_lattice import LossLattice, NotRecomputed, delta_curve_of_one_sampled_step
from dpsweep.reports.recomputation.price_check import (
    FAILS,
    HOLDS,
    LOOSE,
    NOT_RECOMPUTED,
    UNREADABLE,
    exit_code_and_sentence_on_claim,
    exit_codes_and_sentences_on_price,
    largest_bound_that_confirms_claim,
    main,
)
from tests.reports.conftest import Recipe, make
from tests.reports.recomputation.random_plans import RULES, random_plan

ROOM = Path(__file__).parents[3] / "reports" / "recomputation"
OWN = "dpsweep.reports.recomputation."
SHIPPED = ("loss_lattice", "renyi_bound", "search_envelope", "event_price", "price_check")
MAY_IMPORT = {
    "__future__",
    "collections",
    "dataclasses",
    "json",
    "math",
    "numpy",
    "pathlib",
    "sys",
    "typing",
}
AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2), "trainer.clip_norm": (0.5, 1)}}
PANEL = Panel(claimants=(Pld(), Rdp()))


def imported(text: str) -> set[str]:
    """The modules that a text imports anywhere."""
    nodes = list(ast.walk(ast.parse(text)))
    whole = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return whole | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


def test_the_program_shares_no_code_with_what_it_checks() -> None:
    for name in SHIPPED:
        others = imported((ROOM / f"{name}.py").read_text()) - {f"{OWN}{one}" for one in SHIPPED}
        assert {module.partition(".")[0] for module in others} <= MAY_IMPORT, name
    assert not any(
        OWN + name in imported((ROOM.parent / "pages" / "released_package.py").read_text()) for name in SHIPPED
    )


def compare(place: int) -> list[str]:
    """Prices one random plan twice; returns the populations that were not recomputed."""
    plan, skipped = random_plan(place), []
    quote = PANEL.quote(plan.event, plan.delta, plan.adjacency)
    for name, part in plan.event.events_by_population.items():
        claim, form = quote.parts[name], events.to_json(part)["event"]
        try:
            bound = epsilon(form, plan.delta, plan.adjacency.value, claim)
        except NotRecomputed:
            skipped.append(name)
            continue
        assert min(bound, by_renyi_or_infinite(form, plan)) <= largest_bound_that_confirms_claim(claim), (
            place,
            plan.rule.name,
            name,
        )
        if quote.claimed_by == "PLD":
            assert claim - bound <= max(LOOSE[0], LOOSE[1] * claim), (place, plan.rule.name, name)
    return skipped


def by_renyi_or_infinite(form: Any, plan: Any) -> float:
    try:
        return epsilon_by_renyi(form, plan.delta, plan.adjacency.value)
    except NotRecomputed:
        return math.inf


TOGETHER = [place for place in range(len(RULES)) if "subsampled" not in list(RULES)[place]]


@pytest.mark.parametrize("place", TOGETHER)
def test_prices_are_those_of_the_accountants(place: int) -> None:
    assert compare(place) == []


UNLIKE = {58: ["training"]}
"""Points of unlike price under `best_of_grid`, whose composition has no bound in the program."""


@pytest.mark.long
@pytest.mark.parametrize("place", [one for one in range(11, 111) if "subsampled" not in list(RULES)[one % len(RULES)]])
def test_prices_of_many_plans_are_those_of_the_accountants(place: int) -> None:
    assert compare(place) == UNLIKE.get(place, [])


def test_a_search_on_a_secret_sample_is_not_recomputed() -> None:
    assert set(compare(list(RULES).index("subsampled"))) == {"training", "validation"}


Change = Callable[[dict[str, Any]], None]


def step_of(price: dict[str, Any]) -> dict[str, Any]:
    """The repeated sampled step of the training event."""
    form = price["parts"]["training"]["event"]["event"]
    while form["type"] != "SelfComposedDpEvent":
        form = form["events"][0] if form["type"] == "ComposedDpEvent" else form["event"]
    assert isinstance(form, dict)
    return form


def with_epsilon(price: dict[str, Any]) -> None:
    for part in price["parts"].values():
        part["epsilon"] *= 0.9
    price["epsilon"] *= 0.9


def without_search(price: dict[str, Any]) -> None:
    for part in price["parts"].values():
        if part["event"]["event"]["type"] == "SelectionDpEvent":
            part["event"]["event"] = part["event"]["event"]["event"]


TAMPERED: dict[str, Change] = {
    "epsilon": with_epsilon,
    "epsilon of the whole": lambda price: price.update(epsilon=price["epsilon"] - 0.01),
    "delta": lambda price: price.update(delta=price["delta"] / 10),
    "less noise": lambda price: step_of(price)["event"]["event"].update(noise_multiplier=1.5),
    "more noise": lambda price: step_of(price)["event"]["event"].update(noise_multiplier=8.0),
    "more steps": lambda price: step_of(price).update(count=2 * step_of(price)["count"]),
    "fewer steps": lambda price: step_of(price).update(count=step_of(price)["count"] // 2),
    "sampling": lambda price: step_of(price)["event"].update(sampling_probability=0.5),
    "adjacency": lambda price: price.update(adjacency="replace_one"),
    "rule": lambda price: price.update(rule="threshold"),
    "accountant": lambda price: price.update(claimed_by="RDP"),
    "event": lambda price: price["parts"]["training"]["event"].update(event={"type": "NoOpDpEvent"}),
}


@pytest.fixture(scope="module")
def searched() -> tuple[dict[str, Any], dict[str, Any]]:
    """`price.json` and `report.json` of a search by private selection, as the accountants price it."""
    run = events.repeat(events.poisson_gaussian(sample_rate=0.05, noise_multiplier=3.0), 200)
    point = events.PlanEvent(training=run, validation=events.noisy_count(noise_std=8.0))
    event = PrivateSelection(mean=5.0).event([point])
    quote = PANEL.quote(event, 1e-5, Adjacency.ADD_OR_REMOVE_ONE)
    parts = {
        name: {"epsilon": quote.parts[name], "event": events.to_json(part)}
        for name, part in event.events_by_population.items()
    }
    price = {
        "version": 1,
        "rule": "private_selection",
        "unit": "record",
        "adjacency": "add_or_remove_one",
        "epsilon": quote.epsilon,
        "delta": 1e-5,
        "claimed_by": quote.claimed_by,
        "parts": parts,
        "repeats": {"epsilon": 0.0, "delta": 0.0},
    }
    facts = {"honest_epsilon": {"value": quote.epsilon}, "honest_delta": {"value": 1e-5}}
    return json.loads(json.dumps(price)), {"facts": facts}


def codes(results: list[tuple[int, str]]) -> set[int]:
    return {code for code, _ in results}


def test_a_search_holds(searched: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert codes(exit_codes_and_sentences_on_price(*searched)) == {HOLDS}


@pytest.mark.parametrize("change", sorted(TAMPERED.keys() - {"accountant"}))
def test_a_tampered_search_fails(searched: tuple[dict[str, Any], dict[str, Any]], change: str) -> None:
    price, report = copy.deepcopy(searched)
    TAMPERED[change](price)
    assert FAILS in codes(exit_codes_and_sentences_on_price(price, report))


def test_no_accountant_excuses_a_smaller_claim(searched: tuple[dict[str, Any], dict[str, Any]]) -> None:
    price, report = copy.deepcopy(searched)
    with_epsilon(price)
    report["facts"]["honest_epsilon"]["value"] = price["epsilon"]
    for name in ("PLD", "RDP", "PLD and RDP", "PRV", "unnamed"):
        price["claimed_by"] = name
        assert FAILS in codes(exit_codes_and_sentences_on_price(price, report)), name


FAINT = events.repeat(events.poisson_gaussian(sample_rate=0.001, noise_multiplier=100.0), 100)
FAINT_SEARCHES = (
    PrivateSelection(eta=0.0, mean=100.0),
    PrivateSelection(eta=-0.5, mean=3.0),
    PoissonSelection(mean=40.0),
)


def judged(event: events.DpEvent, claim: float, by: str, delta: float = 1e-8) -> int:
    """The verdict on a claim for an event."""
    part = {"epsilon": claim, "event": json.loads(json.dumps(events.to_json(event)))}
    return exit_code_and_sentence_on_claim(part, delta, "add_or_remove_one", by)[0]


def test_a_claim_of_a_third_of_a_small_price_fails() -> None:
    """An absolute tolerance of .001 let it pass."""
    truth = Pld().epsilon(FAINT, 1e-8, Adjacency.ADD_OR_REMOVE_ONE)
    assert 3e-4 < truth < 4e-4
    assert judged(FAINT, truth, "PLD") == HOLDS
    assert [judged(FAINT, claim, "PLD") for claim in (1e-4, 0.9 * truth, 0.0)] == [FAILS] * 3


@pytest.mark.parametrize("rule", FAINT_SEARCHES, ids=lambda rule: f"{rule.name} {getattr(rule, 'eta', '')}")
def test_claims_by_rdp_are_recomputed(rule: Any) -> None:
    event = rule.event([events.PlanEvent(training=FAINT)]).training
    claim = Rdp().epsilon(event, 1e-8, Adjacency.ADD_OR_REMOVE_ONE)
    assert judged(event, claim, "RDP") == HOLDS
    assert judged(event, claim / 2, "RDP") == FAILS


@pytest.mark.parametrize("eta", [1.0, 0.0, -0.5])
def test_renyi_bounds_are_those_of_the_accountant(eta: float) -> None:
    """Its orders are a grid, and this program's are not, so its bound is a little less."""
    event = PrivateSelection(eta=eta, mean=8.0).event([events.PlanEvent(training=FAINT)]).training
    for one in (FAINT, event, events.compose([event, FAINT])):
        theirs = Rdp().epsilon(one, 1e-6, Adjacency.ADD_OR_REMOVE_ONE)
        ours = epsilon_by_renyi(events.to_json(one)["event"], 1e-6, "add_or_remove_one")
        assert theirs * 0.99 <= ours <= theirs * (1 + 1e-9)


def test_a_search_without_a_bound_costs_a_run_at_least() -> None:
    """A limit on a secret number of tries has no bound here, whichever accountant made the claim."""
    run = events.repeat(events.poisson_gaussian(sample_rate=0.05, noise_multiplier=3.0), 200)
    one = Pld().epsilon(run, 1e-5, Adjacency.ADD_OR_REMOVE_ONE)
    search = PrivateSelection(mean=5.0).event([events.PlanEvent(training=run)]).training
    form = json.loads(json.dumps(events.to_json(search)))
    form["event"]["limit"] = 50
    for by in ("RDP", "PLD", "PRV"):
        assert (
            exit_code_and_sentence_on_claim({"epsilon": one * 1.2, "event": form}, 1e-5, "add_or_remove_one", by)[0]
            == NOT_RECOMPUTED
        )
        code, sentence = exit_code_and_sentence_on_claim(
            {"epsilon": one * 0.9, "event": form}, 1e-5, "add_or_remove_one", by
        )
        assert code == FAILS and "one run costs" in sentence


def test_a_search_that_is_declared_as_one_run_fails(searched: tuple[dict[str, Any], dict[str, Any]]) -> None:
    price, report = copy.deepcopy(searched)
    without_search(price)
    price["rule"] = "composition"
    assert FAILS in codes(exit_codes_and_sentences_on_price(price, report))


def test_repeats_are_not_recomputed(searched: tuple[dict[str, Any], dict[str, Any]]) -> None:
    price, report = copy.deepcopy(searched)
    price["repeats"] = {"epsilon": 0.5, "delta": 1e-6}
    assert FAILS in codes(exit_codes_and_sentences_on_price(price, report)), "the page does not have them"
    report["facts"]["honest_epsilon"]["value"] += 0.5
    report["facts"]["honest_delta"]["value"] += 1e-6
    assert codes(exit_codes_and_sentences_on_price(price, report)) == {HOLDS, NOT_RECOMPUTED}


STEP_FORM = {
    "type": "PoissonSampledDpEvent",
    "sampling_probability": 0.02,
    "event": {"type": "GaussianDpEvent", "noise_multiplier": 1.0},
}


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(
    ("rate", "noise", "steps", "code"),
    [(0.1, 0.06, 1, HOLDS), (0.1, 0.3, 1, HOLDS), (0.1, 0.05, 10, NOT_RECOMPUTED), (0.01, 0.02, 1, NOT_RECOMPUTED)],
)
def test_honest_claims_with_little_noise_do_not_fail(
    adjacency: Adjacency, rate: float, noise: float, steps: int, code: int
) -> None:
    """The lattice was to have 1e12 places, or was placed at nan."""
    event = events.repeat(events.poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps)
    part = {"epsilon": Pld().epsilon(event, 1e-5, adjacency), "event": json.loads(json.dumps(events.to_json(event)))}
    assert exit_code_and_sentence_on_claim(part, 1e-5, adjacency.value, "PLD")[0] == code
    if code == HOLDS:
        assert (
            exit_code_and_sentence_on_claim({**part, "epsilon": part["epsilon"] * 0.95}, 1e-5, adjacency.value, "PLD")[
                0
            ]
            == FAILS
        )


@pytest.mark.parametrize(("rate", "mu"), [(0.1, 1.0), (0.3, 3.0), (0.9, 0.5)])
@pytest.mark.parametrize("direction", [0, 1])
def test_one_step_is_that_of_the_lattice_or_less(rate: float, mu: float, direction: int) -> None:
    at = np.array([-0.5, -0.05, 0.0, 0.01, 0.05])
    step = delta_curve_of_one_sampled_step(rate, mu, direction)(at)
    lattice = LossLattice([("sampled", rate, mu, 1)], direction).delta(at)
    assert (step <= lattice * (1 + 1e-9)).all() and (step >= 0.999 * lattice).all()


def of_tries(**law: Any) -> dict[str, Any]:
    return {"type": "SelectionDpEvent", "event": STEP_FORM, "limit": None, "tries": law}


def stopped(**fields: Any) -> dict[str, Any]:
    tries = {"type": "Stopping", "gamma": 0.1, "limit": 200}
    return {"type": "RandomStoppingDpEvent", "event": STEP_FORM, "tries": tries, "delta2": 1e-7, **fields}


def of_fixed_size(size: Any, records: Any) -> dict[str, Any]:
    kind = "SampledWithoutReplacementDpEvent"
    return {"type": kind, "sample_size": size, "source_dataset_size": records, "event": STEP_FORM["event"]}


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "part of a step": {"type": "SelfComposedDpEvent", "count": 0.9, "event": STEP_FORM},
    "no step": {"type": "SelfComposedDpEvent", "count": 0, "event": STEP_FORM},
    "true steps": {"type": "SelfComposedDpEvent", "count": True, "event": STEP_FORM},
    "negative scale": {"type": "NoisyMaxDpEvent", "noise_scale": -1.0},
    "nan scale": {"type": "NoisyMaxDpEvent", "noise_scale": math.nan},
    "no member": {"type": "MixtureDpEvent", "events": [STEP_FORM, STEP_FORM], "counts": [0, 0]},
    "negative member": {"type": "MixtureDpEvent", "events": [STEP_FORM, STEP_FORM], "counts": [3, -1]},
    "negative mean": of_tries(type="Poisson", mean=-1.0),
    "nan mean": of_tries(type="Poisson", mean=math.nan),
    "gamma above 1": of_tries(type="NegativeBinomial", eta=1.0, gamma=2.0),
    "eta below -1": of_tries(type="NegativeBinomial", eta=-3.0, gamma=0.1),
    "part of a point": of_tries(type="EachPoint", count=0.01),
    "negative points": of_tries(type="EachPoint", count=-2),
    "nan tail": stopped(delta2=math.nan),
    "nan gamma": stopped(tries={"type": "Stopping", "gamma": math.nan, "limit": 200}),
    "negative batch": of_fixed_size(-5, 100),
    "large batch": of_fixed_size(101, 100),
    "negative noise": {**STEP_FORM, "event": {"type": "GaussianDpEvent", "noise_multiplier": -1.0}},
    "infinite noise": {"type": "GaussianDpEvent", "noise_multiplier": math.inf},
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
@pytest.mark.parametrize("adjacency", ["add_or_remove_one", "replace_one"])
def test_events_that_cannot_exist_are_refused(what: str, adjacency: str) -> None:
    """Curves that are nan held at any claim."""
    for by in ("PLD", "RDP"):
        with pytest.raises(ValueError, match="Expected"):
            exit_code_and_sentence_on_claim(
                {"epsilon": 0.01, "event": {"event": IMPOSSIBLE[what]}}, 1e-5, adjacency, by
            )


def test_a_curve_that_is_nan_bounds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_price, "delta_curves_of_event", lambda *_: [lambda points: np.full(len(points), np.nan)])
    with pytest.raises(NotRecomputed):
        epsilon(STEP_FORM, 1e-5, "add_or_remove_one")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", -0.5),
        ("epsilon", math.nan),
        ("epsilon", math.inf),
        ("epsilon", False),
        ("epsilon", "0"),
        ("delta", -9.999e-6),
        ("delta", math.nan),
        ("delta", 1.0),
    ],
)
def test_charges_for_repeats_lower_no_claim(
    searched: tuple[dict[str, Any], dict[str, Any]], name: str, value: Any
) -> None:
    """The page agreed with a negative charge, and delta was not looked at."""
    price, report = copy.deepcopy(searched)
    price["repeats"][name] = value
    if not isinstance(value, str):
        report["facts"][f"honest_{name}"]["value"] += value
    assert codes(exit_codes_and_sentences_on_price(price, report)) == {FAILS}


def test_a_delta_for_repeats_alone_is_not_recomputed(searched: tuple[dict[str, Any], dict[str, Any]]) -> None:
    price, report = copy.deepcopy(searched)
    price["repeats"]["delta"] = 1e-6
    report["facts"]["honest_delta"]["value"] += 1e-6
    assert codes(exit_codes_and_sentences_on_price(price, report)) == {HOLDS, NOT_RECOMPUTED}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep with its release."""
    made = make(tmp_path_factory.mktemp("released"), Recipe(axes=AXES))
    write_release(made.folder, made.ledger)
    return made.folder


@pytest.fixture
def release(released: Path, tmp_path: Path) -> Path:
    """A copy of a release's folder."""
    return Path(shutil.copytree(released / "release", tmp_path / "release"))


BARE = """
import runpy, sys
for name in ("dpsweep", "scipy", "pandas", "torch", "accounting"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(program: Path, *arguments: Path) -> subprocess.CompletedProcess[str]:
    """Runs the shipped program where only Python and numpy can be imported."""
    command = [sys.executable, "-I", "-c", BARE, str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=program.parent)


def test_a_release_carries_the_program_and_holds(release: Path) -> None:
    program = release / "price_check.py"
    assert program.read_text().startswith(PROGRAM_HEAD)
    assert {name.partition(".")[0] for name in imported(program.read_text())} <= MAY_IMPORT
    for arguments in ((), (release,)):
        done = run(program, *arguments)
        assert (done.returncode, done.stderr) == (HOLDS, "")
        lines = [line.partition(":")[0] for line in done.stdout.splitlines()]
        assert lines == ["training", "validation", "total variation"]


@pytest.mark.parametrize("change", sorted(TAMPERED.keys() - {"sampling", "accountant"}))
def test_a_tampered_release_fails(release: Path, change: str) -> None:
    price = json.loads((release / "price.json").read_text())
    TAMPERED[change](price)
    (release / "price.json").write_text(json.dumps(price))
    assert main([str(release)]) == FAILS


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 1}', '{"version": 2, "repeats": {}, "delta": 1e-5, "adjacency": "replace_one"}'],
)
def test_a_damaged_file_is_named(release: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (release / "price.json").write_text(text)
    assert main([str(release)]) == UNREADABLE
    assert "price.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("leaf", "field", "value"),
    [
        ("step", "count", -5),
        ("sampling", "sampling_probability", 1.5),
        ("sampling", "sampling_probability", 0.0),
        ("noise", "noise_multiplier", float("nan")),
        ("noise", "noise_multiplier", float("inf")),
        ("noise", "noise_multiplier", -3.0),
        ("noise", "noise_multiplier", "much"),
    ],
)
def test_numbers_out_of_range_never_hold(
    searched: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path, leaf: str, field: str, value: object
) -> None:
    price, report = copy.deepcopy(searched)
    step = step_of(price)
    {"step": step, "sampling": step["event"], "noise": step["event"]["event"]}[leaf][field] = value
    for name, form in (("price", price), ("report", report)):
        (tmp_path / f"{name}.json").write_text(json.dumps(form))
    assert main([str(tmp_path)]) != HOLDS
