"""The papers' numbers come out of the accountants; those that are no bounds stay out of every price."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.reports.reproduction import gaussian_limit as history
from dpsweep.reports.reproduction import honest_tuning, one_run
from dpsweep.reports.reproduction.honest_tuning import (
    OPTIMIZERS,
    crossing_number_of_candidates,
    epsilons_of_figure_1_stopping,
    rows_of_figure_1_blow_up,
    rows_of_figure_9,
    rows_of_table_3,
)
from dpsweep.reports.reproduction.one_run import (
    SamplerRow,
    epsilon_rows_by_sampler,
    epsilon_rows_of_truncated_sampling,
    row_of_lecture_theorem,
    rows_comparing_accountants_by_noise,
)

ROOT = Path(__file__).parents[3]

PROPOSITION_E3 = {3.6: 8.133, 2.0: 16.196, 1.2: 30.88}
GAUSSIAN_LIMIT = {3.6: 1.557, 2.0: 3.164, 1.2: 6.583}
FORCED = {3.6: 3.690, 2.0: 9.402, 1.2: 33.89}
"""The most that attacks on fixed-size batches force under replacement: an independent calculation."""


@pytest.mark.parametrize("noise_multiplier", PROPOSITION_E3)
def test_proposition_e3_with_its_own_constants(noise_multiplier: float) -> None:
    value = history.dp_sgd_epsilon_by_closed_renyi_formula(
        sample_rate=0.02, noise_multiplier=noise_multiplier, steps=5000, delta=1e-5
    )
    assert value == pytest.approx(PROPOSITION_E3[noise_multiplier], abs=1e-2)


def test_proposition_e3_contradicts_an_attack() -> None:
    value = history.dp_sgd_epsilon_by_closed_renyi_formula(
        sample_rate=0.02, noise_multiplier=1.2, steps=5000, delta=1e-5
    )
    assert value < FORCED[1.2]


def test_proposition_e3_keeps_to_its_orders() -> None:
    """At sigma .6 orders end at .18 * 3.91 < 1: there is no admissible one; at .8 the last one is taken."""
    settings = {"sample_rate": 0.02, "steps": 100, "delta": 1e-5}
    assert history.dp_sgd_epsilon_by_closed_renyi_formula(noise_multiplier=0.6, **settings) == math.inf
    last = 0.32 * math.log(50)
    bounded = 7 * 100 * 0.02**2 * last / 0.64 + math.log(1e5) / (last - 1)
    assert history.dp_sgd_epsilon_by_closed_renyi_formula(noise_multiplier=0.8, **settings) == pytest.approx(bounded)


@pytest.mark.parametrize("noise_multiplier", GAUSSIAN_LIMIT)
def test_the_gaussian_limit_lies_below_the_truth(noise_multiplier: float) -> None:
    value = history.dp_sgd_epsilon_by_gaussian_limit(
        sample_rate=0.02, noise_multiplier=noise_multiplier, steps=5000, delta=1e-5
    )
    assert value == pytest.approx(GAUSSIAN_LIMIT[noise_multiplier], abs=1e-3)


@pytest.mark.parametrize(
    "quoted",
    [history.dp_sgd_epsilon_by_closed_renyi_formula, history.dp_sgd_epsilon_by_gaussian_limit],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize(
    "wrong",
    [{"sample_rate": 0.0}, {"sample_rate": 1.0}, {"noise_multiplier": 0.0}, {"steps": 0}, {"delta": 0.0}],
)
def test_history_refuses_what_makes_no_sense(quoted, wrong: dict[str, float]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=f"Expected .*{next(iter(wrong))}="):
        quoted(**({"sample_rate": 0.02, "noise_multiplier": 1.0, "steps": 10, "delta": 1e-5} | wrong))


def test_what_is_no_bound_is_no_accountant() -> None:
    public = [one for name, one in vars(history).items() if not name.startswith("_") and inspect.isclass(one)]
    assert not any(hasattr(one, "epsilon") and hasattr(one, "lower") for one in public)
    assert not any(isinstance(node, ast.ClassDef) for node in ast.walk(ast.parse(inspect.getsource(history))))


def test_what_is_no_bound_is_never_charged() -> None:
    """Only the papers' tables read it: no accountant or rule, no trainer, no report, no sweep, no configuration."""
    sources = [path for package in ("accounting", "trainers", "reports") for path in (ROOT / package).rglob("*.py")]
    decisive = [*(ROOT / "conf").rglob("*.yaml"), *(ROOT / "sweeper").rglob("*.py")]
    quoted = ("dpsweep.reports.reproduction.gaussian_limit", "import history", "proposition_e3", "gaussian_limit")
    assert naming(sources, quoted) == {
        "reports/reproduction/gaussian_limit.py",
        "reports/reproduction/one_run.py",
    }
    assert naming(decisive, (*quoted, "import one_run", "dpsweep.reports.reproduction.one_run")) == set()


def naming(paths: Iterable[Path], words: tuple[str, ...]) -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in paths if any(word in path.read_text() for word in words)}


def test_one_run_under_every_accountant() -> None:
    golden = {3.6: (2.021, 1.7121, 1.5687), 2.0: (3.969, 3.4834, 3.2088), 1.2: (8.063, 7.3175, 6.7561)}
    rows = rows_comparing_accountants_by_noise()
    assert [row.noise_multiplier for row in rows] == list(golden)
    for row in rows:
        mironov, improved, exact = golden[row.noise_multiplier]
        assert row.mironov == pytest.approx(mironov, abs=2e-3)
        assert row.mironov == pytest.approx(row.printed, abs=0.07), "the paper's own number"
        assert row.improved == pytest.approx(improved, abs=3e-3)
        assert row.distribution == pytest.approx(exact, rel=1e-3)
        assert row.limit < exact < row.distribution + 1e-3 < row.improved < row.mironov < row.classical
        assert row.grid > 7 * row.distribution
    assert [row.grid for row in rows] == pytest.approx([12.35, 28.25, 69.34], rel=1e-3)


@pytest.fixture(scope="module")
def samplers() -> tuple[SamplerRow, ...]:
    return epsilon_rows_by_sampler()


def test_every_sampler_has_its_own_price(samplers: tuple[SamplerRow, ...]) -> None:
    golden = [
        (1.569, 3.209, 6.756),
        (3.317, 6.591, 12.694),
        (4.414, 12.153, 43.85),
        (9.018, 20.99, 74.05),
        (8.133, 16.196, 30.88),
        (1.557, 3.163, 6.588),
        (15.10, 33.10, 69.46),
    ]
    for row, expected in zip(samplers, golden, strict=True):
        assert row.epsilons == pytest.approx(expected, rel=1.5e-3), row
    assert [row.sampler for row in samplers if not row.proven] == ["fixed size without replacement"]


@pytest.mark.long
def test_truncation_costs_nothing_that_shows_at_a_seventh_above_the_batch() -> None:
    golden = [(2.181, 4.554, 11.76), (1.579, 3.233, 6.923), (1.5688, 3.209, 6.756)]
    for row, expected in zip(epsilon_rows_of_truncated_sampling(), golden, strict=True):
        assert row.proven
        assert row.epsilons == pytest.approx(expected, rel=1.5e-3), row


def test_what_is_proven_of_fixed_size_batches_is_above_the_attack(samplers: tuple[SamplerRow, ...]) -> None:
    fixed = [row for row in samplers if row.sampler == "fixed size without replacement"]
    assert {row.adjacency for row in fixed} == {Adjacency.REPLACE_ONE}
    for row in fixed:
        assert row.forced == pytest.approx(list(FORCED.values()), rel=5e-3)
        assert all(forced <= most for forced, most in zip(row.forced, FORCED.values(), strict=True))
        for forced in (row.forced, FORCED.values()):
            assert all(upper >= lower for upper, lower in zip(row.epsilons, forced, strict=True)) is row.proven


def test_no_sampler_is_charged_less_than_an_attack_forces(samplers: tuple[SamplerRow, ...]) -> None:
    for row in samplers:
        if row.proven:
            assert all(0 < forced <= epsilon for forced, epsilon in zip(row.forced, row.epsilons, strict=True)), row


def test_the_gaussian_limit_contradicts_an_attack(samplers: tuple[SamplerRow, ...]) -> None:
    forced = next(row.forced for row in samplers if row.sampler == "Poisson" and row.adjacency is one_run.ADD)
    assert all(limit < least for limit, least in zip(GAUSSIAN_LIMIT.values(), forced, strict=True))


def test_the_lectures_theorem_is_a_teaching_bound() -> None:
    row = row_of_lecture_theorem()
    assert row.noise_multiplier == pytest.approx(245.81, abs=0.01)
    assert row.neighbours == pytest.approx(0.0216, abs=1e-4)
    assert row.promised / row.neighbours == pytest.approx(46, abs=0.5)
    assert 0.0214 < row.forced < row.neighbours < row.bound < row.promised / 10


def test_table_3() -> None:
    rows = rows_of_table_3()
    assert len(rows) == 12
    assert {row.optimizer for row in rows} == set(OPTIMIZERS)
    for row in rows:
        assert row.epsilon == pytest.approx(row.printed, abs=0.02), row


def test_figure_9() -> None:
    small, large = rows_of_figure_9(5000), rows_of_figure_9(60_000)
    assert crossing_number_of_candidates(small) == 14
    assert crossing_number_of_candidates(large) == 26
    for rows in (small, large):
        assert len(rows) == 40
        assert rows[-1].composition / rows[0].composition > 6
        assert rows[-1].random_stopping / rows[0].random_stopping < 1.12, "almost constant"


def test_a_crossing_before_the_first_row_is_0() -> None:
    assert crossing_number_of_candidates([]) == 0
    row = honest_tuning.CandidatesRow(candidates=1, composition=2.0, random_stopping=1.0)
    assert crossing_number_of_candidates([row]) == 0


def test_figure_1_left() -> None:
    rows = rows_of_figure_1_blow_up((10_000, 100_000, 1_000_000))
    assert [row.ratio for row in rows] == pytest.approx([4.75, 4.86, 7.31], abs=0.01)


def test_figure_1_middle() -> None:
    for prices in epsilons_of_figure_1_stopping((5000, 60_000), (1.0, 0.1, 0.01, 0.001)).values():
        assert list(prices) == sorted(prices)
        assert prices[-1] / prices[0] < 1.22, "a thousand times as many tries"


def test_figure_1_right() -> None:
    rows = rows_of_figure_1_blow_up((1000, 5000, 10_000, 100_000, 1_000_000))
    assert [row.candidates for row in rows] == [6, 12, 16, 22, 136]
    for row, point in zip(rows[1:3], (rows_of_figure_9(5000), rows_of_figure_9(10_000)), strict=True):
        assert point[row.candidates - 1].composition <= row.random_stopping < point[row.candidates].composition


def test_the_paper_settings_are_the_papers() -> None:
    assert (one_run.RATE, one_run.STEPS) == (0.02, 5000)
    assert (max(honest_tuning.ORDERS), honest_tuning.MOMENTS.conversion) == (512, "mironov")
